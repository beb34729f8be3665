"""The documents say what the code has: ``tools/check_documents.py`` prints a line for each place where they do not.

It ends with 1 when there is one. Pages and files that a tool writes are written again, and compared.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from acktrail.cli.main import CommandGroup, app
from acktrail.model.rules.catalogue import rule_catalogue

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
DOCUMENTS: Final = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
"""There are no more tables than this; the number only falls."""
HELP_COLUMNS: Final = 78  # of a terminal with 80 (click leaves two free)
REQUIREMENTS: Final = {"R000": 68, "R001": 39, "R002": 83, "R004": 32, "R003": 22}
"""Sections of the tables of requirements, in their order, with the number of their rows."""
WALKS: Final = ("A record, from poll to page", "A change, from the form to the audit", "A run of the pipeline")

_SOURCES: Final = ("acktrail", "connectors", "extras", "spark_jobs", "expectations", "dashboards", "dags", "simulation")
_REFERENCE: Final = re.compile(r"`((?:acktrail\w*)(?:\.\w+)*):(\w+(?:\.\w+)*)`")
"""A module and what it defines, as `acktrail.model.replay:replay`."""
_PATH: Final = re.compile(rf"`((?:{'|'.join(_SOURCES)}|tests|tools)/[\w./]+)`")
_IDENTIFIER: Final = r"R00[0-4]-\d\d"
_ROW: Final = re.compile(rf"^\| ({_IDENTIFIER}) \| .+ \| (.+) \| (.+) \|$", re.MULTILINE)
_KINDS: Final = {"product", "simulation", "Kafka"}
"""Whose behaviour a requirement's tests show; without tests it is a `document`."""
_NAMING: Final = ("tests/extras/copied_logs/drafts/", "tests/extras/copied_logs/test_dialects")
"""Where each test names the requirements that it shows."""
_TEST: Final = re.compile(r"`([^`:]+\.py)::(\w+)`")


_LEAD: Final = re.compile(r"# .+\n\nFor \S.*\. (?:At the end you have|Here is) \S.*\.\n")
"""How a page begins: its title, who it is for, and what they have at its end, or what they find on it."""
_BLOCK: Final = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"[A-Z#][A-Z #-]*")


def main() -> int:
    """The number of findings decides: 0 for none."""
    found = [*_written(), *_commands(), *_pictures(), *_pages(), *_contents(), *_requirements()]
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        name = document.relative_to(ROOT)
        found += (f"{name}: {what}" for what in (*missing(text, document.parent), *old_headings(text)))
    print(*found, sep="\n", end="\n" if found else "")
    return min(len(found), 1)


def missing(text: str, folder: Path) -> Iterator[str]:
    """What a document in `folder` names and what is not there: `module:name`, paths of sources, relative links."""
    yield from (f"no {module}:{name}" for module, name in _REFERENCE.findall(text) if name not in _defined(module))
    yield from (f"no {path}" for path in _PATH.findall(text) if not _is_source(ROOT / path))
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target and not (folder / target).exists():
            yield f"a link to {target}, which is not there"


def old_headings(text: str) -> Iterator[str]:
    """Heads of tables, in blocks of a document, that no command prints."""
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            columns = tuple(re.split(r" {2,}", line.strip()))
            if len(columns) > 1 and all(map(_HEADING.fullmatch, columns)) and columns not in _headings():
                yield f"no command prints a table with the head {line.strip()}"


