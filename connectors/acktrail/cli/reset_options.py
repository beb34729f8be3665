"""Options that several commands of ``acktrail reset`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AllGroups",
    "AllTopics",
    "Execute",
    "Globs",
    "Groups",
    "Out",
    "Partial",
    "Reason",
    "RequestedBy",
    "Topics",
    "Wait",
    "Watch",
]

Groups = Annotated[list[str] | None, typer.Option("--group", help="Share group by id. May be repeated.")]
Globs = Annotated[
    list[str] | None, typer.Option("--group-glob", help="Share groups whose id matches, for example 'orders-*'.")
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every share group there is.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or some of its partitions: topic:0,1,2. May be repeated.")
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="Everything the group has initialized.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the plan to this file, for `acktrail reset apply`.")]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the records of the reset to show.")]
Watch = Annotated[
    float, typer.Option("--watch", min=0, help="Seconds to watch afterwards that nothing overwrites the start offsets.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Really change the cluster. Without it nothing is sent.")]
Partial = Annotated[bool, typer.Option("--partial", help="Leave out what is refused and send the rest.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit: a ticket, a sentence.")]
RequestedBy = Annotated[str, typer.Option("--requested-by", help="For whom, for the audit.")]
