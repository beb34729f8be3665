"""Records whose raw bytes and decoded columns differ are found when all records are validated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.gate_scenes import validate
from expectations.sample_tables import RUN, changed, cluster, fill, ranges, reconciliations, row_where, states
from expectations.sample_tables import record_frames as frames_of
from state_topics.coordinator_log import batch, everyday, from_raw, share_partition

from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.tables.delta.store import Tables
from acktrail_expectations import run_data
from acktrail_expectations.frames import record_frames
from acktrail_expectations.gate import QualityResult, RuleState, ValidationSummary, pass_gate, validate_run

pytestmark = pytest.mark.usefixtures("plain_engine")

RULE = "record_matches_raw_bytes"
WITH_ALL = "records are compared with their raw bytes by acktrail run validate --all"

Damage = Callable[[pa.Table], pa.Table]


def outcome(config: TablesConfig, *, every_record: bool = True) -> QualityResult:
    return of_rule(validate_run(Tables(config), RUN, every_record=every_record))


def of_rule(summary: ValidationSummary) -> QualityResult:
    return next(result for result in summary.results if result.expectation == RULE)


def flipped(name: str) -> Damage:
    """The last byte of a key or a value altered in the record at 0/9."""

    def harm(records: pa.Table) -> pa.Table:
        index = row_where(records, state_partition=0, offset=9)
        octets = records[name][index].as_py()
        return changed(records, index, **{name: octets[:-1] + bytes([octets[-1] ^ 1])})

    return harm


def decoded(**values: object) -> Damage:
    """Other decoded values in the record at 0/9."""
    return lambda records: changed(records, row_where(records, state_partition=0, offset=9), **values)


DAMAGE: dict[str, Damage] = {
    "key bytes": flipped("key"),
    "value bytes": flipped("value"),
    "no value": decoded(value=None),
    "a decoded number": decoded(leader_epoch=77),
    "a decoded number lost": decoded(start_offset=None),
    "a decoded name": decoded(group_id="somebody"),
    "decoded batches": decoded(batches=[]),
    "the decode status": decoded(decode_status="malformed_value"),
}


def matching(records: pa.Table) -> list[bool]:
    """Of each record in the order of its address, whether bytes and columns agree."""
    found = frames_of(records, cluster(), compares_bytes=True).add(records, since={})
    return list(found["matches_raw_bytes"])


def test_bytes_and_columns_that_differ_are_found() -> None:
    """Whichever of the two was altered, of that record alone."""
    for name, damage in DAMAGE.items():
        assert [at for at, fine in enumerate(matching(damage(everyday().table()))) if not fine] == [9], name


def test_bytes_that_differ_close_the_gate(tmp_path: Path) -> None:
    """The rule is critical, and names the record."""
    summary = validate_run(
        Tables(fill(tmp_path, state_records=flipped("value")(everyday().table()))), RUN, every_record=True
    )
    result = of_rule(summary)
    assert (result.state, result.unexpected_count) == (RuleState.FAILS, 1)
    assert str(result.observed_value).startswith("0/9 of ")
    with pytest.raises(QualityGateFailed, match=RULE):
        pass_gate(summary)


def with_unreadable() -> pa.Table:
    """Everyday's records with some that cannot be decoded: half a value, no key, half a key, a version of tomorrow."""
    records = everyday().table()
    raw = records.select(["state_partition", "offset", "timestamp_ms", "key", "value"]).rename_columns(
        RAW_RECORDS.names
    )
    rows = raw.to_pylist()
    rows[3]["value"] = rows[3]["value"][:-1]
    rows[5]["key"] = None
    rows[7]["key"] = rows[7]["key"][:5]
    rows[9]["key"] = b"\x00\x63" + rows[9]["key"][2:]
    return from_raw(rows)


def test_undecodable_records_agree_with_their_bytes() -> None:
    """Every record counts as compared, also those whose status says that they cannot be read."""
    records = with_unreadable()
    assert len(set(records["decode_status"].to_pylist())) > 3
    assert matching(records) == [True] * records.num_rows


def test_what_an_earlier_acktrail_could_not_read_contradicts_nothing() -> None:
    """Its row lacks the columns that are known today; what it does have is compared."""
    names = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "batches")
    newer = decoded(decode_status="unknown_version", **dict.fromkeys(names))(everyday().table())
    assert matching(newer) == [True] * newer.num_rows
    assert [at for at, fine in enumerate(matching(decoded(group_id="somebody")(newer))) if not fine] == [9]


@pytest.mark.few(1)
@pytest.mark.parametrize(("pieces", "parts"), [(20, 9), (3, 2)])
def test_pieces_and_order_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int, parts: int
) -> None:
    """Files in another order than the log's, a record stored twice, small pieces: the altered records are named."""
    monkeypatch.setattr(run_data, "MOST_RECORDS", pieces)
    monkeypatch.setattr(record_frames, "_COMPARED_AT_ONCE", parts)
    records = flipped("value")(everyday().table())
    middle = records.num_rows // 2
    config = fill(tmp_path, state_records=records.slice(middle), export_ranges=ranges(records))
    Tables(config).append("state_records", records.slice(0, middle))
    Tables(config).append("state_records", records.slice(middle, 1))

    result = outcome(config)

    assert (result.element_count, result.unexpected_count) == (records.num_rows + 1, 1)
    assert str(result.observed_value).startswith("0/9 of ")


@pytest.mark.full
def test_other_runs_do_not_say_that_bytes_match(tmp_path: Path) -> None:
    """A validation of new records alone leaves the rule open with its reason, also after one of all that it grew
    beyond; what failed stays failed."""
    life = everyday()
    config = fill(tmp_path, life)
    assert outcome(config).state is RuleState.HOLDS  # recorded: the first validation of the run
    life.patience(100)
    life.write(share_partition("orders"), 2, batch(7, 8))
    there = Tables(config).read("state_records").num_rows
    assert life.table().num_rows == there + 1
    new = life.table().filter((pc.field("state_partition") == 0) & (pc.field("offset") == 19))
    Tables(config).append("state_records", flipped_first(new))
    Tables(config).append("export_ranges", ranges(new, pieces=1))

    later = outcome(config, every_record=False)

    assert (later.state, later.success, later.reason) == (RuleState.NOT_EVALUATED, None, WITH_ALL)
    assert outcome(config).state is RuleState.FAILS


def flipped_first(records: pa.Table) -> pa.Table:
    octets = records["value"][0].as_py()
    return changed(records, 0, value=octets[:-1] + bytes([octets[-1] ^ 1]))


def test_a_failure_of_an_earlier_validation_stays(tmp_path: Path) -> None:
    """A run that failed on all its records and grew since does not pass by what came."""
    life = everyday()
    config = fill(tmp_path, life, state_records=flipped("value")(life.table()))
    assert outcome(config).state is RuleState.FAILS
    Tables(config).append("reconciliations", reconciliations(life).slice(0, 1))
    Tables(config).append("share_partition_states", states(life).slice(0, 1))

    with pytest.raises(QualityGateFailed, match=RULE):
        validate(config, RUN)


def test_records_of_another_dialect_are_not_judged(tmp_path: Path) -> None:
    """Their bytes are laid out in another way: nothing is known, with the reason."""
    Tables(TablesConfig(uri=str(tmp_path))).create("state_records", properties={"dialect": "4.0"})

    result = outcome(fill(tmp_path, state_records=flipped("value")(everyday().table())))

    assert (result.state, result.element_count) == (RuleState.NOT_EVALUATED, 0)
    assert result.reason is not None
    assert "another dialect" in result.reason
