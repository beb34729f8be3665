"""What a reconciliation found: one row for each rule that a share partition or a state partition breaks.

Severities, meanings and advice are those of the catalogue (``acktrail.model.rules``). The rules: the verdicts of
``FINDING_VERDICTS``, `key_on_its_state_partition`, `one_state_partition_per_key`, `archiving_stale`,
`poison_records_archived`, `export_complete`, `records_quarantined`, ``STATE_RULES``, broken by a replayed state,
and those that show beside others only: a share partition beside the others of its topic, the log of a state partition
beside the snapshots in it.

A finding of archived records, and the status of every loss, stays until somebody has acknowledged it by name
(``status_changes``). It comes back with the next record that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import FINDINGS
from acktrail.format.columns.share_partition_keys import coordinator_keys, first_matches, grouped
from acktrail.format.wire.dead_letter_headers import TOPIC_OF_GROUP, TOPIC_PREFIX, dropped_letters
from acktrail.history.observed_run import Coverage, Observation
from acktrail.model.queue_status import MAYBE_NO_RECORDS
from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail.replay.derived_columns import STATE_RULES
from acktrail.tables.delta.store import Tables

STALE_ARCHIVING_MS: Final = 5 * 60 * 1_000
"""A share-partition leader drives archiving records on within seconds, also after a restart."""
PLACES: Final = pa.schema(
    [
        pa.field("state_partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in ("share_partitions", "without_base", "lowest_base", "newest_ms")),
    ]
)
"""Per state partition: number of share partitions, states without a snapshot, lowest snapshot offset of the others,
newest timestamp of a record in ms since the epoch."""
_TOPIC: Final = ("group_id", "topic_id")
FINDING_VERDICTS: Final = tuple(verdict for verdict in Verdict if verdict is not Verdict.MATCH)
_Rule = Callable[[pa.Table], tuple[pa.Table, Any, str]]
"""Violating rows, a message per row, and the column that holds the offset of the proving record."""
PRUNED_WITHIN_MS: Final = 15 * 60 * 1_000
"""Three times the pause between two prunings of a share coordinator."""


def share_partition_findings(rows: pa.Table, observation: Observation, settled: pa.Table) -> pa.Table:
    """Rows of ``FINDINGS`` from rows of ``RECONCILED``.
    `settled`: losses of records that a person has acknowledged; see ``acknowledged_losses``."""
    unseen = _without(rows, settled)
    found = [rows_of_rule(rule, broken(rows), observation) for rule, broken in _RULES.items()]
    found.append(rows_of_rule("poison_records_archived", _archived(unseen), observation))
    parents = pc.list_parent_indices(rows["broken_rules"]).combine_chunks()
    names = pc.list_flatten(rows["broken_rules"]).combine_chunks()
    for rule, detail in STATE_RULES.items():
        own = rows.take(parents.filter(pc.equal(names, rule)))
        found.append(rows_of_rule(rule, (own, detail, "last_record_offset"), observation))
    for verdict in FINDING_VERDICTS:
        own = rows.filter(pc.equal(rows["verdict"], verdict.value))
        shown = pc.coalesce(own["unreadable_at"], own["last_record_offset"])
        if verdict is Verdict.UNKNOWN:
            own = own.set_column(own.column_names.index("last_record_offset"), "last_record_offset", shown)
        found.append(rows_of_rule(verdict.value, (own, own["reason"], "last_record_offset"), observation))
    return pa.concat_tables(found)


def with_critical_findings(verdicts: pa.Table, found: pa.Table) -> pa.Table:
    """`verdicts` (``RECONCILIATIONS``) with the first critical finding of each among `found` (``FINDINGS``)."""
    critical = found.filter(pc.equal(found["severity"], QualitySeverity.CRITICAL.value))
    texts = _joined(critical["rule"], ": ", critical["detail"])
    matches = first_matches(verdicts, critical)
    place = verdicts.column_names.index("critical_finding")
    return verdicts.set_column(place, verdicts.schema.field(place), texts.take(matches))


def _without(rows: pa.Table, settled: pa.Table) -> pa.Table:
    """`rows` whose newest archived record is not among those that are `settled`."""
    known = settled["archived_seen"].take(first_matches(rows, settled))
    return rows.filter(pc.fill_null(pc.greater(rows["archived_seen"], known), fill_value=True))


def rows_of_rule(rule: str, broken: tuple[pa.Table, Any, str], observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about share partitions that break a rule: rows of ``RECONCILED``, detail, and the column
    with the offset of the record that shows it."""
    rows, detail, evidence = broken
    count, common = rows.num_rows, _common_columns(rule, observation)
    columns = {
        **{name: rows[name] for name in ("group_id", "topic_id", "topic", "partition")},
        **{n: pa.repeat(pa.scalar(v, FINDINGS.field(n).type), count) for n, v in common.items()},
        "subject": pa.chunked_array([coordinator_keys(batch) for batch in rows.to_batches()], pa.string()),
        "detail": pa.repeat(detail, count) if isinstance(detail, str) else detail,
        "evidence_state_partition": rows["state_partition"],
        "evidence_offset": rows[evidence],
    }
    return pa.table([columns[name] for name in FINDINGS.names], schema=FINDINGS)


