"""Fills the page "CNTK's name -> here" from the catalogs of the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import cntk_words as words
from cntk_library_words import LIBRARY
from cntk_option_words import COMMANDS, FIELDS
from cntk_pages import table

_NODES = "reference/cntk_nodes.md"
_COMMANDS = "reference/cntk_commands.md"
_READERS = "reference/cntk_readers.md"


def names() -> Iterator[str]:
    """A table for each kind of name."""
    yield "## Programs and classes"
    yield _rows(words.PROGRAMS)
    yield "## EvalDll"
    yield _rows(words.EVALUATION)
    yield "## The library of CNTK 2.0 and its Python package"
    yield _LIBRARY2
    yield _rows(words.LIBRARY2)
    yield "## Actions"
    yield _rows(_actions())
    yield "## Options of SGD"
    yield _rows(_training())
    yield "## Learners"
    yield _rows(_learners())
    yield "## Readers, writers, deserializers"
    yield _rows(_readers())
    yield "## Node operations"
    yield _rows(_operations())
    yield "## Functions of NDL"
    yield _rows(_ndl())
    yield "## Functions of BrainScript's library"
    yield _rows(_library())
    yield "## Commands of MEL"
    yield _rows(_mel())
    yield "## Not here"
    yield table(("CNTK's name", "why"), words.ABSENT)


_LIBRARY2 = """Models of this library are read as those of older versions are. What its functions
build in Python is built here by a [NetBuilder](reference/builder.md), `b` below, or as nodes of a
`cntk.Network`."""


def _rows(rows: Iterable[tuple[str, str, str]]) -> str:
    return table(("CNTK's name", "here", "documented in"), rows)


def _actions() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.actions.run import ACTIONS

    titles = {section.title for section in COMMANDS}
    for name, function in ACTIONS.items():
        module = f"{function.__module__.removeprefix('opscope.')}".replace(".", "/")
        here = f"the same: {words.ACTIONS[name]}; `{function.__name__}` of `{module}.py`"
        same = [name, *(other for other in ACTIONS if ACTIONS[other] is function)]
        told = next(other for other in same if other in titles)  # one table for all of them
        yield f"`{name}`", here, f"[commands]({_COMMANDS}#{told.lower()})"


def _training() -> Iterator[tuple[str, str, str]]:
    owners = dict.fromkeys(FIELDS, "cntk.SgdOptions.parallel")
    owners |= {"SGD": "cntk.SgdOptions", "AutoAdjust": "cntk.AutoAdjust"}
    for section, pairs in FIELDS.items():
        for pair in pairs.split():
            name, _, fields = pair.partition("=")
            here = ", ".join(f"`{owners[section]}.{field}`" for field in fields.split(","))
            yield f"`{name}`", here, f"[commands]({_COMMANDS}#{section.lower()})"


def _learners() -> Iterator[tuple[str, str, str]]:
    for name, (options, what) in words.LEARNERS.items():
        yield options, f"{what}: the operator `cntk.{name}`", f"[commands]({_COMMANDS}#sgd)"


def _readers() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.readers.catalog import DESERIALIZERS, READERS, WRITERS

    for catalog in (READERS, WRITERS, DESERIALIZERS):
        for name, (module, function) in catalog.own.items():
            path = f"cntk/readers/{module.replace('.', '/')}.py"
            here = f"the same: `{function}` of `{path}`"
            told = "deserializers" if name == "CompositeDataReader" else name.lower()
            yield f"`{name}`", here, f"[readers]({_READERS}#{told})"


def _operations() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.network.nodes.kind import KINDS
    from opscope.cntk.programs.nodes import operators_of

    for name, kind in sorted(KINDS.items(), key=lambda entry: entry[0].lower()):
        operators = operators_of(kind.operation)
        here = ["the same" if name == kind.operation else f"`{kind.operation}`"]
        if operators:
            here.append("operators " + ", ".join(f"`{operator}`" for operator in operators))
        yield f"`{name}`", "; ".join(here), _node(kind.operation)


def _ndl() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.network.nodes.kind import NDL

    names = {name: function for function in NDL.values() for name in function.names}
    for name, function in sorted(names.items(), key=lambda entry: entry[0].lower()):
        yield f"`{name}`", f"the node `{function.operation}`", _node(function.operation)


def _library() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.network.nodes.kind import KINDS
    from opscope.cntk.programs.library import library_functions

    for name, function in library_functions().items():
        alias = function.usage.partition(f"{name} = ")[2]
        where = f"`cntk/brainscript/library/{function.file}`"
        kind = KINDS.get(function.operation)
        if kind is not None:
            here, where = f"the node `{kind.operation}`", _node(kind.operation)
        elif name in LIBRARY:
            here = LIBRARY[name]
        elif function.doc:
            here = function.doc
        elif alias:
            here = f"`{alias}`"
        elif function.operation:
            here = f"not there: no node is called `{function.operation}`, in CNTK neither"
        else:
            here = ""
        yield f"`{name}`", here, where


def _mel() -> Iterator[tuple[str, str, str]]:
    from opscope.cntk.mel.commands import COMMANDS

    for spec in COMMANDS:
        shown = ", ".join(f"`{name}`" for name in spec.names)
        here = f"the same, `{spec.usage}`; in Python {words.MEL[spec.names[0]]}"
        yield shown, here, "[MEL](cntk_configs.md#mel)"


def _node(operation: str) -> str:
    return f"[{operation}]({_NODES}#{operation.lower()})"
