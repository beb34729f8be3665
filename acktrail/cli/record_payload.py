"""The content of one record for a person: ``acktrail record show --payload``. Nothing of it is stored or logged, and no
error quotes it. Each look is a row of the audit, written before anything is shown."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acktrail.config import payload_masks
from acktrail.errors import ConfigurationError, ForeignCluster, InputError
from acktrail.text_parsing import parse_json
from acktrail.text_tables import printable
from acktrail.times import instant_text, new_run_id
from acktrail.view.record_evidence import hex_lines

if TYPE_CHECKING:
    from acktrail.cli.common_options import OfBoth
    from acktrail.history.history_reader import TopicName
    from acktrail.kafka.record_ranges import SourceRecord

MOST_SHOWN: Final = 4_096
"""Bytes of the key, of the value, and of all headers together."""
_MOST_JSON: Final = 1 << 20
"""Larger values are not parsed."""
_LONGEST_NAME: Final = 256
_MOST_HEADERS: Final = 100
_MASKED: Final = "***"
_STEP: Final = re.compile(r"(\.\.?)([\w-]+|\*)|\[(\d+|\*|'[^']+')\]")
_BRACKETS: Final = re.compile(rb"[{\[]")
_MOST_ODD: Final = 10
"""Text with more control characters than one of ten is shown as binary."""
_HEADER: Final = "header:"
_KEY: Final = "key"


class PayloadForm(StrEnum):
    """How content is shown. AUTO: JSON where it is an object or array, else text, else hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


class PathStep(NamedTuple):
    """A step of a JSON path. `name` None: every member. `is_deep`: also of members at any depth (``..name``)."""

    name: str | int | None
    is_deep: bool


@dataclass(frozen=True, slots=True)
class PayloadMasks:
    """What is hidden: `paths` in keys and values that are JSON, headers by lower-case globs, the whole key."""

    paths: tuple[tuple[PathStep, ...], ...] = ()
    headers: tuple[str, ...] = ()
    hides_key: bool = False

    @classmethod
    def parsed(cls, texts: Sequence[str]) -> PayloadMasks:
        """Return the masks in `texts`. Raises ConfigurationError: one of them is none."""
        paths = tuple(_path(text) for text in texts if text != _KEY and not text.startswith(_HEADER))
        headers = (text.removeprefix(_HEADER).strip().lower() for text in texts if text.startswith(_HEADER))
        return cls(paths, tuple(headers), hides_key=_KEY in texts)

    def hides(self, header: bytes) -> bool:
        """Return whether the value of the header with this name is hidden."""
        name = header.decode("utf-8", "replace").lower()
        return any(fnmatchcase(name, glob) for glob in self.headers)


@dataclass(frozen=True, slots=True)
class Piece:
    """Shown content: `form` of `shown`, the first of `whole` bytes. `text` None: it is no text. `size` is that of the
    content in Kafka."""

    form: str
    size: int
    shown: bytes = b""
    whole: int = 0
    text: str | None = None

    def as_json(self) -> dict[str, Any]:
        content = self.text
        if content is None and self.shown:
            content = self.shown.hex() if self.form == PayloadForm.HEX else b64encode(self.shown).decode()
        return {"form": self.form, "bytes": self.size, "cut_bytes": self.whole - len(self.shown), "content": content}

    def lines(self, name: str) -> Iterator[str]:
        """Yield lines that steer no terminal."""
        cut = f"; {len(self.shown):,} of {self.whole:,} bytes shown" if self.whole > len(self.shown) else ""
        body = (
            [printable(line) for line in self.text.split("\n")] if self.form == PayloadForm.JSON and self.text else []
        )
        one = "" if body or self.text is None else f": {printable(self.text)}"
        yield f"{name} ({self.size:,} bytes, {self.form}{cut}){one}"
        yield from (f"  {line}" for line in (*body, *(hex_lines(self.shown, MOST_SHOWN) if self.text is None else ())))


