"""The top of the report: the run in one sentence, where it comes from, and its totals."""

from __future__ import annotations

from acktrail_dashboard.html.markup import Child, Markup, element, name
from acktrail_dashboard.html.svg import share_bar
from acktrail_dashboard.summary_types import Summary
from acktrail_dashboard.verdicts import TONES, result_tone, severity_tone, tally, verdict_tone
from acktrail_dashboard.wording import counted, findings_line, headline, instant, number, quality_line, verdicts_line

_BARS = ((0, "ok"), (6, "ok"), (12, "warning"), (18, "critical"))


def report_header(summary: Summary, *, broker: str | None) -> Markup:
    """Header of the page. `broker` is what the caller knows of it; the tables do not hold it."""
    sentence, tone = headline(summary)
    head, totals = summary.head, summary.totals
    read = (
        f"{counted(totals.records_exported, 'state record')}, {counted(len(summary.exports), 'partition')}, "
        f"{counted(totals.commits, 'commit')}"
    )
    facts = (
        ("Cluster", name(head.cluster_id) if head.cluster_id else "unknown"),
        ("Broker", name(broker) if broker else "not recorded"),
        ("Run", name(head.run_id)),
        ("Observed", instant(head.observed_to)),
        ("Read", read),
    )
    return element(
        "header",
        element("p", _logo(), element("b", "acktrail"), element("span", "share group report"), class_="brand"),
        element("h1", sentence, class_=f"headline {tone}"),
        element(
            "dl", *(element("div", element("dt", term), element("dd", text)) for term, text in facts), class_="facts"
        ),
        class_="top",
    )


def _logo() -> Markup:
    bars = (
        element("rect", x=x, y=12 - 4 * i, width=5, height=8 + 4 * i, rx="1.5", class_=f"fill-{tone}")
        for i, (x, tone) in enumerate(_BARS)
    )
    return element("svg", *bars, class_="logo", viewBox="0 0 23 20", aria_hidden="true")


def tiles(summary: Summary) -> Markup:
    """The totals, a tile each. A sum over nothing known is not zero."""
    totals, results = summary.totals, summary.expectations
    partitions, unevaluated = totals.share_partitions, totals.expectations_not_evaluated
    verdicts = share_bar(((verdict_tone(word), n) for word, n in totals.verdicts), label=verdicts_line(totals))
    findings = share_bar(((severity_tone(word), n) for word, n in totals.findings), label=findings_line(totals))
    quality = share_bar(tally(map(result_tone, results), reversed(TONES)), label=quality_line(totals))
    lag = totals.lag_records if totals.lag_known or not partitions else None
    archived = totals.archived_seen if totals.archived_unknown < partitions or not partitions else None
    failed = f"{number(totals.expectations_failed)} failed"
    gaps = counted(totals.gaps, "gap") + (f", {number(totals.gap_records)} lost" if totals.gaps else "")
    return element(
        "ul",
        _tile("Share partitions", number(partitions), f"in {counted(totals.groups, 'group')}", verdicts),
        _tile("Lag", number(lag), _unknown_for(totals.lag_unknown, "records behind")),
        _tile("Archived", number(archived), _unknown_for(totals.archived_unknown, "records seen")),
        _tile("Findings", number(sum(count for _, count in totals.findings)), findings_line(totals), findings),
        _tile(
            "Expectations passed",
            f"{number(totals.expectations_passed)} / {number(len(results))}",
            failed + (f", {number(unevaluated)} not evaluated" if unevaluated else ""),
            quality,
        ),
        _tile(
            "Records exported",
            number(totals.records_exported),
            f"{number(totals.records_quarantined)} quarantined, {gaps}",
        ),
        class_="tiles",
        aria_label="Totals",
    )


def _unknown_for(count: int, below: str) -> str:
    return f"{below}, unknown for {number(count)}" if count else below


def _tile(label: str, figure: str, below: str, picture: Child = None) -> Markup:
    return element(
        "li",
        element("span", label, class_="label"),
        element("strong", figure),
        element("span", below, class_="below"),
        picture,
        class_="tile",
    )
