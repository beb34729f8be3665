"""The ACLs of looks and of an expansion: the fewest with which they work.

An expansion sends CreatePartitions (ALTER on the topic), and asks where groups are and where they begin. A look asks
for partitions, ends of logs and leader epochs (DESCRIBE on the topic), and for the positions of groups.
"""

from __future__ import annotations

from typing import Final

from acktrail.model.acls import WantedAcls, each, seen

LOOK: Final = "ledger"
EXPANSION: Final = "expansion"
WANTED: Final[dict[str, WantedAcls]] = {
    LOOK: lambda groups, topics: [*each("DESCRIBE", "group", groups), *each("DESCRIBE", "topic", topics)],
    EXPANSION: lambda groups, topics: [*seen(groups), *each("ALTER", "topic", topics)],
}
