"""All pages, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from acktrail_dashboard.branch_views import branch_views
from acktrail_dashboard.web.pages import (
    changes,
    checks,
    export,
    findings,
    group,
    overview,
    runbooks,
    runs,
    share_partition,
)
from acktrail_dashboard.web.web_page import WebPage

PAGES: Final[tuple[WebPage, ...]] = (
    *(overview.PAGE, group.GROUPS, group.PARTITIONS, findings.FINDINGS, findings.FINDING, findings.RECORD),
    *(checks.RULES, checks.RULE, checks.CHECKS, checks.CHECK),
    *(page for each in branch_views() for page in each.pages),
    *(changes.CHANGES, changes.CHANGE, export.EXPORT, group.GROUP, share_partition.PAGE, runs.RUN, runbooks.PAGE),
)
