"""What a network gives and takes: values of nodes, and minibatches made of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...framework.base.errors import ShapeError, VariableError, nearest
from ...framework.base.sequence import offsets_of
from ..lower.emitter import dims, size
from ..network.network import Network
from ..network.nodes.node import Node
from ..readers.base.data import Samples
from ..readers.base.layout import Layout
from ..readers.base.pack import Minibatch

Data = ArrayLike | Sequence[ArrayLike] | Samples


@dataclass(frozen=True, eq=False)
class NodeValue:
    """The value of a node.

    Attributes:
        data: [rows, dk, ..., d1] for a node with a dynamic axis (the rows of all sequences, one
            after the other), else [dk, ..., d1], where CNTK's shape is [d1 x ... x dk].
        offsets: where each sequence begins, [sequences + 1]; None without a dynamic axis.
        layout: where the rows lie in the minibatch; None without a dynamic axis.
        shape: of a sample, in CNTK's order.
    """

    data: np.ndarray
    offsets: np.ndarray | None
    layout: Layout | None
    shape: tuple[int, ...]

    @property
    def scalar(self) -> float:
        """The number that a criterion is.

        Raises:
            ShapeError: the value has more than one element.
        """
        if self.data.size != 1:
            raise ShapeError(f"a value of {self.data.size} elements is no number")
        return float(self.data.reshape(()))

    @property
    def total(self) -> float:
        """The sum of all elements: of a criterion that has samples the sum over them."""
        return float(self.data.sum(dtype=np.float64))

    def sequences(self) -> list[np.ndarray]:
        """The rows of each sequence."""
        if self.offsets is None:
            return [self.data]
        return np.split(self.data, self.offsets[1:-1])


def minibatch_of(network: Network, data: Mapping[str, Data]) -> Minibatch:
    """A minibatch of arrays, see `CntkNet.eval`.

    Raises:
        VariableError: the network has no such input. ShapeError: an array does not fit its input.
    """
    inputs = {node.name.lower(): node for node in network.nodes.values() if node.is_input}
    streams = {}
    for name, given in data.items():
        node = inputs.get(name.lower())
        if node is None:
            known = [node.name for node in inputs.values()]
            raise VariableError(
                f"the network has no input {name!r}{nearest(name, known)}; it has"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        streams[node.name] = given if isinstance(given, Samples) else _samples(node, given)
    return Minibatch(streams)


def result_of(value: NodeValue, in_lists: bool) -> np.ndarray | list[np.ndarray]:
    """The value of a node as `CntkNet.eval` gives it."""
    return value.sequences() if in_lists and value.offsets is not None else value.data


def in_lists(data: Iterable[Data]) -> bool:
    """Whether some input is given as a list of sequences."""
    return any(isinstance(given, (list, tuple, Samples)) for given in data)


def whole_gradient(values: np.ndarray, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient of this shape of which only some rows are given."""
    whole = np.zeros(shape, values.dtype)
    np.add.at(whole, rows, values)
    return whole


def _samples(node: Node, given: ArrayLike | Sequence[ArrayLike]) -> Samples:
    if isinstance(given, (list, tuple)):
        parts = [_array(node, part) for part in given]
        lengths = np.array([len(part) for part in parts], np.int64)
        if not parts:
            raise node.error("there is no sequence")
    else:
        parts = [_array(node, given)]
        lengths = np.ones(len(parts[0]), np.int64)
    begin = np.asarray(offsets_of(lengths), np.int64)
    words = [part.ndim == 1 and size(node) > 1 for part in parts]
    if all(words):
        indices = np.concatenate(parts).astype(np.int64)
        _check_words(node, indices)
        return Samples(
            begin, np.ones(len(indices), np.float32), indices, np.arange(len(indices) + 1)
        )
    if any(words):
        raise node.error("some sequences are numbers of words and others are samples")
    return Samples(begin, np.concatenate([part.reshape(len(part), size(node)) for part in parts]))


def _array(node: Node, given: Any) -> np.ndarray:
    """One array of samples [rows, dk, ..., d1] or [rows, elements], or of words [rows]."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise node.error(f"what is given is no array: {error}", ShapeError) from None
    if array.dtype.kind not in "fiub":
        raise node.error(f"what is given holds {array.dtype}, not numbers")
    wanted = (size(node),), tuple(dims(node))
    words = array.ndim == 1 and (array.dtype.kind in "iu" or size(node) == 1)
    if array.ndim and (words or array.shape[1:] in wanted):
        return array
    shown = " or ".join(f"[rows, {', '.join(map(str, one))}]" for one in dict.fromkeys(wanted))
    raise node.error(
        f"an array of {list(array.shape)} is given; {shown} is needed, or whole numbers [rows], one"
        " for the element of each sample that is 1; a list holds one array for each sequence"
    )


def _check_words(node: Node, indices: np.ndarray) -> None:
    wrong = indices[(indices < 0) | (indices >= size(node))]
    if len(wrong):
        raise node.error(f"there is no element {wrong[0]} of {size(node)}")
