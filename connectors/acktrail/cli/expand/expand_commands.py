"""The commands of ``acktrail expand``, one module each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import typer

from acktrail.cli.named_commands import NamedCommands

ENTRY_POINT: Final = "acktrail.expand_commands"


class ExpandCommands(NamedCommands):
    """Other packages of the project register theirs as entry points of the group ``acktrail.expand_commands``."""

    own = MappingProxyType(
        {
            "observe": "acktrail.cli.expand.observe_command:observe",
            "show": "acktrail.cli.expand.expansion_show_command:show",
            "plan": "acktrail.cli.expand.expansion_plan_command:plan",
            "approve": "acktrail.cli.expand.decision_command:approve",
            "reject": "acktrail.cli.expand.decision_command:reject",
            "apply": "acktrail.cli.expand.expansion_apply_command:apply",
        }
    )
    entry_point = ENTRY_POINT


app = typer.Typer(
    cls=ExpandCommands,
    help="Partitions of topics and the order of keys: observe, plan and apply an expansion, audit it.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
app.callback()(lambda: None)
