"""Write the generated parts of pages: ``tools/write_reference.py`` writes each part between its markers,
``<!-- generated: NAME -->`` and ``<!-- end of generated -->``.

`PARTS` has the function of each name. The text outside of the markers is written by hand.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import yaml

from acktrail.change.audit.plan_life import LIFE, Refusal, Step, next_step
from acktrail.model.acls import needed, purposes
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
FOLDER: Final = ROOT / "docs"
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


_AFTER: Final = {None: "", "unknown": " after a verification", "forgotten": " of forgotten transactions"}


def _life() -> Iterator[str]:
    """The status after each step of a person, and what to do next."""
    rows = []
    steps = [step for step in Step if step is not Step.EXPIRE]
    for (status, verified), answers in LIFE.items():
        name = f"`{status}`" + _AFTER[verified]
        after = ("no" if isinstance(answers[step], Refusal) else f"`{answers[step]}`" for step in steps)
        known = (None, "refused") if verified is None else (verified,)
        words = dict.fromkeys(next_step(status, each).on("PLAN").command for each in known)
        rows.append((name, *after, re.sub(r"acktrail change \w+ PLAN(?: --execute)?", r"`\g<0>`", ". Or ".join(words))))
    return _table("status", *map(str, steps), "next step", rows=rows)


def _rights() -> Iterator[str]:
    rows = []
    for purpose in purposes():
        found: dict[str, list[str]] = defaultdict(list)
        for acl in needed(purpose, ["GROUP"], ["TOPIC"]):
            name = f"topic `{acl.name}`"
            if acl.is_prefix:
                name = f"{acl.kind.replace('-', ' ')}s that begin with `{acl.name}`"
            found[{"GROUP": "the groups", "TOPIC": "the topics"}.get(acl.name, name)].append(acl.operation)
        cell = "; ".join(f"{', '.join(operations)} on {where}" for where, operations in found.items())
        rows.append((f"`{purpose}`", cell))
    return _table("`--acls`", "rights", rows=sorted(rows))


def _variables() -> Iterator[str]:
    """Those in the tables of the modules' docstrings."""
    texts = (_docstring(ROOT / file) for file in ("acktrail/config.py", "extras/acktrail_expansion/settings.py"))
    found = (each for text in texts for each in re.findall(r"^([A-Z_]+) {2,}(.+(?:\n {20,}.+)*)", text, re.MULTILINE))
    rows = ((f"`{name}`", " ".join(meaning.replace("``", "`").split())) for name, meaning in sorted(found))
    return _table("variable", "meaning", rows=rows)


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""


def _folders() -> Iterator[str]:
    """Packages with the first sentence of their docstring."""
    found = sorted(file.parent for pattern in _PACKAGES for file in ROOT.glob(f"{pattern}/__init__.py"))
    rows = ((f"`{folder.relative_to(ROOT)}`", _first(_docstring(folder / "__init__.py"))) for folder in found)
    return _table("folder", "what is in it", rows=rows)


_ROOTS: Final = ("connectors", "dags", "dashboards", "expectations", "spark_jobs")
_PACKAGES: Final = (
    *("acktrail/*", "acktrail/*/*", "extras/*", "simulation/*"),
    *(f"{root}/{below}" for root in _ROOTS for below in ("*", "*/*")),
)


def _first(text: str) -> str:
    """Its first paragraph."""
    return _prose(" ".join(text.partition("\n\n")[0].replace("``", "`").split()))


def _expectations() -> Iterator[str]:
    file = ROOT / "expectations/acktrail_expectations/batch_expectations.py"
    classes = (node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef))
    shown = (each for each in classes if each.name.startswith("Expect"))
    rows = ((f"`{each.name}`", _first(ast.get_docstring(each) or "").removeprefix("Expect ")) for each in shown)
    return _table("expectation", "expects", rows=rows)


