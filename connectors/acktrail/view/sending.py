"""Messages go out once: what was sent is kept in the table ``notifications``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow.compute as pc

from acktrail.branches import branches
from acktrail.tables.delta.store import Tables
from acktrail.view.run_messages import Known, Notification, changed, limited

ChangesOf = Callable[[Known, Tables, str], tuple[Notification, ...]]
"""The messages that people lack, by what is known, the tables and the run."""
_SENT: Final = "notifications"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentNotifications:
    """The messages of one run that went out, and the changes that they stand for."""

    messages: tuple[Notification, ...]
    changes: int


def send_changes(
    tables: Tables,
    run_id: str,
    send: Callable[[Notification], None],
    changes_of: ChangesOf = changed,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
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
        _keep(tables, run_id, number, changes if whole else [each for each in gone_out if each in changes], now)
    return SentNotifications(messages=messages, changes=len(changes))


def _known(tables: Tables) -> tuple[dict[tuple[str, str], str], int]:
    """The newest state of each subject, and the number of the next message."""
    rows = tables.read(_SENT, columns=["kind", "subject", "state", "number"]).sort_by("number").to_pylist()
    return {(row["kind"], row["subject"]): row["state"] for row in rows}, len(rows)


def _keep(
    tables: Tables, run_id: str, first_number: int, sent: Sequence[Notification], now: Callable[[], datetime]
) -> None:
    if not sent:
        return
    at = now()
    common = {"cluster_id": _cluster(tables, run_id), "run_id": run_id}
    rows = [
        {
            **common,
            "sent_at": at,
            "number": first_number + index,
            "kind": str(message.kind),
            "subject": message.subject,
            "state": message.state,
            "urgency": message.urgency.value,
            "title": message.title,
            "text": message.text,
        }
        for index, message in enumerate(sent)
    ]
    tables.append(_SENT, rows)


def _cluster(tables: Tables, run_id: str) -> str | None:
    """Of the reconciliation `run_id`, or of a branch's look."""
    for name in ("run_totals", *(name for branch in branches() for name in sorted(branch.looks))):
        rows = tables.read(name, columns=["cluster_id"], where=pc.field("run_id") == run_id)
        if rows.num_rows:
            return str(rows["cluster_id"][0])
    return None
