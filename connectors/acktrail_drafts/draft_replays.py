"""Replays by the founding documents, with all that they find as JSON: of each draft, and of released records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from acktrail.format.wire.dialects.dialect import DialectReplay, JsonForm
from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy, replay
from acktrail.offline.record_json import state_json
from acktrail_drafts.checkpoint_log import replay_checkpoint_log
from acktrail_drafts.control_log import head_index, replay_back_chains, replay_control_log
from acktrail_drafts.draft_json import draft_state_json, finding_json
from acktrail_drafts.draft_records import ControlCheckpoint
from acktrail_drafts.snapshot_log import replay_draft_log
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_drafts.violations import Violation

_Records = Iterable[RecordAt[Any]]


def replay_released(records: _Records, policy: Policy) -> DialectReplay:
    """Records of a release, by either policy."""
    records = [*records]
    strict = replay_strictly(records)
    states = strict.states if policy is Policy.STRICT else replay(record_at.record for record_at in records)
    return _told(map(state_json, states.values()), strict.violations, policy)


def replay_draft(records: _Records, policy: Policy) -> DialectReplay:
    """Generation iv, by either policy."""
    replayed = replay_draft_log(records, policy=policy)
    return _told(map(draft_state_json, replayed.states.values()), replayed.violations, policy)


def replay_checkpoints(records: _Records, _policy: Policy) -> DialectReplay:
    """Generation iii, which has one policy. Where an offset is missing, the log was compacted."""
    records = [*records]
    offsets = ([record_at.offset for record_at in own] for _, own in _by(records, "partition"))
    is_compacted = any(found != [*range(len(found))] for found in offsets)
    replayed = replay_checkpoint_log(records, compacted=is_compacted)
    return _told(map(draft_state_json, replayed.states.values()), replayed.violations)


def replay_scanned(records: _Records, _policy: Policy) -> DialectReplay:
    """Generation i, which has one policy: each group's records forwards."""
    states: list[JsonForm] = []
    violations: list[Violation] = []
    for (partition, group_id), own in _by(records, "partition", "record.group_id"):
        first = own[0].record
        is_cleaned = not (isinstance(first, ControlCheckpoint) and first.checkpoint_epoch == 1)
        replayed = replay_control_log(own, cleaned=is_cleaned)
        if group_id in replayed.states:
            states.append(draft_state_json(replayed.states[group_id], partition))
        violations += replayed.violations
    return _told(states, violations)


def replay_chained(records: _Records, _policy: Policy) -> DialectReplay:
    """Generation ii, which has one policy: each group's chain backwards."""
    states: list[JsonForm] = []
    violations: list[Violation] = []
    for partition, own in _by(records, "partition"):
        for chain in replay_back_chains(own, head_index(own)).values():
            if chain.state is not None:
                states.append(draft_state_json(chain.state, partition))
            violations += chain.violations
    return _told(states, violations)


def _told(states: Iterable[JsonForm], violations: Sequence[Violation], policy: Policy = Policy.STRICT) -> DialectReplay:
    """By policy ``broker`` every record was applied: nothing differs from a broker's replay."""
    findings = [*map(finding_json, sorted(violations, key=attrgetter("partition", "offset")))]
    differences = [] if policy is Policy.BROKER else [finding for finding in findings if finding["changes_state"]]
    return DialectReplay(states=[*states], findings=findings, differences=differences)


def _by(records: _Records, *names: str) -> Iterator[tuple[Any, list[RecordAt[Any]]]]:
    of = attrgetter(*names)
    return ((key, [*own]) for key, own in groupby(sorted(records, key=of), of))
