"""Tables on object storage, a server that checks signatures and rights, through a network that fails: the same commits,
and no commit at all where the storage cannot keep writers apart."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.own_process import finished
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import REGION, S3
from servers.workload import until

from acktrail.config import TablesConfig
from acktrail.errors import (
    AcktrailError,
    ConcurrentCommit,
    ConfigurationError,
    DamagedTables,
    OutcomeUnknown,
    RetryableError,
)
from acktrail.tables.delta import bucket
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.damage_report import find_damage
from acktrail.tables.records.export_ranges import EMPTY_COMMIT
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sinks.writer_lease import WorkerLease
from acktrail_connect.task_execution import FlushPolicy, TaskExecution

PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x07", b"")]
NOBODY = "http://127.0.0.1:9"
COMMIT = r"/state_records/_delta_log/\d{20}\.json"
READ = """
import json, os, sys
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.tables.delta.store import Tables
from acktrail_connect.sinks.writer_lease import WorkerLease
config = TablesConfig(uri=sys.argv[1], options=json.loads(sys.argv[2]))
for given in sys.argv[3:]:
    os.environ.update(variables := json.loads(given))
    try:
        print(Tables(config).read("state_records").num_rows > 0, WorkerLease(config, "x", owner="w").acquire())
    except AcktrailError as error:
        print(error.exit_code, error.message, error.hint, sep="\\n")
    for name in variables:
        del os.environ[name]
"""
FAULTS: list[tuple[str, int, dict[str, Any], bool | None]] = [
    ("status", 1, {"code": 500}, True),
    ("status", 9, {"code": 500}, False),
    ("status", 9, {"code": 503}, False),
    ("status", 2, {"code": 409}, True),
    ("status_after", 1, {"code": 500}, True),
    ("status_after", 9, {"code": 503}, True),
    ("cut_before", 1, {}, True),
    ("cut_before", 9, {}, False),
    ("cut_after", 1, {}, True),
    ("cut_after", 9, {}, True),
    ("silence_after", 9, {}, True),
    ("delay", 1, {"seconds": 0.3}, True),
]
"""What happens to the request that commits, how often, and whether the commit lands."""


@pytest.fixture(autouse=True)
def _distrust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test's storage is new to this process, on any port."""
    monkeypatch.setattr(bucket, "_trusted", set())


def rows(*offsets: int) -> pa.Table:
    return pa.table({"offset": pa.array(offsets, pa.int64())})


def sink_of(config: TablesConfig) -> DeltaSink:
    return DeltaSink(Tables(config), cluster_id="c", run_id="r")


def export(sink: DeltaSink, log: MemoryLog, *, flush_rows: int = 20) -> None:
    """All that the log has, from the position of the sink on."""
    TaskExecution(MemoryTask([log], cluster_id="c", batch_rows=10), sink, policy=FlushPolicy(rows=flush_rows)).run()


@pytest.mark.full  # tests/connect/test_repairs.py has it in a folder
def test_damage_in_a_bucket_is_named_and_mended(s3: S3) -> None:
    """As in a folder: the list of files is compared with the log, a commit or file that cannot be read is left out and
    kept beside the others, what is lost of the records is known, and a table can be thrown away."""
    tables, log = Tables(s3.bucket("damaged-bucket")), MemoryLog(pairs=PAIRS)
    for end_offset in (4, 8, 12):
        log.end_offset = end_offset
        export(sink_of(tables.config), log)
    assert find_damage(tables).is_sound
    place, snapshot = tables.place("state_records"), tables.snapshot("state_records")
    assert snapshot is not None
    lost = snapshot.files()[0].path
    offsets = sorted(tables.read_files("state_records", [lost], columns=["offset"])["offset"].to_pylist())
    place.storage().delete_file(lost)
    found = find_damage(tables)
    assert [each.file for each in found.damages] == [lost]
    assert [(each.first_offset, each.last_offset) for each in found.lost or ()] == [(offsets[0], offsets[-1])]
    place.leave_out([lost])
    assert tables.read("state_records").num_rows == 8

    commit = f"_delta_log/{snapshot.version:020d}.json"
    place.stub_commit(commit, "{")
    with pytest.raises(DamagedTables, match=f"table state_records: {commit} is not JSON"):
        tables.read("state_records")
    place.stub_commit(commit, EMPTY_COMMIT)
    assert place.damage() == []
    assert f"tables/state_records/{commit}.damaged" in s3.keys("damaged-bucket")
    tables.place("export_ranges").discard()
    assert not tables.exists("export_ranges")


