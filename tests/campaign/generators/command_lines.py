"""Command lines from the real tables of options: parsed beside what they say, and run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from opscope.framework.base.errors import OpscopeError
from opscope.nnet3.programs.base.program import Option
from opscope.python_api.cli.main import commands, main

from ..inputs import Depth, Generator, WrongError
from ..readers.program_targets import (
    KALDI,
    LINES,
    OWN_LINES,
    command_of,
    one_a_line,
    prepare,
    run_words,
)
from .seeded import chosen, seeded

_TRUE, _FALSE = ("true", "t", "T", "1", "True"), ("false", "f", "0", "FALSE")


def _value(rng: random.Random, option: Option) -> tuple[str, Any]:
    """An option as it may be written, and what it means."""
    name = rng.choice((option.name, option.name.replace("-", "_"), option.name.capitalize()))
    match option.default:
        case bool():
            wanted = rng.random() < 0.5
            if wanted and rng.random() < 0.3:
                return f"--{name}", True
            return f"--{name}={rng.choice(_TRUE if wanted else _FALSE)}", wanted
        case int():
            number = rng.choice((0, 1, -1, 7, 1000, 2147483647, rng.randint(-50, 50)))
            return f"--{name}={rng.choice(('', '+') if number >= 0 else ('',))}{number}", number
        case float():
            text = rng.choice(("0", "1", ".5", "-2.", "1e-3", "3.25E2", "inf", "+1.5", "-1e9"))
            return f"--{name}={text}", float(np.float32(text))
        case _:
            text = rng.choice(("x", "a=b", "1:2", "", "ark:a b", "ä", "--x"))
            return f"--{name}={text}", text


def _build(rng: random.Random) -> tuple[str, tuple[dict[str, Any], list[str]]]:
    name = chosen(rng, KALDI)
    command = command_of(name)
    values = {option.attribute: option.default for option in command.options.values()}
    words = [name]
    table = list(command.options.values())
    for option in rng.choices(table, k=rng.randint(0, 6)) if table else ():
        word, value = _value(rng, option)
        words.append(word)
        values[option.attribute] = value
    files = [rng.choice(("a", "ark:-", "-", "b c", "x.mdl")) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.2:
        words.append("--")
        files += ["--looks-like=an-option"]
    return "\n".join([*words, *files]), (values, files)


def _run(text: str, meaning: tuple[dict[str, Any], list[str]] | None) -> Depth:
    name, *words = text.split("\n")
    if name not in KALDI:
        return Depth.READ
    found, files = command_of(name)._parse(words)
    if meaning is None:
        return Depth.READ
    values, wanted = meaning
    for attribute, value in values.items():
        got = getattr(found, attribute)
        if type(got) is not type(value) or got != value:
            raise WrongError("option", f"{attribute}: {got!r} for {value!r}")
    if files != wanted:
        raise WrongError("files", f"{files} for {wanted}")
    return Depth.RAN


# The commands of `opscope`, as click takes them


def _click_command(name: str) -> click.Command | None:
    found = main.get_command(click.Context(main), name)
    return None if name in KALDI else found


def _click_line(rng: random.Random) -> str:
    command = None
    while command is None:
        name = chosen(rng, commands())
        command = _click_command(name)
    words = [name]
    if isinstance(command, click.Group):
        inner = rng.choice(command.list_commands(click.Context(command)))
        words.append(inner)
        command = command.get_command(click.Context(command), inner)
        assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            least = 1 if parameter.required else rng.randint(0, 1)
            count = parameter.nargs if parameter.nargs > 0 else least
            words += [_word(rng, parameter) for _ in range(count)]
        elif isinstance(parameter, click.Option) and (parameter.required or rng.random() < 0.3):
            words.append(rng.choice(parameter.opts))
            if not parameter.is_flag and not parameter.count:
                words += [_word(rng, parameter) for _ in range(parameter.nargs)]
    return "\n".join(words)


def _word(rng: random.Random, parameter: click.Parameter) -> str:
    """A value of a parameter's type."""
    match parameter.type:
        case click.Choice(choices=choices):
            return str(rng.choice(list(choices)))
        case click.IntRange(min=low):
            return str(rng.randint(low or 0, (low or 0) + 5))
        case click.types.IntParamType():
            return str(rng.randint(0, 9))
        case click.types.FloatParamType() | click.FloatRange():
            return rng.choice(("0.5", "1", "1e-3"))
        case click.Path() | click.File():
            return rng.choice((".", "/dev/null", "a"))
        case _:
            return rng.choice(("a", "x=1", "x.pb", "0:3", "mean"))


def _run_click(text: str) -> Depth:
    """The words alone: what the command would do is not done."""
    name, *words = text.split("\n")
    command = _click_command(name) if name in commands() else None
    if command is None:
        return Depth.READ
    try:
        inner = command
        if isinstance(command, click.Group) and words:
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            inner = found if found is not None else command
        inner.make_context(name, words)
    except click.exceptions.Exit:
        return Depth.READ
    except click.ClickException as error:
        raise OpscopeError(error.format_message()) from error
    return Depth.RAN


# Run on files


@dataclass(frozen=True)
class _Programs(Generator):
    """Command lines that run in a folder with files."""

    def read(self, path: Path) -> Depth:
        run_words(path)
        return Depth.RAN


def _line(rng: random.Random) -> str:
    """A line that goes well, with other options from the program's table."""
    words = one_a_line(rng.choice((*LINES, *OWN_LINES))).decode().split("\n")
    if words[0] not in KALDI:
        return "\n".join(words)
    command = command_of(words[0])
    kept = [word for word in words[1:] if not word.startswith("--") or rng.random() < 0.5]
    plain = [each for each in command.options.values() if not isinstance(each.default, str)]
    added = [_small(rng, each) for each in rng.sample(plain, min(len(plain), rng.randint(0, 3)))]
    return "\n".join([words[0], *added, *kept])


def _small(rng: random.Random, option: Option) -> str:
    """An option near its default."""
    match option.default:
        case bool():
            value: Any = str(rng.random() < 0.5).lower()
        case int():
            value = max(option.default, 0) + rng.randint(0, 2)
        case _:
            value = rng.choice((option.default, 0.5, 1.0, 0.0))
    return f"--{option.name}={value}"


def _files(folder: Path) -> Sequence[bytes]:
    if not (folder / "whole").exists():
        prepare(folder)
    return ()


def _never(_: str) -> Depth:
    return Depth.READ


GENERATORS = (
    seeded("program lines", _build, _run, share=30),
    Generator("command lines", _click_line, _run_click, share=20),
    _Programs("programs that run", _line, _never, 0.3, ".args", _files),
)
