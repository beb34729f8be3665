"""What people are sent about one subject, and what a run found that differs from what they know.

Each subject (the gate, a critical rule on a group, a group) has one state now and one state that was last sent; a
message is the difference, and what was sent is kept in the table ``notifications``. So a run that is repeated sends
nothing twice, and a run whose messages were lost has them sent by the next one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlencode

import pyarrow.compute as pc

from acktrail.branches import branches
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.commit_order import newest_rows
from acktrail.tables.delta.store import Tables
from acktrail.text_parsing import parse_json
from acktrail.text_tables import few, printable
from acktrail.view.check_rows import CheckResult, newest_results
from acktrail.view.wording import addressed, in_words, status_rank, trouble_text

WELL: Final = "well"
"""The state of a subject that needs no look; also of one that no message was ever sent about."""
GATE: Final = "gate"
MOST_MESSAGES: Final = 20
"""Of one run; the changes beyond are one message that counts them."""
_NAMED: Final = 5
_CRITICAL: Final = "critical"
_UNKNOWN: Final = QueueStatus.STATE_UNKNOWN
_OF_RUNS: Final = ~pc.starts_with(pc.field("suite"), "reset_")
Known = Mapping[tuple[str, str], str]
"""The state last sent, by kind and subject."""


class NotificationKind(StrEnum):
    """What a message of the trunk is about; those of branches have kinds of their own."""

    GATE = "gate"
    CRITICAL_FINDING = "critical_finding"
    STATUS = "status"
    MORE = "more"
    """The changes beyond the most messages of one run, counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One change. `kind`: a `NotificationKind`, or a branch's own. A subject whose newest sent message has the same
    `state` is not sent again. `title` and `text` are plain text of one line each, with names made printable. `page` and
    `query` are a page of the dashboard and its parameters."""

    kind: str
    subject: str
    title: str
    text: str
    page: str = ""
    state: str = WELL
    urgency: Urgency = Urgency.NOTHING
    query: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What a message is about, as in the table ``notifications``."""
        return str(self.kind), self.subject

    def address(self, dashboard: str) -> str:
        """Where the dashboard at the address `dashboard` shows it."""
        return f"{dashboard.rstrip('/')}/{self.page}" + (f"?{urlencode(self.query)}" if self.query else "")


