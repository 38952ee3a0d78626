"""What is reported of a file: `FileInfo`, which prints as a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.files.atomic import PathLike
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.values import plain
from ...framework.ir.op_list import OpList
from ..model.model import Feed, Model, Port
from ..model.opening import open_model

if TYPE_CHECKING:
    from ..edit.editor import Editor

_MOST_TYPES = 12
_MOST_LINES = 8
_MOST_NAMES = 4
_WIDTH = 13
_LONGEST = 300  # characters of an error in a line


@dataclass
class FileInfo:
    """What a file is. `str(info)` is what `opscope open` prints.

    Of a file that holds a network, the network is at hand: `desc`, `arrays`, `run`, `edit`, `save`.

    Attributes:
        path: of the file. kind: its name in `KINDS`. title: the kind, for people.
        version: of its format; "" where it has none.
        inputs, outputs: of a model.
        context: frames of left and right context that an output frame needs, where that is known.
        subsampling: frames of input for a frame of output, where that is known.
        parameters: how many trained numbers; None where it is no model.
        types: how many components, nodes or operators of each type.
        facts: what else is known, by name.
        unusual: what is allowed, but seldom meant.
        commands: what can be done with it.
    """

    path: str
    kind: str
    title: str
    version: str = ""
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    context: tuple[int, int] | None = None
    subsampling: int | None = None
    parameters: int | None = None
    types: dict[str, int] = field(default_factory=dict)
    facts: list[tuple[str, str]] = field(default_factory=list)
    unusual: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    @cached_property
    def model(self) -> Model:
        """The network in the file, read when it is first asked for.

        Raises:
            FormatError: it holds none, or several; it is damaged.
        """
        return open_model(self.path)

    @property
    def desc(self) -> OpList:
        """The network as an op list: in operators, or in a dialect; errors as of `model`."""
        return self.model.desc

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Its parameters and states by variable of `desc`; errors as of `model`."""
        return self.model.arrays

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """Values of outputs for given inputs, in test mode.

        Args:
            feed: an array for each input: [frames, columns] of a network of Kaldi's, a sequence of
                samples of one of CNTK's.
            fetch: names of outputs, in CNTK's networks of any nodes, in nets of any variables;
                without any all outputs.

        Raises:
            VariableError: unknown or missing names; a network of this kind does not run.
            ShapeError: an array does not fit. FormatError: as of `model`.
        """
        return self.model.run(feed, fetch)

    def edit(self) -> Editor:
        """An editor of the network; see `opscope.edit`."""
        from ..edit.editor import edit

        return edit(self.path)

    def save(self, path: PathLike) -> None:
        """Write the network to another file in the format of this one, or as `.pb`.

        Raises:
            FormatError: networks of this kind are not saved. SaveError: it cannot be written.
        """
        self.edit().save(path)

    def lines(self) -> list[str]:
        """The lines of its text: a fact each."""
        rows = [("file", self.path), ("kind", self.title)]
        rows += [("version", self.version)] if self.version else []
        rows += _limited("input", [str(port) for port in self.inputs])
        rows += _limited("output", [str(port) for port in self.outputs])
        if self.context is not None:
            rows.append(("context", "left {}, right {}".format(*self.context)))
        if self.subsampling is not None:
            rows.append(("subsampling", f"{self.subsampling} frames of input for one of output"))
        if self.parameters is not None:
            rows.append(("parameters", f"{self.parameters:,}"))
        rows += self.facts
        if self.types:
            ordered = sorted(self.types.items(), key=lambda pair: (-pair[1], pair[0]))
            types = [f"{count} {plain(name)}" for name, count in ordered[:_MOST_TYPES]]
            more = len(ordered) - _MOST_TYPES
            rows.append(("types", ", ".join(types) + (f" and {more} more" if more > 0 else "")))
        rows += _limited("unusual", self.unusual)
        rows += [("try" if not number else "", text) for number, text in enumerate(self.commands)]
        return [f"{name:{_WIDTH}}{text}" for name, text in rows]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _limited(name: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    rows = [(name, text) for text in texts[:_MOST_LINES]]
    more = len(texts) - _MOST_LINES
    return rows + ([(name, f"and {more} more")] if more > 0 else [])


def listed(names: Sequence[str]) -> str:
    """The first of some names."""
    more = len(names) - _MOST_NAMES
    shown = ", ".join(map(plain, names[:_MOST_NAMES]))
    return shown + (f" and {more} more" if more > 0 else "")


def not_finite(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """A line about arrays that hold NaN or infinities, if any do."""
    wrong = [
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    ]
    return [f"numbers that are infinite or NaN in {listed(wrong)}"] if wrong else []


def first_line(error: Exception) -> str:
    """An error in one line."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
