"""Write the generated parts of reference pages: ``tools/write_reference.py`` writes each part between its markers,
``<!-- generated: NAME -->`` and ``<!-- end of generated -->``.

`PARTS` has the function of each name. The text outside of the markers is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import yaml

from acktrail.model.queue_status import STATUS_TABLE
from acktrail.model.reconciliation import VERDICTS
from acktrail.model.rules.catalogue import QualityRule, rule_catalogue
from acktrail.package_data import metric_definitions
from acktrail_connect.address_keys import KAFKA_KEYS
from acktrail_connect.config_def import ConfigDef, text_of
from acktrail_connect.worker.connector_config import COMMON, SINK_PREFIX
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.plugins import Plugin, PluginKind, definition_of, installed, load
from acktrail_connect.worker.rest.answers import Calls
from acktrail_connect.worker.rest.application import application
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import WORKER

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs/reference"
_PART: Final = re.compile(r"(<!-- generated: ([^\n]+) -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Each page with generated parts, and its text. Raises ValueError: its markers are not those of `PARTS`."""
    return {FOLDER / name: _page((FOLDER / name).read_text("utf-8"), name) for name in PARTS}


def by_hand(text: str) -> str:
    """A page's text outside of its generated parts."""
    return _PART.sub("", text)


def _page(text: str, name: str) -> str:
    parts = PARTS[name]
    found = [part for _, part, _ in _PART.findall(text)]
    if sorted(found) != sorted(parts):
        raise ValueError(f"{name}: its generated parts are {found}, not {[*parts]}")
    return _PART.sub(lambda match: "\n".join((match[1], *parts[match[2]](), "", match[3])), text)


