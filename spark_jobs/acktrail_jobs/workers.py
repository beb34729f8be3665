"""Who works on the shares of a job: this process where they are small, else Spark's Python workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import pyarrow as pa

from acktrail.config import driver_rows, environment, java_home
from acktrail.errors import MissingDependency

__all__ = ["Here", "Work", "Workers", "workers"]

Work = Callable[[Any], Iterator[pa.RecordBatch]]
"""Takes a share, gives rows of ``PARCELS``."""

_LOCAL: Final = re.compile(r"local(\[.*\])?")
_ELSEWHERE: Final = frozenset({"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"})
"""Variables that say where Spark is: a Spark Connect server, or what ``spark-submit`` started."""


class Workers(Protocol):
    """Work on shares, whoever does it: the same work gives the same parcels."""

    @property
    def count(self) -> int:
        """How many shares are worked on at once."""

    @property
    def are_here(self) -> bool:
        """Whether work is done in this process, with the objects that it has."""

    def parcels(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives of all `shares`, in their order."""


class Here:
    """This process, one share after the other. No Spark is started."""

    count: int = 1
    are_here: bool = True

    def parcels(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives of all `shares`, in their order."""
        for share in shares:
            yield from work(share)


@contextmanager
def workers(master: str | None, rows: int) -> Iterator[Workers]:
    """Workers for about so many `rows` (records to read, and share partitions to go on from).

    This process, where they are no more than ACKTRAIL_DRIVER_ROWS and Spark would run on threads of this machine;
    else a Spark session: the one that runs, or a new one on `master` that ends with the block.

    Raises:
        ConfigurationError: ACKTRAIL_DRIVER_ROWS is no number.
        MissingDependency: no Java that runs Spark; here, JAVA_HOME names a folder without one: it is found while little
            is at stake, not with the first large input.
    """
    if rows <= driver_rows() and _is_local(master):
        _refuse_wrong_java_home()
        yield Here()
        return
    from acktrail_jobs.spark_workers import SparkWorkers, spark_session

    with spark_session(master) as session:
        yield SparkWorkers(session)


def _refuse_wrong_java_home() -> None:
    home = java_home()
    if home is not None and not (home / "bin" / "java").exists():
        raise MissingDependency(
            f"JAVA_HOME names {home}, where there is no Java that runs Spark", hint="correct JAVA_HOME, or unset it"
        )


def _is_local(master: str | None) -> bool:
    if _runs_spark():
        return False
    if master is None:
        return not _ELSEWHERE & environment().keys()
    return _LOCAL.fullmatch(master) is not None


def _runs_spark() -> bool:
    if "pyspark.sql" not in sys.modules:
        return False
    from acktrail_jobs.session import running_session

    return running_session() is not None
