"""Rules of partition expansions: what was observed of topics, the fences that follow, and what groups did across
them."""

from __future__ import annotations

from functools import partial
from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

EXPANSION_SUITE: Final = "partition_expansions"

_LOOK_AT_OBSERVER: Final = (
    "Look at what observes the cluster (`acktrail expand observe`, the connector `PartitionLedgerSource`): its clock, "
    "and "
    "whether two of them write into the same tables."
)
_AUDIT_AGAIN: Final = (
    "Run `acktrail expand audit` again; if it stays, the tables lost rows: `acktrail doctor --read-tables`."
)
_KIP: Final = "KIP-253"

_rule: Final = partial(QualityRule, suites=(EXPANSION_SUITE,))

EXPANSION_RULES: Final = (
    _rule(
        id="partition_count_not_falling",
        severity=QualitySeverity.CRITICAL,
        title="A topic keeps its partitions",
        meaning="A topic has fewer partitions than in the observation before, under the same topic id.",
        why="No broker does that: the observations are of two clusters or of restored metadata, and their fences "
        "prove nothing.",
        advice="Find out which cluster each run observed. Delete the rows of the wrong one, or begin with empty "
        "tables.",
        sources=("Kafka API CreatePartitions (INVALID_PARTITIONS for a lower count)",),
        tables=("partition_observations",),
    ),
    _rule(
        id="observation_has_every_partition",
        severity=QualitySeverity.ERROR,
        title="An observation has a row for each partition",
        meaning="A topic's observation has more or fewer partitions than its partition count.",
        why="A partition without a row has no fence, so that its verdicts are unknown.",
        advice=_LOOK_AT_OBSERVER,
        sources=("acktrail: one look is one commit",),
        tables=("partition_observations",),
    ),
    _rule(
        id="partition_observed_once",
        severity=QualitySeverity.ERROR,
        title="A run observes a partition once",
        meaning="Two observations of one partition have the same run id.",
        why="It is not known which of both the other rows of that run belong to.",
        advice=_LOOK_AT_OBSERVER,
        sources=("acktrail: one look has one run id",),
        tables=("partition_observations",),
    ),
    _rule(
        id="observation_clock_not_back",
        severity=QualitySeverity.WARNING,
        title="The observer's clock does not go back",
        meaning="An observation is older than one that was validated before it, lies in the future, or is later than "
        "the positions of groups that were read after it.",
        why="Fences and verdicts follow from the order of observations; in a wrong order they are too wide, or wrong.",
        advice="Synchronize the clock of the observer. Expansions that were seen meanwhile need a look by a person.",
        sources=("acktrail: observations are in the order of their instants",),
        tables=("partition_observations", "group_positions"),
    ),
    _rule(
        id="partition_leader_epoch_not_back",
        severity=QualitySeverity.ERROR,
        title="The leader epoch of a partition does not fall",
        meaning="A partition has a lower leader epoch than in the observation before.",
        why="Its metadata was restored or its log is another one: offsets of both observations cannot be compared.",
        advice="Find out what happened to the cluster's metadata. Fences of that partition from before prove nothing.",
        sources=("KIP-101", "KIP-320", "Kafka class PartitionRegistration (each new leader has a higher epoch)"),
        tables=("partition_observations",),
    ),
    _rule(
        id="epoch_end_ge_earlier_log_end",
        severity=QualitySeverity.ERROR,
        title="A leader has what the one before it had",
        meaning="The records of the epochs before the leader's own end below the log end that was observed under an "
        "earlier leader epoch.",
        why="The log lost records that every replica in sync had. Others stand at their offsets, so that offsets from "
        "before prove nothing.",
        advice="Look for unclean leader elections (`unclean.leader.election.enable`) and lost disks. Fences of that "
        "partition from before are unknown, with a reason in `expansion_fences`.",
        sources=(
            "Kafka class LeaderEpochFileCache (an epoch ends where the next one begins)",
            "Kafka class Partition (all replicas in sync have what is below the high watermark)",
            "KIP-101",
        ),
        tables=("partition_observations",),
    ),
    _rule(
        id="expansion_events_chain",
        severity=QualitySeverity.ERROR,
        title="Each expansion begins where the one before ended",
        meaning="An expansion has another old count than the count that the one before led to.",
        why="A count fell in between, or an expansion is missing: keys that moved there are in no dependency.",
        advice=_AUDIT_AGAIN,
        sources=("acktrail: expansions are differences of consecutive counts",),
        tables=("partition_expansions",),
    ),
    _rule(
        id="expansion_has_every_fence",
        severity=QualitySeverity.ERROR,
        title="An expansion has a fence for each source",
        meaning="The number of fences is not the number of partitions before the expansion.",
        why="A source without a fence is judged by nothing, and a verdict over all sources looks better than it is.",
        advice=_AUDIT_AGAIN,
        sources=(_KIP,),
        tables=("partition_expansions", "expansion_fences"),
    ),
    _rule(
        id="fence_low_le_high",
        severity=QualitySeverity.CRITICAL,
        title="No fence ends below its beginning",
        meaning="The low end of a fence is above its high end.",
        why="Verdicts `safe` and `violation` would both be proven by it.",
        advice=_AUDIT_AGAIN,
        sources=("acktrail: the log end at two observations",),
        tables=("expansion_fences",),
    ),
    _rule(
        id="fence_exact_ge_low",
        severity=QualitySeverity.ERROR,
        title="The exact fence is not below the fence's low end",
        meaning="A key audit found the end of the records from before an expansion below the log end that was observed "
        "before it.",
        why="The key audit read another log, or with another mapping of keys; verdicts rest on the interval and are "
        "true.",
        advice="Look whether the topic's `ACKTRAIL_KEY_MAPPINGS` is what its producers use, and run the key audit "
        "again.",
        sources=(_KIP,),
        tables=("expansion_fences",),
    ),
    _rule(
        id="fence_exact_le_high",
        severity=QualitySeverity.CRITICAL,
        title="The exact fence is not above the fence's high end",
        meaning="A key audit found a record that a producer wrote by the old count after the settle time.",
        why="The settle time is too short, so that a group that is called `safe` may not be.",
        advice="Set `ACKTRAIL_SETTLE` above [the sum](expansion.md#expand-a-topic) of the producers' times, "
        "and "
        "audit again.",
        sources=(_KIP, "Kafka class ProducerConfig (metadata.max.age.ms, delivery.timeout.ms)"),
        tables=("expansion_fences",),
    ),
    _rule(
        id="fence_not_expired",
        severity=QualitySeverity.WARNING,
        title="Records that could prove an open verdict are still in the log",
        meaning="A verdict on a group is `possible_violation` or `indeterminate` where the exact fence of its source "
        "could prove it, and the log of this source begins above the low end of the fence.",
        why="No key audit can prove the verdict any more: whether the group kept order stays open. That the retention "
        "reaches other fences is expected, and no finding.",
        advice="Treat a group that needs order as one that may have broken it. In other topics run `acktrail expand "
        "keys TOPIC` before their retention is over.",
        sources=("Kafka configuration retention.ms",),
        tables=("expansion_fences", "ordering_audits"),
    ),
    _rule(
        id="expansion_settles",
        severity=QualitySeverity.WARNING,
        title="An expansion settles",
        meaning="An expansion was not observed again for more than twice the settle time.",
        why="Its fences have no high end, so that no group is proven to be safe.",
        advice="Observe the topic: `acktrail expand observe`, or see why the scheduled observations stopped.",
        sources=("acktrail: an expansion is settled by an observation after the settle time",),
        tables=("partition_expansions",),
    ),
    _rule(
        id="ordering_verdict_known",
        severity=QualitySeverity.CRITICAL,
        title="Every verdict on order is a known one",
        meaning="An audited destination has no verdict, or one that this release does not have.",
        why="Nothing else can be relied on: counts of verdicts leave it out.",
        advice="A newer release wrote it, or the tables were changed: `acktrail doctor`.",
        sources=("acktrail: `acktrail.model.expansion.ordering`",),
        tables=("ordering_audits",),
    ),
    _rule(
        id="ordered_group_kept_order",
        severity=QualitySeverity.CRITICAL,
        title="Groups that need order kept it",
        meaning="A group of `ACKTRAIL_ORDERED_GROUPS` began with a destination while records of a source from before "
        "the "
        "expansion were unfinished: proven by two observations.",
        why="The group's results may be of records in the wrong order, and publishing them spreads it.",
        advice="Find the keys at risk (`acktrail expand keys`), and process them again in order: reset sources and "
        "destination to before the expansion, with the destination after its sources (docs/expansion.md).",
        sources=(_KIP,),
        tables=("ordering_audits",),
    ),
    _rule(
        id="group_kept_order",
        severity=QualitySeverity.WARNING,
        title="Groups finished what was before an expansion first",
        meaning="A group that is not marked as ordered began with a destination while records of a source from before "
        "the "
        "expansion were unfinished: proven by two observations.",
        why="Kafka promises no order between partitions, and none at all to share groups; a person knows whether the "
        "group needs it.",
        advice="If the group needs order, name it in `ACKTRAIL_ORDERED_GROUPS` and expand its topics by "
        "`acktrail expand apply`.",
        sources=(_KIP, "KIP-932"),
        tables=("ordering_audits",),
    ),
    _rule(
        id="new_partition_records_not_skipped",
        severity=QualitySeverity.ERROR,
        title="Groups begin a new partition at its first record",
        meaning="A group began with a partition of an expansion behind its log start: the records before that were "
        "never "
        "delivered to it.",
        why="They are lost for the group until it is reset; everything else about it is true.",
        advice="Reset the group to the log start of that partition: `acktrail reset plan --to-earliest`.",
        sources=("KAFKA-20742 (Kafka 4.4 begins at offset 0)", "Kafka configuration share.auto.offset.reset"),
        tables=("start_audits",),
    ),
)
"""In the order of the data's way."""
