"""A page that counts its visits. Listens on the loopback alone: previews reach it all the same."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

visits = 0


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        body = f"<!doctype html><title>web</title><h1>visit {visits}</h1>\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


print("serving at port 8000", flush=True)
ThreadingHTTPServer(("127.0.0.1", 8000), Page).serve_forever()
