"""The commands of ``acktrail expand``, one module each."""

from __future__ import annotations

from types import MappingProxyType

import typer

from acktrail.cli.named_commands import NamedCommands


class ExpandCommands(NamedCommands):
    """In the order in which they are used."""

    own = MappingProxyType(
        {
            "plan": "acktrail_expansion.cli.expansion_plan_command:plan",
            "approve": "acktrail_expansion.cli.decision_command:approve",
            "reject": "acktrail_expansion.cli.decision_command:reject",
            "apply": "acktrail_expansion.cli.expansion_apply_command:apply",
            "check": "acktrail_expansion.cli.check_command:check",
            "show": "acktrail_expansion.cli.expansion_show_command:show",
        }
    )


app = typer.Typer(
    cls=ExpandCommands,
    help="Partitions of topics and the order of keys: plan and apply an expansion, check what groups did, show it.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
app.callback()(lambda: None)
