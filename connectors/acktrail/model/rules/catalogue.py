"""Every rule that acktrail knows, by each of its ids: the one source of severities."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from acktrail.model.rules.batch_rules import BATCH_RULES
from acktrail.model.rules.draft_rules import DRAFT_RULES
from acktrail.model.rules.expansion_rules import EXPANSION_RULES
from acktrail.model.rules.export_rules import EXPORT_RULES
from acktrail.model.rules.quality_rule import QualityRule
from acktrail.model.rules.record_rules import RECORD_RULES
from acktrail.model.rules.reset_gate_rules import RESET_RULES
from acktrail.model.rules.state_rules import REPLAYED_STATE_RULES
from acktrail.model.rules.verdict_rules import VERDICT_RULES

RULES_BY_SUBJECT: Final[Mapping[str, tuple[QualityRule, ...]]] = MappingProxyType(
    {
        "Exports": EXPORT_RULES,
        "State records": RECORD_RULES,
        "State batches": BATCH_RULES,
        "Replayed states": REPLAYED_STATE_RULES,
        "Verdicts": VERDICT_RULES,
        "Plans and results of resets": RESET_RULES,
        "Partition expansions": EXPANSION_RULES,
        "Drafts of the record formats": DRAFT_RULES,
    }
)
"""The rules by what they are about, in the order of the data's way."""

QUALITY_RULES: Final = tuple(rule for rules in RULES_BY_SUBJECT.values() for rule in rules)
"""All rules."""

RULE_BY_ID: Final[Mapping[str, QualityRule]] = MappingProxyType(
    {id_: rule for rule in QUALITY_RULES for id_ in rule.ids}
)
"""The rule of each id in ``findings`` (`rule`), ``quality_results`` (`expectation`) and offline findings. A table that
a newer release wrote may have ids that are not here."""
