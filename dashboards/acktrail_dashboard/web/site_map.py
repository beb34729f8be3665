"""All pages, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from acktrail_dashboard.branch_views import branch_views
from acktrail_dashboard.web.pages import (
    checks,
    export,
    findings,
    group,
    groups,
    overview,
    resets,
    rules,
    runbooks,
    runs,
    share_partition,
)
from acktrail_dashboard.web.web_page import WebPage

PAGES: Final[tuple[WebPage, ...]] = (
    overview.PAGE,
    groups.GROUPS,
    groups.PARTITIONS,
    findings.FINDINGS,
    findings.FINDING,
    findings.RECORD,
    rules.RULES,
    rules.RULE,
    checks.CHECKS,
    checks.CHECK,
    *(page for each in branch_views() for page in each.pages),
    resets.RESETS,
    resets.RESET,
    export.EXPORT,
    group.PAGE,
    share_partition.PAGE,
    runs.RUN,
    runbooks.PAGE,
)
