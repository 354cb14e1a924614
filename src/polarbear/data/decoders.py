"""Processes that decode images: threads would take turns at Python's lock and fill one core.

Encoded images go to a process over a socket, pixels come back in memory that both sides see.
Processes begin when so many images were asked for that they are worth their start (a third of a
second), stay until this process ends, and end with it however it ends.
"""

import atexit
import logging
import mmap
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

import numpy as np

from polarbear.base.arrays import Pixels

log = logging.getLogger("polarbear")

WORTH_A_START = 2048  # images: threads decode them in about a second
MOST = 64

Work = Callable[..., Any]
"""What a process does: called with memory that both sides see and with what was sent."""


class Decoder:
    """A process that does what it is told, one thing after another."""

    def __init__(self) -> None:
        """Start it."""
        self._file = tempfile.TemporaryFile(dir=_in_memory())  # noqa: SIM115
        self._memory = _Memory(self._file.fileno())
        ours, theirs = socketpair()
        with theirs:
            handles = (theirs.fileno(), self._file.fileno())
            code = (
                f"import sys; sys.path[:] = {sys.path!r}; "
                f"from polarbear.data.decoders import serve; serve{handles}"
            )
            # Nothing here is anybody else's input, and a decoder has nothing to say.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C, and what a cluster sends, is for whoever asked
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        self._link = Connection(ours.detach())

    def do(self, work: Work, *given: Any) -> Any:
        """Return what ``work(memory, *given)`` gives there; OSError if the process has died."""
        try:
            self._link.send((work, given))
            return self._link.recv()
        except EOFError as error:
            raise OSError("a decoding process has ended") from error

    def shared(self, shape: tuple[int, ...]) -> Pixels:
        """Return the memory that both sides see, as an array of a shape."""
        return self._memory.array(shape, grow=True)

    def tell_to_end(self) -> None:
        """Let the process end, once it has done what it was told."""
        self._link.close()

    def close(self) -> None:
        """Wait for the end of the process."""
        self.tell_to_end()
        self._process.wait()
        self._file.close()


class Decoders:
    """Some processes, each of which works for one caller at a time."""

    def __init__(self, count: int) -> None:
        """Start them."""
        self._all = [Decoder() for _ in range(count)]
        self._idle: queue.SimpleQueue[Decoder | None] = queue.SimpleQueue()
        for one in self._all:
            self._idle.put(one)

    def do(self, work: Work, *given: Any, out: Pixels | None = None) -> Any:
        """Wait for a process and return what ``work(memory, *given)`` gives there.

        What it leaves in memory is copied to ``out``. None where the process has died, as it may
        where memory is short: its work is the caller's then, and so is all it would have had.
        """
        decoder = self._idle.get()
        try:
            if decoder is None:
                return None
            if out is None:
                return decoder.do(work, *given)
            shared = decoder.shared(out.shape)
            found = decoder.do(work, *given)
            out[:] = shared
            return found
        except OSError as error:
            log.warning("%s: threads do its work", error)
            decoder = None
            return None
        finally:
            self._idle.put(decoder)

    def close(self) -> None:
        """End them."""
        for one in self._all:  # all at once, then wait for each
            one.tell_to_end()
        for one in self._all:
            one.close()


_pools: dict[tuple[int, int], Decoders | None] = {}
_asked_for = 0


def decoders(count: int, images: int) -> Decoders | None:
    """Return processes for ``images`` more, or None while they are not worth it or cannot be.

    A process of a pool, such as a DataLoader's worker, has no others beside it.
    """
    global _asked_for
    _asked_for += images
    if count < 2 or _asked_for < WORTH_A_START or parent_process() is not None:
        return None
    if os.name != "posix":  # no handles can be passed on there
        return None
    key = (os.getpid(), min(count, MOST))  # a fork has none of its parent's
    if key not in _pools:
        _pools[key] = None
        with suppress(OSError):  # no processes or no memory for them: threads will do
            _pools[key] = Decoders(key[1])
    return _pools[key]


@atexit.register
def _end() -> None:
    for (process, _), pool in _pools.items():
        if pool is not None and process == os.getpid():
            pool.close()


def serve(socket: int, file: int) -> None:
    """Be a decoding process: do what comes until nobody is there any more."""
    link, memory = Connection(socket), _Memory(file)
    while True:
        try:
            work, given = link.recv()
            link.send(work(memory.array, *given))
        except (EOFError, OSError):
            return


class _Memory:
    """A file without a name, as an array on both sides."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._bytes: mmap.mmap | None = None

    def array(self, shape: tuple[int, ...], *, grow: bool = False) -> Pixels:
        size = int(np.prod(shape))
        if self._bytes is None or len(self._bytes) < size:
            if grow and os.fstat(self._file).st_size < size:
                _lengthen(self._file, size)
            self._bytes = mmap.mmap(self._file, 0)
        return np.frombuffer(self._bytes, np.uint8, size).reshape(shape)


def _lengthen(file: int, size: int) -> None:
    """Give a file room, or OSError: where there is none, whoever writes there would be killed."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


def _in_memory() -> str | None:
    """Return the folder of files that are never written to a disk, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