def _benchmarks() -> Iterator[str]:
    """In the order of ``benchmarks/run.py``: the first two paragraphs of each module."""
    text = (ROOT / "benchmarks/run.py").read_text("utf-8")
    modules = re.findall(r'^ {4}"(\w+)": (\w+)\.compare,$', text, re.MULTILINE)
    of_branches = text.partition("OF_BRANCHES = ")[2].partition("\n")[0]
    modules += [(name, name) for name in sorted(re.findall(r'"(\w+)"', of_branches))]
    rows = []
    for name, module in modules:
        what, _, rest = _docstring(ROOT / f"benchmarks/{module}.py").partition("\n\n")
        beside = _first(rest).removeprefix(_BESIDE) if rest.startswith(_BESIDE) else ""
        rows.append((f"`{name}`", _first(what).removesuffix("."), beside.removesuffix(".")))
    return _table("benchmark", "what runs", "compared with", rows=rows)


_BESIDE: Final = "Compared with: "


def _example(file: str, first: str, last: str) -> Iterator[str]:
    """Lines of an example, from the one that begins with `first` to the next one that begins with `last`."""
    lines = (ROOT / "examples" / file).read_text("utf-8").splitlines()
    begin = next(at for at, line in enumerate(lines) if line.strip().startswith(first))
    end = next(at for at in range(begin, len(lines)) if lines[at].strip().startswith(last))
    yield from (f"```{'toml' if file.endswith('.toml') else 'python'}", *lines[begin : end + 1], "```")


_JOURNAL: Final = "acktrail-connector-journal"
_SQLITE: Final = "acktrail-connector-sqlite"
_SOURCE: Final = f"{_JOURNAL}/acktrail_connector_journal/journal_source.py"
_SINK: Final = f"{_SQLITE}/acktrail_connector_sqlite/sqlite_sink.py"
_EXAMPLES: Final = {
    "entry point of a source": (f"{_JOURNAL}/pyproject.toml", "[project.entry-points", "JournalSource ="),
    "entry points of a sink and a transform": (f"{_SQLITE}/pyproject.toml", "[project.entry-points", "KeepColumns ="),
    "a key": (_SINK, "ConfigKey(", ")"),
    "task_configs": (_SOURCE, "def task_configs", "return"),
    "fields_of": (_SOURCE, "def fields_of", "return"),
    "start": (_SOURCE, "def start(self, context", "self._file"),
    "poll": (_SOURCE, "def poll", "return"),
    "positions": (_SINK, "def positions", "return"),
    "rows refused": (_SINK, "if batch.position is None", "raise"),
    "flush": (_SINK, "with translated(), self._opened as database", "self._check_positions"),
    "another writer": (_SINK, "if any(stored", "raise"),
    "apply": (f"{_SQLITE}/acktrail_connector_sqlite/keep_columns.py", "def apply", "return table, rows.select"),
    "a suite": (f"{_JOURNAL}/tests/test_journal_source.py", "class TestJournalSource", "connector_class"),
    "config": (f"{_JOURNAL}/tests/test_journal_source.py", "def config", "return"),
    "numbers": (f"{_SQLITE}/tests/test_sqlite_sink.py", "def numbers", "return"),
}
"""Part to a file of `examples`, and how the first and the last line begin."""


PARTS: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "reference/metrics.md": {
        "metrics of share groups": _metrics("acktrail.serving", "brokers"),
        "metrics of the tables": _metrics("acktrail.serving", "tables"),
        "metrics of expansions": _metrics("acktrail_expansion", "tables"),
        "metrics of workers": _metrics("acktrail_connect", "worker"),
        "metrics of sources": _metrics("acktrail_connect", "sources"),
    },
    "reference/connectors.md": {
        **{plugin.name: partial(_plugin, plugin) for plugin in installed()},
        "keys of every connector": partial(_keys, COMMON),
        "keys of a connection": partial(_keys, KAFKA_KEYS),
        "keys of a worker": partial(_keys, WORKER),
    },
    "reference/statuses.md": {"statuses": _statuses, "verdicts": _verdicts},
    "reference/runbooks.md": {"alerts": _alerts, **{name: partial(_means, name) for name in _rules()}},
    "reference/rest.md": {"operations": _operations, "bodies": _bodies},
    "reference/plans.md": {"life": _life},
    "reference/rights.md": {"rights": _rights},
    "reference/configuration.md": {"variables": _variables},
    "explanation/architecture.md": {"folders": _folders},
    "explanation/benchmarks.md": {"benchmarks": _benchmarks},
    "how-to/check-with-great-expectations.md": {"expectations": _expectations},
    "how-to/write-a-connector.md": {name: partial(_example, *place) for name, place in _EXAMPLES.items()},
}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
