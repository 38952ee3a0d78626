"""Requests in one line, with ranges of frames.

input=-3:20 ivector=0 output=0:17           one sequence, n = 0
n=0:3 input=-3:20 output=0:17:3             four sequences; every third frame
input=0,-3:20;1,-3:9 output=0,0:17;1,0:6    sequences of their own lengths
input=-3:20/deriv output=0:17/deriv         derivatives of an input, given at an output
deriv input=-3:20 output=0:17               all derivatives, also of the model
"""

from __future__ import annotations

import re

import numpy as np

from ...framework.base.errors import FormatError, check_kind, nearest
from ..graph.request import ComputationRequest, IoSpecification
from ..graph.topology import Topology
from ..graph.topology_node import TopologyNode
from ..index.ranges import RangeError, parse_range, parse_rows
from .for_inference import Model, nnet_of

_FLAGS = ("need_model_derivative", "store_component_stats", "deriv")
_DERIV = "/deriv"
_LONGEST = 120


def parse_request(nnet: Model, text: str, where: str = "request") -> ComputationRequest:
    """The request that a line stands for.

    A word is one of these, and words stand in any order:

    - `NAME=ROWS`, rows that are given to an input node (or component node), or asked of an output
      node; `NAME=ROWS/deriv` with has_deriv. Rows are times, `-3:20` or `0:30:3`, of the sequences
      of `n=`, or they name their own: `0,-3:20`, `0:3,-3:20`, `0,0:4,0:39` for n, t and x. Several
      lists are joined by `;`. The rows of each sequence stand together; with `@` for the first
      comma, the rows of each time.
    - `n=0:3`, the sequences of all rows that name none; without it 0. For a node that is called `n`
      the rows name their sequences, in an `IoSpecification`.
    - `need_model_derivative`, `store_component_stats`: as the attributes of `ComputationRequest`.
    - `deriv`: has_deriv for all, and `need_model_derivative`.

    `str(request)` gives such a line.

    Args:
        nnet: a network, an acoustic model, or the path of a file that holds one.
        where: what messages call the text.

    Raises:
        FormatError: with the character: what is wrong, and the nearest names.

    Example:
        request = parse_request("final.mdl", "n=0:3 input=-3:20 output=0:17")
    """
    check_kind(text, str, where)
    return request_of_line(nnet_of(nnet).topology(), text, where)


def request_of_line(topology: Topology, text: str, where: str = "request") -> ComputationRequest:
    """As `parse_request`, for a topology.

    Raises:
        FormatError: as there.
    """
    return _Line(topology, text, where).request()


class _Line:
    """A line, and the place that is read."""

    def __init__(self, topology: Topology, text: str, where: str) -> None:
        self.topology = topology
        self.where = where
        self.words = [(match.start(), match.group()) for match in re.finditer(r"\S+", text)]

    def error(self, offset: int, message: str) -> FormatError:
        return FormatError(f"{self.where}, character {offset + 1}: {message}")

    def request(self) -> ComputationRequest:
        request = ComputationRequest()
        ns = self._sequences()
        everywhere = False
        for offset, word in self.words:
            name, equals, rows = word.partition("=")
            if not equals:
                if name not in _FLAGS:
                    raise self.error(offset, self._no_word(name))
                everywhere |= name == "deriv"
                setattr(request, _FLAGS[0] if name == "deriv" else name, True)
            elif name != "n":
                is_output = self._is_output(offset, name)
                listed = request.outputs if is_output else request.inputs
                if any(io.name == name for io in listed):
                    raise self.error(offset, f"'{name}' stands here a second time")
                listed.append(self._io(offset + len(name) + 1, name, rows, ns))
        if not request.outputs:
            raise self.error(0, f"no rows of an output are asked for; outputs: {self._outputs()}")
        for io in (*request.inputs, *request.outputs) if everywhere else ():
            io.has_deriv = True
        return request

    def _sequences(self) -> np.ndarray:
        """What `n=` says."""
        ns = None
        for offset, word in self.words:
            if word.startswith("n="):
                if ns is not None:
                    raise self.error(offset, "'n=' stands here a second time")
                try:
                    ns = parse_range(word[2:], "number n of a sequence")
                except RangeError as error:
                    raise self.error(offset + 2, str(error)) from None
        return np.zeros(1, np.int64) if ns is None else ns

    def _io(self, offset: int, name: str, rows: str, ns: np.ndarray) -> IoSpecification:
        plain = rows.removesuffix(_DERIV)
        if "/" in plain:
            place = offset + plain.index("/")
            raise self.error(place, f"'{_cut(plain[plain.index('/') :])}' should be '{_DERIV}'")
        try:
            return IoSpecification(name, parse_rows(plain, ns), plain != rows)
        except RangeError as error:
            raise self.error(offset + error.offset, str(error)) from None

    def _is_output(self, offset: int, name: str) -> bool:
        """Whether rows are asked of a node; else they are given to it."""
        topology = self.topology
        number = topology.index.get(name)
        if number is None:
            known = [node.name for node in topology.nodes if _may_stand(node)]
            raise self.error(
                offset, f"the network has no node '{_cut(name)}'{nearest(name, known)}"
            )
        node = topology.nodes[number]
        if not _may_stand(node):
            what = "is the input of a component" if node.kind == "descriptor" else "takes columns"
            raise self.error(
                offset,
                f"'{name}' {what}; rows are given to input and component nodes, and asked of"
                f" outputs: {self._outputs()}",
            )
        return node.is_output

    def _outputs(self) -> str:
        nodes = self.topology.nodes
        return _cut(", ".join(nodes[number].name for number in self.topology.outputs()))

    def _no_word(self, word: str) -> str:
        hint = nearest(word, [*_FLAGS, *self.topology.index])
        known = f"nor one of {', '.join(_FLAGS)}{hint}"
        return f"'{_cut(word)}' is neither NAME=ROWS, nor n=..., {known}"


def _may_stand(node: TopologyNode) -> bool:
    return node.is_output or node.kind in ("input", "component")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
