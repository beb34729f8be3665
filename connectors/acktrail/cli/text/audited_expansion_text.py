"""Expansions of topics for people, and as JSON."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from acktrail.model.expansion.expansion_texts import counted, ordering_meaning
from acktrail.plain_tables import printable, table
from acktrail.times import utc_text

if TYPE_CHECKING:
    from acktrail.columnar.expansion_lines import ExpansionLine
    from acktrail.tables.audited_expansions import ExpansionDetails
    from acktrail.tables.past.open_records_reader import OpenWhenBegun

ROWS_SHOWN: Final = 40
_HEADERS: Final = ("TOPIC", "FROM", "TO", "SEEN", "STATUS", "WIDEST FENCE", "SKIPPED", "EVENT", "DESTINATIONS")
_AUDIT_HEADERS: Final = ("GROUP", "TYPE", "PARTITION", "VERDICT", "SOURCE", "FENCE", "BEFORE", "AT", "LEFT")
_OPEN_HEADERS: Final = ("GROUP", "PARTITION", "AT WORK FROM", "SOURCE", "OPEN", "FIRST OPEN", "UNKNOWN")
_FENCE_HEADERS: Final = ("SOURCE", "FROM", "TO", "EXACT", "CONFIDENCE", "LOG START", "NOTE")
_START_HEADERS: Final = ("GROUP", "TYPE", "PARTITION", "FIRST OFFSET", "SKIPPED", "RESULT")


def expansions_text(lines: Sequence[ExpansionLine]) -> str:
    """One line an expansion, the worst first."""
    if not lines:
        return "no topic gained partitions"
    return table(_HEADERS, map(_line, lines))


def details_text(found: ExpansionDetails) -> str:
    """One expansion: what is proven of groups, dependencies, fences, starts, and what is not certain."""
    row = found.line.row
    head = f"{row['topic'] or row['topic_id']}: {row['old_count']} to {row['new_count']} partitions, {row['status']}"
    looks = f"seen between {_instant(row['last_seen_old_at'])} and {_instant(row['first_seen_new_at'])}"
    meanings = [f"  {verdict}: {ordering_meaning(verdict)}" for verdict, _ in found.line.verdicts]
    return "\n".join(
        [
            printable(f"{head}; {looks}; event {row['event_id']}"),
            *_block("order of keys", _AUDIT_HEADERS, map(_audit, found.audits), len(found.audits)),
            *map(printable, meanings),
            *map(printable, _reasons(found.audits)),
            *_block(
                "open records of share groups when they began",
                _OPEN_HEADERS,
                map(_open, found.opened),
                len(found.opened),
            ),
            *_block("starts in added partitions", _START_HEADERS, map(_start, found.starts), len(found.starts)),
            *_block("fences", _FENCE_HEADERS, map(_fence, found.fences), len(found.fences)),
            *_list("which partition waits for which", found.dependencies),
            *_list("not certain", found.uncertain),
        ]
    )


def expansion_json(line: ExpansionLine) -> dict[str, Any]:
    """One expansion; what is not known is null."""
    return {
        **_plain(line.row),
        "destinations_by_verdict": dict(line.verdicts),
        "groups_by_verdict": dict(line.groups),
        "widest_fence": line.widest,
        "unknown_fences": line.unknown_fences,
        "skipped_records": line.skipped,
        "unknown_starts": line.unknown_starts,
    }


def details_json(found: ExpansionDetails) -> dict[str, Any]:
    """The same with all rows about it."""
    rows = {name: [_plain(row) for row in getattr(found, name)] for name in ("audits", "fences", "starts")}
    return {
        **expansion_json(found.line),
        **rows,
        "opened": [_open_json(each) for each in found.opened],
        "dependencies": list(found.dependencies),
        "uncertain": list(found.uncertain),
    }


def _line(line: ExpansionLine) -> tuple[object, ...]:
    row = line.row
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in line.verdicts) or "no group audited"
    return (
        *(row["topic"] or row["topic_id"], row["old_count"], row["new_count"], _instant(row["first_seen_new_at"])),
        *(row["status"], line.widest, _skipped(line), row["event_id"], counts),
    )


def _skipped(line: ExpansionLine) -> str | None:
    """The count, and how many beginnings it leaves out."""
    if line.skipped is None or not line.unknown_starts:
        return None if line.skipped is None else f"{line.skipped:,}"
    return f"{line.skipped:,} + {line.unknown_starts:,} unknown"


def _audit(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        *(row["group_id"], row["group_type"], row["partition"], row["verdict"], row["source_partition"]),
        *(_interval(row["fence_low"], row["fence_high"]), _seen(row["source_before"], row["before_at"])),
        *(_seen(row["source_at"], row["at"]), row["remaining"]),
    )


def _reasons(audits: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why verdicts are not proven where positions alone look like it, and of how many destinations."""
    counts = Counter((row["verdict"], row["reason"]) for row in audits if row["reason"] is not None)
    return [
        f"  {verdict}, of {counted(count, 'destination')}: {reason}"
        for (verdict, reason), count in sorted(counts.items())
    ]


def _open(found: OpenWhenBegun) -> tuple[object, ...]:
    left = found.left
    count = f"at least {left.open_records:,}" if found.is_by_time else f"{left.open_records:,}"
    return (
        *(found.group_id, found.partition, _instant(found.begun_at), found.source_partition),
        *(count, left.first_open, left.unknown_records),
    )


def _open_json(found: OpenWhenBegun) -> dict[str, Any]:
    return asdict(found)


def _fence(row: Mapping[str, Any]) -> tuple[object, ...]:
    names = ("partition", "fence_low", "fence_high", "fence_exact", "confidence", "log_start_offset", "reason")
    return tuple(row[name] for name in names)


def _start(row: Mapping[str, Any]) -> tuple[object, ...]:
    names = ("group_id", "group_type", "partition", "first_start_offset", "skipped_records", "verdict")
    return tuple(row[name] for name in names)


def _interval(low: int | None, high: int | None) -> str | None:
    return None if low is None else f"{low}..{'?' if high is None else high}"


def _seen(position: int | None, at: dt.datetime | None) -> str | None:
    return None if position is None or at is None else f"{position} at {_instant(at)}"


def _block(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> list[str]:
    if not count:
        return []
    shown = [row for _, row in zip(range(ROWS_SHOWN), rows, strict=False)]
    more = [f"and {count - ROWS_SHOWN:,} more: --json has all"] if count > ROWS_SHOWN else []
    return ["", f"{title}:", table(headers, shown), *more]


def _list(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    more = [f"  and {len(texts) - ROWS_SHOWN:,} more"] if len(texts) > ROWS_SHOWN else []
    return ["", f"{title}:", *(printable(f"  {text}") for text in texts[:ROWS_SHOWN]), *more]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _instant(value) if isinstance(value, dt.datetime) else value for name, value in row.items()}


def _instant(at: dt.datetime | None) -> str | None:
    return None if at is None else utc_text(at)
