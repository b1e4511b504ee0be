"""A WebSocket server of the standard library alone: sends every message back, until it is closed."""

import base64
import hashlib
import socketserver
import struct

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        headers = {}
        self.rfile.readline()
        while (line := self.rfile.readline().strip()):
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        key = headers.get(b"sec-websocket-key")
        if key is None:
            self.wfile.write(b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n")
            return
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\n\r\n"
        )
        while (frame := self.frame()) is not None:
            head, payload = frame
            if head & 0x0F == 8:
                self.send(head, payload)
                return
            self.send(0x8A if head & 0x0F == 9 else head, payload)

    def frame(self):
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        length = head[1] & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.rfile.read(8))
        if length > 1 << 20:
            return None
        mask = self.rfile.read(4)
        payload = self.rfile.read(length)
        return head[0], bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))

    def send(self, head, payload):
        size = len(payload)
        if size < 126:
            length = bytes([size])
        elif size < 1 << 16:
            length = b"\x7e" + struct.pack(">H", size)
        else:
            length = b"\x7f" + struct.pack(">Q", size)
        self.wfile.write(bytes([head]) + length + payload)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


print("echoing at port 8765", flush=True)
Server(("127.0.0.1", 8765), Echo).serve_forever()
