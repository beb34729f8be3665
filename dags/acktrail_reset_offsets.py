"""### Reset the start offsets of share groups

Triggered by hand only. `validate` reads the form, `preflight` and `group_empty` check that it can be done, `plan` takes
the snapshot and predicts what would happen to every share partition, `check_plan` checks that with Great Expectations.
**A dry run ends here, and is the default.** Then a person reads the plan and approves it (`approve`); `recheck` checks
that nothing changed, `execute` sends one request per group, `verify` reads the state topic and watches it for a while,
`check_result` checks the outcome. A rejection, or no answer in 20 hours, closes the plan for the command line too;
`ACKTRAIL_RESET_APPROVAL=second-person` on the workers keeps the requester from approving. Plan, decision, requests and
outcome are in `reset_plans`, `reset_executions` and the append-only `reset_audit`.

Where the partitions of a topic became more, the plan says what the reset means for the order of records of one key. *In
phases* lets partitions wait until those they depend on are finished.

**Needs** the groups without members, READ on groups and topics, Kafka 4.2 or later.

**When it fails** before `execute`, nothing was changed: correct what the log names and trigger a new run. When
`execute` fails, `verify` finds out what happened; if that fails too, clear `verify`: the plan stays UNKNOWN until it
succeeds. Never clear `execute`. `acktrail_rollback_offsets` undoes a reset, start offsets only.
"""

from __future__ import annotations

from airflow.sdk import dag

from acktrail_dags import parameters as p
from acktrail_dags import reset_steps as steps
from acktrail_dags.dag_profiles import DagProfile, dag_profiles


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        dag_id=profile.named("acktrail_reset_offsets"),
        description="Resets the start offsets of share groups: plan, approval, execution, verification.",
        doc_md=profile.doc(__doc__ or ""),
        **steps.dag_settings(profile),
        params={
            **profile.params(),
            "groups": p.names("Share groups", "Their ids, one per line. They must have no members."),
            "topics": p.topics(
                "One per line: TOPIC for all its partitions, TOPIC:0,2 for some. Empty with All topics."
            ),
            "all_topics": p.flag("All topics", "Every topic for which the group has a start offset."),
            "strategy": p.text(
                "Where to",
                "Named like the options of kafka-share-groups.sh. Fill in the one field below that it needs.",
                enum=[None, *steps.VALUE_FIELDS],
            ),
            "offset": p.number("Offset", "For to-offset: the offset of the next record to deliver."),
            "shift_by": p.number("Shift by", "For shift-by: records forward; negative: back.", minimum=-(1 << 63)),
            "datetime": p.text(
                "Date and time",
                "For to-datetime and to-history, with its time zone: 2026-03-01T08:00:00+01:00.",
                format="date-time",
            ),
            "duration": p.text(
                "Duration",
                "For by-duration: the time before now, in ISO 8601, such as PT2H or P1DT30M.",
                pattern=p.DURATION,
            ),
            "file": p.text("File of offsets", "For from-file: a CSV on the worker, as kafka-share-groups.sh reads it."),
            "allow_skip": p.flag(
                "Allow skipping", "Records below the new start offset are never delivered to the group."
            ),
            **p.key_order_fields(),
            **p.execution_fields(profile.kafka_conn_id),
        },
    )
    def acktrail_reset_offsets() -> None:
        """From the form to a verified result, with a person in between."""
        steps.plan_and_execute(steps.validate_reset(), "Reset the start offsets of share groups?")

    acktrail_reset_offsets()


for _profile in dag_profiles():
    make(_profile)
