"""Templates of the dashboard and of the report, read as trees."""

from pathlib import Path
from typing import Final

import pytest
from jinja2 import Environment, nodes

_ROOT: Final = Path(__file__).parents[2]
TEMPLATES: Final = sorted(file for folder in ("dashboards", "connectors") for file in (_ROOT / folder).rglob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=[path.name for path in TEMPLATES])
def test_a_template_uses_what_it_imports(path: Path) -> None:
    """Each macro that a template imports is called or handed on in it."""
    tree = Environment(autoescape=True).parse(path.read_text())
    imported = {
        name if isinstance(name, str) else name[1]
        for statement in tree.find_all(nodes.FromImport)
        for name in statement.names
    }
    assert imported <= {each.name for each in tree.find_all(nodes.Name)}
