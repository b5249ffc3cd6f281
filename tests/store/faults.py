"""Operations on files that fail: at the n-th one the process dies, crashes or finds the disk full."""

import errno
import os
import signal
from contextlib import contextmanager

from ptx.store import files


class Crash(BaseException):
    """The process is gone."""


class Operations:
    """Stands for the module `os` in `ptx.store.files`, and calls `fail` in the middle of one operation.

    Counted are writes of a file (half of the bytes arrive), removals, and openings of the event log and of the lock: a
    move to the final name either comes before the next of them or is as if the write had failed. `synced=False` leaves
    out fsync, which takes time and which no process sees.
    """

    def __init__(self, at=None, fail=None, forever=True, synced=False):
        self.at, self.fail, self.forever, self.synced = at, fail, forever, synced
        self.count = 0

    def __getattr__(self, name):
        return getattr(os, name)

    def operation(self, partly=lambda: None):
        here, self.count = self.count, self.count + 1
        if self.at is not None and (here == self.at or (self.forever and here > self.at)):
            partly()
            self.fail()

    def fdopen(self, handle, mode):
        return Written(os.fdopen(handle, mode), self)

    def fsync(self, handle):
        if self.synced:
            self.operation()
            os.fsync(handle)

    def unlink(self, path):
        if not os.path.basename(path).startswith(files.TEMPORARY):  # tidying up after a failure
            self.operation()
        os.unlink(path)

    def open(self, path, flags, mode=0o777):
        if flags & os.O_CREAT:
            self.operation()
        return os.open(path, flags, mode)


class Written:
    """A file of which half is written when the operation fails."""

    def __init__(self, file, operations):
        self.file, self.operations = file, operations

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, content):
        def half():
            self.file.write(content[: len(content) // 2])
            self.file.flush()

        self.operations.operation(half)
        self.file.write(content)

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()


@contextmanager
def operations(at=None, fail=None, **options):
    """Within it the `at`-th operation fails, and all after it unless `forever=False`."""
    before, counted = files.os, Operations(at, fail, **options)
    files.os = counted
    try:
        yield counted
    finally:
        files.os = before


def crash():
    """As if the process died here; only what is on disk is left."""
    raise Crash


def kill():
    """No cleaning up of any kind."""
    os.kill(os.getpid(), signal.SIGKILL)


def no_space():
    """The disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