def _table(*columns: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _prose(text: str) -> str:
    """Plain text in a cell of a table."""
    return re.sub(r"([*|])", r"\\\1", text)


def _metrics(package: str, part: str) -> Callable[[], Iterator[str]]:
    definitions = metric_definitions(package, part).values()
    rows = [(f"`{own.name}`", _code(own.labels), _prose(own.about)) for own in definitions]
    return lambda: _table("metric", "labels", "meaning", rows=rows)


def _keys(definition: ConfigDef) -> Iterator[str]:
    rows = []
    for key in definition.keys.values():
        text = None if key.is_required else text_of(key.type, key.default)
        default = "required" if key.is_required else {None: "", "": "empty"}.get(text, f"`{text}`")
        valid = key.type.lower() if key.validator is None else key.validator.text
        rows.append((f"`{key.name}`", default, _prose(valid), _prose(key.documentation)))
    rows += [(f"`{prefix}*`", "", "", _prose(meaning)) for prefix, meaning in definition.open_prefixes.items()]
    return _table("key", "default", "valid values", "meaning", rows=rows)


def _plugin(plugin: Plugin) -> Iterator[str]:
    """Its section: what it does, and its keys without those of a connection to Kafka."""
    yield from (f"### {plugin.name}", "", load(plugin.kind, plugin.name).description)
    whole = definition_of(plugin.name)
    prefixes = {name: meaning for name, meaning in whole.open_prefixes.items() if name not in KAFKA_KEYS.open_prefixes}
    own = ConfigDef((key for key in whole.keys.values() if key.name not in KAFKA_KEYS.keys), prefixes)
    if len(own.keys) < len(whole.keys):
        yield "It has the keys of a [connection](#keys-of-a-connection)."
    if own.keys:
        yield ""
        yield from _keys(own.prefixed(SINK_PREFIX) if plugin.kind is PluginKind.SINK else own)


@cache
def _rest() -> dict[str, Any]:
    """The OpenAPI document of a worker."""
    worker = Worker(ConfigStore())
    try:
        return application(Calls(worker=worker)).openapi()
    finally:
        worker.stop()


def _operations() -> Iterator[str]:
    rows = []
    for path, methods in _rest()["paths"].items():
        for method, own in methods.items():
            answers = (f"{code} {_body(each)}".strip() for code, each in own["responses"].items() if code < "400")
            meaning = _prose(" ".join(own["description"].split()))
            body = _body(own.get("requestBody", {}))
            rows.append((f"`{method.upper()} {path}`", meaning, body, ", ".join(sorted(answers))))
    return _table("operation", "meaning", "body", "answers", rows=rows)


def _body(message: Mapping[str, Any]) -> str:
    return _shape(message.get("content", {}).get("application/json", {}).get("schema", {}))


def _bodies() -> Iterator[str]:
    rows = []
    for name, schema in sorted(_rest()["components"]["schemas"].items()):
        if "properties" in schema and not name.endswith("ValidationError"):
            shapes = {field: _shape(own) for field, own in schema["properties"].items()}
            fields = (f"`{field}`" + (f" ({shape})" if "`" in shape else "") for field, shape in shapes.items())
            rows.append((f"`{name}`", ", ".join(fields)))
        elif "enum" in schema:
            rows.append((f"`{name}`", f"one of {_code(schema['enum'])}"))
    return _table("body", "fields", rows=rows)


def _shape(schema: Mapping[str, Any]) -> str:
    """What a body or a field is, in words; empty: anything."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_shape, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list of {_shape(schema['items']) or 'values'}"
    return str(schema.get("type", ""))


def _statuses() -> Iterator[str]:
    rows = ((f"`{status}`", own.meaning, own.urgency.value, own.advice) for status, own in STATUS_TABLE.items())
    return _table("status", "what it means", "urgency", "what to do", rows=rows)


def _verdicts() -> Iterator[str]:
    """With severity and advice of the rule that a verdict breaks; a match breaks none."""
    rows = []
    for verdict, own in VERDICTS.items():
        rule = rule_catalogue().by_id.get(verdict)
        name, severity, advice = (f"`{verdict}`", "", "") if rule is None else _rule_cells(rule)
        rows.append((name, own["meaning"], severity, advice))
    return _table("verdict", "what it means", "severity", "what to do", rows=rows)


def _rule_cells(rule: QualityRule) -> tuple[str, str, str]:
    return f"[`{rule.id}`](rules.md#{rule.id})", rule.severity.value, rule.advice


@cache
def _rules() -> dict[str, dict[str, Any]]:
    """The shipped alert rules by name."""
    groups = yaml.safe_load((ROOT / "dashboards/prometheus/acktrail-alerts.yml").read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def _alerts() -> Iterator[str]:
    rows = []
    for name, own in _rules().items():
        summary = _filled(own["annotations"]["summary"])
        rows.append((f"[{name}](#{name.lower()})", own["labels"]["severity"], own.get("for", ""), summary))
    return _table("alert", "severity", "for", "summary", rows=rows)


def _means(alert: str) -> Iterator[str]:
    yield from (f"## {alert}", "")
    yield f"**Means:** {_filled(_rules()[alert]['annotations']['description'])}"


def _filled(text: str) -> str:
    """A text of an alert with the names of labels, and N for its value."""
    return re.sub(r"\{\{ \$(?:labels\.(\w+)|value)[^}]*\}\}", lambda found: (found[1] or "N").upper(), text)


PARTS: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "metrics.md": {
        "metrics of share groups": _metrics("acktrail.serving", "brokers"),
        "metrics of the tables": _metrics("acktrail.serving", "tables"),
        "metrics of expansions": _metrics("acktrail_expansion", "tables"),
        "metrics of workers": _metrics("acktrail_connect", "worker"),
        "metrics of sources": _metrics("acktrail_connect", "sources"),
    },
    "connectors.md": {
        **{plugin.name: partial(_plugin, plugin) for plugin in installed()},
        "keys of every connector": partial(_keys, COMMON),
        "keys of a connection": partial(_keys, KAFKA_KEYS),
        "keys of a worker": partial(_keys, WORKER),
    },
    "statuses.md": {"statuses": _statuses, "verdicts": _verdicts},
    "runbooks.md": {"alerts": _alerts, **{name: partial(_means, name) for name in _rules()}},
    "rest.md": {"operations": _operations, "bodies": _bodies},
}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
