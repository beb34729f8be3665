"""``acktrail groups``: share groups as the brokers describe them; their deletion and configuration."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli import group_answers
from acktrail.cli.change import change_preview as options
from acktrail.cli.change.change_preview import keep_or_execute
from acktrail.cli.commands.group_metrics import metrics
from acktrail.cli.common_options import OfBoth, OfCluster, command_group, echo_rows, spread
from acktrail.errors import ChangeRefused, InputError, UnknownName
from acktrail.text_tables import printable, table

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.descriptions import GroupConfigs, GroupListing


app = command_group("Share groups as brokers describe them; deletion, configuration.")
config = command_group("The configuration of share groups: show, set.")
app.add_typer(config, name="config")
app.command("metrics")(metrics)

_OTHER_TYPES = ("consumer.", "streams.")
Groups = Annotated[list[str], typer.Argument(help="Share groups by id.")]
_STATES: Final = ("Empty", "Stable", "Dead")
"""The states of a share group (Kafka's ``GroupState``)."""


@app.command("list")
@spread
def list_groups(
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Group ids or patterns: billing, 'team-*'.")
    ] = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state: Empty, Stable. May be repeated.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="Only groups with state in matching topics. LAG then counts only these topics."),
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Print only the ids. No group is described.")] = False,
    *,
    at: OfCluster,
) -> None:
    """List share groups with state, members and total lag.

    `-` means unknown. `>=7` means that Kafka cannot report the lag of some share partitions, and the others have 7.
    Kafka does not list groups that this principal may not DESCRIBE.
    """
    from acktrail.kafka.admin import ShareGroupAdmin

    if names and topic is not None:
        raise InputError(
            "--names and --topic exclude each other",
            hint="topics are known only for described groups, and --names describes no group",
        )
    with ShareGroupAdmin(at.kafka) as admin:
        listed = {one.group_id: one.state for one in list_matching(admin, patterns or (), states or ())}
        answers = [] if names else group_answers.describe_all(admin, list(listed), topic)
    if names:
        if at.as_json:
            echo_rows({"group": group_id} for group_id in listed)
        else:
            typer.echo("\n".join(map(printable, listed)))
        return
    shown = [one for one in answers if topic is None or one.offsets or one.error is not None]
    if at.as_json:
        echo_rows(group_answers.listing_json(listed[one.group_id], one) for one in shown)
    else:
        typer.echo(group_answers.listing_text(listed, shown))
    group_answers.raise_first(shown)


@app.command()
@spread
def describe(
    groups: Annotated[list[str] | None, typer.Argument(help="Share groups by id.")] = None,
    patterns: Annotated[
        list[str] | None, typer.Option("--group-glob", help="Share groups whose id matches. May be repeated.")
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every share group.")] = False,
    topic: Annotated[str | None, typer.Option("--topic", help="Only topics that match: orders, 'orders-*'.")] = None,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the state of each group instead of its offsets.")
    ] = False,
    *,
    at: OfCluster,
) -> None:
    """Show start offset and lag of groups' share partitions.

    `-` means unknown: the start offset was never initialized, or Kafka does not report the lag (before Kafka 4.2, or
    before the first acknowledgement). START-OFFSET is the offset that the broker has recorded; Kafka updates it lazily.
    If a group cannot be described, the command shows the others and then ends with the error. --json also has values
    that no column shows: epochs, topic ids, racks.
    """
    from acktrail.kafka.admin import ShareGroupAdmin

    if members and state:
        raise InputError("--members and --state exclude each other", hint="give one of them")
    with ShareGroupAdmin(at.kafka) as admin:
        wanted = selected_ids(admin, groups or (), patterns or (), all_groups=all_groups)
        answers = group_answers.describe_all(admin, wanted, topic)
    if at.as_json:
        echo_rows(map(group_answers.group_json, answers))
    else:
        found = [(answer, answer.group) for answer in answers if answer.group is not None]
        texts = (
            group_answers.members_text(group) if members else group_answers.offsets_text(answer, group)
            for answer, group in found
        )
        text = group_answers.states_text(answers) if state else "\n\n".join(texts)
        typer.echo(text, nl=bool(text))
    group_answers.raise_first(answers)


@app.command()
@spread
def delete(
    groups: Groups,
    execute: options.Execute = False,
    *,
    because: options.Because,
    wait_empty: options.WaitEmpty = 0.0,
    at: OfBoth,
) -> None:
    """Show what deleting groups removes; --execute deletes. The groups must have no members.

    Groups of other types are refused, because Kafka would delete them as well. The plan shows where the group would
    start if it is created again. `acktrail change undo` restores the start offsets, but not acknowledgements and
    archived records.
    """
    _plan_deletion(groups, (), execute, because, wait_empty, at)


@app.command("delete-offsets")
@spread
def delete_offsets(
    group: Annotated[list[str], typer.Option("--group", help="Share group by id. May be repeated.")],
    topic: Annotated[list[str], typer.Option("--topic", help="A topic, with all its partitions. May be repeated.")],
    execute: options.Execute = False,
    *,
    because: options.Because,
    wait_empty: options.WaitEmpty = 0.0,
    at: OfBoth,
) -> None:
    """Show what deleting offsets removes; --execute deletes. The groups must have no members.

    The whole state of the group for the topic is deleted: start offsets, acknowledgements, archived records. If the
    group reads the topic again, its share.auto.offset.reset decides where it starts. `acktrail change undo` restores
    the start offsets.
    """
    _plan_deletion(group, topic, execute, because, wait_empty, at)


