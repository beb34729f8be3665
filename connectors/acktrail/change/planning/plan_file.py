"""Plans as text that people can read and that is refused after an edit, as rows of ``reset_plans``, and as rows of what
they say about each share partition.

A plan is a frozen dataclass. It becomes plain data, what JSON can hold: dataclasses become objects, tuples lists,
enumerations their text. Back, every field must be there with the right type, and no other: an edited file is found out
by its shape first, then by its hash.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import types
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from acktrail.change.planning.change_plan import PLAN_FORMAT, PLAN_VERSION, ChangePlan, RefusedParts
from acktrail.errors import InputError, MalformedFile, PlanStale
from acktrail.times import instant_text

T = TypeVar("T")
PlanT = TypeVar("PlanT", bound=ChangePlan)

DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
PLAN_AGAIN: Final = "make a new plan: acktrail change plan reset"
_TOTALS: Final = ("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten")
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp"),
)
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_hints = cache(get_type_hints)
_IMPACT: Final = (
    *("to_deliver", "hidden_ahead", "delivered_again", "passed_again", "skipped", "acknowledgements_known"),
    *("archived_known", "passed_acknowledged", "passed_archived"),
)


def plan_json(plan: ChangePlan) -> str:
    """A plan as the text of a file."""
    return json.dumps(to_json_value(plan), indent=1, ensure_ascii=True) + "\n"


def write_text(text: str, file: Path) -> None:
    """Write ASCII `text` to `file`, whole or not at all. Raises MalformedFile: the file cannot be written."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=file.absolute().parent, delete=False) as part:
            part.write(text)
        Path(part.name).replace(file)
    except OSError as error:
        why = f"cannot be written ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error


def read_text(file: Path) -> str:
    """The text of a plan's file. Raises MalformedFile: it cannot be read, or is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no text", file=str(file), hint=PLAN_AGAIN) from error


def plan_data(text: str, where: str) -> dict[str, Any]:
    """The JSON object of a plan. Raises MalformedFile: it is no plan of a change. PlanStale: it is of another
    version."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no JSON", file=where, hint=PLAN_AGAIN) from error
    if not isinstance(data, dict) or data.get("format") != PLAN_FORMAT:
        raise MalformedFile("is no plan of a change", file=where, hint=PLAN_AGAIN)
    if data.get("version") != PLAN_VERSION:
        text = f"{where} is a plan of version {data.get('version')!r}, this is version {PLAN_VERSION}"
        raise PlanStale("other_version", text, hint=PLAN_AGAIN)
    return data


def checked_plan(kind: type[PlanT], data: dict[str, Any], where: str) -> PlanT:
    """The plan of its JSON object. Raises InputError: a field is wrong. PlanStale: it was edited."""
    plan = from_json_value(kind, data, where)
    if hash_of(plan) != plan.plan_hash:
        text = f"{where} was changed after it was made: its hash is another"
        raise PlanStale("edited_plan", text, hint=PLAN_AGAIN)
    return plan


def check_age(created_at_ms: int, *, now_ms: int, longest_ms: int = DAY_MS) -> None:
    """Refuse a plan from the future, or one that is too old. Raises PlanStale: `from_the_future` or `too_old`."""
    created_at = instant_text(created_at_ms)
    if created_at_ms > now_ms + _CLOCK_SKEW_MS:
        text = f"the plan says it was made at {created_at}, and it is {instant_text(now_ms)}"
        raise PlanStale("from_the_future", text, hint="check the clocks of both machines")
    if now_ms - created_at_ms > longest_ms:
        raise PlanStale("too_old", f"the plan was made at {created_at}", hint=PLAN_AGAIN)


def plan_row(plan: ChangePlan) -> dict[str, Any]:
    """The row of a plan of any kind."""
    row = {
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "kind": plan.kind,
        "created_at": dt.datetime.fromtimestamp(plan.created_at_ms / 1000, dt.UTC),
        "created_by": plan.created_by,
        "requested_by": plan.requested_by or None,
        "reason": plan.reason or None,
        "release": plan.release,
        "strategy": plan.strategy,
        "group_ids": list(plan.group_ids),
        "refusals": len(plan.refusals),
        "plan": plan_json(plan),
    }
    return {**row, "undoes": plan.undoes, **{name: getattr(plan.totals, name) for name in _TOTALS}}


def partition_rows(plan: ChangePlan) -> list[dict[str, Any]]:
    """One row for each share partition: where it is to start, what that does, whether a refusal is about it, and its
    notices."""
    refused = RefusedParts(plan.refusals)
    texts: dict[tuple[str | None, str | None, int | None], list[str]] = defaultdict(list)
    for notice in plan.notices:
        texts[notice.group_id, notice.topic, notice.partition].append(f"{notice.severity.value}: {notice.text}")
    rows = []
    for part in plan.partitions:
        row: dict[str, Any] = {"refused": part.key in refused, "notices": texts.get(part.key, [])}
        row |= {name: getattr(part, name) for name in _COPIED}
        rows.append(row | {name: getattr(part.impact, name, None) for name in _IMPACT})
    return rows


def to_json_value(value: Any) -> Any:
    """`value` as objects, lists, text (times to the microsecond), whole numbers, booleans and null."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [to_json_value(part) for part in value]
    if is_dataclass(kind):
        return {name: to_json_value(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {str(key): to_json_value(part) for key, part in value.items()}
    raise TypeError(f"{kind.__name__} is not plain data")


def from_json_value(kind: type[T], data: Any, where: str = "$") -> T:
    """A value of the dataclass `kind` from plain data. Raises InputError: a field is missing, unknown, or of another
    type."""
    try:
        return _read(kind, data)  # type: ignore[no-any-return]  # it was checked against `kind`
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from error


def canonical_json(data: Any) -> str:
    """The one text of plain data: keys sorted, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def fingerprint(data: Any) -> str:
    """``sha256:`` and the digest of the canonical text: equal for equal data in any order or layout."""
    return f"sha256:{hashlib.sha256(canonical_json(data).encode('ascii')).hexdigest()}"


def hash_of(plan: ChangePlan) -> str:
    """The hash that `plan` should have: over all fields but `plan_hash`."""
    data = to_json_value(plan)
    del data["plan_hash"]
    return fingerprint(data)


def with_hash(plan: PlanT) -> PlanT:
    """`plan` with the hash over its other fields."""
    return replace(plan, plan_hash=hash_of(plan))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _read(kind: Any, data: Any) -> Any:
    """`data` as a `kind`. Raises TypeError, ValueError: it is none."""
    parts = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return None if data is None else _read(next(part for part in parts if part is not type(None)), data)
    wanted: Any = list if parts else dict if is_dataclass(kind) else str if issubclass(kind, Enum) else kind
    if type(data) is not wanted:
        raise TypeError(f"{wanted.__name__} wanted, {type(data).__name__} found")
    if parts:
        kinds = [parts[0]] * len(data) if parts[-1] is Ellipsis else parts
        return tuple(_read(*each) for each in zip(kinds, data, strict=True))
    return _read_dataclass(kind, data) if wanted is dict else kind(data)


def _read_dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    names, hints = _names(kind), _hints(kind)
    if odd := sorted(set(names) ^ data.keys()):
        raise ValueError(f"field {odd[0]!r} is {'missing' if odd[0] in names else 'not known'}")
    return kind(**{name: _read(hints[name], data[name]) for name in names})
