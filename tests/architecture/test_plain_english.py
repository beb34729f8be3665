"""The check of plain English finds what it looks for, where it stands, and nothing in code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import plain_english  # a program of the folder `tools`


@pytest.mark.parametrize(
    "sentence",
    [
        "Nobody is told what was passed over.",
        "The law by which replay goes on.",
        "A record of which nothing is known.",
        "Damaged tables are mended.",
        "The newest so many rows.",
        "What of a plan may be sent.",
    ],
)
def test_a_planted_sentence_is_found(sentence: str) -> None:
    """In a docstring, in a comment and in a document."""
    assert list(plain_english.findings(f'"""{sentence}"""\n', is_python=True))
    assert list(plain_english.findings(f"x = 1  # {sentence}\n", is_python=True))
    assert list(plain_english.findings(f"# Title\n\n{sentence}\n", is_python=False))


def test_a_phrase_is_found_across_lines_with_its_own_line() -> None:
    """Two lines of a docstring, of a comment and of a paragraph; the line is that of the first word."""
    docstring = '"""One.\n\nRows are passed\nover here.\n"""\n'
    comment = "x = 1\n# rows are passed\n# over here\n"
    paragraph = "One.\n\nRows are passed\nover here.\n"
    assert [line for line, _, _ in plain_english.findings(docstring, is_python=True)] == [3]
    assert [line for line, _, _ in plain_english.findings(comment, is_python=True)] == [2]
    assert [line for line, _, _ in plain_english.findings(paragraph, is_python=False)] == [3]


@pytest.mark.parametrize(
    "sentence",
    [
        "The share coordinator writes a snapshot after 500 updates; the leader epoch fences older writers.",
        "A task is skipped when its upstream task failed; the scheduler retries it twice.",
        "Two names are hard to tell apart, one of which is a topic id.",
        "`nobody` and ``told`` are names of columns.",
    ],
)
def test_plain_sentences_and_terms_of_the_field_pass(sentence: str) -> None:
    """No false alarm on Kafka's and Airflow's words, nor on quoted names."""
    assert list(plain_english.findings(f'"""{sentence}"""\n', is_python=True)) == []
    assert list(plain_english.findings(sentence, is_python=False)) == []


def test_fenced_blocks_are_code() -> None:
    """Commands and their output in a document are not prose, and do not move line numbers."""
    text = "One `x`.\n\n```console\n$ echo nobody\n```\n\nNobody with ``y``.\n"
    assert [line for line, _, _ in plain_english.findings(text, is_python=False)] == [7]