def _plan_deletion(
    groups: Sequence[str], topics: Sequence[str], execute: bool, because: options.Because, wait_empty: float, at: OfBoth
) -> None:
    """Of `topics` alone where some are named, else of the groups."""
    from acktrail.change import api
    from acktrail.change.cluster import Cluster
    from acktrail.group_changes.group_change_plan import plan_deletion

    target = at.needed if execute else at.optional
    with Cluster(at.kafka) as cluster:
        if wait_empty > 0:
            api.wait_until_empty(cluster, groups, timeout_s=wait_empty)
        plan = plan_deletion(cluster, groups, topics, **because.named, tables=target)
        keep_or_execute(cluster, plan, target, execute=execute, as_json=at.as_json)


@config.command()
@spread
def show(
    groups: Groups,
    every: Annotated[
        bool, typer.Option("--all", help="Include settings that are not set on the group itself.")
    ] = False,
    *,
    at: OfCluster,
) -> None:
    """Show the settings of groups; with --all also the defaults in force."""
    from acktrail.group_changes.group_change_plan import readable_configs
    from acktrail.kafka.admin import ShareGroupAdmin

    with ShareGroupAdmin(at.kafka) as admin:
        found = readable_configs(admin, groups)
    if at.as_json:
        echo_rows({"group": of.group_id, "configs": dict(_share(of)), "own": sorted(of.own)} for of in found)
        return
    rows = [
        (configs.group_id, name, value, "group" if name in configs.own else "default")
        for configs in found
        for name, value in _share(configs)
        if every or name in configs.own
    ]
    typer.echo(table(("GROUP", "NAME", "VALUE", "FROM"), rows) if rows else "nothing is set on the group itself")


@config.command("set")
@spread
def set_(
    group: Annotated[list[str], typer.Option("--group", help="Share group by id. May be repeated.")],
    settings: Annotated[list[str] | None, typer.Argument(help="name=value, one or more.")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Reset this setting to the brokers' default. May be repeated.")
    ] = None,
    execute: options.Execute = False,
    *,
    because: options.Because,
    at: OfBoth,
) -> None:
    """Show what would change; with --execute change it. The groups may have members.

    Example: acktrail groups config set --group billing share.auto.offset.reset=earliest --execute
    """
    from acktrail.change.cluster import Cluster
    from acktrail.group_changes.group_change_plan import plan_configs

    wanted: dict[str, str | None] = dict.fromkeys(unset or ())
    for setting in settings or ():
        name, separator, value = setting.partition("=")
        if not separator or not name or name in wanted:
            raise ChangeRefused("bad_setting", f"{setting!r} is not one name=value", hint="for example a.b=c")
        wanted[name] = value
    if not wanted:
        raise ChangeRefused("nothing_to_change", "no setting is given", hint="give name=value, or --unset name")
    target = at.needed if execute else at.optional
    with Cluster(at.kafka) as cluster:
        plan = plan_configs(cluster, dict.fromkeys(group, wanted), **because.named)
        keep_or_execute(cluster, plan, target, execute=execute, as_json=at.as_json)


def _share(configs: GroupConfigs) -> list[tuple[str, str]]:
    """Sorted, without those that Kafka reports for groups of other types."""
    return sorted(pair for pair in (configs.configs or {}).items() if not pair[0].startswith(_OTHER_TYPES))


def list_matching(
    admin: ShareGroupAdmin, patterns: Sequence[str] = (), states: Sequence[str] = ()
) -> tuple[GroupListing, ...]:
    """The share groups whose id matches one of `patterns` (shell style; none: all) and whose state is in `states`.
    Raises InputError for a state that share groups do not have."""
    by_name = {state.lower(): state for state in _STATES}
    for text in states:
        if text.strip().lower() not in by_name:
            raise InputError(f"share groups have no state {text!r}", hint=f"use one of {', '.join(_STATES)}")
    wanted = {by_name[text.strip().lower()] for text in states}
    return tuple(
        listing
        for listing in admin.list_groups()
        if (not patterns or any(fnmatch.fnmatchcase(listing.group_id, pattern) for pattern in patterns))
        and (not wanted or listing.state in wanted)
    )


def selected_ids(
    admin: ShareGroupAdmin, groups: Sequence[str], patterns: Sequence[str], *, all_groups: bool
) -> tuple[str, ...]:
    """The ids of the named groups and of the groups that match, each once. Raises InputError when nothing was named, or
    both groups and all groups; UnknownName when no share group matches a pattern."""
    if all_groups and (groups or patterns):
        raise InputError("--all-groups and named groups exclude each other", hint="give one of them")
    if not (groups or patterns or all_groups):
        raise InputError("no group named", hint="name groups, or give --group-glob or --all-groups")
    if not (patterns or all_groups):
        return tuple(dict.fromkeys(groups))
    known = [listing.group_id for listing in admin.list_groups()]
    found = list(groups) if not all_groups else known
    for pattern in patterns:
        matches = [group_id for group_id in known if fnmatch.fnmatchcase(group_id, pattern)]
        if not matches:
            raise UnknownName("share group that matches", pattern)
        found += matches
    return tuple(dict.fromkeys(found))
