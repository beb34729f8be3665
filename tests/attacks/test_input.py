"""JSON and TOML that no program here can work with, at every place that reads what somebody else may have written."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st
from samples.memory_source import FakeClock

from acktrail.config import TablesConfig
from acktrail.dataclass_json import stored_object
from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, InputError
from acktrail.profiles import read_profiles
from acktrail.tables.delta.bucket import Bucket
from acktrail.tables.delta.table_root import table_root
from acktrail.text_parsing import MOST_DEPTH, parse_json, parse_toml
from acktrail_connect.sinks.writer_lease import WorkerLease, lease_path
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.worker_config import WorkerConfig, connector_file
from acktrail_copied_logs.copied_files import read_dump
from acktrail_dashboard.evidence import read_pack
from acktrail_expectations.data_context import load_suite

HOSTILE_JSON: Final = {
    "a hundred thousand deep": "[" * 100_000,
    "as deep as Python's parser can": '{"a":' * 900 + "1" + "}" * 900,
    "one too deep": "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1),
    "a number that is none": '{"name": "x", "config": {}, "ttl_s": NaN}',
    "a number without end": '{"name": "x", "config": {}, "ttl_s": -Infinity}',
    "a number that becomes infinite": '{"name": "x", "config": {}, "ttl_s": 1e999}',
    "an integer of 400 digits": '{"name": "x", "config": {}, "ttl_s": 1' + "0" * 400 + "}",
    "an integer of 5,000 digits": '{"name": "x", "config": {}, "ttl_s": ' + "9" * 5_000 + "}",
    "a key that occurs twice": '{"name": "x", "config": {"a": "1", "a": "2"}, "target": "RUNNING"}',
    "half a surrogate pair": '{"name": "\\ud800", "config": {}, "target": "RUNNING"}',
    "bytes that are no text": '{"name": "\udcff"}',
}
HOSTILE_TOML: Final = {
    "a hundred thousand deep": "a = " + "[" * 100_000,
    "a thousand tables in each other": f"{'.'.join('a' * 1_000)} = 1",
    "one too deep": f"a = {'[' * (MOST_DEPTH + 1)}{']' * (MOST_DEPTH + 1)}",
    "a number that is none": "a = nan",
    "a number without end": "a = -inf",
    "an integer of 400 digits": f"a = 1{'0' * 400}",
    "a key that occurs twice": "a = 1\na = 2",
}


def read_audit_detail(file: Path) -> object:
    return stored_object(file.read_text("utf-8", "surrogateescape"), "reset_audit", "detail")


def read_connection_extra(file: Path) -> object:
    """Loads Airflow, which takes seconds: not when tests are collected."""
    from acktrail_provider.cluster_connection import _properties

    return _properties("kafka", file.read_text("utf-8", "surrogateescape"))


def read_stored_connector(file: Path) -> None:
    """A worker ignores it, and logs why."""
    for fault in ConfigStore(file.parent).faults:
        raise fault


JSON_READERS: Final[Mapping[str, Callable[[Path], object]]] = {
    "connector": connector_file,
    "stored connector": read_stored_connector,
    "evidence": read_pack,
    "suite": load_suite,
    "record dump": lambda file: list(read_dump(file)),
    "extra of a connection": read_connection_extra,
    "audit": read_audit_detail,
}
TOML_READERS: Final[Mapping[str, Callable[[Path], object]]] = {"worker": WorkerConfig.read, "profiles": read_profiles}


@pytest.mark.parametrize("reader", JSON_READERS)
@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_one_line(reader: str, text: str, tmp_path: Path) -> None:
    """Who can write a file, a connection's extra or a row that acktrail reads gives it JSON that Python's own parser
    takes, or dies of: the reader gets one line that says what to correct, never a defect."""
    file = tmp_path / "given.json"
    file.write_text(text, "utf-8", "surrogateescape")

    with pytest.raises((InputError, ConfigurationError)) as caught:
        JSON_READERS[reader](file)

    assert len(caught.value.message.splitlines()) == 1
    assert len(caught.value.with_hint) < 600


@pytest.mark.parametrize("reader", TOML_READERS)
@pytest.mark.parametrize("text", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_hostile_toml_is_one_line(reader: str, text: str, tmp_path: Path) -> None:
    """Who can write the file of a worker or of profiles gives it TOML that nests, or numbers, without end: the operator
    gets one line, never a defect."""
    file = tmp_path / "given.toml"
    file.write_text(text, "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        TOML_READERS[reader](file)

    assert len(caught.value.message.splitlines()) == 1


@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_plan_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who hands a plan's file to an operator makes the command end with one line and the exit code of wrong input."""
    file = tmp_path / "plan.json"
    file.write_text(text, "utf-8", "surrogateescape")

    done = run(
        capsys, "change", "apply", str(file), "--tables", str(tmp_path / "tables"), "--bootstrap-server", "localhost:1"
    )

    assert any(words in done.complaint(2) for words in ("plan.json: is not JSON: ", "plan.json: is not text"))


