"""Progress on a terminal, and interrupts that lose nothing."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Show = Callable[[str, int, dict[str, np.ndarray]], None]
_SHOWN = ("log_density", "elbo", "acceptance_rate", "step_size", "diverging", "nonfinite")


@contextmanager
def display(engine: Any, enabled: bool) -> Iterator[Show]:
    """A progress bar: `show(phase, step, history)` names the phase (compiling, sampling, ...), the step and the last
    chunk's mean acceptance, loss and the like, with the time that is left. Quiet where output is no terminal."""
    if not enabled:
        yield lambda phase, step, history: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, disable=not shown, transient=False) as bar:
        name = type(engine).__name__
        task = bar.add_task(name, total=engine.num_steps, detail="")

        def show(phase: str, step: int, history: dict[str, np.ndarray]) -> None:
            bar.update(task, description=f"{name}: {phase}", completed=step, detail=_detail(history))
            bar.refresh()

        yield show


def _detail(history: dict[str, np.ndarray]) -> str:
    parts = []
    for name in _SHOWN:
        if name in history and history[name].size:
            values = np.asarray(history[name], float)
            if values.dtype == float and name in ("diverging", "nonfinite"):
                parts.append(f"{name} {int(values.sum())}")
            else:
                parts.append(f"{name} {values[:, -100:].mean():.4g}")
    return ", ".join(parts)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Within it the first Ctrl-C sets the event, so that the run can end after its chunk; the second raises at once.

    Python delivers signals to the main thread alone; elsewhere the event is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
