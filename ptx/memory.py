"""Memory a run needs, compared with what there is before it starts."""

import os
from pathlib import Path
from typing import Any

import jax


def require_memory(
    programs: list[jax.stages.Compiled], num_workers: int, kept_bytes: int, device: Any
) -> None:
    """Refuse a run that cannot fit.

    The device holds arguments and, for each chain that runs at the same time, the outputs and temporaries of its
    largest program, as XLA reports them; the host holds every kept draw and the history.

    Raises:
        MemoryError: with the bytes needed and available.
    """
    analyses = [program.memory_analysis() for program in programs]
    per_chain = max(
        (a.temp_size_in_bytes + a.output_size_in_bytes for a in analyses if a is not None), default=0
    )
    arguments = max((a.argument_size_in_bytes for a in analyses if a is not None), default=0)
    on_device = arguments + num_workers * per_chain
    device_free = device_available(device)
    shares_host = device.platform == "cpu"
    on_host = kept_bytes + (on_device if shares_host else 0)
    if on_host > host_available():
        raise MemoryError(
            f"the run needs about {_gib(on_host)} of host memory ({_gib(kept_bytes)} for draws and history, "
            f"{_gib(on_host - kept_bytes)} to compute), and {_gib(host_available())} is free; lower num_draws or "
            "num_chains, raise thin, or use a smaller batch_size"
        )
    if not shares_host and on_device > device_free:
        raise MemoryError(
            f"the run needs about {_gib(on_device)} on {device}, and {_gib(device_free)} is free; use a smaller "
            "batch_size, or chain_layout='loop'"
        )


def host_available() -> int:
    """Free host memory in bytes; a container's limit counts."""
    limits = [_container_limit()]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits)


def _container_limit() -> int:
    limit, usage = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and usage.exists() and limit.read_text().strip() != "max":
        return max(0, int(limit.read_text()) - int(usage.read_text()))
    return 2**63


def device_available(device: Any) -> int:
    """Free bytes on the device; without limit where it does not say."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else 2**63


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
