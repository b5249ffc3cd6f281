"""Progress that a person can read, and interrupts that lose nothing."""

import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np

from ptx.live import Live
from ptx.meter import Meter, Status
from ptx.progress_text import line, table
from ptx.target import Target

LINE_SECONDS = 5.0  # between two lines
TABLE_SECONDS = 0.5  # between two looks of the table

Rows = dict[str, np.ndarray]


class Show(Protocol):
    """Called at every phase and after every chunk of steps."""

    def __call__(
        self, phase: str, step: int, history: Rows, positions: Rows | None = None, num_draws: int = 0
    ) -> None:
        """The phase; steps done; the chunk's info (chain, step), kept positions (chain, draw, ...); draws so far."""
        ...


@contextmanager
def display(engine: Any, enabled: bool, target: Target) -> Iterator[Show]:
    """`show(phase, step, history, positions, num_draws)`, to be called at every phase and after every chunk of steps.

    On a terminal, and in Jupyter, a table with a row a chain; elsewhere a line at most every five seconds, and the
    last. Both go to standard error. Nothing where `enabled` is False or the environment variable CI is set.
    """
    if not enabled or os.environ.get("CI"):
        yield lambda phase, step, history, positions=None, num_draws=0: None
        return
    meter, live = Meter(engine), Live(engine, target)
    with (_tabled if _has_screen() else _lined)(engine, live) as write:

        def show(
            phase: str, step: int, history: Rows, positions: Rows | None = None, num_draws: int = 0
        ) -> None:
            count = next((values.shape[1] for values in history.values()), 0)
            live.update(step - count, history, positions or {}, num_draws)
            write(meter.update(phase, step, history, positions or {}, num_draws))

        yield show


def _has_screen() -> bool:
    """Whether standard error is a terminal that can redraw, or this is a notebook that can."""
    if sys.stderr is None:
        return False
    if sys.stderr.isatty():
        return os.environ.get("TERM") not in ("dumb", "unknown")
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter and importlib.util.find_spec("ipywidgets") is not None


@contextmanager
def _tabled(engine: Any, live: Live) -> Iterator[Any]:
    """Redraw one table in place."""
    from rich.console import Console
    from rich.live import Live as Screen

    console = Console(stderr=True)
    drawn, latest = -np.inf, Status("")
    has_stdout = sys.stdout is not None and sys.stdout.isatty()  # what goes to a file stays there

    def draw() -> None:
        nonlocal drawn
        drawn = time.monotonic()
        most = max(1, console.height - 5)
        with suppress(OSError, ValueError):  # a terminal that went away must not end the run
            screen.update(table(engine, latest, live.rhats(), live.num_draws, most), refresh=True)

    def write(status: Status) -> None:
        nonlocal latest
        is_new, latest = status.phase != latest.phase, status
        if is_new or time.monotonic() - drawn >= TABLE_SECONDS:
            draw()

    with Screen(console=console, auto_refresh=False, redirect_stdout=has_stdout) as screen:
        try:
            yield write
        finally:
            draw()


@contextmanager
def _lined(engine: Any, live: Live) -> Iterator[Any]:
    """Write a line every few seconds, and the last; that a run compiles is said when it takes longer than that."""
    begun, written, latest, is_shown = time.monotonic(), -np.inf, Status("compiling"), True

    def put() -> None:
        nonlocal written, is_shown
        written, is_shown = time.monotonic(), True
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # a closed pipe must not end the run
                print(line(engine, latest, live.rhats(), written - begun), file=sys.stderr, flush=True)

    def write(status: Status) -> None:
        nonlocal latest, is_shown
        latest = status
        if status.phase != "compiling":
            timer.cancel()
            is_shown = False
            if time.monotonic() - written >= LINE_SECONDS:
                put()

    timer = threading.Timer(LINE_SECONDS, put)
    timer.daemon = True
    timer.start()
    try:
        yield write
    finally:
        timer.cancel()
        if not is_shown:
            put()


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Within it the first Ctrl-C or SIGTERM sets the event, so that the run can end after its chunk; the second raises
    KeyboardInterrupt at once.

    Python delivers signals to the main thread alone; elsewhere the event is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
