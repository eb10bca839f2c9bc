"""Runs as the program trace_processor_shell, with the processor of the tests behind it."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from tests.support.perfetto_sql import HttpAnswers


def serve(port: int) -> None:
    """Answer the requests of the perfetto package until the process is ended."""
    answers = HttpAnswers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = answers.answer(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def do_POST(self) -> None:
            self.do_GET()

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[sys.argv.index("--http-port") + 1]))
