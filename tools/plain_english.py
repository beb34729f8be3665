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
SOURCES: Final = ("acktrail", "connectors", "extras", "spark_jobs", "expectations", "dashboards", "dags", "simulation")
DOCUMENTS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs")

WORDS: Final = {
    # Who reports what
    r"(is|are|was|were|be|been|what|as|they|it|that) said|said (of|about|to|by)|says? (of|so)": "who reports what",
    r"told|tells?(?! apart)|telling(?! apart)": "reports, shows, gives",
    r"word on|own word|last word|heard|looks? on|looked on|looked upon": "a verb of the field: reports, reads, checks",
    # Who
    r"nobody|nothing else knows|who looks on": "no one, or name who does not",
    r"whoever|whatever|whosoever|whatsoever": "any, each",
    r"(is|are|was|were|be) at it": "name who does what",
    # Order and time
    r"go(es)? on|going on|went on|gone on|takes? up again": "continues, resumes",
    r"pass(es|ed)? over|passing over": "skips, ignores",
    r"anew|gone by|so long ago": "again; earlier; N seconds ago",
    r"for ever": "permanently",
    # How much
    r"so many|that many|as many as": "N, or the number itself",
    r"(?<!each\s)(?<!one\s)(?<!all\s)(?<!some\s)(?<!none\s)(?<!both\s)of (which|whom)": "whose, that, with",
    r"what of|all that there (is|are)|none but|but for": "which; all; except",
    # What is done
    r"laws?": "rule",
    r"spell(s|ed)?|spelt": "encode, write",
    r"let go|lets go|let [a-z]+ stand": "release, free; keep",
    r"mend(s|ed|ing)?": "repair",
    r"held against|put among": "compared with; added to",
    r"how (it|they|things) stands?|stands? for itself|has a say": "the state or status of it; decides",
    r"as it lies|lies? there|by itself alone|of itself": "plain words",
    # Out of use
    r"hence(?! can't process requests)": "plain words",  # so Kafka words an error
    r"of its own accord|thereof|whereof|thereby|wherein|herein|therein|thereto|whereby|whence": "plain words",
    r"hitherto|henceforth|forthwith|lest|albeit|whilst|unto|upon|ere|nay|naught|aught|ought|amongst": "plain words",
}
"""What is not written here, as regular expressions of whole words, with the advice that is printed. A space stands for
any white space, so that a phrase is found across two lines."""

_WORDS: Final = [
    (re.compile(rf"\b({pattern})\b".replace(" ", r"\s+"), re.IGNORECASE), advice) for pattern, advice in WORDS.items()
]
_QUOTED: Final = re.compile(r"``[^`]*``|`[^`\n]*`")
_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def main(names: list[str]) -> int:
    """The number of findings decides: 0 for none."""
    paths = [Path(name).resolve() for name in names] or [ROOT / name for name in (*SOURCES, *DOCUMENTS)]
    count = 0
    for file in sorted(found for path in paths for found in _files(path)):
        for line, words, advice in findings(file.read_text("utf-8"), is_python=file.suffix == ".py"):
            print(f"{file.relative_to(ROOT)}:{line}: '{words}': {advice}")
            count += 1
    return min(count, 1)


def findings(text: str, *, is_python: bool) -> Iterator[tuple[int, str, str]]:
    """Line, words and advice of each match in a Python source or a Markdown document. Code between backticks and fenced
    blocks are not prose."""
    for first_line, prose in _python(text) if is_python else [(1, _FENCED.sub(_blank, text))]:
        cleared = _QUOTED.sub(_blank, prose)
        for pattern, advice in _WORDS:
            for match in pattern.finditer(cleared):
                yield first_line + cleared.count("\n", 0, match.start()), " ".join(match[0].split()), advice


def _blank(match: re.Match[str]) -> str:
    """As many lines, and a stop that keeps the words around it apart."""
    return "_" + "\n" * match[0].count("\n")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in path.rglob("*") if file.suffix in {".py", ".md"})


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Strings, and comments that follow each other as one."""
    kinds = {tokenize.STRING} | {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    comment: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield first, "\n".join(comment)
                comment = []
            first, last = (first if comment else token.start[0]), token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type in kinds and any(map(str.isspace, token.string)):  # one word alone is a name
            yield token.start[0], token.string
    if comment:
        yield first, "\n".join(comment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
