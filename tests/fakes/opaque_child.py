"""A small HTTP server that is no llama-server: a process of its own, run by path.

``opaque_child.py --port N [--slow-file PATH] [--deaf]``. It answers /health with 200, or with
503 while PATH does not exist; every POST with what it got; and ends on SIGTERM unless deaf.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers with what was asked."""

    protocol_version = "HTTP/1.1"
    slow_file: Path | None = None

    def do_GET(self) -> None:
        ready = self.slow_file is None or self.slow_file.exists()
        self.reply(200 if ready else 503, {"status": "ok" if ready else "loading"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.reply(
            200,
            {
                "path": self.path,
                "body": body.decode("latin-1"),
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "env": dict(os.environ),
                "pid": os.getpid(),
            },
        )

    def reply(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        sys.stderr.write(f"{format % args}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slow-file", type=Path)
    parser.add_argument("--deaf", action="store_true")
    given = parser.parse_args()
    Handler.slow_file = given.slow_file
    signal.signal(signal.SIGTERM, signal.SIG_IGN if given.deaf else signal.SIG_DFL)
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
