"""Runs the code blocks of a page of the documentation, as they stand, from top to bottom.

The language of a block says what is done with it:

    python      it runs: alone where it defines all names that it uses, else with the names of those
                before it
    sh          commands: `opscope`, `python`, `pytest`, `ruff`, `pip install -e FOLDER`; `> FILE`,
                `NAME=value` in front, `\\` at the end of a line and comments are as in a shell
    (none)      what the block before it prints, an error in its last line included; `...` stands
                for anything within a line, and a line `...` for any lines
    text        an illustration: it is not run
    others      data or a config: parsed by the parser of the language, see PARSERS

A sentence in front of a block says where it goes: "This is the whole of `PATH`:" makes a file,
"These lines go before `TEXT` in `PATH`:" edits one.

A block runs with the dependencies of `pip install .`, unless the paragraph in front of it says that
it "needs `pip install PACKAGE`", or one before says that "all that follows" does; PACKAGE may be an
extra, `'opscope[plot]'`. Where a package is not installed, the block is left out.

`python doc_blocks.py PAGE` runs a page in the current folder; it ends with 1 and a message that
begins with page and line if a block does not do what the page says.
"""

from __future__ import annotations

import builtins
import glob
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import symtable
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

_BLOCK = re.compile(
    r"(?:This is the whole of `(?P<new>[^`]+)`:\n\n"
    r"|hese lines go before `(?P<before>[^`]+)` in `(?P<edited>[^`]+)`:\n\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_NEEDED = re.compile(r"\bneeds?\s+`pip install '?(?P<wanted>[^'`]+)'?`")
_FROM_HERE = re.compile(r"\b[Aa]ll that follows ")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_COMMENT = re.compile(r"(^|\s)#.*$")
INSTEAD = {"build.py stubs": ("-m", "opscope.python_api.to_python.stubs")}
"""What `build.py` runs, once it has made its environment, which tests do without."""


class PageError(AssertionError):
    """A block does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        line: the line of the page before the first of the block.
        path: the file that it is, or goes into; "" for others.
        before: where it goes in that file; "" for a new file.
        wanted: what `pip install` must have brought besides opscope.
    """

    line: int
    language: str
    text: str
    path: str = ""
    before: str = ""
    wanted: tuple[str, ...] = ()

    def can_run(self) -> bool:
        """Whether all that it wants is installed."""
        return all(map(_is_installed, self.wanted))


def _is_installed(wanted: str) -> bool:
    """Whether a package is, or all that one of our extras names."""
    extra = re.fullmatch(r"opscope\[(.*)\]", wanted)
    if extra is None:
        return any(importlib.metadata.distributions(name=wanted))
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["project"]["optional-dependencies"][extra[1]]
    return all(_is_installed(re.split("[^A-Za-z0-9_.-]", one)[0]) for one in listed)


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found, end, on_all = [], 0, ()
    for match in _BLOCK.finditer(text):
        prose, end = text[end : match.start("indent")].rstrip(), match.end()
        wanted = tuple(_NEEDED.findall(prose.rpartition("\n\n")[2]))
        if _FROM_HERE.search(prose):
            on_all = tuple(_NEEDED.findall(prose))
        found.append(
            Block(
                text.count("\n", 0, match.start("language")) + 1,
                match["language"].strip(),
                re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
                match["new"] or match["edited"] or "",
                match["before"] or "",
                tuple(dict.fromkeys((*on_all, *wanted))),
            )
        )
    return found


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; see the module's text on `...`."""
    lines = []
    for line in shown.rstrip().split("\n"):
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(re.escape(part) for part in line.split("...")) + "\n")
    return re.fullmatch("".join(lines), printed.rstrip() + "\n") is not None


def _brainscript(text: str) -> object:
    from opscope.cntk.base.text import Source
    from opscope.cntk.brainscript.language.parser import parse_members

    return parse_members(Source("page", text))


def _cntk(text: str) -> object:
    from opscope.cntk.config import parse_config

    return parse_config(text)


def _ndl(text: str) -> object:
    from opscope.cntk.ndl import parse_ndl

    return parse_ndl(text)


def _mel(text: str) -> object:
    from opscope.cntk.mel import parse_mel

    return parse_mel(text)


def _nnet3(text: str) -> object:
    from opscope.nnet3 import Nnet

    return Nnet.from_config_text(text)


def _xconfig(text: str) -> object:
    from opscope.nnet3 import xconfig_to_config

    return xconfig_to_config(text)


PARSERS: dict[str, Callable[[str], object]] = {
    "toml": tomllib.loads,
    "json": json.loads,
    "cntk": _cntk,
    "ndl": _ndl,
    "mel": _mel,
    "brainscript": _brainscript,
    "nnet3": _nnet3,
    "xconfig": _xconfig,
}


def missing_names(code: str) -> set[str]:
    """Names that Python looks up and does not define, those of its functions included."""
    return _globals(symtable.symtable(code, "block", "exec"))


def _globals(table: symtable.SymbolTable) -> set[str]:
    known = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = {name for child in table.get_children() for name in _free(child)}
    return (used | inner) - known - set(dir(builtins))


def _free(table: symtable.SymbolTable) -> set[str]:
    own = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return own.union(*map(_free, table.get_children()))


