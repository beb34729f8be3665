"""The export: positions of the state partitions, gaps, quarantine."""

from __future__ import annotations

from typing import Any, Final

from acktrail.tables.records.record_files import RECORDS, quarantined_records
from acktrail.text_tables import KnownSum
from acktrail.view import export_rows
from acktrail_dashboard.web.web_page import Visit, WebPage

_QUARANTINED_SHOWN: Final = 100


def _export(visit: Visit) -> dict[str, Any]:
    ranges = visit.read("export_ranges", columns=export_rows.EXPORT_COLUMNS)
    positions, gaps = export_rows.export_rows(ranges), export_rows.gap_rows(ranges)
    quarantined = visit.ask(RECORDS, quarantined_records, None)
    newest = quarantined and quarantined.sort_by([("timestamp_ms", "descending"), ("offset", "descending")])
    return {
        "positions": positions,
        "exported_at": max((each.exported_at for each in positions if each.exported_at is not None), default=None),
        "behind": KnownSum.of(each.behind for each in positions).total if positions else None,
        "gaps": gaps,
        "lost": sum(gap.tone == "critical" for gap in gaps),
        "quarantined": newest.slice(0, _QUARANTINED_SHOWN).to_pylist() if newest else (),
        "quarantined_count": None if quarantined is None else quarantined.num_rows,
    }


PAGES: Final = (WebPage(path="export", title="Export", template="export.html", context=_export, menu="Export"),)
