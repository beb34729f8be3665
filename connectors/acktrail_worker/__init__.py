"""A worker of Kafka Connect's kind, which runs connectors until a signal stops it: plug-ins, their configuration,
threads of tasks, stored connectors, Connect's REST interface and metrics; and connectors that only a worker runs.

``acktrail run export`` needs none of it: it runs the same tasks once (``acktrail.connect.task_execution``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acktrail.branches import Branch
from acktrail.model.acls import Acl, WantedAcls, each, seen

DEAD_LETTERS: Final = "dead-letters"
_GROUPS_TOPIC: Final = "__consumer_offsets"
WANTED: Final[Mapping[str, WantedAcls]] = {
    "metadata": lambda _, __: [Acl("READ", "topic", _GROUPS_TOPIC)],
    DEAD_LETTERS: lambda groups, topics: [*seen(groups), *each("READ", "topic", topics)],
}
"""Dead-letter topics are read, and looked for in the groups' configurations."""
WORKER = Branch(package="acktrail_worker", acls="acktrail_worker:WANTED")
