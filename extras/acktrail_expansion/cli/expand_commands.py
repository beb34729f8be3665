"""The commands of ``acktrail expand``: the plan of an expansion, and what groups did across it. ``acktrail change``
approves plans and carries them out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.activity import doing
from acktrail.change.audit.journal import account
from acktrail.cli.change import change_preview as options
from acktrail.cli.change.change_preview import keep_new
from acktrail.cli.common_options import OfBoth, OfTables, command_group, echo_rows, spread
from acktrail.cli.progress import showing_activity
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import NotAuthorized, UnknownName
from acktrail.text_tables import printable, table
from acktrail.times import new_run_id, utc_text
from acktrail_expansion.ordering.order import ExpansionStatus, KeyMapping, OrderVerdict
from acktrail_jobs.commands.master_option import Master

if TYPE_CHECKING:
    import pyarrow as pa

    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.frames import JobSession

_Row = dict[str, Any]
_SHOWN: Final = 40
_MOST: Final = 1_000_000
_COLUMNS: Final = ("TOPIC", "FROM", "TO", "SEEN", "STATUS", "GROUPS", "SKIPPED", "EVENT")
_FENCES: Final = ("partition", "fence_low", "fence_high", "fence_exact", "reason", "keys_reason")
_KEYS_AT_RISK: Final = ("group_id", "partition", "last_old_offset", "first_new_offset", "key")

app = command_group("Expansions of topics and the order of keys: plan, check, show.")


@app.command()
@spread
def plan(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="New total number of partitions.")],
    out: options.Out = None,
    *,
    because: options.Because,
    at: OfBoth,
) -> None:
    """Show what an expansion would do: which keys move. It also shows the groups that read the topic, and their
    unfinished records.

    Nothing is changed. With --tables the plan is stored. If a rule forbids the expansion, no plan is made; the exit
    code is then 3 if a right is missing, and 2 otherwise. `acktrail change apply` applies the plan.

    Example: acktrail expand plan orders --partitions 8 --out plan.json
    """
    target = TablesConfig.optional_from_environment(at.tables, at.tables_options)
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.expansion_plan import make_plan

    with ShareGroupAdmin(at.kafka) as admin:
        made = make_plan(admin, topic, partitions, created_by=account(), **because.named)
    keep_new(made, target, out, as_json=at.as_json)


@app.command()
@spread
def check(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Print the keys at risk. The tables store only digests of keys.")
    ] = False,
    master: Master = None,
    *,
    at: OfBoth,
) -> None:
    """Check for every group whether the order of keys was kept. The command checks the newest expansion of the topic.

    The command describes partitions and groups, audits the expansion, and evaluates the rules about expansions. If a
    verdict is open, or the order was broken, it also reads the keys of the records around the expansion. This needs
    READ on the topic; ACKTRAIL_KEY_MAPPINGS defines how producers map keys to partitions. Verdicts on share groups need
    exported state records: run `acktrail run export` and `acktrail run history` first. Nothing in the cluster is
    changed. Exit code 6: a critical rule failed.

    Example: acktrail expand check orders
    """
    kafka, target = at.kafka, TablesConfig.from_environment(at.tables, at.tables_options)
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.observations.ledger_connector import take_look
    from acktrail_expansion.quality.expansion_suite import check_expansions, pass_expansion_gate
    from acktrail_jobs.engine import jobs_on, translated

    stored, run_id = Tables(target), new_run_id()
    with showing_activity(), translated():
        with ShareGroupAdmin(kafka) as admin:
            topic_id = admin.known_topics([topic])[0].topic_id
            take_look(admin, target, topics=[topic], run_id=run_id)
        with jobs_on(master) as spark:
            event_id, both = _judge(kafka, stored, topic_id, spark, show_keys=show_keys)
        validation = check_expansions(stored, run_id)
    keys = [*_keys_at_risk(stored, event_id, both)] if show_keys and both is not None else None
    if at.as_json:
        form = expansion_form(stored, event_id) if event_id else {"topic": topic}
        own = None if keys is None else [dict(zip(_KEYS_AT_RISK, each, strict=True)) for each in keys]
        echo_rows([{**form, "keys_at_risk": own, "results": [result.row for result in validation.results]}])
    else:
        none = f"{printable(topic)}: no look shows that it gained partitions"
        typer.echo("\n".join(expansion_lines(stored, event_id)) if event_id else none)
        if keys:
            typer.echo(table(_headers(_KEYS_AT_RISK), keys))
        for result in validation.failed:
            typer.echo(f"rule {result.expectation} does not hold ({result.severity.value})")
    pass_expansion_gate(validation)


def _judge(
    kafka: KafkaConfig, stored: Tables, topic_id: str | None, spark: JobSession, *, show_keys: bool
) -> tuple[str | None, pa.Table | None]:
    """The newest expansion of a topic (None: it gained no partitions), once it is audited, and audited again where keys
    were read that may change a verdict or name the keys at risk; what was read. Raises as each of these steps."""
    from acktrail_expansion.audit.audit_run import audit_expansions
    from acktrail_expansion.keys.key_reading import read_keys, store_keys_at_risk

    audit_expansions(stored.config, spark)
    rows = stored.rows("partition_expansions", {"topic_id": topic_id})
    if not rows:
        return None, None
    event = max(rows, key=lambda row: row["sequence"])
    event_id, both = event["event_id"], None
    lacks_keys = _lacks_keys(stored, event_id)
    is_readable = event["status"] == ExpansionStatus.SETTLED and event["key_mapping"] != KeyMapping.NONE
    if is_readable and (lacks_keys or show_keys):
        try:
            both = read_keys(kafka, stored, spark, event, stores=lacks_keys)
        except NotAuthorized as error:
            doing(f"keys were not read: {error.message}", stays=True)
    if both is not None and lacks_keys:
        audit_expansions(stored.config, spark)
        store_keys_at_risk(stored, event_id, both)
    return event_id, both


def _lacks_keys(stored: Tables, event_id: str) -> bool:
    """Whether a verdict is open and keys were never read, or one names an open record and no keys."""
    own, proven = {"event_id": event_id}, (OrderVerdict.SAFE, OrderVerdict.SKIPPED)
    is_unread = any(fence["keys_read_at"] is None for fence in stored.rows("expansion_fences", own))
    rows = [row for row in stored.rows("expansion_verdicts", own) if row["verdict"] not in proven]
    return any(is_unread or (row["source_offset"] is not None and row["keys_at_risk"] is None) for row in rows)


def _keys_at_risk(stored: Tables, event_id: str | None, both: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The keys themselves, verdict by verdict."""
    from acktrail_expansion.keys.key_reading import keys_at_risk

    for row in stored.rows("expansion_verdicts", {"event_id": event_id}):
        for key in keys_at_risk(row, both) if row["keys_at_risk"] else ():
            text = key["key"].decode("utf-8", "backslashreplace")
            yield row["group_id"], row["partition"], key["offset"], key["offset_new"], text


