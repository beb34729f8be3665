"""Plain English in docstrings, comments, messages and documents: ``tools/plain_english.py [PATH ...]``.

Prints a line for each word of `WORDS` (what to write instead stands beside it) and ends with 1 when there is one.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ("connectors", "spark_jobs", "expectations", "dashboards", "dags", "simulation")
DOCUMENTS: Final = ("README.md", "CHANGELOG.md", "docs")

WORDS: Final = {
    r"(is|are|was|were|be|been|what|as|they|it|that) said|said (of|about|to|by)|says? (of|so)": "who reports what",
    r"told|tells?|telling": "reports, shows, gives",
    r"nobody|nothing else knows|who looks on": "no one, or name who does not",
    r"go(es)? on|going on|went on|gone on": "continues, resumes",
    r"pass(es|ed)? over|passing over": "skips, ignores",
    r"laws?": "rule",
    r"anew": "again",
    r"whoever|whatever": "any, each",
    r"so many|that many|as many as": "N, or the number itself",
    r"spell(s|ed)?|spelt": "encode, write",
    r"let go|lets go|looks? on|looked on|word on|heard": "a verb of the field",
    r"gone by|of its own accord|hence|thereof|whereof|thereby|wherein|herein|lest|albeit|whilst|unto": "plain words",
    r"by itself alone|has a say|stands? for itself|as it lies|lies? there": "plain words",
}
"""What is not written here, as regular expressions of whole words, with the advice that is printed."""

_WORDS: Final = [(re.compile(rf"\b({pattern})\b", re.IGNORECASE), advice) for pattern, advice in WORDS.items()]
_QUOTED: Final = re.compile(r"``[^`]*``|`[^`]*`")


def main(names: list[str]) -> int:
    """The number of findings decides: 0 for none."""
    paths = [Path(name).resolve() for name in names] or [ROOT / name for name in (*SOURCES, *DOCUMENTS)]
    count = 0
    for file in sorted(found for path in paths for found in _files(path)):
        prose = _python(file.read_text("utf-8")) if file.suffix == ".py" else _markdown(file.read_text("utf-8"))
        for line, text in prose:
            for pattern, advice in _WORDS:
                for match in pattern.finditer(_QUOTED.sub("", text)):
                    print(f"{file.relative_to(ROOT)}:{line}: '{match[0]}': {advice}")
                    count += 1
    return min(count, 1)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in path.rglob("*") if file.suffix in {".py", ".md"})


def _python(text: str) -> Iterator[tuple[int, str]]:
    kinds = {tokenize.COMMENT, tokenize.STRING} | {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            for number, line in enumerate(token.string.split("\n")):
                yield token.start[0] + number, line


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
