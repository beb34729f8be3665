"""Commands that are loaded when they are named: those of this package, and those that other packages registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from acktrail.branches import load, registered


class NamedCommands(TyperGroup):
    """Commands by name. `own` has those of this package as ``module:attribute``, a function or a group of commands;
    `entry_point` is the group of entry points by which other packages of the project register theirs."""

    own: ClassVar[Mapping[str, str]] = {}
    entry_point: ClassVar[str] = ""

    @classmethod
    def targets(cls) -> dict[str, str]:
        """Every command: its name, and where it is."""
        return {**cls.own, **registered(cls.entry_point)}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a misspelt one is answered with the nearest names, which the base class
        looks for among those that are loaded."""
        names: dict[str, Any] = dict.fromkeys(self.targets())
        self.commands = {**names, **self.commands}
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base class's signature
        return list(self.targets())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # the base class's signature
        target = self.own.get(cmd_name) or self.targets().get(cmd_name)
        if target is None:
            return None
        found = load(target)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode=None, add_completion=False)
            alone.command()(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command
