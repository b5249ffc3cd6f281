"""Files that are whole or not there: written beside their place, synced, moved; and the lock of a run directory."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEMPORARY = ".ptx-writing-"  # files whose name begins so are left-overs of a write that was cut off
MAX_JSON_BYTES = 64 * 2**20
LOCK = "lock"
SYNCS = 8  # at the same time


def write(path: Path, content: bytes) -> None:
    """Write a file that holds all of the content after any crash, or is as it was; see `write_all`."""
    write_all({path: content})


def write_all(contents: dict[Path, bytes]) -> None:
    """Write files each of which holds all of its content after any crash, or is as it was.

    Temporary file in the same directory, fsync, `os.replace`, fsync of the directory. Files are synced side by side:
    the system joins what waits at the same time, so that twenty take little longer than one.

    Raises:
        OSError: with path and bytes; the old file is untouched.
    """
    temporary: dict[Path, str] = {}
    path = next(iter(contents))
    try:
        directories = {each for path in contents for each in make_directory(path.parent)}
        for path, content in contents.items():
            handle, temporary[path] = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary[path], 0o666 & ~_umask())
        _sync(temporary.values())
        for path in contents:
            os.replace(temporary[path], path)
            del temporary[path]
        _sync(directories)
    except OSError as error:
        for name in temporary.values():
            remove(Path(name))
        raise failed(error, path, len(contents[path])) from error


def _sync(paths: Iterable[Path | str]) -> None:
    """Make files and names in directories durable."""
    if len(paths := list(paths)) == 1:
        return sync(paths[0])
    with ThreadPoolExecutor(SYNCS) as pool:
        list(pool.map(sync, paths))


def failed(error: OSError, path: Path, size: int) -> OSError:
    """The error with path and bytes, of the same kind."""
    reason = error.strerror or str(error)
    return OSError(error.errno, f"cannot write {size:,} bytes to {path}: {reason}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def remove(path: Path) -> None:
    """Remove a file, if that can be done."""
    with suppress(OSError):
        os.unlink(path)


def make_directory(path: Path) -> list[Path]:
    """Make the directory and those above it; return those in which names must be made durable."""
    new = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [path, *(each.parent for each in new)]


def sync(path: Path | str) -> None:
    """Make a file's content, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add one JSON line, after ending one that a crash cut off; not synced, and readers skip what is no JSON."""
    line = json.dumps(record, default=str).encode() + b"\n"
    try:
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "ab+") as file:
            size = file.seek(0, os.SEEK_END)
            ended = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
            file.write(line if ended else b"\n" + line)
    except OSError as error:
        raise failed(error, path, len(line)) from error


def sha256(content: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(content).hexdigest()


def read_json(path: Path) -> Any:
    """JSON of a bounded size.

    Raises:
        ValueError: too large, nested too deeply, not JSON. FileNotFoundError: missing.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError(f"{path}: not a file")
    if size > MAX_JSON_BYTES:
        raise ValueError(
            f"{path}: {size:,} bytes, and at most {MAX_JSON_BYTES:,} are read; this is no file of ptx"
        )
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error


def require_inside(directory: Path, names: tuple[str, ...]) -> None:
    """Refuse a run in which a directory is a link: what is written there could lie anywhere.

    Raises:
        ValueError: with the link.
    """
    for name in names:
        for place, inner, _ in os.walk(directory / name):
            for path in (Path(place), *(Path(place) / each for each in inner)):
                if path.is_symlink():
                    raise ValueError(f"{path}: a link, and ptx makes none; put the directory itself there")


def remove_leftovers(directory: Path) -> None:
    """Remove what an interrupted `write` left; nothing else is ever removed."""
    for path in directory.rglob(f"{TEMPORARY}*"):
        remove(path)


def require_space(directory: Path, needed: int) -> None:
    """Refuse a run whose files cannot fit.

    Raises:
        OSError: with the bytes needed and free.
    """
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"the run needs about {needed:,} bytes in {directory}, and {free:,} are free; make room, lower num_draws "
            "or num_chains, or raise thin",
        )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, a file with host and process that the system frees when the process ends.

    A lock left by a dead process of this host is taken over. One that names another host may be alive where this host
    cannot see it, so it is refused; the message says which file to delete.

    Raises:
        BlockingIOError: another process, or another run in this one, has it.
        OSError: the directory cannot be made or written.
    """
    path = directory / LOCK
    try:
        _sync(make_directory(directory))
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)  # it will be emptied
    except OSError as error:
        raise failed(error, path, 0) from error
    try:
        holder = _holder(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
            raise BlockingIOError(
                error.errno, f"{directory} is in use by {who}; wait for it, or stop it"
            ) from error
        holder = _holder(handle)
        if holder and holder.get("host") != socket.gethostname():
            raise BlockingIOError(
                errno.EWOULDBLOCK,
                f"{directory} was last held by process {holder.get('pid')} on {holder.get('host')}, which this host "
                f"cannot see; if it is gone, delete {path}",
            )
        _hold(handle, {"host": socket.gethostname(), "pid": os.getpid()})
        try:
            yield
        finally:
            _hold(handle, {})
    finally:
        os.close(handle)


def _holder(handle: int) -> dict[str, Any]:
    """Who wrote the lock last; empty after a clean end, or where it cannot be read."""
    content = os.pread(handle, 4096, 0)
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _hold(handle: int, holder: dict[str, Any]) -> None:
    content = json.dumps(holder).encode() if holder else b""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, content, 0)
    except OSError:  # a full disk: the lock itself still holds
        return