def test_storage_that_ignores_conditions_is_refused(s3: S3, bucket: TablesConfig) -> None:
    """Where a put succeeds in spite of If-None-Match, no table is made at all, and no lease is given: two workers would
    have it."""
    s3.ignores_conditions()
    for use in (lambda: Tables(bucket).append("state_records", rows(1)), WorkerLease(bucket, "x", owner="w").acquire):
        with pytest.raises(ConfigurationError, match="ignores conditional writes"):
            use()
    assert s3.keys(bucket.uri.split("/")[2]) == []


@pytest.mark.parametrize(
    ("action", "path", "method", "times"),
    [("status_after", "_acktrail_probe_", "PUT", 1), ("status", "delete", "POST", 9)],
)
def test_a_probe_that_loses_a_response_refuses_no_storage(
    s3: S3, bucket: TablesConfig, action: str, path: str, method: str, times: int
) -> None:
    """The first put whose response is lost meets its own object when it is sent again; an object that cannot be removed
    may stay."""
    s3.proxy.fail(action, path, method=method, times=times, code=500 if method == "PUT" else 403)
    Tables(bucket).append("state_records", rows(1))
    assert s3.proxy.hits
    assert Tables(bucket).read("state_records").num_rows == 1


@pytest.mark.full
def test_writers_at_once_lose_nothing(s3: S3) -> None:
    """Several writers without positions all land; of several at one position exactly one does."""
    config = s3.bucket("raced")
    Tables(config).create("state_records")
    landed: list[int] = []

    def write(number: int) -> None:
        tables = Tables(config)
        tables.append("state_records", rows(number))
        try:
            tables.append("state_records", rows(1000), transactions={"a": 1}, expected={"a": None})
        except ConcurrentCommit:
            return
        landed.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(landed) == 1
    assert sorted(Tables(config).read("state_records")["offset"].to_pylist()) == [0, 1, 2, 3, 4, 1000]


@pytest.fixture(scope="module")
def tables(_s3: S3) -> TablesConfig:
    """A table with one row."""
    config = _s3.bucket("given", timeout="1s")
    Tables(config).append("state_records", rows(0))
    return config


def given(config: TablesConfig, **options: str) -> TablesConfig:
    return replace(config, options={**config.options, **options})


def stored(config: TablesConfig) -> list[int]:
    return sorted(Tables(config).read("state_records", columns=["offset"])["offset"].to_pylist())


@contextmanager
def refused(server: S3, says: str, kind: type[AcktrailError] = ConfigurationError) -> Iterator[None]:
    """The block ends with one line that `says` what is wrong, and nothing secret."""
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert says in error.message
    assert error.hint
    for text in (error.message, error.hint, str(error.data)):
        assert "\n" not in text
        assert server.root.secret not in text
        assert server.reader.secret not in text
        assert "AKIA" not in text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"aws_secret_access_key": "wrong-secret"}, "the credentials were refused"),
        ({"aws_access_key_id": "AKIANOBODY"}, "the credentials were refused"),
        ({"aws_session_token": "long-ago"}, "the credentials were refused"),
        ({"aws_region": "mars-1"}, "the region is wrong"),
        ({"aws_allow_http": "false"}, "plain http is not allowed"),
        ({"aws_secret_access_key": ""}, "no credentials were given"),
    ],
)
def test_what_a_person_must_correct_is_one_line(s3: S3, tables: TablesConfig, wrong: dict[str, str], says: str) -> None:
    """A wrong secret, key, token, region: for reading, writing and trying out whether one may write."""
    store = Tables(given(tables, **wrong))
    for call in (
        lambda: store.read("state_records"),
        lambda: store.append("state_records", rows(1)),
        store.probe_write,
    ):
        with refused(s3, says):
            call()
    assert 1 not in stored(tables)


