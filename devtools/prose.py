"""The linter of our English: turns that make a sentence hard to read, and what to write instead.

It reads README, CHANGELOG down to its first release, the pages of docs/ and the words of the
scripts that make pages, the docstrings of public names, and the messages of errors. It reads no
code: neither fenced blocks nor text between backticks. docs/style.md shows the turns in pairs.
All other texts of the package are read as well: strings of several words for all turns, comments
and internal docstrings for the turns in `EVERYWHERE`.

A name is public if a page of docs/reference/ asks for its docstring (`::: opscope.save`), or if it
is in a folder whose docstrings users see: layers, operators, commands.

No linter of a package index serves: `vale` downloads its program when it first runs, and the checks
of `proselint` are about American prose, without a vocabulary of one's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .process import ROOT

_SEEN_BY_USERS = ("operators", "python_api")
_REFERENCE = re.compile(r"^::: opscope\.(\S+)", re.MULTILINE)

# A turn as a pattern, in which a space is any white space, and what to write instead.
EVERYWHERE = {
    r"\bh[au]ng on\b|\bhang(s|ing) on\b": "depend on",
    r"\bnobody\b|\bno one\b": "name who: no caller, no user; or nothing",
    r"\btells? (of|that|what|how|which|where|when|whether|more|about)\b": "say, report, describe",
    r"\b(that|those) of\b": "repeat the noun, or turn the sentence around",
}
"""The turns that comments and internal docstrings may not have either."""
TURNS = {
    **EVERYWHERE,
    r"\bbehind\b": "after",
    r"\bwhat (is|was|are) made of\b": "name the thing: the product, the network",
    r"\b(is|are|was|were|be|been|being) told (?!apart)": "is reported, is printed",
    r", too\b(?! (many|few|much|long|short|large|small))|\btoo(?=[.;:)])": "also, before the verb",
    r"\bwhat belongs\b": "name the things that belong",
    r"\b(goes|went|gone) on\b": "continue, resume",
    r"\bgo on (from|with|where|to|as|after|when)\b": "continue, resume",
    r"\bafresh\b|\banew\b": "again, new",
    r"\bbe it\b": "whether it is",
    r"\b(but|save) for\b": "except",
    r"\bof which (one|two|three|each|all|some|none)\b": "two sentences, or: one of them",
    r"\b(is|are) of no\b": "has no",
    r"\b(lest|albeit|whence|thence|hence|thereof|therein|whereby|wherein)\b": "a plain word",
    r"\bnothing at all\b": "nothing",
    r"\bthe said\b|\bthe same holds for\b": "name it again",
    r"\bneed be\b": "where it is necessary",
}
_LEFT = (
    *("framework/fusion", "framework/runtime", "kaldi/fst", "nnet3/programs", "operators/backends"),
    *("speech/adaptation", "speech/training", "bridges/onnx/importing", "native"),
)
"""Rooms whose comments and internal docstrings are still to be rewritten."""

Patterns = dict[re.Pattern[str], str]


def _compiled(turns: dict[str, str]) -> Patterns:
    return {
        re.compile(turn.replace(" ", r"\s+"), re.IGNORECASE): instead
        for turn, instead in turns.items()
    }


_EVERYWHERE = _compiled(EVERYWHERE)
_PATTERNS = _compiled(TURNS)

_FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`]+?\1|\]\([^)\s]*\)")
_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/reference/*.md")
_FIRST_RELEASE = re.compile(r"^## \[(?!Unreleased)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^[ \t]*|  )# (.*)$")
_NOT_THE_PACKAGE = {"benchmarks", "build", "devtools", "dist", "examples", "tests"}


class Finding(NamedTuple):
    """A turn in a text."""

    file: str
    line: int
    turn: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.turn!r}; write: {self.instead}"


def findings(root: Path = ROOT) -> Iterator[Finding]:
    """The refused turns of all texts below a folder, file by file."""
    found = [each for text in _texts(root) for each in _found(*text, _PATTERNS)]
    found += [each for text in _inner_texts(root) for each in _found(*text)]
    yield from dict.fromkeys(found)


def _found(file: str, line: int, text: str, patterns: Patterns) -> Iterator[Finding]:
    text = _CODE.sub(lambda code: re.sub(r"\S", "`", code[0]), text)
    for pattern, instead in patterns.items():
        for found in pattern.finditer(text):
            at = line + text.count("\n", 0, found.start())
            yield Finding(file, at, " ".join(found[0].split()), instead)


def _inner_texts(root: Path) -> Iterator[tuple[str, int, str, Patterns]]:
    """The comments, docstrings and other strings of several words of every module of the package,
    with the turns that they are read for."""
    for place, path in _modules(root):
        if place.parts[0] == "docs" or place.as_posix().startswith(_LEFT):
            continue
        text = path.read_text(encoding="utf-8")
        yield place.as_posix(), 1, "\n".join(map(_comment, text.split("\n"))), _EVERYWHERE
        tree = ast.parse(text)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for string in _strings(tree):
            if str(string.value).count(" ") > 1:
                patterns = _EVERYWHERE if id(string) in docs else _PATTERNS
                yield place.as_posix(), string.lineno, str(string.value), patterns


def _comment(line: str) -> str:
    """The comment of a line; "." where it has none, which ends a sentence."""
    found = _COMMENT.search(line)
    return found[1] if found else "."


def _modules(root: Path) -> Iterator[tuple[Path, Path]]:
    """The package's own modules and the scripts of docs/: places below the folder, and paths."""
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        top = place.parts[0]
        if not (top in _NOT_THE_PACKAGE or top.startswith(".") or path.stem.endswith("_pb2")):
            yield place, path


