"""Take the picture of the page of an expansion in docs/images, as ``tools/take_pictures.py`` takes the others':
``PYTHONPATH=tests:tools tests/expansion/support/picture.py``. Chromium is needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from drivers.browser import browsing
from expansion.support.rows import NOW, GrownTopic, rows_of, write_rows
from servers.web_server import web_server
from take_pictures import FOLDER, Picture, take

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.application import create_app

__all__ = ["main"]

_BROKEN = GrownTopic(
    verdicts={"fraud-scoring": "broken", "billing": "safe", "search-index": "not_proven:between_fences"},
    types={"fraud-scoring": "share", "billing": "share"},
    new_count=3,
)


def main(folder: Path = FOLDER) -> None:
    """Of sample rows."""
    with tempfile.TemporaryDirectory() as own, browsing(Path(own, "browser")) as tab:
        tables = Tables(TablesConfig(uri=str(Path(own, "tables"))))
        write_rows(tables, rows_of(_BROKEN))
        picture = Picture(name="dashboard-expansion-light", address=f"expansions?event={_BROKEN.event_id}", height=1130)
        with web_server(create_app(tables.config, clock=lambda: NOW)) as url:
            take(tab, url, picture, folder)


if __name__ == "__main__":
    main()
