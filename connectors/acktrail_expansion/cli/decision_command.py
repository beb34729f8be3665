"""``acktrail expand approve`` and ``reject``: a person's decision about the plan of an expansion."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.plan_decisions import Decision, NotedDecision, decision_command


def _note(decision: Decision) -> NotedDecision:
    from acktrail.group_changes.lifecycle.plan_life import Step
    from acktrail.group_changes.lifecycle.plan_status import Admission
    from acktrail_expansion.change.apply_expansion import open_expansion_journal
    from acktrail_expansion.change.expansion_plan import read_expansion_plan

    loaded = read_expansion_plan(Path(decision.plan))
    admission = Admission(journal=open_expansion_journal(decision.tables, loaded, actor=decision.by), plan=loaded)
    step = Step.APPROVE if decision.is_approved else Step.REJECT
    life = admission.decide(step, actor=decision.by, why=decision.why)
    command = f"acktrail expand apply {decision.plan} --execute"
    return NotedDecision(plan_id=loaded.plan_id, standing=life.standing.value, command=command)


_decision_command = partial(decision_command, _note, lean_tables, plan_help="The plan's file.")

approve = _decision_command(
    is_approved=True,
    about="""Approve the plan of an expansion, as this account.

    Needed where ACKTRAIL_RESET_APPROVAL is required or second-person. Changes nothing in the cluster.
    """,
)
reject = _decision_command(
    is_approved=False, about="Reject the plan of an expansion: it cannot be carried out any more."
)
