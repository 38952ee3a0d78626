"""Programs in the manner of Kaldi's: `NAME [options] <file> ...`, options `--name=value`.

Options stand before the file names. `_` in a name means `-`, capitals do not matter, a flag needs
no value, and `--config=FILE` reads lines of options, which those of the command line override.
Source: Kaldi's `util/parse-options.cc` and `base/kaldi-error.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import click
import numpy as np

from ....framework.base.errors import FormatError, OpscopeError, nearest
from ....framework.base.options.option_fields import option_fields
from ....framework.base.untrusted.opener import read_text
from ...compiler.verbose import Verbose, telling
from ...language.nodes import warnings_to

Options = TypeVar("Options")

_WORDS = {"true": True, "t": True, "1": True, "": True, "false": False, "f": False, "0": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}\Z")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?|inf|infinity|nan)\Z", re.I
)
_PLAIN = re.compile(r"[A-Za-z0-9\[\]~#^_\-+=:.,/]+\Z")  # needs no quotes in a shell
# By program, the file of the function PrintTotalStats(). Kaldi's scripts find the messages of these
# functions by their names: steps/libs/nnet3/report/log_parse.py (`parse_prob_logs`) and
# steps/nnet3/report/summarize_compute_debug_timing.py.
_TOTALS = {
    "nnet3-train": "nnet-training.cc",
    "nnet3-chain-train": "nnet-training.cc",
    "nnet3-chain-train2": "nnet-training.cc",
    "nnet3-discriminative-train": "nnet-discriminative-training.cc",
    "nnet3-compute-prob": "nnet-diagnostics.cc",
    "nnet3-chain-compute-prob": "nnet-chain-diagnostics.cc",
    "nnet3-discriminative-compute-objf": "nnet-discriminative-diagnostics.cc",
}
_TIMED_COMMAND = re.compile(r"c\d+: .*\|\t time: ", re.S)
# how usage messages name a type and print a default
_SHOWN: dict[type, tuple[str, Callable[[Any], str]]] = {
    bool: ("bool", lambda value: str(value).lower()),
    int: ("int", str),
    float: ("float", "{:g}".format),
    str: ("string", '"{}"'.format),
}


@dataclass(frozen=True)
class Option:
    """An option: its name without dashes, its default, whose type is the option's, and its help."""

    name: str
    default: bool | int | float | str
    doc: str

    @property
    def attribute(self) -> str:
        """The name of its value in the namespace that programs get."""
        return self.name.replace("-", "_").replace(".", "_")

    def help(self) -> str:
        """A line of the usage message."""
        kind, form = _SHOWN[type(self.default)]
        return f"  --{self.name:<25} : {self.doc} ({kind}, default = {form(self.default)})"

    def parse(self, text: str | None) -> Any:
        """The value of `text`; None means that nothing followed the name, not even `=`.

        Raises:
            FormatError: it is none.
        """
        kind = type(self.default)
        argument = f"--{self.name}={text or ''}"
        if kind is str:
            if text is None:
                raise FormatError(f"--{self.name} wants a value: --{self.name}=...")
            return text
        if kind is bool:
            if text == "" or (text or "").lower() not in _WORDS:
                raise FormatError(f"{argument} is neither true nor false")
            return _WORDS[(text or "").lower()]
        if kind is int:
            if not _INTEGER.match(text or "") or not -(1 << 31) <= int(text or "") < 1 << 31:
                raise FormatError(f"{argument} is no integer")
            return int(text or "")
        if not _FLOAT.match(text or ""):
            raise FormatError(f"{argument} is no number")
        with np.errstate(over="ignore"):
            return float(np.float32(text))


def options_of(source: Any, prefix: str = "") -> tuple[Option, ...]:
    """The options that the fields of a dataclass stand for.

    Args:
        source: the class, or an object of it, whose values are the defaults.
        prefix: before the names.
    """
    is_class = isinstance(source, type)
    return tuple(
        Option(
            prefix + each.name, each.default if is_class else getattr(source, each.field), each.doc
        )
        for each in option_fields(source if is_class else type(source))
    )