def test_who_may_only_read_reads(s3: S3, tables: TablesConfig) -> None:
    """A read-only account reads tables; an export with it ends before a row is written, and says why."""
    config = s3.config("given", s3.reader)
    before = stored(config)
    assert 0 in before
    with refused(s3, "access was denied"):
        Tables(config).probe_write()
    log = MemoryLog(pairs=PAIRS, end_offset=3)
    with refused(s3, "access was denied"):
        export(sink_of(config), log)
    assert stored(tables) == before


def test_a_bucket_that_went_away_is_named(s3: S3) -> None:
    """Absent from the start, or removed in the middle of an export: no empty table, and no outage to wait for."""
    with refused(s3, "the bucket does not exist"):
        Tables(s3.config("absent")).append("state_records", rows(1))
    config, log = s3.bucket("going"), MemoryLog(pairs=PAIRS, end_offset=4)
    sink = sink_of(config)
    export(sink, log)
    shutil.rmtree(s3.folder / "data/going")
    log.end_offset = 8
    with pytest.raises((ConfigurationError, OutcomeUnknown)):
        export(sink, log)
    with refused(s3, "the bucket does not exist"):
        Tables(config).read("state_records")


def test_tls_with_an_authority_of_its_own(s3: S3, tables: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrusted it is refused; named in SSL_CERT_FILE it is trusted. TLS to a server without it is told apart."""
    encrypted = given(tables, aws_endpoint=s3.tls_address)
    with refused(s3, "certificate is not trusted"):
        Tables(encrypted).read("state_records")
    with refused(s3, "does not speak TLS"):
        Tables(given(tables, aws_endpoint=s3.address.replace("http:", "https:"))).read("state_records")
    monkeypatch.setenv("SSL_CERT_FILE", str(s3.certificate))
    assert 0 in stored(encrypted)


def read_elsewhere(config: TablesConfig, home: Path, *environments: dict[str, str]) -> tuple[list[str], str]:
    """Lines on stdout and everything on stderr of a process that has nothing but a home folder, in each environment."""
    given = map(json.dumps, (config.options, *environments))
    own = {"PATH": os.environ["PATH"], "HOME": str(home), "AWS_EC2_METADATA_SERVICE_ENDPOINT": NOBODY}
    done = finished(sys.executable, "-c", READ, config.uri, *given, env=own)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def without_keys(config: TablesConfig) -> TablesConfig:
    kept = {name: value for name, value in config.options.items() if "access_key" not in name}
    return replace(config, options=kept)


def test_no_credentials_at_all_is_one_line(tmp_path: Path) -> None:
    """Nothing in options, environment, home folder or on the network gives any: one line at once, and nothing beside it
    on stderr. Nobody is asked but the metadata service that the environment names."""
    lines, stderr = read_elsewhere(TablesConfig(uri="s3://any-bucket/tables"), tmp_path, {})
    assert lines[:2] == ["3", "tables at s3://any-bucket/tables: no credentials were given"]
    assert "file of options" in lines[2]
    assert stderr == ""


def test_a_profile_or_the_environment_gives_credentials(s3: S3, tables: TablesConfig, tmp_path: Path) -> None:
    """The profile of a server that is not Amazon's, or Amazon's variables: for tables and for leases, without a word on
    stderr about regions. With a wrong profile, one line."""
    file = tmp_path / ".aws/credentials"
    file.parent.mkdir()
    file.write_text(
        f"[good]\naws_access_key_id={s3.root.access}\naws_secret_access_key={s3.root.secret}\n"
        f"[bad]\naws_access_key_id={s3.root.access}\naws_secret_access_key=wrong\n"
    )
    keys = {name.upper(): value for name, value in s3.root.options.items()}
    environments = {"AWS_PROFILE": "good"}, {"AWS_DEFAULT_REGION": REGION, **keys}, {"AWS_PROFILE": "bad"}
    lines, stderr = read_elsewhere(without_keys(tables), tmp_path, *environments)
    assert lines[:2] == ["True True"] * 2
    assert "the credentials were refused" in lines[3]
    assert (len(lines), stderr) == (5, "")


@pytest.mark.parametrize(
    ("action", "times", "more", "lands", "has_position"),
    [(*fault, has) for fault in FAULTS for has in (True, False) if has or "after" in fault[0]],
)
def test_a_commit_through_a_bad_network_lands_once_or_not_at_all(
    s3: S3, tables: TablesConfig, action: str, times: int, more: dict[str, Any], lands: bool, has_position: bool
) -> None:
    """The caller is told which: an error that says that nothing landed is true, and no row occurs twice, also where
    the response of a commit got lost, with a position and without."""
    store = Tables(tables)
    before = stored(tables)
    position = store.transaction_version("state_records", "a")
    moved = {"transactions": {"a": (position or 0) + 1}, "expected": {"a": position}} if has_position else {}
    s3.proxy.fail(action, COMMIT, times=times, **more)
    if lands:
        store.append("state_records", rows(7), **moved)
    else:
        with refused(s3, "the storage", RetryableError):
            store.append("state_records", rows(7), **moved)
    assert s3.proxy.heal() > 0
    assert stored(tables) == sorted([*before, *[7] * lands])


@pytest.mark.parametrize("action", ["hold_before", "hold_after"])
def test_a_server_that_ends_in_the_middle_of_a_commit(s3: S3, action: str) -> None:
    """Killed before a commit reached it, or with one that it stored and nobody confirmed, and started again: the sink
    goes on at the position that is stored, and every row is there once."""
    log, config = MemoryLog(pairs=PAIRS, end_offset=4), s3.bucket(action.replace("_", "-"), timeout="1s")
    sink = sink_of(config)
    export(sink, log)
    log.end_offset, there = 8, [*range(8 if action == "hold_after" else 4)]
    s3.proxy.fail(action, COMMIT)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(export, sink, log)
        until(lambda: s3.proxy.hits == 1 and stored(s3.direct(config)) == there, what="a commit in flight")
        s3.kill()
        s3.proxy.heal()
        failure = commit.exception(60)
    s3.start()
    assert failure is None or isinstance(failure, RetryableError | OutcomeUnknown)
    assert stored(config) == there
    export(sink, log)
    assert stored(config) == [*range(8)]


def test_where_nothing_can_be_verified_the_outcome_is_unknown(s3: S3, tables: TablesConfig) -> None:
    """The commit landed, its response got lost, and the table cannot be read back: neither success nor failure is
    claimed. A sink then reads its position from the table, and goes on without a double."""
    log = MemoryLog(pairs=PAIRS, end_offset=4)
    config = s3.bucket("unknown", timeout="1s")
    sink = sink_of(config)
    export(sink, log)
    log.end_offset = 8
    blind = {"action": "status", "code": 503, "method": "GET", "path": "", "times": 99}
    s3.proxy.fail("cut_after", COMMIT, times=9, then=[blind])
    with refused(s3, "it is not known whether the commit to state_records landed", OutcomeUnknown):
        export(sink, log)
    s3.proxy.heal()
    for _ in range(2):
        export(sink, log, flush_rows=2)
    assert stored(config) == list(range(8))
    assert not [key for key in s3.keys("unknown") if "probe" in key]


@pytest.mark.parametrize(
    ("action", "method", "path"),
    [("status", "PUT", r"\.parquet"), ("cut_after", "GET", "_delta_log"), ("status", "GET", "list-type")],
)
def test_other_requests_may_fail_too(s3: S3, tables: TablesConfig, action: str, method: str, path: str) -> None:
    """Data files, the log and listings: an outage is no damage, and is over when it is over."""
    before = stored(tables)
    s3.proxy.fail(action, path, method=method, times=999, code=503)
    with refused(s3, "the storage", RetryableError):
        Tables(tables).append("state_records", rows(9))
    s3.proxy.heal()
    assert stored(tables) == before
