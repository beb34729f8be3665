"""A hook of MkDocs (mkdocs.yml): adds to pages what keyboards and screen readers need, and the theme leaves out."""

from __future__ import annotations

from typing import Any, Final

_ADDED: Final = {
    ' role="dialog"': ' role="dialog" aria-label="Search"',
    "<pre><span></span><code>": '<pre tabindex="0"><span></span><code>',
    "<table>": '<div class="table-frame" tabindex="0"><table>',
    "</table>": "</table></div>",
}
"""Wide blocks of code and wide tables scroll: a keyboard has to reach them."""


def on_post_page(output: str, **_: Any) -> str:
    """Return the page with these parts replaced."""
    for part, better in _ADDED.items():
        output = output.replace(part, better)
    return output