def changed(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:
    """The messages that `known` lacks, in the order gate, findings, groups, the worst first; all of them.

    What the run did not evaluate is no news: a gate without results, statuses of another run, a group whose status is
    not known.
    """
    found = _gate(tables, run_id)
    newest = newest_rows(tables, "run_totals", ["run_id"])["run_id"]
    if run_id in newest.to_pylist():  # findings and statuses have the newest reconciliation only
        found += [*_findings(known, tables, run_id), *_groups(known, tables, run_id)]
    return tuple(message for message in found if message.state != known.get(message.key, WELL))


def limited(messages: Sequence[Notification]) -> tuple[Notification, ...]:
    """The messages to send: the first ``MOST_MESSAGES``, and in the last place a count of the others."""
    if len(messages) <= MOST_MESSAGES:
        return tuple(messages)
    left_out = messages[MOST_MESSAGES - 1 :]
    urgent = sum(message.urgency is Urgency.ACT for message in left_out)
    more = Notification(
        kind=NotificationKind.MORE,
        subject="",
        state=str(len(left_out)),
        urgency=Urgency.ACT if urgent else left_out[0].urgency,
        title=f"and {len(left_out)} more changes",
        text=f"{urgent} of them need action. " + few([message.title for message in left_out], _NAMED, "; "),
    )
    return (*messages[: MOST_MESSAGES - 1], more)


def _gate(tables: Tables, run_id: str) -> list[Notification]:
    results = newest_results(tables.read("quality_results", where=(pc.field("run_id") == run_id) & _OF_RUNS))
    if not results:
        return []
    stopping = sorted((each for each in results if each.stops), key=lambda each: each.expectation)
    rules = sorted({each.expectation for each in stopping})
    title, text = "The gate lets runs pass again", "No critical rule is broken."
    well = Notification(kind=NotificationKind.GATE, subject=GATE, title=title, text=text, page="checks")
    if not rules:
        return [well]
    title, text = f"The gate stops: {few(rules, _NAMED)}", " ".join(_why(each) for each in stopping[:_NAMED])
    return [replace(well, state=json.dumps(rules), urgency=Urgency.ACT, title=title, text=text)]


def _why(result: CheckResult) -> str:
    rule = rule_catalogue().by_id.get(result.expectation)
    where = printable(result.why or result.observed_value or "")
    text = result.expectation + (f", first: {where}." if where else ".")
    return text if rule is None else f"{text} {rule.advice}"


def _findings(known: Known, tables: Tables, run_id: str) -> list[Notification]:
    """One message for each rule and group; of those that are not there any more, too."""
    where = (pc.field("run_id") == run_id) & (pc.field("severity") == _CRITICAL)
    by_subject: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in tables.read("findings", where=where).to_pylist():
        by_subject[json.dumps([row["rule"], row["group_id"]])].append(row)
    gone = sorted(subject for kind, subject in known if kind == NotificationKind.CRITICAL_FINDING)
    messages = [_open_finding(subject, rows) for subject, rows in sorted(by_subject.items())]
    return [*messages, *(_gone_finding(subject) for subject in gone if subject not in by_subject)]


def _open_finding(subject: str, rows: Sequence[Mapping[str, Any]]) -> Notification:
    first = min(rows, key=lambda row: row["subject"])
    rule = rule_catalogue().by_id.get(first["rule"])
    places = few([_place(row) for row in sorted(rows, key=lambda row: row["subject"])], _NAMED)
    text = f"{places}: {printable(first['detail'] or '')}".rstrip(": ") + "."
    return Notification(
        kind=NotificationKind.CRITICAL_FINDING,
        subject=subject,
        state="open",
        urgency=Urgency.ACT,
        title=_of_finding("Critical finding", subject),
        text=text if rule is None else f"{text} {addressed(rule.advice, first['group_id'], first['topic'])}",
        page="finding",
        query=(("rule", first["rule"]), ("subject", first["subject"])),
    )


def _place(row: Mapping[str, Any]) -> str:
    """Where in the group of the title a finding is: by the name of its topic, where it has one; else its subject."""
    if row["topic"] is None:
        return printable(row["subject"])
    return printable(row["topic"]) if row["partition"] is None else f"{printable(row['topic'])}:{row['partition']}"


def _gone_finding(subject: str) -> Notification:
    title, text = _of_finding("No longer seen", subject), "The newest reconciliation does not find it."
    kind = NotificationKind.CRITICAL_FINDING
    return Notification(kind=kind, subject=subject, title=title, text=text, page="findings")


def _of_finding(what: str, subject: str) -> str:
    rule, group_id = parse_json(subject)
    return f"{what}: {rule}" + (f" in group {printable(group_id)}" if group_id is not None else "")


def _groups(known: Known, tables: Tables, run_id: str) -> list[Notification]:
    """One message for each group, by its worst share partition."""
    columns = ["run_id", "group_id", "topic", "topic_id", "partition", "status", "reason"]
    rows = tables.read("queue_statuses", columns=columns).to_pylist()
    if {row["run_id"] for row in rows} - {run_id}:
        return []
    by_group: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_group[row["group_id"]].append(row)
    ranked = sorted((min(status_rank(row["status"]) for row in own), group_id) for group_id, own in by_group.items())
    known_groups = {subject for kind, subject in known if kind == NotificationKind.STATUS}
    statuses = ((group_id, [*STATUS_TABLE][rank]) for rank, group_id in ranked)
    told = [_status(group, status, by_group[group]) for group, status in statuses if status is not _UNKNOWN]
    return [*told, *(_gone_group(group_id) for group_id in sorted(known_groups - set(by_group)))]


def _status(group_id: str, status: QueueStatus, rows: Sequence[Mapping[str, Any]]) -> Notification:
    meaning, name = STATUS_TABLE[status], printable(group_id)
    title, text = f"Group {name} is well again", f"{in_words(status)}: {meaning.meaning}."
    query = (("id", group_id),)
    kind = NotificationKind.STATUS
    well = Notification(kind=kind, subject=group_id, title=title, text=text, page="group", query=query)
    if meaning.urgency is Urgency.NOTHING:
        return well
    own = sorted((row for row in rows if row["status"] == status), key=lambda row: (_topic(row), row["partition"]))
    places = few([f"{_topic(row)}:{row['partition']}" for row in own], _NAMED)
    why = trouble_text(status, own[0]["reason"], group_id, own[0]["topic"])
    title = f"Group {name}: {in_words(status)}"
    return replace(well, state=status.value, urgency=meaning.urgency, title=title, text=f"{places}: {why}")


def _gone_group(group_id: str) -> Notification:
    title, text = f"Group {printable(group_id)} is gone", "The newest reconciliation finds no share partition of it."
    return Notification(kind=NotificationKind.STATUS, subject=group_id, title=title, text=text, page="groups")


def _topic(row: Mapping[str, Any]) -> str:
    return printable(row["topic"] or row["topic_id"] or "unknown topic")


ChangesOf = Callable[[Known, Tables, str], tuple[Notification, ...]]
"""The messages that people lack, by what is known, the tables and the run."""
_SENT: Final = "notifications"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentNotifications:
    """The messages of one run that went out, and the changes that they stand for."""

    messages: tuple[Notification, ...]
    changes: int


def send_changes(
    tables: Tables, run_id: str, send: Callable[[Notification], None], changes_of: ChangesOf = changed
) -> SentNotifications:
    """Hand every change that `run_id` shows to `send`, and keep what went out. `changes_of`: the messages that people
    lack, by default those of a reconciliation.

    What `send` raises is raised after the messages before it are kept, so that another try sends the others. A process
    that dies between a message and its row sends that message again: none is lost. Raises also what ``Tables`` raises.
    """
    known, number = _known(tables)
    changes = changes_of(known, tables, run_id)
    messages = limited(changes)
    gone_out: list[Notification] = []
    try:
        for message in messages:
            send(message)
            gone_out.append(message)
    finally:
        whole = len(gone_out) == len(messages)
        _keep(tables, run_id, number, changes if whole else [each for each in gone_out if each in changes])
    return SentNotifications(messages=messages, changes=len(changes))


def _known(tables: Tables) -> tuple[dict[tuple[str, str], str], int]:
    """The newest state of each subject, and the number of the next message."""
    rows = tables.read(_SENT, columns=["kind", "subject", "state", "number"]).sort_by("number").to_pylist()
    return {(row["kind"], row["subject"]): row["state"] for row in rows}, len(rows)


def _keep(tables: Tables, run_id: str, first_number: int, sent: Sequence[Notification]) -> None:
    if not sent:
        return
    common = {"cluster_id": _cluster(tables, run_id), "run_id": run_id, "sent_at": datetime.now(UTC)}
    texts = ("subject", "state", "title", "text")
    rows = [
        {
            **common,
            **{name: getattr(message, name) for name in texts},
            "number": first_number + index,
            "kind": str(message.kind),
            "urgency": message.urgency.value,
        }
        for index, message in enumerate(sent)
    ]
    tables.append(_SENT, rows)


def _cluster(tables: Tables, run_id: str) -> str | None:
    """Of the reconciliation `run_id`, or of a branch's look."""
    for name in ("run_totals", *(name for branch in branches() for name in sorted(branch.observations))):
        rows = tables.read(name, columns=["cluster_id"], where=pc.field("run_id") == run_id)
        if rows.num_rows:
            return str(rows["cluster_id"][0])
    return None
