"""What every network gives to commands, whatever its kind: `Model`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from ...framework.base.errors import FormatError, VariableError, nearest
from ...framework.base.untrusted.values import plain
from ...framework.editing.operations import Edit
from ...framework.ir.op_list import OpList, VarDecl

Feed = Mapping[str, Any]
"""Arrays by input."""

EDITED = (
    "networks and models of nnet3, models of CNTK and ONNX, and nets that opscope saved; `opscope"
    " convert` makes such files of others"
)
"""The kinds of networks that are edited, for errors."""


@dataclass(frozen=True)
class Asked:
    """What is asked of an opener, a function `(path, asked) -> Model`.

    Attributes:
        kind: of the file, one of the registry.
        network: the command of a config of CNTK's whose network is meant; "": its only one.
        whole: the values of a net must be there; otherwise a description alone is enough.
    """

    kind: str
    network: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: of it. shape: its dimensions; None for one that varies, or a name of it.
        note: what else is known: `feature`, an objective.
    """

    name: str
    shape: tuple[int | str | None, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{plain(self.name)} [{dims}]" + (f", {self.note}" if self.note else "")


class Model(ABC):
    """A network of some kind.

    Attributes:
        family: `nnet3`, `cntk`, `operators`, `onnx` or `torch`; `description` for a net in a
            dialect that does not run.
        what: what errors call its kind.
        path: of its file; "" for an object. title: the file's name, or the network's.
        notes: what opening or edits did besides, a line each.
        is_bare: whether the file with its numbers is not there.
    """

    family: ClassVar[str]
    what: ClassVar[str]
    is_bare = False

    def __init__(self, path: str = "", title: str = "") -> None:
        self.path = path
        self.title = title
        self.notes: list[str] = []

    @property
    def name(self) -> str:
        """What errors call the network."""
        return self.path or self.title

    @property
    @abstractmethod
    def network(self) -> Any:
        """The network itself, as its own front end knows it."""

    @property
    @abstractmethod
    def desc(self) -> OpList:
        """The network as an op list: in operators that run, or in a dialect."""

    @property
    @abstractmethod
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Its parameters and states by variable of `desc`."""

    @property
    def dialect(self) -> str:
        """The dialect of `desc`; "" for operators that run."""
        return self.desc.metadata.get("dialect", "")

    def inferred(self) -> tuple[list[VarDecl], str]:
        """Variables whose shapes follow from the inputs and are not declared in `desc`.

        Returns:
            Their declarations; and why shapes are still missing, "" where none are.
        """
        return [], ""

    @property
    def summary(self) -> str:
        """Lines that `opscope show` prints before the net; "" for none."""
        return ""

    def picture(self) -> str:
        """The network drawn, as SVG."""
        from ...framework.draw.pictures import to_svg

        return to_svg(self.desc)

    @property
    def facts(self) -> list[tuple[str, str | int]]:
        """What else is known of the whole network, by name; a count is an int."""
        return []

    @property
    @abstractmethod
    def inputs(self) -> list[Port]:
        """What it is fed."""

    @property
    @abstractmethod
    def outputs(self) -> list[Port]:
        """What it gives."""

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """Values of outputs for given inputs, in test mode.

        Args:
            feed: an array for each input.
            fetch: names of outputs; without any all of them.

        Raises:
            VariableError: unknown or missing names; a network of this kind does not run.
            ShapeError: an array does not fit.
        """
        del feed, fetch
        raise VariableError(f"{self.name}: {self.what}, which does not run")

    def in_operators(self, rows: int) -> Model:
        """The model whose operators or nodes are timed, where it takes inputs of some rows.

        Raises:
            OpscopeError: it has no such form.
        """
        del rows
        return self

    # Editing

    def copy(self) -> Model:
        """Another one, which edits of this one do not change.

        Raises:
            FormatError: networks of this kind are not edited.
        """
        self._not_edited()

    def perform(self, edit: Edit) -> str:
        """Carry out an edit; returns a sentence about what was done.

        Raises:
            OpscopeError: it does not fit.
        """
        del edit
        self._not_edited()

    def check(self) -> None:
        """Refuse shapes and connections that do not fit together."""
        self._not_edited()

    def save(self, path: str) -> None:
        """Write it in the format that it was read in, or as `.pb` where the path ends so."""
        del path
        self._not_edited()

    def _not_edited(self) -> NoReturn:
        raise FormatError(f"{self.name}: {self.what}: edited and saved are {EDITED}")


def chosen(
    name: str, feed: Feed, inputs: Collection[str], fetch: Sequence[str], outputs: Collection[str]
) -> list[str]:
    """The outputs that are wanted, once all names have been checked.

    Raises:
        VariableError: there is no such input or output, or an input is missing.
    """
    for what, given, known in (("input", feed, inputs), ("output", fetch, outputs)):
        for one in given:
            if one not in known:
                raise VariableError(
                    f"{name}: there is no {what} {one!r}{nearest(one, known)}; there are"
                    f" {', '.join(known) or 'none'}"
                )
    missing = [each for each in inputs if each not in feed]
    if missing:
        raise VariableError(f"{name}: no value of the inputs {', '.join(missing)} is given")
    return list(fetch or outputs)
