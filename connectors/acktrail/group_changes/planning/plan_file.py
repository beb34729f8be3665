"""Plans as text that people can read and that is refused after an edit, and as rows of the tables ``reset_plans`` and
``reset_plan_partitions``."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from acktrail.errors import MalformedFile, PlanStale
from acktrail.group_changes.json_values import from_json_value, hash_of, to_json_value
from acktrail.group_changes.planning.group_change_plan import GROUP_CHANGE_FORMAT, GroupChangePlan
from acktrail.group_changes.planning.notices import RefusedParts
from acktrail.group_changes.planning.plan import PLAN_FORMAT, PLAN_VERSION, ResetPlan
from acktrail.times import instant_text

T = TypeVar("T")
Plan = ResetPlan | GroupChangePlan

DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
_AGAIN: Final = "make a new plan: acktrail reset plan"
_TOTALS: Final = (
    *("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten"),
    *("in_flight_discarded", "acknowledgements_known", "archived_known"),
)
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp", "first_record_ms", "last_record_ms"),
)
_IMPACT: Final = (
    *("to_deliver", "delivered_again", "passed_again", "acknowledgements_forgotten", "archived_forgotten"),
    *("skipped", "in_flight_discarded", "acknowledgements_known", "archived_known", "unit", "hidden_ahead"),
    *("passed_acknowledged", "passed_archived", "passed_unknown"),
)
_STATE: Final = ("state_partition", "first_unfinished_offset", "snapshot_epoch", "state_epoch")
_BATCH: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")


def plan_json(plan: Any) -> str:
    """A plan, a dataclass of any kind, as the text of a file."""
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


def read_plan(file: Path) -> Plan:
    """The plan of any kind in `file`. Raises MalformedFile: it cannot be read, or is no plan. PlanStale: it is of
    another version, or it was edited."""
    return parse_plan(read_text(file, _AGAIN), str(file))


def read_text(file: Path, again: str) -> str:
    """The text of a plan's file. Raises MalformedFile: it cannot be read, or is no text (its hint is `again`)."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no text", file=str(file), hint=again) from error


def parse_plan(text: str, where: str) -> Plan:
    """The plan of any kind in `text`, which comes from `where`. Raises as `read_plan`."""
    data = plan_data(text, where, {PLAN_FORMAT: PLAN_VERSION, GROUP_CHANGE_FORMAT: None}, again=_AGAIN)
    kind: type[Plan] = ResetPlan if data["format"] == PLAN_FORMAT else GroupChangePlan
    return checked_plan(kind, data, where, again=_AGAIN)


def plan_data(
    text: str, where: str, versions: Mapping[str, int | None], *, again: str, what: str = "reset plan"
) -> dict[str, Any]:
    """The JSON object of a plan in one of the formats in `versions`, with the version that can be read (None:
    any). Raises MalformedFile: it is no `what`. PlanStale: it is of another version."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no JSON", file=where, hint=again) from error
    plan_format = data.get("format") if isinstance(data, dict) else None
    if not isinstance(plan_format, str) or plan_format not in versions:
        raise MalformedFile(f"is no {what}", file=where, hint=again)
    known, version = versions[plan_format], data.get("version")
    if known not in (None, version):
        text = f"{where} is a plan of version {version!r}, this is version {known}"
        raise PlanStale("other_version", text, hint=again)
    found: dict[str, Any] = data
    return found


def checked_plan(kind: type[T], data: dict[str, Any], where: str, *, again: str) -> T:
    """A plan, a dataclass `kind` with a field `plan_hash`, of its JSON object. Raises InputError: a field is wrong.
    PlanStale: it was edited."""
    plan: Any = from_json_value(kind, data, where)
    if hash_of(plan) != plan.plan_hash:
        raise PlanStale("edited_plan", f"{where} was changed after it was made: its hash is another", hint=again)
    found: T = plan
    return found


def check_age(created_at_ms: int, *, now_ms: int, longest_ms: int = DAY_MS) -> None:
    """Refuse a plan from the future, or one that is too old. Raises PlanStale: `from_the_future` or `too_old`."""
    created_at = instant_text(created_at_ms)
    if created_at_ms > now_ms + _CLOCK_SKEW_MS:
        text = f"the plan says it was made at {created_at}, and it is {instant_text(now_ms)}"
        raise PlanStale("from_the_future", text, hint="check the clocks of both machines")
    if now_ms - created_at_ms > longest_ms:
        raise PlanStale("too_old", f"the plan was made at {created_at}", hint=_AGAIN)


def plan_row(plan: Plan) -> dict[str, Any]:
    """The row of a plan of any kind."""
    row = {
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "kind": plan.kind.value,
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


def partition_rows(plan: Plan) -> list[dict[str, Any]]:
    """One row for each share partition."""
    refused = RefusedParts(plan.refusals)
    texts: dict[tuple[str | None, str | None, int | None], list[str]] = defaultdict(list)
    for notice in plan.notices:
        texts[notice.group_id, notice.topic, notice.partition].append(f"{notice.severity.value}: {notice.text}")
    rows = []
    for part in plan.partitions:
        row = {"plan_id": plan.plan_id, "refused": part.key in refused, "notices": texts.get(part.key, [])}
        row |= {name: getattr(part, name) for name in _COPIED}
        row |= {name: getattr(part.impact, name, None) for name in _IMPACT}
        if part.state is not None:
            row |= {name: getattr(part.state, name) for name in _STATE}
            row["batches"] = [dict(zip(_BATCH, batch, strict=True)) for batch in part.state.batches]
        rows.append(row)
    return rows