@pytest.mark.parametrize(
    "record",
    [
        '{"owner": "b", "ttl_s": Infinity}',
        '{"owner": "b", "ttl_s": NaN}',
        '{"owner": "b", "ttl_s": 1e999}',
        '{"owner": "b", "ttl_s": 1e18}',
        '{"owner": "b", "ttl_s": "inf"}',
        '{"owner": "b", "ttl_s": "nan"}',
        f'{{"owner": "b", "ttl_s": 1{"0" * 400}}}',
        '{"owner": "b", "ttl_s": -1}',
        '{"owner": "b", "ttl_s": null}',
        '["b"]',
        "[" * 100_000,
        "",
    ],
)
def test_no_lease_lasts_for_ever(record: str, tmp_path: Path) -> None:
    """Who can write below the root of the tables, and nothing else, leaves a lease without an end: the workers that
    stand by take over a minute later, as after any text that is no lease."""
    config, clock = TablesConfig(uri=str(tmp_path / "tables")), FakeClock()
    lease = WorkerLease(config, "export", owner="a", ttl_s=10.0, clock=clock)
    assert lease.acquire()
    lease.release()
    objects = Bucket(table_root(config))
    number = max(int(name.partition(".")[0]) for name in objects.names(lease_path("export")))
    objects.put(f"{lease_path('export')}/{number + 1:020d}.json", record.encode())

    assert not lease.acquire()
    clock.now += 59
    assert not lease.acquire()
    clock.now += 10
    assert lease.acquire()


@pytest.mark.parametrize(
    "name",
    [
        *("9" * 20, f"{10**18:020d}", f"{10**18 - 1:020d}", f"{10**18 - 2:020d}", "9" * 21, "9" * 200, "\u0669" * 20),
        *(f"below/{7:020d}", "-0000000000000000001", "1e99999999999999999"),
    ],
)
def test_no_name_keeps_a_lease_for_ever(name: str, tmp_path: Path) -> None:
    """Who can write below the root of the tables leaves an object whose number leaves no room, or whose name is none:
    within minutes a worker takes the lease over, renews it and gives it to the next."""
    config, clock = TablesConfig(uri=str(tmp_path / "tables")), FakeClock()
    one, other = (WorkerLease(config, "export", owner=owner, ttl_s=30.0, clock=clock) for owner in "ab")
    assert one.acquire()
    one.release()
    folder = tmp_path / "tables" / lease_path("export")
    (folder / f"{name}.json").parent.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("")

    def takes(lease: WorkerLease) -> bool:
        for _ in range(20):
            if lease.acquire():
                return True
            clock.now += 10
        return False

    for lease in (one, other, one):
        assert takes(lease)
        for _ in range(3):
            clock.now += 15
            assert takes(lease)
        lease.release()


def test_lease_of_an_own_worker_has_an_end() -> None:
    """A time to live that is no number of seconds up to an hour is refused at once."""
    for ttl_s in (0, -1, math.inf, math.nan, 3_601):
        with pytest.raises(InputError, match="up to an hour"):
            WorkerLease(TablesConfig(uri="/unused"), "x", owner="a", ttl_s=ttl_s)


def test_a_damaged_detail_names_its_table() -> None:
    """Who can write the tables gives an audit row a detail that is no object: what reads it says which table is
    damaged."""
    for text in ("[1]", "NaN", "", "[" * 100_000):
        with pytest.raises(DamagedTables, match="table reset_audit: the detail of a row") as caught:
            stored_object(text, "reset_audit", "detail")
        assert isinstance(caught.value, AcktrailError)


PLAIN: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text('ab[]{}\\"é\x85'), inner, max_size=20),
    max_leaves=150,
)


@given(PLAIN, st.booleans(), st.booleans())
def test_ordinary_json_is_read_as_by_python(value: Any, is_ascii: bool, is_binary: bool) -> None:
    """What any program writes as JSON is what is read, from text or bytes, brackets in names or not."""
    text = json.dumps(value, ensure_ascii=is_ascii)

    assert parse_json(text.encode() if is_binary else text) == value == json.loads(text)


@given(st.integers(), st.integers(0, 2 * MOST_DEPTH), st.sampled_from(['{"a": %s}', "[%s]", '["{[", %s]']))
def test_depth_and_size_are_the_only_bounds(number: int, depth: int, form: str) -> None:
    """Whatever is around it: an integer is read to 64 bits, and a text to its depth."""
    text = str(number)
    for _ in range(depth):
        text = form % text
    is_small, is_shallow = -(1 << 63) <= number < 1 << 63, depth <= MOST_DEPTH
    if is_small and is_shallow:
        assert parse_json(text) == json.loads(text)
        return
    with pytest.raises(ValueError, match=r"64 bits|deep"):
        parse_json(text)


def test_ordinary_toml_is_read_as_by_python() -> None:
    """Numbers, times and tables are as in Python's own parser."""
    text = 'a = 1.5\nb = -9223372036854775808\nc = 2026-01-01T00:00:00Z\n[d.e]\nf = [[1], ["x"]]\n'

    found = parse_toml(text)

    assert found == tomllib.loads(text)
    assert found["c"] == datetime(2026, 1, 1, tzinfo=UTC)