@cache
def _headings() -> frozenset[tuple[str, ...]]:
    """The heads of tables in the sources, without columns that have no name: literal tuples, and fields of a class in
    capitals."""
    found = set[tuple[str, ...]]()
    for file in (file for source in _SOURCES for file in (ROOT / source).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Tuple):
                texts = [each.value for each in node.elts if isinstance(each, ast.Constant)]
                found.add(tuple(text for text in texts if isinstance(text, str) and text))
            elif isinstance(node, ast.ClassDef):
                fields = (
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
                found.add(tuple(field.upper().replace("_", "-") for field in fields))
    return frozenset(found)


@cache
def _defined(module: str) -> frozenset[str]:
    """Names that a module defines, those of its classes' members as `Class.member`."""
    path = Path(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    places = (ROOT / root / place for root in (".", *_SOURCES) for place in files)
    file = next((place for place in places if place.exists()), None)
    return frozenset(_names(ast.parse(file.read_text("utf-8")).body)) if file else frozenset()


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def _is_source(path: Path) -> bool:
    """A file, or a folder with more than caches of modules that moved away."""
    return path.is_file() or any(file.suffix != ".pyc" for file in path.rglob("*") if file.is_file())


def _written() -> Iterator[str]:
    """What a tool writes is as it writes it now, of sources without a fault."""
    import draw_rooms
    import make_boards
    import report_schema
    import write_faults  # needs the branch of the demo
    import write_reference
    import write_rules
    import write_tables

    files = {
        write_rules.PAGE: (write_rules.page(), "write_rules"),
        write_faults.PAGE: (write_faults.page(), "write_faults"),
        draw_rooms.PICTURE: (draw_rooms.picture(), "draw_rooms"),
        report_schema.FILE: (json.dumps(report_schema.schema(), indent=1) + "\n", "report_schema"),
    }
    files |= {page: (text, "write_tables") for page, text in write_tables.pages().items()}
    files |= {page: (text, "write_reference") for page, text in write_reference.pages().items()}
    files |= {make_boards.FOLDER / name: (text, "make_boards") for name, text in make_boards.boards().items()}
    for file, (text, tool) in files.items():
        if not file.exists() or file.read_text("utf-8") != text:
            yield f"{file.name}: not what tools/{tool}.py writes now; run it"
    yield from write_tables.faults()
    rules = write_rules.page()
    yield from (
        f"reference/rules.md: no anchor {id_}"
        for id_ in rule_catalogue().by_id
        if f"### {id_}\n" not in rules and f'id="{id_}"' not in rules
    )


def _commands() -> Iterator[str]:
    """There is a section for each command, or for its group."""
    titles = {
        title.replace(" ", ".") for title in re.findall(r"^## (.+)$", _text("docs/reference/commands.md"), re.MULTILINE)
    }
    for path in CommandGroup.targets():
        if not {path, path.split(".")[0]} & titles:
            yield f"reference/commands.md: no section for {path}"
    yield from _cut_help(typer.main.get_command(app), "acktrail")


def _cut_help(command: Any, path: str) -> Iterator[str]:
    """Each command's first sentence is whole in the list of its group, in a terminal of 80 columns."""
    context = typer.Context(command)
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    for name in names:
        below = command.get_command(context, name)
        room = HELP_COLUMNS - max(map(len, names)) - len("  " * 3)
        if len(below.get_short_help_str(sys.maxsize)) > room:
            yield f"{path} {name} --help: its first sentence has more than {room} characters"
        yield from _cut_help(below, f"{path} {name}")


def _pictures() -> Iterator[str]:
    """Every picture is in a document."""
    shown = {
        Path(target).name
        for page in DOCUMENTS
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    yield from (f"{file.name}: in no document" for file in (DOCS / "images").iterdir() if file.name not in shown)


def _pages() -> Iterator[str]:
    """Every page has a first sentence in the fixed form, a place in the navigation and one on the front page."""
    front = _text("docs/index.md")
    navigation = set(_names_in(yaml.safe_load(_text("mkdocs.yml"))["nav"]))
    for page in sorted(DOCS.rglob("*.md")):
        name = str(page.relative_to(DOCS))
        if not _LEAD.match(page.read_text("utf-8")):
            yield f"docs/{name}: does not begin with 'For <reader>. At the end you have <what>.' or 'Here is ...'"
        if name not in navigation:
            yield f"docs/{name}: not in the navigation of mkdocs.yml"
        if name != "index.md" and f"]({name})" not in front:
            yield f"docs/{name}: not on docs/index.md"


def _names_in(navigation: Any) -> Iterator[str]:
    """The pages of a part of the navigation, at any depth."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for part in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from _names_in(part)


def _contents() -> Iterator[str]:
    """Tasks lead to a place in the code; walks name every hop, below a picture; the glossary is in order."""
    places = _section("explanation/architecture.md", "Where do I change what")
    rows = [line for line in places.splitlines() if "|" in line][2:]
    yield from (
        f"architecture.md: no place: {row}" for row in rows if not (_REFERENCE.search(row) or _PATH.search(row))
    )
    for walk in WALKS:
        text = _section("contribute/walks.md", walk)
        hops = re.findall(r"^\d+\. .*", text, re.MULTILINE)
        if "sequenceDiagram" not in text or not hops:
            yield f"walks.md: {walk} has no picture, or no steps"
        yield from (f"walks.md: no place: {hop}" for hop in hops if not _REFERENCE.search(hop))
    words = re.findall(r"^\| \*\*([^*]+)\*\* \| \S", _text("docs/reference/glossary.md"), re.MULTILINE)
    if words != sorted(set(words), key=str.casefold):
        yield "glossary.md: not in alphabetical order, or a word twice"


def _requirements() -> Iterator[str]:
    """All rows are there, each shown by tests that exist; what a test's docstring names is shown by a test."""
    documents = (ROOT / "tests/requirements.md", *sorted((ROOT / "tests/extras").rglob("requirements.md")))
    rows = [row for document in documents for row in _ROW.findall(document.read_text("utf-8"))]
    expected = [f"{section}-{number:02d}" for section, count in REQUIREMENTS.items() for number in range(1, count + 1)]
    if (found := [identifier for identifier, _, _ in rows]) != expected:
        yield f"requirements.md: not each once, in order: {set(expected) ^ set(found)}"
    yield from (
        f"requirements.md: {identifier}: {what}"
        for identifier, kind, by in rows
        for what in _unshown(identifier, kind, by)
    )
    shown = {identifier for identifier, _, shown_by in rows if _TEST.search(shown_by)}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for docstring in _tests(file).values():
            yield from (f"{file.name}: no test in the table shows {each}" for each in _named(docstring) - shown)


def _unshown(identifier: str, kind: str, shown_by: str) -> Iterator[str]:
    """What is wrong with the last cells of a row."""
    kinds = {"document"} if shown_by == "documentation" else _KINDS
    if not kinds.issuperset(kind.split(", ")):
        yield f"its kind is not {kind}"
    if shown_by != "documentation" and _TEST.sub("", shown_by).replace("<br>", ""):
        yield "neither tests nor documentation"
    for file, name in _TEST.findall(shown_by):
        if name not in _tests(ROOT / file):
            yield f"{file} has no {name}"
        elif file.startswith(_NAMING) and identifier not in _named(_tests(ROOT / file)[name]):
            yield f"{file}: {name} does not name it"


@cache
def _tests(file: Path) -> dict[str, str]:
    """The docstring of every test function of a file."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8"))) if file.exists() else ()
    return {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.FunctionDef)}


def _named(text: str) -> set[str]:
    """The requirements that a docstring names, each of a range."""
    ranges = re.findall(rf"({_IDENTIFIER})\s+to\s+({_IDENTIFIER})", text)
    inner = {f"{first[:5]}{n:02d}" for first, last in ranges for n in range(int(first[5:]), int(last[5:]) + 1)}
    return inner.union(re.findall(_IDENTIFIER, text))


def _text(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def _section(document: str, title: str) -> str:
    return _text(f"docs/{document}").split(f"\n## {title}\n")[1].split("\n## ")[0]


if __name__ == "__main__":
    sys.exit(main())
