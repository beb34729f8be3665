"""The templates of the dashboard: the report's environment, filters and macros, with pages of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from acktrail.model.queue_status import STATUS_TABLE
from acktrail_dashboard import status_wording
from acktrail_dashboard.branch_views import branch_templates
from acktrail_dashboard.html.report import page_templates
from acktrail_dashboard.web.charts import trend_charts
from acktrail_dashboard.web.static_files import static_files
from acktrail_dashboard.web.time_ranges import LENGTHS
from acktrail_dashboard.wording import byte_text


@cache
def web_templates() -> Environment:
    """Escapes what it puts out and shows hidden characters, as the report does; an unknown name is an error."""
    loader = ChoiceLoader(
        [
            PackageLoader("acktrail_dashboard", "web/templates"),
            PackageLoader("acktrail_dashboard", "html"),
            *branch_templates(),
        ]
    )
    found = page_templates().overlay(loader=loader)
    filters = (
        status_wording.status_text,
        status_wording.status_tone,
        status_wording.is_trouble,
        status_wording.ago,
        status_wording.span_text,
        byte_text,
    )
    found.filters = {**found.filters, **{each.__name__: each for each in filters}}
    found.globals = {
        **found.globals,
        "file_digests": {name: file.digest for name, file in static_files().items()},
        "range_names": tuple(LENGTHS),
        "chart_size": (trend_charts.WIDTH, trend_charts.HEIGHT),
        "status_table": STATUS_TABLE,
    }
    return found


def rendered(template: str, context: Mapping[str, Any]) -> str:
    """A template as HTML."""
    return web_templates().get_template(template).render(context)
