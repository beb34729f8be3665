"""Great Expectations' Data Docs without the network: its pages as files, with every outside resource taken out.

As shipped each page loads scripts and styles from seven hosts and an image that counts readers, and its index is empty
without them. Here known ones are removed, unknown ones are refused, a policy in each page forbids all others, and the
index is a plain table of links. No page has values of the tables: results are counts.
"""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from great_expectations.render.view import DefaultJinjaPageView

SITE: Final = "acktrail"
RESULT_FORMAT: Final = {"result_format": "BASIC", "exclude_unexpected_values": True}
"""Counts without values: the pages do not escape what a group or a topic is called."""

_KNOWN_HOSTS: Final = (
    "cdn.jsdelivr.net", "cdnjs.cloudflare.com", "code.jquery.com", "maxcdn.bootstrapcdn.com", "unpkg.com",
    "great-expectations-web-assets.s3.us-east-2.amazonaws.com", "stackpath.bootstrapcdn.com",
)  # fmt: skip
_KNOWN: Final = rf"(?:https://(?:{'|'.join(map(re.escape, _KNOWN_HOSTS))})/|(?:\.{{1,2}}/)*static/)"
_REMOVED: Final = re.compile(
    rf"""<script\b[^>]*\bsrc=["']{_KNOWN}[^>]*>\s*</script>"""
    rf"""|<(?:link|img)\b[^>]*\b(?:href|src)\s*=\s*["']{_KNOWN}[^>]*>"""
    r"""|<script\b(?![^>]*\bsrc=)[^>]*>.*?</script>""",
    re.DOTALL,
)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HEAD: Final = (
    f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    "<style>body{font:15px/1.5 sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%}td,th{border:1px solid #ccc;padding:.3rem .6rem;text-align:left;"
    "vertical-align:top}.text-danger{color:#a00}.text-success{color:#060}.badge{font-weight:bold;margin-right:.5rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}a{color:#8cf}.text-danger{color:#f88}"
    ".text-success{color:#8d8}}</style>"
)
_INDEX_ROW: Final = '<tr><td><a href="{link}">{suite}</a></td><td>{result}</td><td>{time}</td></tr>'


class OutsideResource(ValueError):
    """A page loads something from elsewhere that is not known."""


def offline(page: str) -> str:
    """`page` without scripts and outside resources, with a policy that forbids them. Raises OutsideResource."""
    changed = _REMOVED.sub("", page).replace("<head>", f"<head>{_HEAD}", 1)
    finder = _Resources()
    finder.feed(changed)
    if finder.found:
        raise OutsideResource(f"Data Docs would load {finder.found[0]}")
    return changed


class _Resources(HTMLParser):
    """What a page would load: everything that is no link to click, and no data in the page itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            loads = name in {"src", "srcset", "poster", "data", "background"} or (tag == "link" and name == "href")
            if loads and value and not value.startswith("data:"):
                self.found.append(value)
            if name == "style" and value and "url(" in value.lower():
                self.found.append(value)


class OfflinePageView(DefaultJinjaPageView):
    """Great Expectations' page of a suite or of a result, offline."""

    def render(self, document: Any, template: Any = None, **kwargs: Any) -> str:
        """The page. Raises OutsideResource."""
        return offline(super().render(document, template, **kwargs))


class RunIndexRenderer:
    """Gives the links of the site to the view as they are."""

    def __init__(self, data_context: Any = None) -> None:
        self.data_context = data_context

    def render(self, links: Any) -> Any:
        """`links` by kind."""
        return links


class OfflineIndexView:
    """The index: a table of the results, with links."""

    def __init__(self, **_: Any) -> None:
        """Great Expectations gives folders of its own styles and views."""

    def render(self, links: Any, **_: Any) -> str:
        """The page."""
        rows = [
            _INDEX_ROW.format(
                link=escape(link["filepath"]),
                suite=escape(link["expectation_suite_name"]),
                result="passed" if link["validation_success"] else "failed",
                time=escape(str(link["run_time"])),
            )
            for link in links.get("validations_links", ())
        ]
        title = "acktrail: results of a run"
        table = f"<table><tr><th>suite</th><th>result</th><th>validated</th></tr>{''.join(rows)}</table>"
        body = f"<body><h1>{title}</h1>{table}</body>"
        return offline(f"<!DOCTYPE html><html lang='en'><head><title>{title}</title></head>{body}</html>")


def build_site(context: Any, folder: Path) -> Path:
    """Write the Data Docs of everything that `context` validated into `folder`, and give the index.

    Raises:
        OutsideResource: a page would load something from the network, or could not be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page_view = {"module_name": __name__, "class_name": OfflinePageView.__name__}
    sections = {
        name: {"class_name": "DefaultSiteSectionBuilder", "source_store_name": store, "view": page_view}
        for name, store in (("expectations", "expectations_store"), ("validations", "validation_results_store"))
    }
    index = {
        "class_name": "DefaultSiteIndexBuilder",
        "renderer": {"module_name": __name__, "class_name": RunIndexRenderer.__name__},
        "view": {"module_name": __name__, "class_name": OfflineIndexView.__name__},
    }
    context.add_data_docs_site(
        SITE,
        {
            "class_name": "SiteBuilder",
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())},
            "site_section_builders": {**sections, "profiling": "None"},
            "site_index_builder": index,
            "show_how_to_buttons": False,
        },
    )
    context.build_data_docs(site_names=[SITE])
    return _checked(folder)


def _checked(folder: Path) -> Path:
    """Great Expectations logs what went wrong with a page and continues: what is there is checked."""
    pages = sorted(folder.rglob("*.html"))
    for page in pages:
        if _POLICY not in page.read_text("utf-8"):
            raise OutsideResource(f"{page.name} was not made offline")
    index = folder / "index.html"
    if not any("validations" in page.parts for page in pages) or not index.exists():
        raise OutsideResource("Data Docs could not be made: see the log of Great Expectations")
    return index
