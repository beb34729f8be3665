"""What branches add to the pages, to the report and to its text for a terminal.

A branch names its `BranchViews` in the field `views` of its `acktrail.branches.Branch`. Its templates are in the folder
``pages/templates`` of its package, and may use the macros of the trunk's.

Example: the terminal's summary has a line of each section.

    for section in report_sections():
        yield section.title, section.line(summary.branches[section.name])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import BaseLoader, PackageLoader

from acktrail.branches import loaded
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.web_page import Visit, WebPage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A section of the report of a run. `read` gives what the tables have as of the end of the run (None: not known),
    in values that JSON has; its `template` gets that as `found`. `line` says it in one line. `read` raises
    ConfigurationError, RetryableError: a table cannot be read."""

    title: str
    template: str
    read: Callable[[Tables, datetime | None], Mapping[str, Any]]
    line: Callable[[Mapping[str, Any]], str]

    @property
    def name(self) -> str:
        """Its name in the report's JSON."""
        return self.title.lower().replace(" ", "_")


def _nothing(_: Visit) -> Iterable[tuple[str, str]]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchViews:
    """What one branch shows. `alerts`: what a person must know, for the first page: sentences and the addresses that
    they lead to."""

    package: str
    pages: tuple[WebPage, ...] = ()
    sections: tuple[ReportSection, ...] = ()
    alerts: Callable[[Visit], Iterable[tuple[str, str]]] = _nothing


@cache
def branch_views() -> tuple[BranchViews, ...]:
    """Of every branch that shows anything."""
    return tuple(loaded("views"))


def branch_templates() -> list[BaseLoader]:
    """Where the templates of branches are."""
    return [PackageLoader(each.package, "pages/templates") for each in branch_views()]


def report_sections() -> tuple[ReportSection, ...]:
    """Of all branches."""
    return tuple(section for each in branch_views() for section in each.sections)
