"""A true topic that is looked at, expanded and audited: scenes of it are written as words.

=============  =======================================================================================================
word           meaning
=============  =======================================================================================================
``write``      records of every key by a producer that knows the count
``stale``      by one that learned the count when the topic was made, and never again
``commit``     records in a transaction; ``abort``: in one that is aborted
``all``        every group finishes all that is there; ``old``, ``new``: in partitions that were there first, or not
``half``       the first half of what the old partitions have
``look``       one look at partitions and groups
``apply N``    N partitions, as ``acktrail change apply`` makes them, between two looks; ``client N``: by Kafka's own
               client, without a look
``reset``      every group goes back to the beginning of the old partitions
``retain``     the records that are there are removed from the old partitions; ``compact``: old values of keys are
``anew N``     the topic is deleted and made again with N partitions; everybody begins anew
=============  =======================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from extras.expansion.support.true_traffic import TrueTopic, commit
from samples.history_tables import build
from servers.workload import start_at, until

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail.times import new_run_id
from acktrail_connect.export.export_run import export
from acktrail_expansion.audit.audit_run import audit_expansions
from acktrail_expansion.change.expansion_plan import make_plan
from acktrail_expansion.keys.key_reading import read_keys, store_keys_at_risk
from acktrail_expansion.observations.ledger_connector import take_look
from acktrail_jobs.frames import in_process

GROUPS: Final = ("share", "consumer", "classic")
_WRITES: Final[dict[str, dict[str, Any]]] = {
    "write": {"rounds": 3},
    "stale": {"rounds": 3, "stale": True},
    "commit": {"ends": "commit"},
    "abort": {"ends": "abort"},
}


class ExpandedTopic:
    """What happens to a topic, and what is proven of it."""

    def __init__(self, admin: ShareGroupAdmin, true: TrueTopic, tables: TablesConfig) -> None:
        self.admin, self.true, self.tables = admin, true, tables
        self.stored = Tables(tables)

    def play(self, script: str) -> None:
        """Each word of a scene, one after the other."""
        words = iter(script.split())
        for word in words:
            if word in ("all", "old", "half", "new"):
                self._take(word)
            elif word in _WRITES:
                self.true.write(**_WRITES[word])
            elif word in ("apply", "client", "anew"):
                getattr(self, word)(int(next(words)))
            else:
                getattr(self, word)()

    def _take(self, word: str) -> None:
        old, now = self.true.counts[0], self.true.counts[-1]
        partitions = {"all": range(now), "new": range(old, now)}.get(word, range(old))
        if word == "new":
            until(self._has_every_partition, what="new partitions for the share group")
        for group_type, member in self.true.members.items():
            member.take(self.true.places(group_type, partitions, 0.5 if word == "half" else 1))

    def _has_every_partition(self) -> bool:
        """Whether the share group's member is assigned all partitions, or joins the group only now. One that wants new
        records before it can get them releases old ones until Kafka archives them: order is kept then."""
        try:
            members = self.admin.describe_group(self.true.group("share")).members
        except UnknownName:
            return True
        assigned = [each for member in members for each in member.assignment if each.topic == self.true.name]
        return {n for each in assigned for n in each.partitions} == {*range(self.true.counts[-1])}

    def look(self) -> None:
        take_look(self.admin, self.tables, topics=[self.true.name])

    def apply(self, count: int) -> None:
        plan = make_plan(self.admin, self.true.name, count, created_by="ann")
        with Cluster(self.true.config) as cluster:
            journal = api.open_journal(self.tables, plan, actor="ann")
            api.store_plan(self.tables, plan)
            api.execute(cluster, journal, plan)
            api.verify(cluster, journal, plan)
        self.true.counts.append(count)

    def client(self, count: int) -> None:
        self.true.workload.add_partitions(self.true.name, count)
        self.true.counts.append(count)

    def reset(self) -> None:
        partitions = range(self.true.counts[0])
        for group_type in list(self.true.members):
            log, group = self.true.members[group_type].log, self.true.group(group_type)
            self.true.members.pop(group_type).close()
            if group_type == "share":
                start_at(self.true.config, group, {(self.true.name, partition): 0 for partition in partitions})
            else:
                commit(self.true.workload.admin, group, self.true.name, *(0 for _ in partitions))
            self.true.join(group_type).log = log
            log.reset(partitions)

    def retain(self) -> None:
        ends = [TopicPartition(self.true.name, partition, -1) for partition in range(self.true.counts[0])]
        for future in self.true.workload.admin.delete_records(ends).values():
            future.result()
        self.true.keep_what_is_there()

    def compact(self) -> None:
        def is_compacted() -> bool:
            self.true.write()  # a log's newest segment is compacted once another one follows
            known = len(self.true.records)
            self.true.keep_what_is_there()
            return len(self.true.records) < known

        until(is_compacted, what="compaction")
        self.true.workload.configure_topic(self.true.name, min_compaction_lag_ms="604800000")  # nothing goes any more
        until(lambda: not is_compacted(), what="the end of what a cleaner just works on")

    def anew(self, count: int) -> None:
        left = list(self.true.members)
        for group_type in left:
            self.true.members.pop(group_type).close()
        self.true.workload.delete_topic(self.true.name)
        until(lambda: self.true.name not in self.true.workload.admin.list_topics().topics, what="no topic")
        self.true.workload.create_topic(self.true.name, count)
        self.true.counts, self.true.records, self.true.aborted = [count], [], []
        for group_type in left:
            self.true.join(group_type)

    def export(self) -> None:
        """State records, and the history of deliveries."""
        export(self.true.config, self.tables, run_id=new_run_id())
        build(self.stored)

    def audit(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Rows of verdicts by type of group and destination, of the newest expansion of the topic as it is now."""
        audit_expansions(self.tables, in_process())
        return self._verdicts()

    def _verdicts(self) -> dict[tuple[str, int], dict[str, Any]]:
        rows = self.stored.rows("expansion_verdicts", {"event_id": self.event()["event_id"]})
        return {(row["group_id"].removesuffix(f"-{self.true.name}"), row["partition"]): row for row in rows}

    def event(self) -> dict[str, Any]:
        """The newest expansion."""
        topic_id = self.admin.topics([self.true.name])[0].topic_id
        rows = self.stored.rows("partition_expansions", {"topic_id": topic_id})
        return max(rows, key=lambda row: row["sequence"])

    def read_keys(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The verdicts once keys were read, as ``acktrail expand check`` does."""
        event = self.event()
        both = read_keys(self.true.config, self.stored, in_process(), event)
        audit_expansions(self.tables, in_process())
        store_keys_at_risk(self.stored, event["event_id"], both)
        return self._verdicts()


@contextmanager
def expanded_topic(
    config: KafkaConfig, tables: Path, name: str, partitions: int, groups: tuple[str, ...] = GROUPS, **named: str
) -> Iterator[ExpandedTopic]:
    """A topic with a member of each of these types of groups. `named`: as for `TrueTopic`."""
    true = TrueTopic(config, name, partitions, **named)
    with true.joined(groups), ShareGroupAdmin(config) as admin:
        yield ExpandedTopic(admin, true, TablesConfig(uri=str(tables)))
