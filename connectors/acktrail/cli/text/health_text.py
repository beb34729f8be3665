"""The health of a cluster for people, on one screen or one line, and as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from acktrail.model.queue_status import STATUS_TABLE, QueueStatus
from acktrail.plain_tables import KnownSum, printable, table
from acktrail.times import ago_text, instant_text, utc_text
from acktrail.view.wording import counts_text, headline, in_words, trouble_text

if TYPE_CHECKING:
    from acktrail.view.health.cluster_health import ClusterHealth, GroupHealth, QueueHealth
    from acktrail.view.health.open_findings import SeenFinding

_LEAST_ROWS: Final = 3
_GROUP_HEADERS: Final = ("GROUP", "STATUS", "SINCE", "SHARE PARTITIONS", "UNFINISHED")
_QUEUE_HEADERS: Final = ("GROUP", "TOPIC", "PARTITION", "STATUS", "SINCE", "UNFINISHED", "REASON")
_FINDING_HEADERS: Final = ("SEVERITY", "RULE", "GROUP", "TOPIC", "PARTITION", "SINCE", "SEEN", "EVIDENCE", "DETAIL")


def screen(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str], *, stopping: int, lines: int) -> str:
    """Who is in trouble, freshness and completeness, then groups, then the share partitions in trouble; at most `lines`
    lines, where that leaves a few rows of each. The last line has what is to be acted on. `stopping`: critical rules
    that stopped the newest run."""
    head = [_headline(found, stopping), *_head(found, now)]
    verdict = printable(f"act on: {'; '.join(reasons)}" if reasons else _nothing(found))
    groups = found.groups or ()
    troubled = found.queues or ()
    room = max(lines - len(head) - 2, 0)
    of_groups = _block(_GROUP_HEADERS, [_group_row(each, now) for each in groups], room // 2, "group(s)")
    of_queues = _block(
        *(_QUEUE_HEADERS, [_queue_row(each, now) for each in troubled]),
        *(room - len(of_groups), "share partition(s) in trouble"),
    )
    return "\n".join([*head, *of_groups, *of_queues, "", verdict])


def one_line(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str]) -> str:
    """The same in a line, with its time, for a log."""
    what = "; ".join(reasons) if reasons else _nothing(found)
    return printable(
        f"{utc_text(now)} exported {_age(found.exported_at, now)}, observed {_age(found.observed_at, now)}; "
        f"groups: {_counted(found.group_statuses)}; {what}"
    )


def _nothing(found: ClusterHealth) -> str:
    looks = "; ".join(found.to_look_at())
    return f"nothing to act on{f'; to look at: {looks}' if looks else ''}"


def findings_text(found: Sequence[SeenFinding], now: dt.datetime) -> str:
    """One line a finding, the worst first."""
    if not found:
        return "no finding"
    rows = [
        (
            *(each.severity if each.is_open else f"({each.severity})", each.rule, each.group_id, each.topic),
            *(each.partition, _age(each.first_seen_at, now), each.times_seen, _evidence(each.evidence)),
            each.detail if each.group_id is not None else f"{each.subject}: {each.detail}",
        )
        for each in found
    ]
    text = table(_FINDING_HEADERS, rows)
    return text if all(each.is_open for each in found) else f"{text}\n\n(severity): not open any more"


def finding_json(each: SeenFinding) -> dict[str, Any]:
    """One finding; what is not known is null."""
    place, offset = each.evidence or (None, None)
    return {
        "severity": each.severity,
        "rule": each.rule,
        "group": each.group_id,
        "topic": each.topic,
        "topic_id": each.topic_id,
        "partition": each.partition,
        "subject": each.subject,
        "detail": each.detail,
        "evidence": None if each.evidence is None else {"state_partition": place, "offset": offset},
        "first_seen_at": _instant(each.first_seen_at),
        "last_seen_at": _instant(each.last_seen_at),
        "times_seen": each.times_seen,
        "is_open": each.is_open,
    }


def health_json(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str]) -> dict[str, Any]:
    """Everything that is known, with all share partitions that are in trouble."""
    return {
        "cluster_id": found.cluster_id,
        "at": utc_text(now, "milliseconds"),
        "act_on": list(reasons),
        "exported_at": _instant(found.exported_at),
        "newest_record_at": instant_text(found.newest_record_ms),
        "observed_at": _instant(found.observed_at),
        "run_id": found.run_id,
        "gaps": None if found.gaps is None else {reason: _gaps_json(each) for reason, each in found.gaps.items()},
        "verdicts": found.verdicts,
        "statuses": None if found.queues is None else _names(found.statuses),
        "group_statuses": None if found.groups is None else _names(found.group_statuses),
        "groups": None if found.groups is None else [_group_json(each) for each in found.groups],
        "in_trouble": None if found.queues is None else [*map(_queue_json, found.queues)],
        "findings": None if found.findings is None else [finding_json(each) for each in found.findings],
        "changes": None
        if found.changes is None
        else [
            {"changed_at": _instant(each.changed_at), "group": each.group_id, "topic": each.topic}
            | {"partition": each.partition, "before": each.before, "after": each.after, "reason": each.reason}
            for each in found.changes
        ],
        "unknown": dict(found.unknown),
    }


def _headline(found: ClusterHealth, stopping: int) -> str:
    if found.no_share_group is not None:
        return printable(found.no_share_group)
    worst = ((each.group_id, each.status.value, each.since) for each in found.groups or ())
    critical = sum(each.severity == "critical" for each in found.findings or ())
    counts = _names(found.group_statuses)
    return headline(worst, counts, stopping=stopping, critical_findings=critical)[0]


def _head(found: ClusterHealth, now: dt.datetime) -> list[str]:
    newest = None if found.newest_record_ms is None else now.timestamp() - found.newest_record_ms / 1000
    lines = [
        f"cluster   {found.cluster_id or 'unknown'}",
        f"export    {_age(found.exported_at, now)}; newest state record {ago_text(newest)}; {_gaps(found, now)}",
        f"verdicts  {_amounts(found.verdicts)}; reconciled {_age(found.reconciled_at, now)}",
        f"findings  {_findings_line(found)}",
        f"statuses  {_statuses_line(found, now)}",
        *([f"changes   {_changes_line(found, now)}"] if found.changes else ()),
        *(f"unknown   {name}: {why}" for name, why in found.unknown.items()),
    ]
    return [printable(line) for line in lines]


def _gaps(found: ClusterHealth, now: dt.datetime) -> str:
    from acktrail.view.health.table_facts import LOSSES

    if found.gaps is None:
        return "gaps unknown"
    lost = {reason: each for reason, each in found.gaps.items() if reason in LOSSES}
    if not lost:
        return "complete since the first export" if found.exported_at else "nothing exported"
    return "not complete: " + ", ".join(
        f"{each.gaps:,} gap(s) {reason} ({each.offsets:,} offsets, the newest {_age(each.newest_at, now)})"
        for reason, each in lost.items()
    )


def _findings_line(found: ClusterHealth) -> str:
    from acktrail.view.health.open_findings import SEVERITIES

    if found.findings is None:
        return "unknown"
    present = [each.severity for each in found.findings]
    return _amounts({name: present.count(name) for name in SEVERITIES if name in present})


def _statuses_line(found: ClusterHealth, now: dt.datetime) -> str:
    if found.groups is None:
        return "unknown"
    if found.no_share_group is not None:
        return f"{_age(found.observed_at, now)}: {found.no_share_group}"
    queues = f"{sum(each.share_partitions for each in found.groups):,} share partition(s)"
    groups = f"{len(found.groups):,} group(s)"
    return f"{_age(found.observed_at, now)}: {groups}, {_counted(found.group_statuses)}; {queues}"


def _changes_line(found: ClusterHealth, now: dt.datetime) -> str:
    changes = found.changes or ()
    newest = changes[0]
    where = f"{newest.group_id} {newest.topic} {newest.partition}"
    what = f"{in_words(newest.before)} to {in_words(newest.after or 'gone')}"
    return f"{len(changes):,} in 24 h, the newest {_age(newest.changed_at, now)}: {where} from {what}"


def _block(headers: Sequence[str], rows: list[tuple[object, ...]], most: int, what: str) -> list[str]:
    """An empty line, the table's lines, and how many rows were left out; nothing without rows. `most`: lines."""
    if not rows:
        return []
    fits = max(most - 2, _LEAST_ROWS)
    shown = rows if len(rows) <= fits else rows[: max(fits - 1, _LEAST_ROWS)]
    more = len(rows) - len(shown)
    return ["", *table(headers, shown).split("\n"), *([f"… {more:,} more {what}; --json has all"] if more else ())]


