"""Asks a daemon for its health every 20 ms, in a process of its own: ``prober.py SOCKET``.

Prints one line per answer until it is told to end: monotonic seconds and how long it took.
"""

from __future__ import annotations

import socket
import sys
import time

EVERY_S = 0.02
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
END = b"}\n"
"""Of the answer's body."""


def main() -> None:
    """Ask for ever."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(sys.argv[1])
        while True:
            began, got = time.monotonic(), b""
            wire.sendall(ASK)
            while not got.endswith(END):
                data = wire.recv(65536)
                if not data:
                    return
                got += data
            took = time.monotonic() - began
            sys.stdout.write(f"{began:.6f} {took:.6f}\n")
            sys.stdout.flush()
            time.sleep(max(0.0, EVERY_S - took))


if __name__ == "__main__":
    main()
