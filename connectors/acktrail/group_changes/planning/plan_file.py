"""Plans as text that people can read and that is refused after an edit: in files and in ``reset_plans``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from acktrail.errors import MalformedFile, PlanStale
from acktrail.group_changes.json_values import from_json_value, hash_of, to_json_value
from acktrail.group_changes.planning.group_change_plan import GROUP_CHANGE_FORMAT, GroupChangePlan
from acktrail.group_changes.planning.plan import PLAN_FORMAT, PLAN_VERSION, ResetPlan
from acktrail.times import instant_text

Plan = ResetPlan | GroupChangePlan

DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
_AGAIN: Final = "make a new plan: acktrail reset plan"


def plan_json(plan: Plan) -> str:
    """The plan as the text of a file."""
    return json.dumps(to_json_value(plan), indent=1, ensure_ascii=True) + "\n"


def write_text(text: str, file: Path) -> None:
    """Write ASCII `text` to `file`, whole or not at all.

    Raises:
        MalformedFile: the file cannot be written.
    """
    import tempfile

    try:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=file.absolute().parent, delete=False) as part:
            part.write(text)
        Path(part.name).replace(file)
    except OSError as error:
        why = f"cannot be written ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error


def read_plan(file: Path) -> ResetPlan:
    """The reset plan in `file`.

    Raises:
        MalformedFile: it cannot be read, or is no plan.
        PlanStale: it is of another version, or it was edited.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no text", file=str(file), hint=_AGAIN) from error
    plan = parse_plan(text, str(file))
    if not isinstance(plan, ResetPlan):
        raise MalformedFile("is no reset plan", file=str(file), hint=_AGAIN)
    return plan


def parse_plan(text: str, where: str) -> Plan:
    """The plan of any kind in `text`, which comes from `where`. Raises as `read_plan`."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no JSON", file=where, hint=_AGAIN) from error
    plan_format = data.get("format") if isinstance(data, dict) else None
    if plan_format not in (PLAN_FORMAT, GROUP_CHANGE_FORMAT):
        raise MalformedFile("is no reset plan", file=where, hint=_AGAIN)
    version = data.get("version")
    if plan_format == PLAN_FORMAT and version not in (1, PLAN_VERSION):
        text = f"{where} is a plan of version {version!r}, this is version {PLAN_VERSION}"
        raise PlanStale("other_version", text, hint=_AGAIN)
    kind: type[Plan] = ResetPlan if plan_format == PLAN_FORMAT else GroupChangePlan
    plan: Plan = from_json_value(kind, data, where)
    if hash_of(plan) != plan.plan_hash:
        raise PlanStale("edited_plan", f"{where} was changed after it was made: its hash is another", hint=_AGAIN)
    return plan


def check_age(created_at_ms: int, *, now_ms: int, longest_ms: int = DAY_MS) -> None:
    """Refuse a plan from the future, or one that is too old.

    Raises:
        PlanStale: `from_the_future` or `too_old`.
    """
    created_at = instant_text(created_at_ms)
    if created_at_ms > now_ms + _CLOCK_SKEW_MS:
        text = f"the plan says it was made at {created_at}, and it is {instant_text(now_ms)}"
        raise PlanStale("from_the_future", text, hint="check the clocks of both machines")
    if now_ms - created_at_ms > longest_ms:
        raise PlanStale("too_old", f"the plan was made at {created_at}", hint=_AGAIN)