def _texts(root: Path) -> Iterator[tuple[str, int, str]]:
    """File, first line and text of everything that people read."""
    for page in sorted(path for pattern in _PAGES for path in root.glob(pattern)):
        text = page.read_text(encoding="utf-8")
        yield page.relative_to(root).as_posix(), 1, _without_blocks(text)
    changes = root / "CHANGELOG.md"
    if changes.exists():
        text = changes.read_text(encoding="utf-8")
        release = _FIRST_RELEASE.search(text)
        yield changes.name, 1, _without_blocks(text[: release.start() if release else None])
    public = _public_names(root)
    for place, path in _modules(root):
        top = place.parts[0]
        tree = ast.parse(path.read_bytes())
        if top == "docs":
            strings = _strings(tree)
        elif top in _SEEN_BY_USERS:
            strings = [*_messages(tree), *_docstrings(tree)]
        else:
            names = public.get(".".join(place.with_suffix("").parts), ())
            strings = [
                *_messages(tree),
                *(found for name in names for found in _docs_of(tree, name)),
            ]
        for string in sorted(strings, key=lambda string: string.lineno):
            yield place.as_posix(), string.lineno, str(string.value)


def _without_blocks(text: str) -> str:
    return _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def _public_names(root: Path) -> dict[str, list[str]]:
    """By module, the names whose docstrings the reference shows; "" for all of a module."""
    public: dict[str, list[str]] = {}
    for page in root.glob("docs/reference/*.md"):
        for name in _REFERENCE.findall(page.read_text(encoding="utf-8")):
            parts = name.split(".")
            module = ".".join(parts)
            while parts and not root.joinpath(*parts).with_suffix(".py").exists():
                parts.pop()
            found = ".".join(parts)
            public.setdefault(found, []).append(module[len(found) + 1 :])
    return public


def _messages(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from _strings(node)


def _docs_of(tree: ast.Module, name: str) -> Iterator[ast.Constant]:
    """The docstrings of a public name of a module, those of its public members included."""
    for node in [tree] if not name else tree.body:
        if not name or getattr(node, "name", None) == name.partition(".")[0]:
            yield from _docstrings(node)


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and not getattr(node, "name", "").startswith("_"):
                yield from _strings(first)


def _strings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
