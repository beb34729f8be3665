"""The report in a real browser, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail_dashboard.html.report import render_html, write_whole
from acktrail_dashboard.rows.run_tables import RunTables

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def dom(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """What the browser made of the page, and what it complained about."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={profile}", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND",
        *options, "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr


def test_the_browser_obeys_and_complains_about_nothing(
    sample: RunTables,
    run_id: str,
    tmp_path: Path,
    make_table: Callable[..., pa.Table],
) -> None:
    """Names that are scripts, styles and images do nothing; the policy blocks nothing of ours; no section is lost."""
    names = (
        "<script>document.title='owned'</script>",
        "<img src=x onerror=document.title='owned'>",
        "</style><body onload=document.title='owned'>",
    )
    findings = [{"rule": name, "severity": name, "subject": name, "detail": name} for name in names]
    hostile = replace(sample, findings=make_table("findings", findings))
    html = render_html(hostile, run_id, written_at=datetime(2026, 11, 21, tzinfo=UTC), broker=names[0])
    page = write_whole(html, tmp_path / "report.html")
    shown, complaints = dom(page, tmp_path / "profile")
    assert f"<title>acktrail: share group report, run {run_id}</title>" in shown
    assert shown.count("<section") == html.count("<section")
    console = [line for line in complaints.splitlines() if "CONSOLE" in line or "Content Security Policy" in line]
    assert console == []


def test_the_browser_would_have_complained(tmp_path: Path, sample: RunTables, run_id: str) -> None:
    """The check above can fail: a script put into the page is refused by the policy, loudly."""
    html = render_html(sample, run_id, written_at=datetime(2026, 11, 21, tzinfo=UTC))
    broken = html.replace("<main>", "<main><script>document.title='owned'</script><p style='color:red'>x</p>")
    shown, complaints = dom(write_whole(broken, tmp_path / "report.html"), tmp_path / "profile")
    assert "<title>owned" not in shown
    assert "Content Security Policy" in complaints


def test_no_width_makes_the_page_scroll_sideways(sample: RunTables, run_id: str, tmp_path: Path) -> None:
    """From a phone to a wide screen the page is as wide as its window; tables scroll within their own frame."""
    html = render_html(sample, run_id, written_at=datetime(2026, 11, 21, tzinfo=UTC))
    page = write_whole(html, tmp_path / "report.html")
    # The page may run no script: it is measured from outside, in a frame of a second page.
    for width in (360, 768, 1280):
        measure = tmp_path / f"measure-{width}.html"
        measure.write_text(
            f"<iframe id=f src='{page.as_uri()}' width={width} height=800></iframe><p id=result></p><script>"
            "onload = () => { const d = f.contentDocument.documentElement;"
            "result.textContent = d.scrollWidth + ' ' + d.clientWidth }</script>",
            encoding="utf-8",
        )
        shown, _ = dom(measure, tmp_path / f"profile-{width}", "--allow-file-access-from-files")
        scroll, client = map(int, shown.split('<p id="result">')[1].split("</p>", 1)[0].split())
        assert scroll <= client <= width
        assert client > width * 0.9


def test_screenshots_in_both_themes_differ(sample: RunTables, run_id: str, tmp_path: Path) -> None:
    """Light and dark are both drawn, and are not the same picture."""
    html = render_html(sample, run_id, written_at=datetime(2026, 11, 21, tzinfo=UTC))
    page = write_whole(html, tmp_path / "report.html")
    pictures: list[Any] = []
    for scheme in (0, 1):
        out = tmp_path / f"{scheme}.png"
        dom(
            page,
            tmp_path / f"profile-{scheme}",
            f"--screenshot={out}",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        pictures.append(out.read_bytes())
    assert pictures[0] != pictures[1]
    assert all(len(picture) > 10_000 for picture in pictures)
