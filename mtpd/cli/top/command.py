"""``mtpctl top``: the daemon as it is now, on a screen that follows it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from typing import TYPE_CHECKING, Final

import click
from rich.live import Live

from mtpd.cli.decode import decode
from mtpd.cli.following import ending_with_the_reader
from mtpd.cli.session import Session, connected
from mtpd.cli.signals import end_as_ctrl_c_does
from mtpd.cli.top.screen import moment_line, screen
from mtpd.cli.top.snapshot import snapshot
from mtpd.errors import MtpdError, UnreachableError
from mtpd.history_views import HistoryView
from mtpd.views import StatusView, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.client import Client
    from mtpd.cli.top.snapshot import TopView

__all__ = ["top"]

LATELY_S: Final = 600
"""Within which a reply counts as the latest one."""
STEP_S: Final = 10
BURST_S: Final = 1.0
"""However fast events come, the daemon is not asked more often than this."""
RECONNECT_S: Final = 2.0
LEAVE: Final = "q or Ctrl-C leaves"
_METRICS: Final = "decode_tps,acceptance,power_w,power_cap_w,edge_c,vram_used_bytes,busy_percent"


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    metavar="S",
    default=3.0,
    show_default=True,
    help="Seconds between two looks where no event comes.",
)
@click.option("--once", is_flag=True, help="Print one moment and end.")
@connected
def top(session: Session, *, interval: float, once: bool) -> None:
    """Show the daemon as it is now, until q or Ctrl-C: residency, depth, speed, card, queue.

    The screen changes with the daemon's events. Where the output is no terminal one line
    is printed per interval; --json prints one JSON object per line.
    """
    out = session.out
    if session.as_json or not out.is_terminal or out.is_dumb_terminal:
        with ending_with_the_reader(), contextlib.suppress(KeyboardInterrupt):
            _lines(session, interval, once=once)
    elif once:
        out.print(screen(_look(session.client)))
    else:
        _watch(session, interval)


def _look(client: Client) -> TopView:
    status = decode(StatusView, client.get("/status").data)
    reply = client.get("/history", {"metrics": _METRICS, "since_s": LATELY_S, "step_s": STEP_S})
    return snapshot(status, decode(HistoryView, reply.data))


def _lines(session: Session, interval: float, *, once: bool) -> None:
    """One line per moment; a daemon that is gone is waited for."""
    seen, lost = False, False
    while True:
        try:
            view = _look(session.client)
        except UnreachableError as error:
            if not seen:
                raise
            if not lost:
                session.err.print(f"{error} Waiting for it.", soft_wrap=True)
            lost = True
        else:
            seen, lost = True, False
            text = json.dumps(encode(view), ensure_ascii=False)
            click.echo(text if session.as_json else moment_line(view))
            sys.stdout.flush()
        if once:
            return
        time.sleep(interval)


def _watch(session: Session, interval: float) -> None:
    """The screen; what was on the terminal before is there again at the end."""
    view = _look(session.client)
    end_as_ctrl_c_does(signal.SIGTERM, signal.SIGHUP)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    events = threading.Thread(target=_wake, args=(session.client, writing), daemon=True)
    with contextlib.suppress(KeyboardInterrupt), _keys() as keys:
        shown = screen(view, foot=LEAVE)
        with Live(shown, console=session.out, screen=True, auto_refresh=False) as live:
            live.refresh()
            events.start()
            while _wait(keys, reading, interval):
                foot = LEAVE
                try:
                    view = _look(session.client)
                except MtpdError as error:
                    foot = f"{error} This was seen last. {LEAVE}"
                live.update(screen(view, foot=foot), refresh=True)


def _wake(client: Client, pipe: int) -> None:
    """Write a byte for every event; in a thread of its own, for as long as the program runs."""
    while True:
        with contextlib.suppress(MtpdError), client.events() as stream:
            for _event in stream:
                with contextlib.suppress(BlockingIOError):  # it is awake already
                    os.write(pipe, b"e")
        time.sleep(RECONNECT_S)


def _wait(keys: int | None, events: int, interval: float) -> bool:
    """Wait for an event or the interval; False where somebody wants to leave."""
    began = time.monotonic()
    until, woken = began + interval, False
    while (left := until - time.monotonic()) > 0:
        watched = [one for one in (keys, None if woken else events) if one is not None]
        ready, _, _ = select.select(watched, [], [], left)
        if keys in ready and keys is not None:
            typed = os.read(keys, 64)
            if not typed or b"q" in typed.lower():
                return False
        if events in ready:
            os.read(events, 4096)
            woken, until = True, min(until, began + BURST_S)
    return True


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """The keyboard, key by key and without echo; None where it is not a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        now = termios.tcgetattr(keyboard)
        now[6][termios.VSUSP] = b"\0"  # a stopped program would leave its screen behind
        termios.tcsetattr(keyboard, termios.TCSANOW, now)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
