"""Airflow's pages in a browser, and the dashboard in its frame."""

from __future__ import annotations

import json
from urllib.parse import quote

from drivers.browser import Page

__all__ = ["AirflowPages"]

_FRAME = "document.querySelector('iframe').contentDocument"


class AirflowPages:
    """One tab of a browser at one Airflow, as one user."""

    def __init__(self, page: Page, url: str, token: str) -> None:
        self.page, self.url, self._token = page, url, token

    def open(self, path: str) -> None:
        """Go to a page of Airflow as the user."""
        self.page.open("about:blank")
        self.page.until("location.href === 'about:blank'")
        self.page.open(f"{self.url}/{path}", _token=self._token)

    def frame_has(self, text: str) -> None:
        """Wait until the dashboard shows a text."""
        self.page.until(f"{_FRAME}?.body?.innerText?.includes({json.dumps(text)})".replace("iframe')", "iframe')?", 1))

    def frame_is_at(self, part: str) -> None:
        """Wait until the dashboard has loaded a page whose address has `part`."""
        document = _FRAME.replace("iframe')", "iframe')?")
        at = f"{document}?.location?.href?.includes({json.dumps(part)})"
        self.page.until(f"{at} && {_FRAME}.readyState === 'complete' && {_FRAME}.querySelector('main') !== null")

    def press_in_frame(self, selector: str) -> None:
        """Follow a link of the dashboard."""
        self.page.value(f"{_FRAME}.querySelector({json.dumps(selector)}).click()")

    def frame_value(self, script: str) -> object:
        """What a script over the dashboard's document `d` comes to."""
        return self.page.value(f"(d => {script})({_FRAME})")

    @staticmethod
    def run_tab(dag_id: str, run_id: str) -> str:
        """The path of the tab of a run."""
        return f"dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}/plugin/acktrail-dag-run"
