"""What the gate loads: Great Expectations, and little of what it could use."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any

from pydantic.v1.fields import ModelField

from acktrail_expectations.gx import light_import
from acktrail_expectations.gx.engine import core

LOADED = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def loaded_after(*statements: str) -> set[str]:
    """The top-level packages that a process has loaded in the end."""
    script = "\n".join(("import sys", *statements, LOADED))
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(shown.stdout.splitlines()[-1].split())


def test_suites_load_no_engine_but_their_own() -> None:
    """Neither Spark nor SQL nor a cloud's client is imported for frames of pandas, and nothing of it for a gate whose
    run has results. A later import is as usual; a module that was put off is whole when somebody asks for it."""
    loaded = loaded_after(
        "import acktrail_expectations.gate",
        "assert 'great_expectations' not in sys.modules",
        "import acktrail_expectations.suite_frames, great_expectations, pandas, gc",
        "assert gc.isenabled()",
        "assert not {'pyspark', 'sqlalchemy', 'boto3', 'google'} & sys.modules.keys()",
        "import boto3, altair",
        "altair.Chart, boto3.session",
        "from great_expectations.expectations.metrics.util import validate_distribution_parameters",
        "import scipy.stats",
        "assert round(float(scipy.stats.norm.cdf(0)), 3) == 0.5",
    )

    assert {"great_expectations", "boto3", "altair", "scipy"} <= loaded


def test_what_is_loaded_already_stays_in_use() -> None:
    """A package that the process has imported before is not hidden from Great Expectations. Beside a loaded PySpark
    nothing is: PySpark's check of its packages passes."""
    loaded = loaded_after(
        "import boto3, pyspark.sql",
        "import acktrail_expectations.suite_frames",
        "from great_expectations.compatibility import aws",
        "assert aws.boto3 is boto3",
        "import pyspark.sql.connect.session",
    )

    assert {"google", "grpc"} <= loaded


def parts(field: Any) -> dict[str, Any]:
    return {name: getattr(field, name) for name in type(field).__slots__ if hasattr(field, name)}


def shown(part: Any) -> str:
    return re.sub(r" at 0x\w+", "", repr(part))


def test_fields_are_copied_as_a_deep_copy_does() -> None:
    """Each model has fields of its own: equal in every part, and no collection, field or note of a field is shared."""
    models = [getattr(core, name) for name in dir(core) if name.startswith("ExpectColumn")]
    fields = [field for model in models for field in model.__fields__.values()]
    assert len(fields) > 500
    for field in fields:
        copied, expected = light_import._copied_field(field, {}), copy.deepcopy(field)

        assert repr(copied) == repr(expected)
        assert parts(copied).keys() == parts(expected).keys()
        for (name, own), other in zip(parts(copied).items(), parts(expected).values(), strict=True):
            assert shown(own) == shown(other), name
            if isinstance(own, (list, dict, set, ModelField)) or name == "field_info":
                assert own is not getattr(field, name), name


def test_nothing_is_left_behind() -> None:
    """After the import fields are copied as pydantic does it."""
    assert not hasattr(ModelField, "__deepcopy__")
