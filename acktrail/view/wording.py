"""Numbers, instants, names, statuses, verdicts, severities and results in words and tones: the same wherever they are
shown. A tone says how urgent something is; how it looks is not decided here."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.model.reconciliation import VERDICTS
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.text_tables import KnownSum, printable, shortened

TONES: Final = ("critical", "warning", "unknown", "info", "ok")
"""Most urgent first."""
SEVERITY_TONES: Final = {"critical": "critical", "error": "critical", "warning": "warning", "info": "info"}
SEVERITIES: Final = tuple(SEVERITY_TONES)
"""Worst first."""
STATUSES: Final = tuple(status.value for status in STATUS_TABLE)
"""Worst first."""
STATUS_MEANINGS: Final = {status.value: f"{of.meaning}: {of.advice}" for status, of in STATUS_TABLE.items()}
RESULTS: Final = ("fails", "not_evaluated", "noted", "holds")
"""What is known of a rule in a run; the one that asks for a person first. Noted: broken, and there for information."""

_STATUS_TONES: Final = {Urgency.ACT: "critical", Urgency.LOOK: "warning", Urgency.NOTHING: "ok"}
_OWN_TONES: Final = {
    QueueStatus.STATE_UNKNOWN: "unknown",
    QueueStatus.REWOUND: "info",
    QueueStatus.NOT_JUDGED: "info",
    QueueStatus.IDLE: "info",
}
_OF_SEVERAL: Final = {"holds": "hold", "fails": "fail"}
_RESULT_TONES: Final = {"holds": "ok", "noted": "info"}
VERDICT_MEANINGS: Final = {verdict: own["meaning"] for verdict, own in VERDICTS.items()}


def canonical(word: str | None) -> str:
    """A verdict, a status or a severity as a key: lower case, underscores; ``unknown`` where there is none."""
    return "_".join((word or "unknown").lower().replace("-", " ").replace("_", " ").split()) or "unknown"


def in_words(word: str | None) -> str:
    """A verdict, a status, a severity or a result for people: ``release loop``; ``unknown`` where there is none."""
    return printable(canonical(word).replace("_", " "))


def verdict_tone(verdict: str) -> str:
    """The tone of a verdict; one that this release does not know is never good news."""
    return VERDICTS.get(canonical(verdict), {"tone": "unknown"})["tone"]


def severity_tone(severity: str) -> str:
    """The tone of a severity; one that this release does not know is not known."""
    return SEVERITY_TONES.get(canonical(severity), "unknown")


def severity_rank(severity: str | None) -> int:
    """Sort key: the worst first, one that this release does not know last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def result_tone(state: str | None, severity: str | None) -> str:
    """The tone of a rule's result: a failure weighs as much as its severity."""
    if state == "fails":
        return "warning" if canonical(severity) == "warning" else "critical"
    return _RESULT_TONES.get(state or "", "unknown")


def status_tone(status: str | None) -> str:
    """The tone of a status; one that this release does not know is never good news."""
    if status not in STATUSES:
        return "unknown"
    known = QueueStatus(status)
    return _OWN_TONES.get(known, _STATUS_TONES[STATUS_TABLE[known].urgency])


def status_rank(status: str | None) -> int:
    """Sort key: the worst first, one that this release does not know before those that need nothing."""
    return STATUSES.index(status if status in STATUSES else QueueStatus.STATE_UNKNOWN.value)


def is_trouble(status: str | None) -> bool:
    """Whether a person should act or look."""
    return status not in STATUSES or STATUS_TABLE[QueueStatus(status)].urgency is not Urgency.NOTHING


def trouble_text(status: str | None, reason: str | None, group_id: str | None = None, topic: str | None = None) -> str:
    """Why a share partition is in trouble, and what to do about it; of one that is not in trouble, only the reason.

    >>> trouble_text("lagging", "2,443 unfinished records")
    '2,443 unfinished records. What to do: add consumers, or make them faster.'
    """
    if status not in STATUSES or not is_trouble(status):
        return printable(reason or "")
    why = printable(reason or STATUS_TABLE[QueueStatus(status)].meaning)
    return f"{why}. What to do: {advice_text(status, reason, group_id, topic)}."


def advice_text(status: str, reason: str | None, group_id: str | None = None, topic: str | None = None) -> str:
    """What to do about a known status with that reason. The advice of a critical finding is that of its rule."""
    rule = rule_catalogue().by_id.get((reason or "").partition(":")[0])
    advice = STATUS_TABLE[QueueStatus(status)].advice if rule is None else rule.advice.removesuffix(".")
    return addressed(advice, group_id, topic)


def addressed(advice: str, group_id: str | None, topic: str | None = None) -> str:
    """`advice` with GROUP and TOPIC replaced by names that are known, as a shell takes them.

    >>> addressed("`acktrail record archived GROUP`", "billing")
    '`acktrail record archived billing`'
    """
    for word, name in (("GROUP", group_id), ("TOPIC", topic)):
        if name is not None:
            advice = shlex.quote(name).join(re.split(rf"\b{word}\b", advice))
    return printable(advice)


