"""Who works on a run at present, found out without keeping anybody from it."""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from ptx.store import files


def holder(directory: Path) -> str | None:
    """The process that has the run's lock, in words; None where nobody has it.

    A process of another host counts, as it cannot be seen from here. The lock itself is tried only where its process
    is alive, so that a look never keeps a run from starting.
    """
    path = directory / files.LOCK
    try:
        found = files.read_json(path)
        host, pid = found["host"], int(found["pid"])
        if host != socket.gethostname():
            return f"process {pid} on {host}, which cannot be seen from here"
        if pid < 1:
            return None
        with suppress(PermissionError):  # alive, of another user
            os.kill(pid, 0)
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"process {pid} on {host}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):  # no lock, an empty one, a dead process
        return None
    return None
