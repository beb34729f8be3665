"""What the cluster answered in one observation, by share partition: the evidence beside a replayed state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.reconcile.state_values import NO_STATE
from acktrail.tables.delta.store import Tables

__all__ = ["Key", "Samples", "read_samples"]

Key = tuple[str, str | None, int]
"""Group id, topic id (null where the cluster did not say it) and partition."""

_Row = Mapping[str, Any]

_PHASES: Final = ("before", "after")
_SHARE_GROUP: Final = "share"
_OFFSETS: Final = (
    *("phase", "group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset"),
    *("start_offset", "lag", "error_code", "error"),
)
_GROUPS: Final = ("phase", "group_id", "group_type", "group_state", "error_code")
_TOPICS: Final = ("topic_id", "topic", "status", "last_seen_at")
_SAID_OF_SHARE: Final = ("start_offset", "lag", "error_code", "error")
_SAID_OF_LOG: Final = ("log_start_offset", "log_end_offset")
_SAID_OF_GROUP: Final = ("group_state", "error_code")
_ROWS_AT_ONCE: Final = 8_192

_OF_NO_RECORD: Final = (
    *("state_partition", "archived_seen", "last_record_offset", "last_record_timestamp_ms", "completeness"),
    *("completeness_reason", "is_misplaced", "initialized_at", "archived_at", "unreadable_at", "broken_rules"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The two samples of one observation. The first row of a phase counts; a part that no row speaks of is missing.

    `described`: by share partition and phase; `described_topics`: the names that came with them. `logs`: by topic id
    and partition. `groups`: share groups only. `group_errors`: errors that stand for every share partition of a group.
    `topics`: name and status of each topic id, the newest.
    """

    described: dict[Key, dict[str, _Row]] = field(default_factory=dict)
    described_topics: dict[Key, str | None] = field(default_factory=dict)
    logs: dict[tuple[str | None, int], dict[str, _Row]] = field(default_factory=dict)
    groups: dict[str, dict[str, _Row]] = field(default_factory=dict)
    group_errors: dict[str, dict[str, str]] = field(default_factory=dict)
    topics: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def beside(self, row: _Row) -> dict[str, Any]:
        """A replayed row with all that was said of its share partition: what ``Judge.judged`` takes."""
        key = (row["group_id"], row["topic_id"], row["partition"])
        return {**row, **self._said(key), "is_durable": 1, "found_on": [row["state_partition"]]}

    def only_described(self, replayed: set[Key]) -> Iterator[dict[str, Any]]:
        """The same for each share partition that was described and is none of those `replayed`."""
        for key in self.described:
            if key[1] is None or key not in replayed:
                own = {"group_id": key[0], "topic_id": key[1], "partition": key[2]}
                yield {**_NOTHING, **own, **self._said(key)}

    def topic_of(self, topic_id: str) -> str | None:
        """The newest name of a topic id; None where it was never seen."""
        return self.topics.get(topic_id, (None, None))[0]

    def _said(self, key: Key) -> dict[str, Any]:
        group_id, topic_id, partition = key
        topic, status = (None, None) if topic_id is None else self.topics.get(topic_id, (None, None))
        found: dict[str, Any] = {
            "topic": topic,
            "topic_status": status,
            "described_topic": self.described_topics.get(key),
        }
        described = self.described.get(key, {})
        log: Mapping[str, _Row] = {} if topic_id is None else self.logs.get((topic_id, partition), {})
        group, errors = self.groups.get(group_id, {}), self.group_errors.get(group_id, {})
        for phase in _PHASES:
            found[phase] = described.get(phase)
            found[f"log_{phase}"] = log.get(phase)
            found[f"group_{phase}"] = group.get(phase)
            found[f"group_error_{phase}"] = errors.get(phase)
        return found


def read_samples(tables: Tables, run_id: str) -> Samples:
    """The samples of observation `run_id`."""
    samples, own = Samples(), pc.field("run_id") == run_id
    for row in _rows(tables.read("offset_observations", columns=_OFFSETS, where=own)):
        if row["group_id"] is None:
            logs = samples.logs.setdefault((row["topic_id"], row["partition"]), {})
            logs.setdefault(row["phase"], _some(row, _SAID_OF_LOG))
        elif row["partition"] is None:
            _add_group_error(samples, row)
        else:
            _add_described(samples, row)
    for row in _rows(tables.read("group_observations", columns=_GROUPS, where=own)):
        if (row["group_type"] or _SHARE_GROUP).lower() == _SHARE_GROUP:
            samples.groups.setdefault(row["group_id"], {}).setdefault(row["phase"], _some(row, _SAID_OF_GROUP))
    for row in sorted(_rows(tables.read("topics", columns=_TOPICS)), key=lambda row: row["last_seen_at"]):
        samples.topics[row["topic_id"]] = (row["topic"], row["status"])
    return samples


def _add_described(samples: Samples, row: _Row) -> None:
    """Without a topic id and an error a row says only that the topic is not there."""
    if row["topic_id"] is None and not row["error_code"]:
        return
    key = (row["group_id"], row["topic_id"], row["partition"])
    samples.described.setdefault(key, {}).setdefault(row["phase"], _some(row, _SAID_OF_SHARE))
    samples.described_topics.setdefault(key, row["topic"])


def _add_group_error(samples: Samples, row: _Row) -> None:
    if row["error_code"]:
        errors = samples.group_errors.setdefault(row["group_id"], {})
        errors.setdefault(row["phase"], row["error"] or f"error {row['error_code']}")


def _some(row: _Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from batch.to_pylist()


_NOTHING: Final[Mapping[str, Any]] = {
    **NO_STATE,
    **dict.fromkeys(_OF_NO_RECORD),
    "is_durable": None,
    "found_on": None,
}