@app.command()
@spread
def show(
    event: Annotated[
        str | None, typer.Argument(help="The id of an expansion, to show its details. Default: list all expansions.")
    ] = None,
    *,
    at: OfTables,
) -> None:
    """List the expansions of topics, the worst first, or show one. For one expansion, the evidence of each verdict on
    the order of keys is shown.

    The command shows the results of the newest `acktrail expand check` or run of the DAG acktrail_partitions. The JSON
    form has one object for each expansion. The exit code is 0 even if the order was broken; scripts should use
    `acktrail expand check`.
    """
    config = at.needed
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.shown_expansions import expansions, why_none

    stored = Tables(config)
    if event is None and at.as_json:
        echo_rows(map(_plain, expansions(stored.read)))
    elif event is None:
        rows = [_line(row) for row in expansions(stored.read)]
        typer.echo(table(_COLUMNS, rows) if rows else why_none(stored))
    elif at.as_json:
        echo_rows([expansion_form(stored, event)])
    else:
        typer.echo("\n".join(expansion_lines(stored, event)))


def _line(row: _Row) -> tuple[object, ...]:
    what = (row["topic"], row["old_count"], row["new_count"], utc_text(row["first_seen_new_at"]), row["status"])
    return *what, row["groups_text"], row["skipped_records"], row["event_id"]


def _found(stored: Tables, event_id: str, most: int) -> _Row:
    """One expansion with `most` of its verdicts and fences. Raises UnknownName."""
    from acktrail_expansion.shown_expansions import detailed, expansions

    found = expansions(stored.read, event_id=event_id)
    if not found:
        raise UnknownName("expansion", event_id)
    return detailed(stored.read, found[0], most)


def expansion_form(stored: Tables, event_id: str) -> _Row:
    """One expansion with all of its verdicts and fences, for JSON."""
    found = _found(stored, event_id, _MOST)
    return {**_plain(found), **{name: [*map(_plain, found[name])] for name in ("verdicts", "fences")}}


def expansion_lines(stored: Tables, event_id: str) -> Iterator[str]:
    """One expansion, line by line: what is proven of each group, what is not seen, the fences, what is not certain."""
    found = _found(stored, event_id, _SHOWN)
    seen = f"seen between {utc_text(found['last_seen_old_at'])} and {utc_text(found['first_seen_new_at'])}"
    counts = f"{found['old_count']} to {found['new_count']} partitions, {found['status']}"
    yield printable(f"{found['topic']}: {counts}; {seen}; event {event_id}")
    for each in found["verdicts"]:
        who = f"{each['label']}: {each['group_type']} group {each['group_id']}"
        yield printable(f"{who}: {each['sentence']} {each['advice']}")
    more = found["verdict_count"] - _SHOWN
    yield f"and {more:,} more: --json has all" if more > 0 else ""
    yield table(_headers(_FENCES), (tuple(each[name] for name in _FENCES) for each in found["fences"]))
    yield from (f"not certain: {text}" for text in found["doubts"])


def _headers(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.replace("_", " ").upper() for name in names)


def _plain(row: _Row) -> _Row:
    return {name: utc_text(value) if isinstance(value, dt.datetime) else value for name, value in row.items()}
