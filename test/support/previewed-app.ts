/** A server that needs nothing but node: `node app.js HOST PORT`. */
export const PREVIEWED_APP = `
const { createHash } = require('node:crypto');
const { createServer } = require('node:http');
const [, , host, port] = process.argv;
let content = Buffer.alloc(0);
let count = 0;
const listeners = new Set();
const server = createServer((request, response) => {
  if (request.url === '/upload') {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      content = Buffer.concat(pieces);
      response.end(createHash('sha256').update(content).digest('hex'));
    });
  } else if (request.url === '/download') {
    response.writeHead(200, { 'content-length': content.length }).end(content);
  } else if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = () => response.write('data: ' + ++count + '\\n\\n');
    listeners.add(send);
    request.on('close', () => listeners.delete(send));
    send();
  } else if (request.url === '/next') {
    for (const send of listeners) send();
    response.end();
  } else if (request.url === '/headers') response.end(JSON.stringify(request.headers));
  else response.end(request.headers.host + ' ' + request.socket.remoteAddress);
});
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = createHash('sha1').update(key).digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n' +
    'Sec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
  let held = Buffer.alloc(0);
  socket.on('data', (piece) => {
    held = Buffer.concat([held, piece]);
    for (;;) {
      if (held.length < 6) return;
      let length = held[1] & 127;
      let at = 2;
      if (length === 126) { length = held.readUInt16BE(2); at = 4; }
      if (held.length < at + 4 + length) return;
      const mask = held.subarray(at, at + 4);
      const text = held.subarray(at + 4, at + 4 + length).map((byte, index) => byte ^ mask[index & 3]);
      held = held.subarray(at + 4 + length);
      const head = length < 126 ? [129, length] : [129, 126, length >> 8, length & 255];
      socket.write(Buffer.concat([Buffer.from(head), text]));
    }
  });
  socket.on('error', () => undefined);
});
server.listen(Number(port), host);
`;
