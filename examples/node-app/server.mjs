// A development server: the page, and server-sent events that tell it when its file has changed.
import { readFileSync, watch } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const directory = dirname(fileURLToPath(import.meta.url));
const open = new Set();
watch(directory, () => {
  for (const response of open) response.write('data: changed\n\n');
});

createServer((request, response) => {
  if (request.url === '/changes') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(': watching\n\n');
    open.add(response);
    response.on('close', () => open.delete(response));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
  response.end(readFileSync(join(directory, 'index.html')));
}).listen(5173, '127.0.0.1', () => console.log('serving at port 5173'));