def plain_findings(found: Iterable[tuple[str, Mapping[str, Any]]], observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` that are about no share partition: a rule, and the columns that are not common to all."""
    rows = [{**_common_columns(rule, observation), **own} for rule, own in found]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def state_partition_findings(coverages: Iterable[Coverage], observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about state partitions as a whole."""
    broken = (pair for coverage in coverages for pair in _broken_as_a_whole(coverage))
    return plain_findings(broken, observation)


def _broken_as_a_whole(coverage: Coverage) -> Iterator[tuple[str, dict[str, Any]]]:
    """An export is not complete where offsets were pruned before it, or it stopped before the log end that the
    observation began with."""
    for gap in coverage.gaps:
        offsets = f"offsets {gap.first_offset} to {gap.last_offset}"
        yield "export_complete", about_log(coverage, f"{offsets} were not exported", gap.first_offset, f", {offsets}")
    if coverage.incomplete is not None and coverage.log.log_end_before is not None:
        yield "export_complete", about_log(coverage, coverage.incomplete, coverage.end_offset)
    if coverage.quarantined:
        detail = f"{coverage.quarantined} record(s) could not be decoded, the newest at {coverage.quarantined_offset}"
        yield "records_quarantined", about_log(coverage, detail, coverage.quarantined_offset)


def about_log(coverage: Coverage, detail: str, offset: int | None, where: str = "") -> dict[str, Any]:
    """The own columns of a finding about a state partition; `where`: the end of its subject."""
    return {
        "subject": f"state partition {coverage.state_partition}{where}",
        "detail": detail,
        "evidence_state_partition": coverage.state_partition,
        "evidence_offset": offset,
    }


def _misplaced(rows: pa.Table) -> tuple[pa.Table, Any, str]:
    """A key on another state partition than the one a broker looks at."""
    own = rows.filter(pc.fill_null(rows["is_misplaced"], fill_value=False))
    return own, _joined("its records are on state partition ", _text(own["state_partition"])), "last_record_offset"


def _scattered(rows: pa.Table) -> tuple[pa.Table, Any, str]:
    own = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows["found_on"]), 0), 1))
    places = [", ".join(map(str, found)) for found in own["found_on"].to_pylist()]
    return own, _joined("its records are on state partitions ", pa.array(places, pa.string())), "last_record_offset"


def _archiving_stale(rows: pa.Table) -> tuple[pa.Table, Any, str]:
    """Records that wait for the dead letter queue. The comparison with an unknown time is null, and filters it out."""
    waited = pc.subtract(
        pc.cast(rows["observed_at"], pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()),
        rows["last_record_timestamp_ms"],
    )
    is_stale = pc.and_(pc.greater(rows["archiving_records"], 0), pc.greater_equal(waited, STALE_ARCHIVING_MS))
    own, minutes = rows.filter(is_stale), pc.divide(waited.filter(is_stale), 60_000)
    detail = _joined(
        *(_text(own["archiving_records"]), " record(s) have been archiving for ", _text(minutes)),
        " minutes: the share partition is stuck or has no leader",
    )
    return own, detail, "last_record_offset"


def _archived(rows: pa.Table) -> tuple[pa.Table, Any, str]:
    """Where the logs do not say it (``archived_offsets``): the marker of a transaction stands alone."""
    own = rows.filter(pc.greater(rows["archived_seen"], 0))
    doubt = pc.if_else(own["archived_unclear"], MAYBE_NO_RECORDS, "")
    return own, _joined(_text(own["archived_seen"]), " record(s) were archived", pc.fill_null(doubt, "")), "archived_at"


_RULES: Final[Mapping[str, _Rule]] = {
    "key_on_its_state_partition": _misplaced,
    "one_state_partition_per_key": _scattered,
    "archiving_stale": _archiving_stale,
}


def _text(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(numbers, pa.string())


def _joined(*pieces: Any) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*pieces, "")


def _common_columns(rule: str, observation: Observation) -> dict[str, Any]:
    """The columns that are the same in all findings of one rule in one run."""
    return {
        "cluster_id": observation.cluster_id,
        "run_id": observation.run_id,
        "rule": rule,
        "severity": rule_catalogue().by_id[rule].severity.value,
        "first_seen_at": observation.observed_at,
        "last_seen_at": observation.observed_at,
        "times_seen": 1,
    }


def without_start_findings(verdicts: pa.Table, observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about partitions that were added to a topic, and that a group has no start offset on.

    A share partition that was initialized later than others of its topic has a higher state epoch. `verdicts`: all rows
    of ``RECONCILED`` of a run.
    """
    started = verdicts.filter(pc.is_valid(verdicts["durable_start_offset"]))
    first = started.group_by([*_TOPIC]).aggregate([("state_epoch", "min")])
    waiting = verdicts.filter(
        pc.and_(pc.is_null(verdicts["durable_start_offset"]), pc.is_valid(verdicts["state_epoch"]))
    )
    waiting = waiting.filter(pc.greater(waiting["log_end_offset_after"], waiting["log_start_offset"]))
    lists = [name for name in waiting.column_names if pa.types.is_list(waiting.schema.field(name).type)]
    own = waiting.drop_columns(lists).join(first, [*_TOPIC], join_type="inner")
    own = own.filter(pc.greater(own["state_epoch"], own["state_epoch_min"]))
    count = pc.subtract(own["log_end_offset_after"], own["log_start_offset"])
    detail = pc.binary_join_element_wise(
        pc.cast(count, pa.string()),
        " record(s) were written to this new partition, and the group has no start offset",
        "",
    )
    return rows_of_rule("new_partition_has_start", (own, detail, "last_record_offset"), observation)


def dropped_letter_findings(tables: Tables, observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about groups whose dead letters brokers drop."""
    own = (pc.field("run_id") == observation.run_id) & (pc.field("phase") == "after")
    found = []
    for group in tables.read("group_observations", columns=["group_id", "configs"], where=own).to_pylist():
        group_id, configs = group["group_id"], dict(group["configs"] or ())
        why = dropped_letters(configs.get(TOPIC_OF_GROUP), configs.get(TOPIC_PREFIX))
        if why is not None:
            columns = {"group_id": group_id, "subject": f"group {group_id}", "detail": why}
            found.append(("dead_letters_kept", columns))
    return plain_findings(found, observation)


def places_of(saved: pa.Table) -> pa.Table:
    """Rows of ``PLACES`` out of rows of ``SAVED_COLUMNS``."""
    has_state = pc.is_valid(saved["snapshot_epoch"])
    base = pc.if_else(has_state, saved["base_offset"], pa.scalar(None, pa.int64()))
    columns = {
        "state_partition": saved["state_partition"],
        "share_partitions": pa.repeat(pa.scalar(1, pa.int64()), saved.num_rows),
        "without_base": pc.and_(has_state, pc.is_null(base)).cast(pa.int64()),
        "lowest_base": base,
        "newest_ms": saved["last_record_timestamp_ms"],
    }
    return added_places(pa.table([columns[name] for name in PLACES.names], schema=PLACES))


def added_places(places: pa.Table) -> pa.Table:
    """`places` with one row for each state partition."""
    return grouped(
        places, ["state_partition"], share_partitions="sum", without_base="sum", lowest_base="min", newest_ms="max"
    )


def unpruned_findings(places: pa.Table, coverages: Mapping[int, Coverage], observation: Observation) -> pa.Table:
    """Rows of ``FINDINGS`` about state partitions whose log begins below every snapshot that is needed, although
    nothing was written for long enough to prune it.

    `places`: rows of ``PLACES``, one for each state partition. One with a state that has no snapshot is left out.
    """
    needed = {row["state_partition"]: row["lowest_base"] for row in places.to_pylist() if not row["without_base"]}
    quiet_since = int(observation.observed_at.timestamp() * 1_000) - PRUNED_WITHIN_MS
    quiet = places.filter(pc.less_equal(places["newest_ms"], quiet_since))
    found = []
    for number in sorted(quiet["state_partition"].to_pylist()):
        start, lowest = coverages[number].log.log_start_before, needed.get(number)
        if start is not None and lowest is not None and start < lowest:
            detail = f"offsets {start} to {lowest - 1} are redundant, and not pruned"
            found.append(("state_log_pruned", about_log(coverages[number], detail, lowest)))
    return plain_findings(found, observation)
