"""CNTK's names, from the catalogs of the package; what these lack is in `cntk_words`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import cntk_words as words
from .cntk_library_words import LIBRARY
from .rows import Row

_NODES = "reference/cntk_nodes.md"
_COMMANDS = "reference/cntk_commands.md"
_READERS = "reference/cntk_readers.md"


def rows() -> Iterator[Row]:
    """All rows, one for each name."""
    for _, found in sections():
        for theirs, here, where in found:
            yield Row("CNTK", theirs.replace("`", ""), "", here, where)


def sections() -> Iterator[tuple[str, Iterable[tuple[str, str, str]]]]:
    """The tables: a title, and rows of CNTK's name, what it is here, and where that is told."""
    yield "Programs and classes", words.PROGRAMS
    yield "EvalDll", words.EVALUATION
    yield "The library of CNTK 2.0 and its Python package", words.LIBRARY2
    yield "Actions", _actions()
    yield "Options of SGD", _training()
    yield "Learners", _learners()
    yield "Readers, writers, deserializers", _readers()
    yield "Node operations", _operations()
    yield "Functions of NDL", _ndl()
    yield "Functions of BrainScript's library", _library()
    yield "Commands of MEL", _mel()
    yield "Not here", ((theirs, why, "") for theirs, why in words.ABSENT)


def _actions() -> Iterator[tuple[str, str, str]]:
    from ...cntk.actions.run import ACTIONS

    for name, function in ACTIONS.items():
        module = f"{function.__module__.removeprefix('opscope.')}".replace(".", "/")
        here = f"the same: {words.ACTIONS[name]}; `{function.__name__}` of `{module}.py`"
        told = _SAME_ACTIONS.get(name, name).lower()
        yield f"`{name}`", here, f"[commands]({_COMMANDS}#{told})"


_SAME_ACTIONS = {"trainRNN": "train", "eval": "test", "dumpNodes": "dumpNode", "topo": "plot"}
"""Actions of two names: the name that the reference does not list -> that which it lists."""


def _training() -> Iterator[tuple[str, str, str]]:
    owners = dict.fromkeys(words.FIELDS, "cntk.SgdOptions.parallel")
    owners |= {"SGD": "cntk.SgdOptions", "AutoAdjust": "cntk.AutoAdjust"}
    for section, pairs in words.FIELDS.items():
        for pair in pairs.split():
            name, _, fields = pair.partition("=")
            here = ", ".join(f"`{owners[section]}.{field}`" for field in fields.split(","))
            yield f"`{name}`", here, f"[commands]({_COMMANDS}#{section.lower()})"


def _learners() -> Iterator[tuple[str, str, str]]:
    for name, (options, what) in words.LEARNERS.items():
        yield options, f"{what}: the operator `cntk.{name}`", f"[commands]({_COMMANDS}#sgd)"


def _readers() -> Iterator[tuple[str, str, str]]:
    from ...cntk.readers.catalog import DESERIALIZERS, READERS, WRITERS

    for catalog in (READERS, WRITERS, DESERIALIZERS):
        for name, (module, function) in catalog.own.items():
            path = f"cntk/readers/{module.replace('.', '/')}.py"
            here = f"the same: `{function}` of `{path}`"
            told = "deserializers" if name == "CompositeDataReader" else name.lower()
            yield f"`{name}`", here, f"[readers]({_READERS}#{told})"


def _operations() -> Iterator[tuple[str, str, str]]:
    from ...cntk.network.nodes.kind import KINDS
    from ...cntk.programs.nodes import operators_of

    for name, kind in sorted(KINDS.items(), key=lambda entry: entry[0].lower()):
        operators = operators_of(kind.operation)
        here = ["the same" if name == kind.operation else f"`{kind.operation}`"]
        if operators:
            here.append("operators " + ", ".join(f"`{operator}`" for operator in operators))
        yield f"`{name}`", "; ".join(here), _node(kind.operation)


def _ndl() -> Iterator[tuple[str, str, str]]:
    from ...cntk.network.nodes.kind import NDL

    names = {name: function for function in NDL.values() for name in function.names}
    for name, function in sorted(names.items(), key=lambda entry: entry[0].lower()):
        yield f"`{name}`", f"the node `{function.operation}`", _node(function.operation)


def _library() -> Iterator[tuple[str, str, str]]:
    from ...cntk.network.nodes.kind import KINDS
    from ...cntk.programs.library import library_functions

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
    from ...cntk.mel.commands import COMMANDS

    for spec in COMMANDS:
        shown = ", ".join(f"`{name}`" for name in spec.names)
        here = f"the same, `{spec.usage}`; in Python {words.MEL[spec.names[0]]}"
        yield shown, here, "[MEL](cntk_configs.md#mel)"


def _node(operation: str) -> str:
    return f"[{operation}]({_NODES}#{operation.lower()})"
