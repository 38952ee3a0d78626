"""How many lines of each floor say why: comment lines as a share of the lines of code.

`python -m devtools.comments` prints a line for each floor, or for the folders that are named.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .process import ROOT

FLOORS = (
    "framework",
    "operators",
    "kaldi",
    "nnet3",
    "nnet3/optimize",
    "cntk",
    "speech",
    "bridges",
    "scale",
    "python_api",
)
# Rules between sections, and words to tools, say nothing to a reader.
_NO_TEXT = re.compile(r"#\s*(-{3,}|--\s|={3,}|noqa|type:|pyright:|ruff:|fmt:|pragma)")
_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Share(NamedTuple):
    """Lines with a comment, and lines with code; docstrings count as neither."""

    comments: int
    code: int

    def __str__(self) -> str:
        return f"{self.comments} of {self.code}, {self.comments / max(self.code, 1):.1%}"


def share(files: Iterable[Path]) -> Share:
    """Comments and code of some files."""
    counts = [_of_file(path) for path in files]
    return Share(sum(one.comments for one in counts), sum(one.code for one in counts))


def _of_file(path: Path) -> Share:
    comments: set[int] = set()
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                if not _NO_TEXT.match(token.string):
                    comments.add(token.start[0])
            elif token.type not in _LAYOUT:
                code.update(range(token.start[0], token.end[0] + 1))
    return Share(len(comments), len(code - _docstrings(path)))


def _docstrings(path: Path) -> set[int]:
    """The lines of strings that stand alone: those of modules, classes, functions and variables."""
    return {
        line
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


if __name__ == "__main__":
    for floor in sys.argv[1:] or FLOORS:
        print(f"{floor}: {share(sorted((ROOT / floor).rglob('*.py')))}")
