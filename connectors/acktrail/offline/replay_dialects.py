"""Replay of copied records of any dialect by its own rules, with the states as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from acktrail.drafts.checkpoint_log import replay_checkpoint_log
from acktrail.drafts.control_log import head_index, replay_back_chains, replay_control_log
from acktrail.drafts.draft_json import draft_state_json
from acktrail.drafts.draft_records import ControlCheckpoint
from acktrail.drafts.snapshot_log import replay_draft_log
from acktrail.model.records import RecordAt
from acktrail.model.replay import replay
from acktrail.model.strict.strict_replay import replay_strictly
from acktrail.model.strict.violations import Policy, Violation
from acktrail.offline.record_json import SKIPPED_BY_RULES, state_json
from acktrail.wire.dialects.released import Dialect

_Records = Iterable[RecordAt[Any]]
_Form = dict[str, object]
_Result = tuple[Iterable[_Form], Sequence[Violation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectReplay:
    """One JSON object a share partition, ordered by its key, and the violations in log order. `differences` are the
    violations by skipped records, which a broker would have applied."""

    states: tuple[_Form, ...]
    violations: tuple[Violation, ...]
    differences: tuple[Violation, ...]


def replay_records(
    dialect: Dialect[Any], records: Iterable[RecordAt[Any]], policy: Policy, *, audited: bool = True
) -> DialectReplay:
    """The states after `records` of `dialect`, which come in log order within a partition. The shipped dialects and
    generation iv follow `policy`; generations i to iii follow their document. `audited` False: by policy ``broker``,
    shipped records are not checked for violations, which saves memory."""
    rules = _DRAFT_RULES.get(dialect.name, partial(_shipped, audited=audited or policy is Policy.STRICT))
    states, violations = rules(records, policy)
    ordered = sorted(states, key=lambda form: (form["group"], form["topic_id"] or "", form["partition"]))
    lenient = policy is Policy.BROKER and dialect.name not in _WITHOUT_POLICY
    differences = () if lenient else tuple(violation for violation in violations if violation.rule in SKIPPED_BY_RULES)
    return DialectReplay(states=tuple(ordered), violations=tuple(violations), differences=differences)


def _shipped(records: _Records, policy: Policy, *, audited: bool) -> _Result:
    if not audited:
        return map(state_json, replay(record_at.record for record_at in records).values()), ()
    records = [*records]
    strict = replay_strictly(records)
    states = strict.states if policy is Policy.STRICT else replay(record_at.record for record_at in records)
    return map(state_json, states.values()), strict.violations


def _draft(records: _Records, policy: Policy) -> _Result:
    replayed = replay_draft_log(records, policy=policy)
    return map(draft_state_json, replayed.states.values()), replayed.violations


def _checkpoints(records: _Records, _policy: Policy) -> _Result:
    records = [*records]
    expected: dict[int, int] = {}
    is_compacted = False  # an offset is missing
    for record_at in records:
        is_compacted |= record_at.offset != expected.get(record_at.partition, 0)
        expected[record_at.partition] = record_at.offset + 1
    replayed = replay_checkpoint_log(records, compacted=is_compacted)
    return map(draft_state_json, replayed.states.values()), replayed.violations


def _scanned(records: _Records, _policy: Policy) -> _Result:
    states: list[_Form] = []
    violations: list[Violation] = []
    for (partition, group_id), own in _by(records, lambda p: (p.partition, p.record.group_id)).items():
        first = own[0].record
        is_cleaned = not (isinstance(first, ControlCheckpoint) and first.checkpoint_epoch == 1)
        replayed = replay_control_log(own, cleaned=is_cleaned)
        if group_id in replayed.states:
            states.append(draft_state_json(replayed.states[group_id], partition))
        violations += replayed.violations
    return states, sorted(violations, key=_place)


def _chained(records: _Records, _policy: Policy) -> _Result:
    states: list[_Form] = []
    violations: list[Violation] = []
    for partition, own in _by(records, lambda p: p.partition).items():
        for chain in replay_back_chains(own, head_index(own)).values():
            if chain.state is not None:
                states.append(draft_state_json(chain.state, partition))
            violations += chain.violations
    return states, sorted(violations, key=_place)


def _by(records: _Records, key: Callable[[RecordAt[Any]], Any]) -> dict[Any, list[RecordAt[Any]]]:
    groups: defaultdict[Any, list[RecordAt[Any]]] = defaultdict(list)
    for record_at in records:
        groups[key(record_at)].append(record_at)
    return groups


def _place(violation: Violation) -> tuple[int, int]:
    return violation.partition, violation.offset


_WITHOUT_POLICY: Final = frozenset({"i", "ii", "iii"})
_DRAFT_RULES: Final[Mapping[str, Callable[[_Records, Policy], _Result]]] = MappingProxyType(
    {"i": _scanned, "ii": _chained, "iii": _checkpoints, "iv": _draft, "iv-json": _draft}
)
