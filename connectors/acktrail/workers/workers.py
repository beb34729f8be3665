"""Who works on the shares of a job: the protocol, and this process. Spark's workers are in ``acktrail_jobs``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["InProcessWorkers", "OpenWorkers", "Work", "Workers"]

Work = Callable[[Any], Iterator[pa.RecordBatch]]
"""Takes a share, gives rows of ``worker_results.PARCELS_ARROW``. Pickled where workers are other processes."""


class Workers(Protocol):
    """Work on shares. All implementations give the same results for the same work."""

    @property
    def count(self) -> int:
        """How many shares are worked on at once."""

    @property
    def in_this_process(self) -> bool:
        """Whether work is done here, with the objects that this process has."""

    def run(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives for all `shares`, in their order."""


OpenWorkers = Callable[[int], AbstractContextManager[Workers]]
"""Opens workers, for a ``with`` block, for a job that reads about that number of rows (records and saved states)."""


class InProcessWorkers:
    """This process, one share after the other."""

    count: int = 1
    in_this_process: bool = True

    def run(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives for all `shares`, in their order."""
        for share in shares:
            yield from work(share)
