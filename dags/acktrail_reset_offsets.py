"""### Reset the start offsets of share groups

Triggered by hand only. **A dry run is the default**: it plans, previews and checks, and changes nothing.

```
validate >> preflight >> group_empty >> plan >> check_plan >> dry_run_ends_here
    >> approve >> note_decision >> recheck >> execute >> verify >> check_result
```

* `validate` reads the form.
* `preflight` checks groups, releases, rights and topics.
* `group_empty` waits until the groups have no members, as long as the form allows: deferred, it holds no slot.
* `plan` takes a snapshot and predicts what would happen to every share partition.
* `check_plan` checks the plan with Great Expectations.
* `dry_run_ends_here` skips the other tasks in a dry run.
* `approve` waits until a person has read the plan and decided.
* `note_decision` records the decision. A rejection, or no answer in 20 hours, closes the plan for the command line too.
* `recheck` checks that nothing changed since the plan.
* `execute` sends one request per group.
* `verify` reads the state topic and watches it for a while.
* `check_result` checks the outcome with Great Expectations.

An example of a configuration, a dry run. To change offsets after the approval, say `"dry_run": false`:

```json
{
    "groups": ["billing"],
    "topics": ["orders"],
    "strategy": "to-earliest",
    "reason": "Deliver all orders again after the repair of the invoices",
    "dry_run": true
}
```

`ACKTRAIL_RESET_APPROVAL=second-person` on the workers keeps the requester from approving. Plan, decision, requests and
outcome are in `reset_plans`, `reset_executions` and the append-only `reset_audit`.

**Needs** the groups without members, READ on groups and topics, Kafka 4.2 or later.

**When it fails**, **never clear `execute`.** Before `execute`, nothing was changed: correct what the log names and
trigger a new run. When `execute` fails, `verify` finds out what happened; if that fails too, clear `verify`: the plan
stays UNKNOWN until it succeeds. `acktrail_rollback_offsets` undoes a reset, start offsets only.
"""

from __future__ import annotations

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags import reset_steps as steps
from acktrail_dags.change_steps import dag_settings
from acktrail_dags.parameters import DagProfile, dag_profiles


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **dag_settings(profile, "acktrail_reset_offsets", __doc__),
        description="Resets the start offsets of share groups: plan, approval, execution, verification.",
        params={**profile.params(), **parameters.reset_form(profile.kafka_conn_id)},
    )
    def acktrail_reset_offsets() -> None:
        """From the form to a verified result, with a person in between."""
        steps.chain_reset_tasks(steps.validate_reset())

    acktrail_reset_offsets()


for _profile in dag_profiles():
    make(_profile)
