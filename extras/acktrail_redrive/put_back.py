"""The transactions of one attempt at a redrive, one after the other, at the pace that is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any, Final

from acktrail.activity import doing, stop_on_signals
from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.audit.plan_life import PLAN_AGAIN
from acktrail.change.change_kind import ChangeRun
from acktrail.errors import AcktrailError, PlanStale
from acktrail.kafka.admin import client_of
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.kafka.client.transactions import TransactionEnding, Transactions
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.record_ranges import SourceRecord, TopicRecords
from acktrail.model.offset_ranges import Span, joined
from acktrail_connect.sinks.transactional_writer import OutRecord, TransactionalWriter
from acktrail_redrive import IDS
from acktrail_redrive.redrive_headers import COUNT, NUMBER, PLAN, header_number
from acktrail_redrive.redrive_plan import RecordList, RedrivePlan
from acktrail_redrive.redriven_records import RedrivenRecords

_MOST_RECORDS: Final = 10_000
_MOST_BYTES: Final = 16 << 20
"""Of a transaction, on average."""
_PAUSE_S: Final = 2.0
"""Of records at the given rate are in a transaction: so long a stop waits."""
_BATCH_BYTES: Final = 1_000_000


def id_of(plan: RedrivePlan, attempt: int, part: Span) -> str:
    """The transactional id that an attempt uses for one range, once."""
    return f"{IDS}{plan.plan_id}-{attempt}-{part[0]}-{part[1]}"


class PutBack:
    """What an attempt sends: `left` of the list, cut into transactions."""

    def __init__(self, run: ChangeRun[RedrivePlan], attempt: Attempt, left: Sequence[Span]) -> None:
        self._run, self._plan, self._attempt = run, run.plan, attempt
        self._admin, self._kafka = run.cluster.admin, run.cluster.kafka
        self._parts = [*_cut(left, _records_at_once(run.plan, run.pace.rate))]
        self._transactions = Transactions(client_of(self._admin))
        self._stored = RedrivenRecords(run)
        self._list = RecordList(run.plan)

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the audit row before the first transaction has; `ends`: the high watermarks of the target by then."""
        target = self._plan.target
        places = [TopicPartition(topic=target.topic, partition=number) for number in range(target.partition_count)]
        ends = {str(log.partition): log.high_watermark or 0 for log in self._admin.list_offsets(places)}
        return {"request": "Produce", "topic": target.topic, "parts": self._parts, "ends": ends}

    def send(self) -> tuple[ChangeResult, ...]:
        """Write every transaction, unless something ends that earlier; one result each, and for the rest."""
        is_main = threading.current_thread() is threading.main_thread()
        begun, sent, results = time.monotonic(), 0, list[ChangeResult]()
        source = self._source()
        with stop_on_signals() if is_main else nullcontext(threading.Event()) as stop:
            for part in self._parts:
                outcome, why = self._one(part, source)
                results.append(self._result(outcome, why))
                if outcome is not Outcome.DONE:
                    break
                sent += part[1] - part[0] + 1
                doing(f"{sent:,} records put back")
                due_s = 0.0 if self._run.pace.rate is None else begun + sent / self._run.pace.rate - time.monotonic()
                if stop.wait(max(0.0, due_s)) or stop.is_set():
                    break
        self._stored.flush()
        left = len(self._parts) - len(results)
        if left:
            results.append(self._result(Outcome.REFUSED, f"{left} transactions were not begun: it was stopped"))
        return tuple(results)

    def _one(self, part: Span, source: Iterator[SourceRecord]) -> tuple[Outcome, str | None]:
        """Write one range; how that ended, by its coordinator where the writer does not know."""
        own = id_of(self._plan, self._attempt.number, part)
        try:
            records = self._take(part, source)
            if not self._attempt.renew_leases(self._plan.group_ids, self._kafka.request_timeout_ms):
                return Outcome.REFUSED, "the lease was over"
        except AcktrailError as error:
            return Outcome.REFUSED, error.message
        out, places = map(self._out, range(part[0], part[1] + 1), records), None
        writer = TransactionalWriter(self._kafka, own, most_bytes=self._plan.target.most_bytes or _BATCH_BYTES)
        try:
            writer.fence()
            places = writer.write(out, self._attempt.check_lease)
        except AcktrailError as failure:
            try:
                ending = self._transactions.end_open([own])[own].ending
            except AcktrailError as error:
                return Outcome.UNKNOWN, f"{failure.message}; {error.message}"
            if ending is not TransactionEnding.COMMITTED:
                return Outcome.REFUSED, failure.message
        self._stored.add(self._attempt.number, range(part[0], part[1] + 1), places or ())
        return Outcome.DONE, None

    def _source(self) -> Iterator[SourceRecord]:
        """The records of all parts, in order, each read once."""
        records = TopicRecords(self._run.cluster.topic(self._plan.topic))
        for partition, ranges in self._list.ranges(joined(self._parts)):
            yield from records.read({partition: ranges})

    def _take(self, part: Span, source: Iterator[SourceRecord]) -> list[SourceRecord]:
        """The records of the next part. Raises PlanStale: one is gone."""
        found = [*islice(source, part[1] - part[0] + 1)]
        for number, record in zip_longest(range(part[0], part[1] + 1), found):
            partition, offset = self._list.place(number)
            if record is None or (record.partition, record.offset) != (partition, offset):
                text = f"the record at {self._plan.topic}:{partition}, offset {offset} is gone since the plan was made"
                raise PlanStale("records_gone", text, hint=PLAN_AGAIN)
        return found

    def _out(self, number: int, record: SourceRecord) -> OutRecord:
        added = {
            "acktrail.redrive.group": self._plan.group_id,
            "acktrail.redrive.topic": self._plan.topic,
            "acktrail.redrive.partition": record.partition,
            "acktrail.redrive.offset": record.offset,
            PLAN: self._plan.plan_id,
            NUMBER: number,
            COUNT: (header_number(record.headers, COUNT) or 0) + 1,
        }
        kept = [(name.decode("utf-8", "replace"), value) for name, value in record.headers]
        headers = [(name, value) for name, value in kept if name not in added]
        headers += [(name, str(value).encode()) for name, value in added.items()]
        partition = record.partition if self._plan.keeps_partitions else None
        target = self._plan.target.topic
        return OutRecord(target, record.key, record.value, tuple(headers), partition, record.timestamp_ms)

    def _result(self, outcome: Outcome, why: str | None) -> ChangeResult:
        return ChangeResult(group_id=self._plan.group_id, topic=self._plan.target.topic, outcome=outcome, error=why)


def _records_at_once(plan: RedrivePlan, rate: float | None) -> int:
    """How many records a transaction has."""
    average = max(1, plan.record_bytes // max(1, plan.records))
    most = min(_MOST_RECORDS, _MOST_BYTES // average)
    return max(1, most if rate is None else min(most, int(rate * _PAUSE_S)))


def _cut(parts: Iterable[Span], most: int) -> Iterator[Span]:
    for first, last in parts:
        yield from ((at, min(at + most - 1, last)) for at in range(first, last + 1, most))