def headline(
    worst: Iterable[tuple[str, str, datetime | None]],
    counts: Mapping[str, int],
    *,
    stopping: int = 0,
    critical_findings: int = 0,
) -> tuple[str, str]:
    """The worst group and how many others are in trouble, in one sentence, and its tone. `counts`: groups by their
    worst status; `worst`: some of them by name, the worst first, each with its status and since when. Rules that
    stopped the run, and critical findings, are no good news, also where all groups look well."""
    return critical_first(_of_groups(worst, counts), stopping=stopping, critical_findings=critical_findings)


def who_is_not_known(reason: str) -> str:
    """The sentence in the place of a headline where statuses cannot be read."""
    return f"Who is in trouble is not known: {reason}."


def critical_first(sentence: tuple[str, str], *, stopping: int, critical_findings: int) -> tuple[str, str]:
    """A sentence about statuses and its tone, with what is worse."""
    text, tone = sentence
    names_a_group = tone in {"critical", "warning"}
    if stopping:
        about = text if names_a_group else f"{counted(stopping, 'critical rule')} broken."
        return f"The checks stopped this run: {about}", "critical"
    if not critical_findings or tone == "critical":
        return sentence
    found = counted(critical_findings, "critical finding")
    if names_a_group:
        return f"{text[:-1]}; {found}.", "critical"
    return f"{found}, and by status {text[0].lower()}{text[1:]}", "critical"


def _of_groups(worst: Iterable[tuple[str, str, datetime | None]], counts: Mapping[str, int]) -> tuple[str, str]:
    if not counts:
        return "No share group has a status yet.", "unknown"
    others = sum(count for status, count in counts.items() if is_trouble(status)) - 1
    if others < 0:
        return "No group is in trouble.", "ok"
    group_id, status, since = next(each for each in worst if is_trouble(each[1]))
    begun = f" since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if since else ""
    more = f", and {counted(others, 'other group')} in trouble" if others else ""
    is_urgent = any(status_tone(each) == "critical" for each in counts)
    return f"{shortened(printable(group_id))} {in_words(status)}{begun}{more}.", "critical" if is_urgent else "warning"


def tally(words: Iterable[str], order: Iterable[str] = ()) -> dict[str, int]:
    """How often each word occurs, known words in `order`, then the others by name."""
    counts = Counter(words)
    return {word: counts[word] for word in dict.fromkeys((*order, *sorted(counts))) if counts[word]}


def counts_text(counts: Mapping[str, int], nothing: str = "none") -> str:
    """Counts by word: ``2 stuck, 1 release loop``; of results ``9 hold, 1 fails``."""
    named = ((count, _OF_SEVERAL.get(word, word) if count != 1 else word) for word, count in counts.items())
    return ", ".join(f"{number(count)} {in_words(word)}" for count, word in named) or nothing


def number(value: int | None) -> str:
    """Digits in groups of three; None is ``unknown``."""
    return "unknown" if value is None else f"{value:,}".replace("-", "\N{MINUS SIGN}")


def known_sum(parts: tuple[int, int]) -> str:
    """The sum that is known, and of how many share partitions it is not, as one number."""
    return str(KnownSum(*parts))


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 gap``, ``2 gaps``."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def instant(moment: datetime | None) -> str:
    """To the second, in UTC."""
    return "unknown" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long before `now` a moment was, by its two largest units: ``2 h 5 min ago``. One that is more than five
    minutes ahead is ``2 h in the future``: a clock is wrong."""
    if moment is None:
        return "unknown"
    is_ahead = moment - now > timedelta(minutes=5)
    return f"{_span(moment - now)} in the future" if is_ahead else f"{_span(now - moment)} ago"


def _span(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return counted(days, "day") + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{minutes} min" if minutes else f"{seconds} s"


def topic_text(topic: str | None, topic_id: str) -> str:
    """The topic's name, else ``topic id`` and its id."""
    return printable(topic) if topic is not None else f"topic id {printable(topic_id) or 'unknown'}"


def subject_text(row: Any) -> str:
    """Who a finding is about, by name: ``billing, orders 0``; else its subject."""
    topic = "" if row.topic_id is None else topic_text(row.topic, row.topic_id)
    place = topic if row.partition is None else f"{topic} {row.partition}"
    if row.group_id is None:
        return place or printable(row.subject)
    return ", ".join(part for part in (printable(row.group_id), place) if part)


def address(state_partition: int | None, offset: int | None) -> str:
    """Where a record of the state topic lies."""
    if state_partition is None:
        return ""
    return f"state partition {state_partition}" + ("" if offset is None else f", offset {number(offset)}")
