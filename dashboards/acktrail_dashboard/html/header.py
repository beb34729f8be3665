"""The top of the report: the run in one sentence, where it comes from, and its totals."""

from __future__ import annotations

from acktrail_dashboard.html.markup import Child, Markup, element, joined, name
from acktrail_dashboard.html.quality_section import result_tone
from acktrail_dashboard.html.svg import shares
from acktrail_dashboard.summary_types import Summary, Totals
from acktrail_dashboard.verdicts import TONES, severity_tone, tally, verdict_tone
from acktrail_dashboard.wording import counted, findings_line, headline, instant, number, quality_line, verdicts_line

__all__ = ["masthead", "tiles"]

NOT_RECORDED = "not recorded"


def masthead(summary: Summary, *, broker: str | None) -> Markup:
    """Header of the page. `broker` is what the caller knows of it; the tables do not hold it."""
    sentence, tone = headline(summary)
    return element(
        "header",
        element("p", _logo(), element("b", "acktrail"), element("span", "share group report"), class_="brand"),
        element("h1", sentence, class_=f"headline {tone}"),
        element("dl", *_facts(summary, broker), class_="facts"),
        class_="top",
    )


def _logo() -> Markup:
    blocks = ((0, "ok"), (6, "ok"), (12, "warning"), (18, "critical"))
    drawn = (
        element(
            "rect",
            x=x,
            y=12 - 4 * index,
            width=5,
            height=8 + 4 * index,
            rx=(1.5).__format__("g"),
            class_=f"fill-{tone}",
        )
        for index, (x, tone) in enumerate(blocks)
    )
    return element("svg", *drawn, class_="logo", viewBox="0 0 23 20", aria_hidden="true")


def _facts(summary: Summary, broker: str | None) -> tuple[Markup, ...]:
    head = summary.head
    return (
        _fact("Cluster", name(head.cluster_id) if head.cluster_id else "unknown"),
        _fact("Broker", name(broker) if broker else NOT_RECORDED),
        _fact("Run", name(head.run_id)),
        _fact("Observed", instant(head.observed_to)),
        _fact("Read", _read(summary)),
    )


def _read(summary: Summary) -> str:
    return (
        f"{counted(summary.totals.records_exported, 'state record')}, "
        f"{counted(len(summary.exports), 'partition')}, {counted(summary.totals.commits, 'commit')}"
    )


def _fact(term: str, value: Child) -> Markup:
    return element("div", element("dt", term), element("dd", value))


def tiles(summary: Summary) -> Markup:
    """The totals, a tile each."""
    return element("ul", *_tiles(summary), class_="tiles", aria_label="Totals")


def _tiles(summary: Summary) -> tuple[Markup, ...]:
    totals = summary.totals
    verdicts = shares(((verdict_tone(word), n) for word, n in totals.verdicts), label=verdicts_line(totals))
    findings = shares(((severity_tone(word), n) for word, n in totals.findings), label=findings_line(totals))
    quality = shares(tally(map(result_tone, summary.expectations), reversed(TONES)), label=quality_line(totals))
    counted_archived = totals.share_partitions - totals.archived_unknown
    results = len(summary.expectations)
    gaps = (
        counted(totals.gaps, "gap")
        if not totals.gaps
        else f"{counted(totals.gaps, 'gap')}, {number(totals.gap_records)} lost"
    )
    return (
        _tile("Share partitions", number(totals.share_partitions), f"in {counted(totals.groups, 'group')}", verdicts),
        _tile(
            "Lag", _sum(totals.lag_records, totals.lag_known, totals), _unknown(totals.lag_unknown, "records behind")
        ),
        _tile(
            "Archived",
            _sum(totals.archived_seen, counted_archived, totals),
            _unknown(totals.archived_unknown, "records seen"),
        ),
        _tile("Findings", number(sum(count for _, count in totals.findings)), findings_line(totals), findings),
        _tile(
            "Expectations passed",
            f"{number(totals.expectations_passed)} / {number(results)}",
            _not_passed(totals),
            quality,
        ),
        _tile(
            "Records exported",
            number(totals.records_exported),
            f"{number(totals.records_quarantined)} quarantined, {gaps}",
        ),
    )


def _sum(figure: int, known: int, totals: Totals) -> str:
    """A sum over nothing known is not zero."""
    return number(figure if known or not totals.share_partitions else None)


def _not_passed(totals: Totals) -> str:
    later = f", {number(totals.expectations_not_evaluated)} not evaluated" if totals.expectations_not_evaluated else ""
    return f"{number(totals.expectations_failed)} failed{later}"


def _unknown(count: int, else_: str) -> str:
    return f"{else_}, unknown for {number(count)}" if count else else_


def _tile(label: str, figure: str, below: str, picture: Markup | None = None) -> Markup:
    return element(
        "li",
        element("span", label, class_="label"),
        element("strong", figure),
        element("span", below, class_="below"),
        joined((picture,)),
        class_="tile",
    )
