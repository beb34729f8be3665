"""``acktrail change plan redrive``: archived records put back into a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from acktrail.change.audit.journal import account
from acktrail.change.cluster import Cluster
from acktrail.cli.change import change_preview as options
from acktrail.cli.common_options import TIME, OfBoth
from acktrail.errors import InputError
from acktrail.times import time_ms


@dataclass(frozen=True, slots=True)
class WhichRecords:
    """Which archived records are put back."""

    group: Annotated[str, typer.Option("--group", help="The share group that archived the records.")]
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only records of this topic. Needed if the group has several.")
    ] = None
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only records of this partition.")] = None
    offsets: Annotated[
        str | None, typer.Option("--offsets", help="Only records from the first to the last offset: 100-250.")
    ] = None
    archived_since: Annotated[
        str | None, typer.Option("--archived-since", help=f"Only records archived at or after this time: {TIME}.")
    ] = None
    cause: Annotated[
        list[str] | None,
        typer.Option(
            "--cause",
            help="Only records archived for this cause: limit (of deliveries), rejected, unknown. May be repeated.",
        ),
    ] = None
    least_deliveries: Annotated[
        int, typer.Option("--least-deliveries", min=0, help="Only records with at least this delivery count.")
    ] = 0
    most: Annotated[int, typer.Option("--most", min=1, max=100_000, help="At most this many records.")] = 100_000
    most_attempts: Annotated[
        int,
        typer.Option(
            "--most-attempts", min=1, help="Leave out records that were put back this many times already: loop guard."
        ),
    ] = 1


def plan_redrive(
    *,
    which: WhichRecords,
    to: Annotated[str, typer.Option("--to", help="The topic to write to. Default: the records' own topic.")] = "",
    because: options.Because,
    out: options.Out = None,
    at: OfBoth,
) -> None:
    """Show which archived records would be put back. Nothing is changed.

    The plan says into which topic, and which groups would get them.

    The records are read from their own log by topic, partition and offset. The plan holds their list: it means the same
    tomorrow. `acktrail change apply` writes them, each exactly once, with key, value, headers and time as they were and
    with headers `acktrail.redrive.*`. Nothing takes a redrive back. Needs READ on the topics and the history in the
    tables (`acktrail run export`, `acktrail run history`).

    Example: acktrail change plan redrive --group billing --topic orders --to orders-retry --archived-since 1d
    """
    from acktrail_redrive.new_redrive import RedriveCause, RedriveRequest, make_plan

    causes = tuple(which.cause or ())
    unknown = [each for each in causes if each not in list(RedriveCause)]
    if unknown:
        raise InputError(f"--cause {unknown[0]!r} is not known", hint=f"one of {', '.join(RedriveCause)}")
    request = RedriveRequest(
        group=which.group,
        topic=which.topic,
        partition=which.partition,
        offsets=_span(which.offsets),
        since_ms=None if which.archived_since is None else time_ms("--archived-since", which.archived_since),
        causes=causes,
        least_deliveries=which.least_deliveries,
        to=to,
        most=which.most,
        most_attempts=which.most_attempts,
        created_by=account(),
        **because.named,
    )
    target = at.needed
    with Cluster(at.kafka) as cluster:
        plan = make_plan(cluster, target, request)
    options.keep_new(plan, target, out, as_json=at.as_json)


def _span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise InputError(f"--offsets {text!r} is no range of offsets", hint="for example 100-250")
    return int(first), int(last)
