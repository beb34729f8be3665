"""What Java writes to stderr is logged by its own level."""

from __future__ import annotations

import logging

import pytest

from acktrail_jobs.spark_java import level_of


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("WARNING: Using incubator modules: jdk.incubator.vector", logging.DEBUG),
        ('Setting default log level to "WARN".', logging.DEBUG),
        ("26/11/23 09:17:01 ERROR TaskSetManager: Task 0 in stage 0.0 failed 1 times", logging.ERROR),
        ("26/11/23 09:17:01 WARN Utils: Service 'sparkDriver' could not bind", logging.WARNING),
        ("ERROR is not at the place of a level", logging.WARNING),
        ("Error: A JNI error has occurred", logging.WARNING),
    ],
)
def test_a_line_has_its_own_level(line: str, level: int) -> None:
    """The banner is for those who look for it; errors stay errors; what is not known is a warning."""
    assert level_of(line) == level


def test_a_stack_trace_has_the_level_of_its_first_line() -> None:
    """Lines of a trace belong to the error above them."""
    for line in (
        "\tat org.apache.spark.Task.run(Task.scala:1)",
        "Caused by: java.io.IOException: no",
        "java.lang.Error",
    ):
        assert level_of(line, logging.ERROR) == logging.ERROR