class Page:
    """A page that is run in the current folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.installed: list[str] = []  # folders that commands import from, besides ours

    def run(self, leave: str = "") -> None:
        """Run all blocks but those that hold the text `leave`, with their outputs."""
        printed: str | None = None
        left = False
        for block in blocks(self.path):
            if block.language:
                left = bool(leave and leave in block.text) or not block.can_run()
            if left:
                continue
            if block.language == "" and not block.path:
                if printed is None:
                    self.fail(block, "a block without language stands behind one that prints")
                if not agrees(block.text, printed):
                    self.fail(block, f"it prints\n{printed}")
                printed = None
                continue
            printed = self._one(block)
            if block.language == "python" and printed and self._following(block) is None:
                self.fail(block, f"it prints what is not shown:\n{printed}")

    def _one(self, block: Block) -> str | None:
        """Run a block; what it prints, None where it is none that prints."""
        if block.path:
            self._place(block)
            return None
        if block.language == "text":
            return None
        if block.language == "python":
            return self._python(block)
        if block.language == "sh":
            return "".join(self._command(block, line) for line in commands(block.text))
        if block.language not in PARSERS:
            self.fail(block, f"the language {block.language!r} is none of those that are run")
        try:
            PARSERS[block.language](block.text)
        except Exception as error:
            self.fail(block, f"{type(error).__name__}: {error}")
        return None

    def fail(self, block: Block, why: str) -> None:
        """Raise the error of a block."""
        raise PageError(f"{self.path.name}:{block.line}: {why}")

    def _place(self, block: Block) -> None:
        target = Path(block.path)
        if not block.before:
            if target.exists():
                self.fail(block, f"{target} is there already")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
            return
        text = target.read_text(encoding="utf-8")
        if text.count(block.before) != 1:
            self.fail(block, f"{block.before!r} is {text.count(block.before)} times in {target}")
        target.write_text(text.replace(block.before, block.text + block.before), encoding="utf-8")

    def _python(self, block: Block) -> str:
        code = compile("\n" * block.line + block.text, self.path.name, "exec")
        printed = StringIO()
        alone = {"__name__": "__main__"}
        names: dict[str, object] = self.names if missing_names(block.text) else alone
        try:
            with redirect_stdout(printed):
                exec(code, names)
        except Exception as error:
            if f"{type(error).__name__}: " not in (self._following(block) or ""):
                raise
            return f"{printed.getvalue()}{type(error).__name__}: {error}\n"
        finally:
            self.names |= names
        return printed.getvalue()

    def _following(self, block: Block) -> str | None:
        """The output that the page shows for a block, if any."""
        found = [other for other in blocks(self.path) if other.line > block.line]
        return found[0].text if found and found[0].language == "" else None

    def _command(self, block: Block, line: str) -> str:
        words = shlex.split(line)
        environment = {}
        while words and _ASSIGNMENT.fullmatch(words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        target = ""
        if ">" in words:
            at = words.index(">")
            target, words = words[at + 1], words[:at] + words[at + 2 :]
        program, *arguments = [name for word in words for name in _expanded(word)]
        if program == "opscope" and not self.installed:
            printed, said = self._opscope(arguments, environment)
        elif program == "pip":
            printed, said = self._install(arguments), None
        else:
            printed, said = self._process(program, arguments, environment)
        if said is not None:
            self.fail(block, f"{line}\n{printed.decode()}{said}")
        if target:
            Path(target).write_bytes(printed)
            return ""
        return printed.decode(errors="replace")

    def _opscope(
        self, arguments: list[str], environment: dict[str, str]
    ) -> tuple[bytes, str | None]:
        """Run the command line in this process; what it prints, and what went wrong."""
        from click.testing import CliRunner

        from opscope.python_api.cli.main import main

        done = CliRunner().invoke(main, arguments, env=environment, prog_name="opscope")
        unexpected = done.exception and not isinstance(done.exception, SystemExit)
        said = f"{done.stderr}{done.exception!r}" if unexpected else done.stderr
        return done.stdout_bytes, said if done.exit_code else None

    def _process(
        self, program: str, arguments: list[str], environment: dict[str, str]
    ) -> tuple[bytes, str | None]:
        """The same of a program of Python's, in a process of its own."""
        given = " ".join(arguments)
        words = {
            "python": [*INSTEAD.get(given, arguments)],
            "opscope": ["-m", "opscope", *arguments],
            "pytest": ["-m", "pytest", "-p", "no:cacheprovider", *arguments],
            "ruff": ["-m", "ruff", *arguments],
        }
        if program not in words:
            raise PageError(f"{self.path.name}: {program} is none of {', '.join(words)}, pip")
        path = [*self.installed, os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, *words[program]],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
            capture_output=True,
        )
        return done.stdout, done.stderr.decode() if done.returncode else None

    def _install(self, arguments: list[str]) -> bytes:
        """What `pip install -e FOLDER` leaves: the folder to import from, and its entry points.

        pip itself would fetch and build for a long time.
        """
        *options, folder = arguments
        if options != ["install", "-e"]:
            raise PageError(f"{self.path.name}: pip {' '.join(arguments)} is not run")
        with open(Path(folder, "pyproject.toml"), "rb") as file:
            project = tomllib.load(file)["project"]
        site = Path(folder, ".site").resolve()
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines = [
            line
            for group, entries in project["entry-points"].items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        self.installed += [str(site), str(Path(folder).resolve())]
        return b""


def commands(text: str) -> Iterator[str]:
    """The commands of a shell block."""
    for line in text.replace("\\\n", " ").splitlines():
        command = _COMMENT.sub("", line).strip()
        if command:
            yield command


def _expanded(word: str) -> list[str]:
    """The files that a word with `*` stands for, as a shell has it."""
    return (sorted(glob.glob(word)) if "*" in word else []) or [word]


if __name__ == "__main__":
    try:
        Page(Path(sys.argv[1])).run(*sys.argv[2:])
    except PageError as error:
        sys.exit(str(error))
