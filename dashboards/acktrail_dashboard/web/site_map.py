"""All pages, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from acktrail_dashboard.web.pages import groups, overview
from acktrail_dashboard.web.web_page import WebPage

PAGES: Final[tuple[WebPage, ...]] = (overview.PAGE, groups.GROUPS, groups.PARTITIONS)
