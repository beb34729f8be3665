"""Write the JSON Schema of a report: ``tools/report_schema.py`` writes docs/reference/report-schema.json.

It follows from the dataclasses of `acktrail.view.run_summary`: a field that is added there is in the schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import datetime
from inspect import getdoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from acktrail.view.run_summary import SCHEMA, Summary

FILE: Final = Path(__file__).resolve().parents[1] / "docs/reference/report-schema.json"
_PLAIN: Final[Mapping[type, Mapping[str, str]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}


def schema() -> dict[str, Any]:
    """The schema of what ``acktrail dashboard report --json`` prints and of the file beside a report."""
    definitions: dict[str, Any] = {}
    _of(Summary, definitions)
    root = definitions.pop(Summary.__name__)
    root["properties"] = {"schema": {"const": SCHEMA}, **root["properties"]}
    root["required"].insert(0, "schema")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of acktrail",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type; dataclasses go to `definitions`."""
    if get_origin(hint) is Mapping and get_args(hint)[1] in _PLAIN:
        return {"type": "object", "additionalProperties": _of(get_args(hint)[1], definitions)}
    if get_origin(hint) is Mapping:
        return {"type": "object"}  # what is in it is the branch's affair
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _of(get_args(hint)[0], definitions)}
    if isinstance(hint, UnionType):
        return {"anyOf": [_of(each, definitions) for each in get_args(hint)]}
    if is_dataclass(hint):
        name = hint.__name__
        if name not in definitions:
            hints = get_type_hints(hint)
            definitions[name] = {
                "description": " ".join((getdoc(hint) or "").split()),
                "type": "object",
                "properties": {field: _of(each, definitions) for field, each in hints.items()},
                "required": list(hints),
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}
    return dict(_PLAIN[hint])


def main() -> int:
    """Write the file."""
    FILE.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
