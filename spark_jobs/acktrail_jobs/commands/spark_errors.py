"""Failures of Spark and Arrow as acktrail's own errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from acktrail.errors import AcktrailError, ConfigurationError

_MISSING: Final = re.compile(r"No module named '(acktrail\w*)")


@contextmanager
def translated() -> Iterator[None]:
    """Around a job: a failure of Spark or Arrow becomes one line that names the cause.

    Raises:
        AcktrailError: where the Spark job failed.
        ConfigurationError: where a table's files cannot be read, or Spark's workers do not have acktrail.
    """
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise ConfigurationError(f"the tables cannot be read: {_last_line(error)}", hint="check the files") from error
    except Exception as error:
        if not _is_of_spark(error):
            raise
        if missing := _MISSING.search(str(error)):
            raise ConfigurationError(
                f"Spark's Python workers cannot import {missing[1]}",
                hint="install acktrail on every machine of the cluster, and let PYSPARK_PYTHON name that Python",
            ) from error
        raise AcktrailError(
            f"the Spark job failed: {_last_line(error)}", hint="Spark's own messages on stderr say more"
        ) from error


def _is_of_spark(error: Exception) -> bool:
    """Whether PySpark raised it. Imports no PySpark: small jobs run without it."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


def _last_line(error: Exception) -> str:
    """The line that names the cause: the end of a worker's traceback, before the JVM's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) or ".errors." in line]
    return (causes or lines or [type(error).__name__])[-1]