def from_values(
    kind: type[Options], values: Mapping[str, Any], prefix: str = "", **overrides: Any
) -> Options:
    """A dataclass of options, of a namespace's values by `Option.attribute`.

    Args:
        prefix: of the options' names.
        given: further fields, and those whose values are not the options'.
    """
    taken = {
        each.field: values[option.attribute]
        for each, option in zip(option_fields(kind), options_of(kind, prefix), strict=True)
        if each.field not in overrides
    }
    return kind(**taken, **overrides)


_STANDARD = (
    Option("config", "", "Configuration file to read (this option may be repeated)"),
    Option("help", False, "Print this message"),
    Option("print-args", True, "Print the command line arguments (to stderr)"),
    Option("verbose", 0, "Verbose level (higher->more logging)"),
)
# `opscope` itself takes it, from the command line alone: no config gives itself more folders.
_ROOT = f"  --{'root':<25} : Folder that files may name files in (may be repeated) (string)"
_STANDARD_BY_NAME = {option.name: option for option in _STANDARD}


class KaldiCommand(click.Command):
    """A command of `opscope` that takes its arguments as Kaldi's program of that name does.

    Args:
        name: of the program.
        about: a sentence or two for the usage message.
        files: the names of its positional arguments; `[NAME]` is one that may be missing, `NAME...`
            one that may be repeated.
        options: its own options.
        run: called with a namespace of option values (and `program`, this object) and the files.
            The file names of optional arguments that are missing are ''.
    """

    def __init__(
        self,
        name: str,
        about: str,
        files: Sequence[str],
        options: Sequence[Option],
        run: Callable[..., None],
    ) -> None:
        super().__init__(name, help=about, add_help_option=False)
        self.about = about
        self.files = tuple(files)
        self.run = run
        self.options = {option.name: option for option in sorted(options, key=lambda o: o.name)}
        self.level = 0

    # Command line

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []

    def invoke(self, ctx: click.Context) -> None:
        arguments = ctx.params["arguments"]
        try:
            with warnings_to(self.warn):
                done = self._call(arguments)
            if not done:
                ctx.exit(1)
        except OpscopeError as error:
            if ctx.find_root().params.get("debug"):
                raise
            for line in getattr(error, "explanation", "").splitlines():
                self.vlog(1, line)
            self._print("ERROR", "; ".join(str(error).splitlines()))
            ctx.exit(1)

    def _call(self, arguments: Sequence[str]) -> bool:
        """Parse and run; False if files are wanted and nothing was given."""
        named = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if any(text.partition("=")[0] == "--help" for text in named):
            click.echo(self.usage())
            return True
        options, files = self._parse(arguments)
        self.level = options.verbose
        if options.print_args:
            click.echo(" ".join(map(quoted, (self.name or "", *arguments))) + " ", err=True)
        least = sum(not name.startswith("[") for name in self.files)
        repeated = any(name.endswith("...") for name in self.files)
        if not arguments and least:
            click.echo(self.usage(), err=True)
            return False
        if len(files) < least or (len(files) > len(self.files) and not repeated):
            raise FormatError(self._wrong_number(files))
        optional = [i for i, name in enumerate(self.files) if name.startswith("[")]
        for i in optional[len(files) - least :]:
            files.insert(i, "")
        debug = getattr(options, "computation_debug", False)
        with telling(Verbose(self.level, self.log, self.vlog, debug)):
            self.run(options, *files)
        return True

    def _wrong_number(self, files: Sequence[str]) -> str:
        late = [name for name in files if name.startswith("--")]
        if late:
            return f"{late[0]} must stand before the file names"
        form = " ".join(self.files)
        count = "1 of these is" if len(files) == 1 else f"{len(files)} of these are"
        return f"{self.name} wants {form}, but {count} given"

    def _parse(self, arguments: Sequence[str]) -> tuple[SimpleNamespace, list[str]]:
        known = self.options | _STANDARD_BY_NAME
        values = {option.attribute: option.default for option in known.values()}
        count = 0
        while count < len(arguments) and arguments[count][:2] == "--" != arguments[count]:
            count += 1
        pairs = [self._split(text) for text in arguments[:count]]
        for option, text in pairs:
            if option.name == "config":
                self._read_config(option.parse(text), values)
        for option, text in pairs:
            values[option.attribute] = option.parse(text)
        # A lone `--` ends the options; after it anything is a file name.
        files = list(arguments[count:])
        if "--" in files:
            files.remove("--")
        return SimpleNamespace(program=self, **values), files

    def _split(self, text: str) -> tuple[Option, str | None]:
        """The option and the text of its value in `--name=value`."""
        name, equals, value = text[2:].partition("=")
        name = name.replace("_", "-").lower()
        known = self.options | _STANDARD_BY_NAME
        if name not in known:
            raise FormatError(f"invalid option {text}{nearest(name, known)}; --help lists all")
        return known[name], value.strip() if equals else None

    def _read_config(self, path: str, values: dict[str, Any]) -> None:
        text = read_text(path, pipes=True, place="--config")
        for number, line in enumerate(text.split("\n"), 1):
            line = line.partition("#")[0].strip()
            if not line:
                continue
            try:
                if not line.startswith("--"):
                    raise FormatError(f"{line!r} is no line like --name=value")
                option, text = self._split(line)
                values[option.attribute] = option.parse(text)
            except FormatError as error:
                raise FormatError(f"{path}:{number}: {error}") from error

    def usage(self) -> str:
        """The usage message."""
        lines = [self.about, "", f"Usage:  {self.name} [options] {' '.join(self.files)}", ""]
        if self.options:
            lines += ["Options:", *(option.help() for option in self.options.values()), ""]
        return "\n".join([*lines, "Standard options:", *(o.help() for o in _STANDARD), _ROOT])

    # Messages

    def log(self, message: str) -> None:
        """Print a line of the kind LOG to stderr."""
        self._print("LOG", message)

    def warn(self, message: str) -> None:
        """Print a line of the kind WARNING to stderr."""
        self._print("WARNING", message)

    def vlog(self, level: int, message: str) -> None:
        """Print a line if `--verbose` is at least this level."""
        if level <= self.level:
            self._print(f"VLOG[{level}]", message)

    def _print(self, kind: str, message: str) -> None:
        print_line(self.name or "", kind, message)


