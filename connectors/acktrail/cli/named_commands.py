"""Commands by their path, loaded when they are named: those of this package, and those that other packages registered.

Example: the path ``record.show`` is ``acktrail record show``, and ``record`` is a group because `groups` says what it
is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from acktrail.branches import load, registered
from acktrail.cli.common_options import spread


class NamedCommands(TyperGroup):
    """The commands whose path begins with `prefix`. `own` has those of this package as ``module:attribute``, a function
    or a group of commands; `entry_point` is the group of entry points by which other packages of the project register
    theirs; `groups` has what each group is for, by its path."""

    own: ClassVar[Mapping[str, str]] = {}
    entry_point: ClassVar[str] = ""
    groups: ClassVar[Mapping[str, str]] = {}
    prefix: ClassVar[str] = ""

    @classmethod
    def targets(cls) -> dict[str, str]:
        """Every command: its path, and where it is."""
        return {**cls.own, **registered(cls.entry_point)}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a misspelt one is answered with the nearest names, which the base class
        looks for among those that are loaded: ``reconcile`` with ``run reconcile``."""
        below = (path for path in self.targets() if path.startswith(self.prefix))
        paths = (path.removeprefix(self.prefix).replace(".", " ") for path in below)
        names: dict[str, Any] = dict.fromkeys([*self.list_commands(ctx), *paths])
        self.commands = {**names, **self.commands}
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base class's signature
        own = (path.removeprefix(self.prefix) for path in self.targets() if path.startswith(self.prefix))
        return list(dict.fromkeys(path.partition(".")[0] for path in own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # the base class's signature
        path = self.prefix + cmd_name
        target = self.own.get(path) or self.targets().get(path)
        if path in self.groups:
            found = self._group(path)
        elif target is None:
            return None
        else:
            found = load(target)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode=None, add_completion=False)
            alone.command()(spread(found))
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def _group(self, path: str) -> typer.Typer:
        inner = type(type(self).__name__, (type(self),), {"prefix": f"{path}."})
        about = self.groups[path]
        found = typer.Typer(cls=inner, help=about, rich_markup_mode=None, add_completion=False, no_args_is_help=True)
        found.callback()(lambda: None)
        return found
