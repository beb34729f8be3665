"""Partition expansions: which topics grew, and what that did to the order of keys. A branch.

See docs/how-to/expand-a-topic.md.
"""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

EXPANSIONS: Final = "partition_expansions"
FENCES: Final = "expansion_fences"
VERDICTS: Final = "expansion_verdicts"
OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"
STEP: Final = "expansions/step"
"""The app id, in the tables that an audit replaces, whose number is the newest look that it read, in microseconds."""
EXPANSION: Final = Branch(
    package="acktrail_expansion",
    change_kinds={"expand_topic": "acktrail_expansion.change.expansion_kind:EXPANSION"},
    observations=frozenset({OBSERVATIONS, POSITIONS}),
    acls="acktrail_expansion.settings:WANTED",
    plan_check="acktrail_expansion.resets.order_check:key_order_check",
    allowable=frozenset({"order_broken", "order_uncertain", "order_needs_gate"}),
    audit="expansion-audit",
    metrics="acktrail_expansion.quality.expansion_findings:expansion_metrics",
    messages="acktrail_expansion.quality.expansion_findings:expansion_changes",
    dags=("acktrail_expansion.dags.acktrail_expand_topic", "acktrail_expansion.dags.acktrail_partitions"),
    views="acktrail_expansion.pages.expansion_pages:VIEWS",
)