@dataclass(frozen=True, slots=True)
class ShownPayload:
    """A record as it is shown, or (`found` is a text) why there is none."""

    found: SourceRecord | str
    form: PayloadForm
    masks: PayloadMasks

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; what is no text in base64."""
        found = self.found
        if isinstance(found, str):
            return {"missing": found}
        key, value, headers, left_out = _pieces(found, self.form, self.masks)
        return {
            "missing": None,
            "timestamp_ms": found.timestamp_ms,
            "time": instant_text(found.timestamp_ms),
            "has_append_time": found.has_append_time,
            "bytes": found.size_bytes,
            "key": None if key is None else key.as_json(),
            "headers": [{"name": name, "value": None if each is None else each.as_json()} for name, each in headers],
            "headers_left_out": left_out,
            "value": None if value is None else value.as_json(),
        }

    def lines(self) -> Iterator[str]:
        """Yield lines that steer no terminal."""
        found = self.found
        if isinstance(found, str):
            yield f"payload: none, {found}"
            return
        key, value, headers, left_out = _pieces(found, self.form, self.masks)
        kind = "LogAppendTime" if found.has_append_time else "CreateTime"
        yield f"payload: {found.size_bytes:,} bytes, {instant_text(found.timestamp_ms)} ({kind})"
        for title, each in (("key", key), *((f"header {printable(name)}", own) for name, own in headers)):
            yield from [f"{title}: null"] if each is None else each.lines(title)
        if left_out:
            yield f"{left_out:,} more headers are not shown"
        yield from ["value: null"] if value is None else value.lines("value")


def look(
    group: str, topics: Sequence[TopicName], partition: int, offset: int, *, form: PayloadForm, at: OfBoth
) -> ShownPayload:
    """Return one record. `topics`: those that the history knows by the name. Raises ConfigurationError (it is not
    allowed), NotAuthorized (READ is missing), ForeignCluster, UnknownName, InputError (the batch cannot be read), and
    as `Journal.note`."""
    masks = PayloadMasks.parsed(payload_masks())
    from acktrail.change.audit.audit_chain import AuditEntry, Event
    from acktrail.change.audit.journal import Journal, account
    from acktrail.change.cluster import Cluster
    from acktrail.kafka.record_ranges import record_at

    name = next((each.topic for each in topics if each.topic is not None), None)
    if name is None:
        raise InputError(f"the name of topic {topics[0].topic_id} is not known", hint="no observation has it")
    with Cluster(at.kafka) as cluster:
        topic = cluster.topic(name)
        journal = Journal(at.needed, cluster_id=topic.cluster_id, run_id=new_run_id(), actor=account())
        if topic.topic_id not in [each.topic_id for each in topics]:
            hint = "its records are not those of the history"
            raise ForeignCluster(f"topic {name!r} was recreated: its id is {topic.topic_id} now", hint=hint)
        found = record_at(topic, partition, offset)
        if not isinstance(found, str):
            place = {"topic": name, "topic_id": topic.topic_id, "partition": partition, "offset": offset}
            about: dict[str, Any] = {"plan_id": "", "plan_hash": "", "attempt": 0, "group_id": group}
            journal.note([AuditEntry(kind="payload", event=Event.LOOKED, detail=place, **about)])
    return ShownPayload(found, form, masks)


def _pieces(
    found: SourceRecord, form: PayloadForm, masks: PayloadMasks
) -> tuple[Piece | None, Piece | None, list[tuple[str, Piece | None]], int]:
    """Return key, value, headers by name, and how many headers are left out."""
    key = _hidden(found.key) if masks.hides_key else _piece(found.key, form, masks.paths, is_key=True)
    headers: list[tuple[str, Piece | None]] = []
    left = MOST_SHOWN
    for name, value in found.headers:
        if left <= 0 or len(headers) == _MOST_HEADERS:
            break
        short = bytes(name[:_LONGEST_NAME])
        text = short.decode("utf-8", "backslashreplace") + "…" * (len(name) > len(short))
        piece = _hidden(value) if masks.hides(bytes(name)) else _piece(value, form, (), most=left)
        headers.append((text, piece))
        left -= len(short) + (0 if piece is None else len(piece.shown))
    return key, _piece(found.value, form, masks.paths), headers, len(found.headers) - len(headers)


def _hidden(data: bytes | None) -> Piece | None:
    return None if data is None else Piece("masked", len(data), text=_MASKED)


def _piece(
    data: bytes | None,
    form: PayloadForm,
    paths: Sequence[tuple[PathStep, ...]],
    *,
    is_key: bool = False,
    most: int = MOST_SHOWN,
) -> Piece | None:
    """`data` in `form`. What cannot be masked is not shown; a key that is no JSON has nothing to mask by a path."""
    if data is None:
        return None
    size = len(data)
    if () in paths and not is_key:
        return _hidden(data)
    document = _document(data) if paths or form in (PayloadForm.AUTO, PayloadForm.JSON) else None
    if paths and document is None and not (is_key and not _BRACKETS.search(data[:MOST_SHOWN])):
        return Piece("size only: it cannot be masked", size)
    if document is not None:
        for path in paths:
            document = masked(document, path)
        is_json = form in (PayloadForm.AUTO, PayloadForm.JSON)
        data = json.dumps(document, ensure_ascii=False, indent=2 if is_json else None).encode()
        form = PayloadForm.JSON if is_json else form
    shown = bytes(data[:most])
    text = None if form is PayloadForm.HEX else _text(shown, form, is_cut=len(data) > most)
    if text is None:
        return Piece(PayloadForm.HEX if form is PayloadForm.HEX else "binary", size, shown, len(data))
    return Piece("text" if document is None or form is not PayloadForm.JSON else form, size, shown, len(data), text)


def _text(shown: bytes, form: PayloadForm, *, is_cut: bool) -> str | None:
    """The text in bytes that may end within a character; None: they are none, and no text is asked for."""
    decoder = getincrementaldecoder("utf-8")("backslashreplace" if form is PayloadForm.TEXT else "strict")
    try:
        text = decoder.decode(shown, final=not is_cut)
    except UnicodeDecodeError:
        return None
    odd = sum(not (each.isprintable() or each in "\t\r\n") for each in text)
    return text if form is not PayloadForm.AUTO or odd * _MOST_ODD <= len(text) else None


def _document(data: bytes) -> Any:
    """The object or array in JSON; None: it is no such thing, or too large."""
    if len(data) > _MOST_JSON:
        return None
    try:
        found = parse_json(bytes(data))
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def masked(value: Any, path: Sequence[PathStep]) -> Any:
    """`value` with what `path` leads to replaced."""
    if not path:
        return _MASKED
    step = path[0]
    if not isinstance(value, dict | list):
        return value
    for name, member in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
        if step.is_deep:
            value[name] = masked(member, path)
        if step.name in (None, name):
            value[name] = masked(value[name], path[1:])
    return value


def _path(text: str) -> tuple[PathStep, ...]:
    steps = [*_STEP.finditer(text)]
    if not text.startswith("$") or "".join(each[0] for each in steps) != text[1:]:
        hint = "a JSON path such as $.card.number, $.items[*].iban or $..pin, header:NAME, or key"
        raise ConfigurationError(f"ACKTRAIL_PAYLOAD_MASKS has {text!r}, which is no mask", hint=hint)
    return tuple(_step(each[1] or "", each[2] or each[3]) for each in steps)


def _step(dots: str, name: str) -> PathStep:
    if name == "*":
        return PathStep(None, dots == "..")
    return PathStep(name.strip("'") if dots or not name.isdigit() else int(name), dots == "..")
