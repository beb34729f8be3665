"""Plans as text that people can read and that is refused after an edit, as rows of ``reset_plans``, and as rows of what
they say about each share partition."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from acktrail.change.plan_hash import from_json_value, hash_of, to_json_value
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.notices import RefusedParts
from acktrail.errors import MalformedFile, PlanStale
from acktrail.times import instant_text

T = TypeVar("T")

DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
PLAN_AGAIN: Final = "make a new plan: acktrail change plan reset"
_TOTALS: Final = ("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten")
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp"),
)
_IMPACT: Final = (
    *("to_deliver", "hidden_ahead", "delivered_again", "passed_again", "skipped", "acknowledgements_known"),
    *("archived_known", "passed_acknowledged", "passed_archived"),
)


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


def read_text(file: Path, again: str) -> str:
    """The text of a plan's file. Raises MalformedFile: it cannot be read, or is no text (its hint is `again`)."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no text", file=str(file), hint=again) from error


def plan_data(text: str, where: str, versions: Mapping[str, int | None], *, again: str, what: str) -> dict[str, Any]:
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
        raise PlanStale("too_old", f"the plan was made at {created_at}", hint=PLAN_AGAIN)


def plan_row(plan: ChangePlan) -> dict[str, Any]:
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