def _group_row(each: GroupHealth, now: dt.datetime) -> tuple[object, ...]:
    own = f"{each.statuses[each.status]:,} of {each.share_partitions:,}"
    unfinished = KnownSum(each.unfinished_records, each.unfinished_unknown)
    return each.group_id, in_words(each.status), _age(each.since, now), own, unfinished


def _queue_row(each: QueueHealth, now: dt.datetime) -> tuple[object, ...]:
    unfinished = None if each.unfinished_records is None else f"{each.unfinished_records:,}"
    told = trouble_text(each.status, each.reason)
    return each.group_id, each.topic, each.partition, in_words(each.status), _age(each.since, now), unfinished, told


def _group_json(each: GroupHealth) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "status": each.status.value,
        "since": _instant(each.since),
        "statuses": _names(each.statuses),
        "unfinished_records": None if each.unfinished_unknown else each.unfinished_records,
        "known_unfinished_records": each.unfinished_records,
        "unfinished_unknown_share_partitions": each.unfinished_unknown,
        "state": each.group_state,
        "members": each.members,
    }


def _queue_json(each: QueueHealth) -> dict[str, Any]:
    place, offset = each.evidence or (None, None)
    return {
        "group": each.group_id,
        "topic": each.topic,
        "partition": each.partition,
        "status": each.status.value,
        "since": _instant(each.since),
        "unfinished_records": each.unfinished_records,
        "reason": each.reason,
        "advice": STATUS_TABLE[each.status].advice,
        "evidence": None if each.evidence is None else {"state_partition": place, "offset": offset},
    }


def _gaps_json(each: Any) -> dict[str, Any]:
    return {"gaps": each.gaps, "offsets": each.offsets, "newest_at": _instant(each.newest_at)}


def _names(counts: Mapping[QueueStatus, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items()}


def _counted(counts: Mapping[QueueStatus, int]) -> str:
    return counts_text(_names(counts).items())


def _amounts(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "unknown"
    return counts_text(sorted(counts.items(), key=lambda pair: pair[0] == "match"))


def _evidence(evidence: tuple[int, int | None] | None) -> str | None:
    if evidence is None:
        return None
    place, offset = evidence
    return f"{place}:{'?' if offset is None else offset}"


def _age(at: dt.datetime | None, now: dt.datetime) -> str:
    return ago_text(None if at is None else (now - at).total_seconds())


def _instant(at: dt.datetime | None) -> str | None:
    return None if at is None else utc_text(at, "milliseconds")
