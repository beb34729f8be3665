"""axe, the accessibility checker, on the page that a browser shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from drivers.browser import Page

__all__ = ["CONTRAST", "axe_violations", "axe_violations_in_frame", "show_as"]

CONTRAST = ("color-contrast", "link-in-text-block")
"""The rules that another theme can break."""
_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_TOO = {"label-content-name-mismatch": {"enabled": True}}
"""Rules that axe leaves out unless they are named."""


@cache
def _axe() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def axe_violations(page: Page, rules: Sequence[str] = (), **world: int) -> list[str]:
    """What the page does wrong by `rules` (none: by all): rule and the first element that breaks it. The debugger runs
    axe: no policy stops it. `world`: where it runs scripts, if not in the page itself."""
    if not page.call("Runtime.evaluate", expression="!!window.axe", **world)["result"]["value"]:
        page.call("Runtime.evaluate", expression=_axe(), **world)
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": _TAGS}
    options = json.dumps({"runOnly": only, "resultTypes": ["violations"], **({} if rules else {"rules": _TOO})})
    script = f"axe.run(document, {options}).then(r => JSON.stringify(r.violations))"
    answer: dict[str, Any] = page.call(
        "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, **world
    )
    found: list[dict[str, Any]] = json.loads(answer["result"]["value"])
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def axe_violations_in_frame(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """The same of the one frame that the page has, of the same server."""
    (child,) = page.call("Page.getFrameTree")["frameTree"]["childFrames"]
    world = page.call("Page.createIsolatedWorld", frameId=child["frame"]["id"])
    return axe_violations(page, rules, contextId=world["executionContextId"])


def show_as(page: Page, scheme: str, width: int, height: int = 900) -> None:
    """Light or dark, in a window of this size."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
