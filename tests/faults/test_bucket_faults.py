"""A worker that exports from a real broker into a real bucket, while broker, store and network fail. The bucket is of a
server that checks signatures; where it cannot be had, the tests are skipped with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from faults.conftest import Export, OpenExport, recent_runs, writing
from servers.s3_server import S3
from servers.workload import until

from acktrail.embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

COMMIT: Final = r"/state_records/_delta_log/\d{20}\.json"
FAULTS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("status", {"path": COMMIT, "code": 500, "times": 7}),
    ("status", {"path": r"\.parquet", "code": 503, "times": 5}),
    ("status", {"path": COMMIT, "code": 409, "times": 2}),
    ("status", {"path": "", "method": "GET", "code": 500, "times": 9}),
    ("status_after", {"path": COMMIT, "code": 500, "times": 1}),
    ("silence_after", {"path": COMMIT, "times": 1}),
    ("cut_before", {"path": COMMIT, "times": 4}),
    ("cut_after", {"path": COMMIT, "times": 4}),
    ("cut_after", {"path": "_delta_log", "method": "GET", "times": 3}),
    ("delay", {"path": COMMIT, "seconds": 0.5, "times": 1}),
]


@pytest.mark.full
def test_whatever_the_store_does(broker: EmbeddedBroker, s3: S3, export: OpenExport, counts: Any) -> None:
    """Refusals, slowness, lost responses, cut connections; the server killed before a commit reached it, and
    with one that it has stored and nobody confirmed; then two
    workers at once, without a lease, both of which get commits in. Every offset is in one row."""
    config = s3.bucket("faults", timeout="1s", max_retries="1")
    running: Export = _past_faults(export(config, worker={"lease": False}), s3)
    with writing(broker, rate=100) as writer:
        running.grows()
        for action, fault in FAULTS:
            s3.proxy.fail(action, **fault)
            until(lambda: s3.proxy.hits >= 1, what=f"{action}, {fault}")
            running.grows()
            assert s3.proxy.heal() >= 1
        for action in ("hold_before", "hold_after"):
            before = running.outages()[0]
            _die_in_mid_commit(s3, action)
            running.pauses(before)
            s3.start()
            running.grows()
        second = export(config, name="second", worker={"lease": False})
        until(lambda: len(recent_runs(running)) > 1, what="commits by both")
        s3.proxy.fail("status_after", COMMIT, code=503, times=5)
        until(lambda: s3.proxy.hits >= 5, what="five commits without a confirmation")
        s3.proxy.heal()
        running.grows()
    counts(written=writer.written, rows=running.complete(), faults=len(FAULTS) + 2)
    assert "Traceback" not in "\n".join([*running.worker.said, *second.worker.said])


def _past_faults(export: Export, s3: S3) -> Export:
    """The same export, its tables looked at without the faults that its worker meets."""
    return replace(export, tables=s3.direct(export.tables))


def _die_in_mid_commit(s3: S3, action: str) -> None:
    """Kill the store while a commit is in flight: before it arrived, or with its confirmation still to come."""
    s3.proxy.fail(action, COMMIT)
    until(lambda: s3.proxy.hits == 1, what="a commit in flight")
    s3.kill()
    s3.proxy.heal()
