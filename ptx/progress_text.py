"""The words of progress: a line for logs, a table for terminals."""

import math
from typing import TYPE_CHECKING, Any

from ptx.meter import Status

if TYPE_CHECKING:
    from rich.table import Table


def line(engine: Any, status: Status, rhats: dict[str, float], elapsed: float) -> str:
    """`NUTS sampling: step 1200/2000, 200/1000 draws, ...`; the lowest and highest value where chains differ."""
    parts = [f"{type(engine).__name__} {status.phase}"]
    if status.step:
        parts[0] += f": step {status.step}/{engine.num_steps}"
        parts.append(f"{status.num_draws}/{engine.num_draws} draws")
    parts += [f"step size {_range(status.step_size)}"] if status.step_size else []
    parts += [f"{status.loss_name} {_range(status.loss)}"] if status.loss else []
    parts += [f"{sum(status.bad)} {status.bad_name}"] if status.bad else []
    parts += [f"{sum(status.gradients_per_second):,.0f} gradients/s"] if status.gradients_per_second else []
    if status.step < engine.num_steps and status.seconds_left is not None:
        parts.append(f"ETA {duration(status.seconds_left)}")
    parts += [_worst(rhats)] if rhats else []
    parts.append(f"{duration(elapsed)} elapsed")
    return ", ".join(parts)


def table(engine: Any, status: Status, rhats: dict[str, float], num_draws: int, most_rows: int) -> "Table":
    """A row a chain, at most `most_rows`, in 80 columns; below it R-hat of each quantity."""
    from rich.table import Table

    done = f"step {status.step}/{engine.num_steps}, draw {status.num_draws}/{engine.num_draws} of each chain"
    found = Table(
        title=f"{type(engine).__name__}: {done}",
        caption=_caption(engine, rhats, num_draws, most_rows),
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    columns = _columns(engine, status)
    for name in columns:
        found.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
    for chain in range(min(most_rows, engine.num_chains)):
        found.add_row(*(values[chain] for values in columns.values()))
    return found


def _columns(engine: Any, status: Status) -> dict[str, list[str]]:
    """Cells by heading, an entry a chain."""
    count = engine.num_chains
    left = "n/a" if status.seconds_left is None else duration(status.seconds_left)
    columns = {
        "chain": [str(chain) for chain in range(count)],
        "phase": [status.phase] * count,
        "step": [str(status.step)] * count,
        "draws": [str(status.num_draws)] * count,
    }
    if status.step_size:
        columns["step size"] = [_number(value) for value in status.step_size]
    if status.loss:
        columns[status.loss_name] = [_number(value) for value in status.loss]
    if status.bad:
        heading = {"divergences": "diverg."}.get(status.bad_name, status.bad_name)
        columns[heading] = [str(value) for value in status.bad]
    if engine.gradients_per_step:
        speeds = status.gradients_per_second
        columns["grad/s"] = [f"{value:,.0f}" for value in speeds] or ["n/a"] * count
    return columns | {"ETA": [left] * count}


def _caption(engine: Any, rhats: dict[str, float], num_draws: int, most_rows: int) -> str | None:
    hidden = engine.num_chains - most_rows
    parts = [f"and {hidden} chains more"] if hidden > 0 else []
    if rhats:
        numbers = ", ".join(f"{name} {rhat_text(value)}" for name, value in rhats.items())
        parts.append(f"R-hat of {num_draws} draws a chain: {numbers}")
    return "\n".join(parts) or None


def _worst(rhats: dict[str, float]) -> str:
    """The largest R-hat and whose it is; one that is not there is worse than any."""
    name = max(rhats, key=lambda name: math.inf if math.isnan(rhats[name]) else rhats[name])
    return f"R-hat {rhat_text(rhats[name])} ({name})"


def rhat_text(value: float) -> str:
    """Three decimals, rounded up so that nothing seems to pass that does not; `n/a` where there is none."""
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else "inf"
    return f"{math.ceil(value * 1000) / 1000:.3f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as 1:02:03, or 2:03."""
    if not math.isfinite(seconds):
        return "n/a"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _range(values: tuple[float, ...]) -> str:
    low, high = _number(min(values)), _number(max(values))
    if any(math.isnan(value) for value in values):
        return "nan"
    return low if low == high else f"{low} to {high}"
