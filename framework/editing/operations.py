"""The edits of a network, one class each: the vocabulary that all languages of edits share.

An edit says what is to be done, in names and patterns, and nothing of how. A kind of network
carries edits out by a table of functions; what is not in its table it refuses by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import OpscopeError, VariableError

Given = str | np.ndarray
"""An input of a new operator: the name of a value, or the numbers of a new parameter."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of a network.

    Attributes:
        must_match: patterns that no name matches are an error; otherwise a warning.
    """

    must_match: bool = True

    @property
    def title(self) -> str:
        """What errors call it: `low-rank`."""
        letters = (f"-{c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return "".join(letters).removeprefix("-")


@dataclass(frozen=True)
class Rename(Edit):
    """Nodes get other names, also where they are read; `a*` to `b*` keeps what the star matches.

    Attributes:
        old, new: names, or patterns.
        same_place: as in MEL, names begin, and end, with a star in both patterns or in none.
    """

    old: str
    new: str
    same_place: bool = False


@dataclass(frozen=True)
class Remove(Edit):
    """Nodes go.

    Attributes:
        names: of nodes, or patterns.
        outputs_only: the patterns are of outputs, of which one must stay.
        bypass: who reads a removed node reads what that one read.
    """

    names: tuple[str, ...]
    outputs_only: bool = False
    bypass: bool = False


@dataclass(frozen=True)
class RemoveOrphans(Edit):
    """What no output needs goes.

    Attributes:
        nodes: nodes go.
        inputs: inputs also go.
        parameters: components and parameters that no node uses go.
    """

    nodes: bool = True
    inputs: bool = False
    parameters: bool = True


@dataclass(frozen=True)
class Replace(Edit):
    """A node computes something else with the same inputs, under its name.

    Attributes:
        name: of the node.
        type: of the new component, operation or operator.
        settings: its keys or attributes.
    """

    name: str
    type: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Insert(Edit):
    """A new node, after another one (all that read that one read the new one) or before it.

    Attributes:
        name: of the new node.
        type: of its component, operation or operator.
        after, before: the node at which it is put; one of the two.
        settings: keys or attributes.
        inputs: what it reads, by slot or in order; empty: the one value that is at this place.
        seed: of random parameters.
    """

    name: str
    type: str
    after: str = ""
    before: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Given] | Sequence[Given] = ()
    seed: int = 0


@dataclass(frozen=True)
class Connect(Edit):
    """A node reads something else.

    Attributes:
        name: of the node.
        inputs: all that it reads; with a `number` the one that is read there.
        number: of the input, from 0; -1: all.
    """

    name: str
    inputs: tuple[str, ...]
    number: int = -1


@dataclass(frozen=True)
class Cut(Edit):
    """The part of a network between some nodes stays, all else goes.

    Attributes:
        inputs: nodes that become inputs, by the names of these; the network's own stay as far as
            outputs need them.
        outputs: nodes that become the outputs, by the names of these; empty: those it has.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NewOutput(Edit):
    """The last affine layer before an output is replaced by one with another number of outputs.

    Attributes:
        size: how many.
        output: its name; "": the only one.
        random: weights are small random numbers; otherwise zeros, as in Kaldi's recipes.
        seed: of these.
    """

    size: int
    output: str = ""
    random: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Freeze(Edit):
    """Parameters are not trained.

    Attributes:
        names: of components, parameters, or patterns.
        fixed: they become constants of a type that has no training at all.
    """

    names: tuple[str, ...]
    fixed: bool = False


@dataclass(frozen=True)
class Unfreeze(Edit):
    """Parameters are trained again, with the factor 1."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class SetRate(Edit):
    """The learning rate of parameters, before their own factors."""

    names: tuple[str, ...]
    rate: float


@dataclass(frozen=True)
class SetFactor(Edit):
    """The factor of learning rates that are set later.

    Attributes:
        names: of components or parameters, or patterns.
        factor: not negative.
        below: nodes are meant by the names, and all parameters that they are computed from.
    """

    names: tuple[str, ...]
    factor: float
    below: bool = False


@dataclass(frozen=True)
class SetDropout(Edit):
    """The share that dropout drops, 0 to 1."""

    names: tuple[str, ...]
    proportion: float


@dataclass(frozen=True)
class LowRank(Edit):
    """Matrices become products of two smaller ones, by their singular value decompositions.

    Attributes:
        names: of components or parameters, or patterns.
        rank: singular values that are kept; 0: `keep` says it.
        keep: as many are kept as hold this share, below 1, of the sum of their squares.
        shrinkage: a matrix stays whole unless its two parts have at most this share of its numbers.
        factors: two layers take the place of one; otherwise the matrix is the nearest one of the
            rank, and stays one.
        small_stay: as in Kaldi, matrices stay whole that have no side above the rank; with `keep`
            above the one that was found last.
    """

    names: tuple[str, ...]
    rank: int = 0
    keep: float = 0.0
    shrinkage: float = float("inf")
    factors: bool = True
    small_stay: bool = False


@dataclass(frozen=True)
class SetRole(Edit):
    """Nodes get a role (`output`, `criterion`, ...) or lose it."""

    names: tuple[str, ...]
    role: str
    on: bool


@dataclass(frozen=True)
class SetProperty(Edit):
    """A property that only one kind of network has.

    Attributes:
        names: of nodes.
        property: its name.
        value: the new one.
        below: the parameters are meant that the nodes are computed from.
    """

    names: tuple[str, ...]
    property: str
    value: float | bool
    below: bool = False


@dataclass(frozen=True)
class Copy(Edit):
    """Nodes are copied, by MEL's rules for pairs of names.

    Attributes:
        old, new: names or patterns.
        links: copies read the copies of inputs.
        content: attributes and values are also copied.
        below: all that a node is computed from is also copied; `new` stands before the names.
        source: the network that is copied from; None: the one that is edited.
    """

    old: str
    new: str
    links: bool = True
    content: bool = True
    below: bool = False
    source: Any = None


@dataclass(frozen=True)
class SetValue(Edit):
    """A parameter gets other numbers, as many as it has."""

    name: str
    value: np.ndarray


Performers = Mapping[type[Edit], Callable[[Any, Any], str]]
"""How a kind of network carries out edits: each function changes the network, and tells in one
sentence what was done."""


def perform_by(table: Performers, reasons: Mapping[type[Edit], str], net: Any, edit: Edit) -> str:
    """Carry out an edit by the table of a kind of network.

    Args:
        reasons: why edits are not in the table, a half-sentence each.

    Raises:
        VariableError: the kind cannot do this.
        OpscopeError: the edit does not fit the network, which may be half changed then.
    """
    if type(edit) not in table:
        why = reasons.get(type(edit), "it has nothing of that sort")
        raise VariableError(f"the edit {edit.title!r} is not for this kind of network: {why}")
    return table[type(edit)](net, edit)


def told_by(error: OpscopeError, edit: Edit) -> OpscopeError:
    """The error with the name of the edit in front."""
    text = str(error)
    if text.startswith(f"{edit.title}: "):
        return error
    named = type(error)(f"{edit.title}: {text}")
    vars(named).update(vars(error))
    return named
