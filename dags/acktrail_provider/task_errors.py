"""Errors of a task as Airflow knows them: what a person has to correct fails at once, in one line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from airflow.sdk import get_current_context

from acktrail.errors import (
    AcktrailError,
    ConfigurationError,
    InputError,
    MissingDependency,
    OutcomeUnknown,
    RetryableError,
)
from acktrail.machine_faults import machine_fault
from acktrail.package_data import install_hint
from acktrail_provider.airflow_names import AirflowFailException

Advice = Callable[[AcktrailError], str]
"""What a person does after an error that Airflow does not try again."""
_log: Final = logging.getLogger("acktrail.dags")
_ADVICE: Final[Mapping[type[AcktrailError], str]] = {
    ConfigurationError: "Correct it, then clear this task.",
    RetryableError: "When its cause is gone, clear this task.",
    AcktrailError: "Correct the DAG.",
}


def advice_of(texts: Mapping[type[AcktrailError], str]) -> Advice:
    """Return a function that gives the text for an error: that of the first class in `texts` that fits."""
    return lambda error: next(text for kind, text in texts.items() if isinstance(error, kind))


_EXTRAS: Final = {
    "kafka": "kafka",
    "google_crc32c": "kafka",
    "deltalake": "tables",
    "obstore": "tables",
    "pyarrow": "tables",
}
"""The extra that brings a package."""
_OF_A_TASK: Final = advice_of(_ADVICE)


@contextmanager
def as_airflow_errors(
    advice: Advice = _OF_A_TASK,
    retried: tuple[type[AcktrailError], ...] = (RetryableError, OutcomeUnknown),
    words: Callable[[str], str] = str,
) -> Iterator[None]:
    """Around a task's work: an error of a class in `retried` goes to Airflow's retries, any other AcktrailError fails
    at once. An OutcomeUnknown is retried where the task reads from its tables what it did. The log ends with whether
    Airflow tries again, else with `advice`. A fault of the machine counts as an AcktrailError. Any other exception is
    a defect and passes unchanged: its traceback is in the log, the task's retries apply. `words` puts a message into
    the words of its readers."""
    try:
        yield
    except Exception as raised:
        error = raised if isinstance(raised, AcktrailError) else machine_fault(raised) or missing_package(raised)
        if error is None:
            raise
        left = _tries_left() if isinstance(error, retried) else 0
        then = f"Airflow tries again, {left} more at most." if left else advice(error)
        message, hint = words(error.message), words(error.hint)
        said = ". ".join(text.rstrip(".") for text in (message, hint, then) if text)
        _log.log(logging.WARNING if left else logging.ERROR, "%s.", said)
        if isinstance(error, retried):
            raise
        raise AirflowFailException(f"{message} ({hint})" if hint else message) from raised


@contextmanager
def as_import_errors() -> Iterator[None]:
    """Around checks of a task's fields: Airflow shows what is wrong as an import error of the DAG file, in one line."""
    try:
        yield
    except InputError as error:
        raise ValueError(error.with_hint) from None


def missing_package(error: BaseException) -> MissingDependency | None:
    """The error that names the extra for a package that is not installed; None: `error` is about something else."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    extra = _EXTRAS.get(package) if isinstance(error, ModuleNotFoundError) else None
    if extra is None:
        return None
    text = f"the package {package} is not installed here, of acktrail's extra {extra!r}"
    return MissingDependency(text, hint=install_hint(extra), data={"package": package})


def _tries_left() -> int:
    """How often Airflow tries the task again after this try."""
    task: Any = get_current_context()["ti"]
    return max(0, int(task.max_tries) + 1 - int(task.try_number))