def print_line(program: str, kind: str, message: str) -> None:
    """Print a line to stderr in the form of Kaldi's programs; an error has no origin."""
    from .... import __version__

    # Scripts want the number of a line there, but none looks which.
    place = "" if kind == "ERROR" else f":{_origin(program, message)}:0"
    click.echo(f"{kind} ({program}[{__version__}]{place}) {message}", err=True)


def _origin(program: str, message: str) -> str:
    """Function and file, as Kaldi's scripts look for them; else the program itself."""
    if message.startswith("Overall ") and program in _TOTALS:
        return f"PrintTotalStats():{_TOTALS[program]}"
    if _TIMED_COMMAND.match(message):
        return "DebugAfterExecute():nnet-compute.cc"
    return f"main():{program}.cc"


def program(
    name: str, about: str, files: Sequence[str], *options: Option
) -> Callable[[Callable[..., None]], KaldiCommand]:
    """Make a `KaldiCommand` of a function; see there."""
    return lambda run: KaldiCommand(name, about, files, options, run)


def quoted(text: str) -> str:
    """A word as one would type it in a shell."""
    if _PLAIN.match(text):
        return text
    if "'" in text and not re.search(r'["`$\\]', text):
        return f'"{text}"'
    return "'" + text.replace("'", "'\\''") + "'"
