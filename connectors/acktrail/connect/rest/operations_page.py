"""The operations of an OpenAPI description as one page of HTML: no script, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430 }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d0d7de }
details { border: 1px solid #d0d7de; border-radius: 6px; margin: .4rem 0; padding: .5rem .8rem }
summary { cursor: pointer } code, pre { font: 13px/1.45 ui-monospace, monospace } pre { overflow-x: auto }
.method { display: inline-block; width: 4.5rem; font-weight: 700 } .deprecated { text-decoration: line-through }
table { border-collapse: collapse }
td { border-top: 1px solid #eaeef2; padding: .2rem .8rem .2rem 0; vertical-align: top }
"""
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_Node = Mapping[str, Any]


def operations_page(description: _Node) -> str:
    """Every operation by tag: path, parameters, body, answers; then the shapes of bodies."""
    title = f"{description['info']['title']} {description['info']['version']}"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<p>{escape(description['info']['description'])} For programs:",
        '<a href="/openapi.json">openapi.json</a></p>',
    ]
    operations = list(_operations(description))
    for tag in dict.fromkeys(tag for tag, _ in operations):
        parts += [f"<h2>{escape(tag)}</h2>", *(text for own, text in operations if own == tag)]
    parts.append("<h2>Bodies</h2>")
    for name, schema in description.get("components", {}).get("schemas", {}).items():
        shape = escape(json.dumps(schema, indent=2, ensure_ascii=False))
        parts.append(
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary><pre>{shape}</pre></details>'
        )
    return "".join([*parts, "</body></html>"])


def _operations(description: _Node) -> Iterator[tuple[str, str]]:
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = methods[method]
                yield operation.get("tags", ["Other"])[0], _operation(path, method, operation)


def _operation(path: str, method: str, operation: _Node) -> str:
    kind = "deprecated" if operation.get("deprecated") else "method-path"
    rows = [
        *(
            _row(f"{each['name']} ({each['in']})", each.get("description", ""))
            for each in operation.get("parameters", ())
        ),
        *(_row("body", _shapes(operation[name])) for name in ("requestBody",) if name in operation),
        *(_row(code, answer["description"] + " " + _shapes(answer)) for code, answer in operation["responses"].items()),
    ]
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><span class="method">{method.upper()}</span>'
        f'<code class="{kind}">{escape(path)}</code> {escape(operation.get("summary", ""))}</summary>'
        f"<p>{escape(operation.get('description', ''))}</p><table>{''.join(rows)}</table></details>"
    )


def _row(name: str, text: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>"


def _shapes(node: _Node) -> str:
    schema = node.get("content", {}).get("application/json", {}).get("schema", {})
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref") or ""
    return str(reference.rpartition("/")[2] or schema.get("type", ""))
