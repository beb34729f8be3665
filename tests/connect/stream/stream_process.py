"""``acktrail run stream`` that kills itself at the moment of a micro-batch that the environment names."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, Final

from acktrail.cli.main import main
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import ExportRun
from acktrail_connect.stream import state_stream

DIES: Final = "ACKTRAIL_TEST_DIES"
MOMENTS: Final[dict[str, tuple[Any, str]]] = {
    "before its checkpoint": (ExportRun, "commit_written"),
    "before its commit": (state_stream, "written_records"),
    "before its ranges": (Tables, "commit_files"),
}
"""What the driver has done last by then: all is committed, and Spark does not know; data files are written and have no
name yet; records are committed, and their ranges are not copied. In an order in which each has a micro-batch to do."""


def _deadly(done: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> None:
        done(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return call


if __name__ == "__main__":
    if moment := os.environ.get(DIES):
        owner, name = MOMENTS[moment]
        setattr(owner, name, _deadly(getattr(owner, name)))
    main()
