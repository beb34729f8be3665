"""What the storage's native library prints by itself, kept from people: its panics stand before the error that says
the same in one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STDERR: Final = 2
_PANIC: Final = re.compile(
    rb"\n?thread '[^'\n]*'(?: \(\d+\))? panicked at [^\n]*\n.*?"
    rb"(?:note: (?:run with|Some details)[^\n]*(?:\n|\Z)|\Z)",
    re.DOTALL,
)
_one_at_a_time: Final = threading.Lock()


@contextmanager
def without_panics() -> Iterator[None]:
    """Within the block nothing reaches stderr; after it everything does but the text of panics. File descriptor 2 is
    the whole process's. Where another thread is in such a block, or there is no stderr, nothing is kept back."""
    if not _one_at_a_time.acquire(blocking=False):
        yield
        return
    with contextlib.ExitStack() as after:
        after.callback(_one_at_a_time.release)
        try:
            own = os.dup(_STDERR)
        except OSError:
            yield
            return
        after.callback(os.close, own)
        memory = os.memfd_create("acktrail-stderr")
        after.callback(os.close, memory)
        _flush()
        os.dup2(memory, _STDERR)
        try:
            yield
        finally:
            _flush()
            os.dup2(own, _STDERR)
            text = os.pread(memory, os.fstat(memory).st_size, 0)
            with contextlib.suppress(OSError):
                os.write(_STDERR, _PANIC.sub(b"", text))


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
