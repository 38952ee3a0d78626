"""CNTK's networks: nodes below the outputs are layers, one sequence is fed."""

from __future__ import annotations

import numpy as np

from ...cntk.lower.emitter import dims
from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...cntk.run.runtime import CntkNet
from ...cntk.run.values import minibatch_of
from ...framework.base.dtypes import DOUBLE, SINGLE, to_dtype
from ...framework.base.errors import VariableError
from .layers import Computed, Feed, InputSpec, Layer, Wanted
from .op_nets import options_of


class CntkNetwork:
    """A network in test mode; see `Form`. A sample of [d1 x ... x dk] is [dk, ..., d1]."""

    kind = "cntk"

    def __init__(self, network: Network, title: str, wanted: Wanted) -> None:
        self.title = title
        self._runtime = wanted.runtime
        dtype = to_dtype(wanted.dtype) if wanted.dtype else None
        if dtype not in (None, SINGLE, DOUBLE):
            raise VariableError(
                f"{title}: networks of CNTK's run in float32 or float64, not {dtype}"
            )
        self._net = CntkNet(network, dtype=dtype)
        self.dtype = self._net.dtype
        self._outputs = network.groups["output"]
        if not self._outputs:
            raise VariableError(f"{title}: the network has no output nodes, so nothing is run")
        self._below = network.below(self._outputs)

    def inputs(self) -> list[InputSpec]:
        """See `Form`."""
        return [
            InputSpec(
                node.name,
                (-1, *dims(node)),
                self.dtype,
                one_hot=node.operation == "SparseInputValue",
            )
            for node in self._below
            if node.is_input
        ]

    def compute(self, feed: Feed) -> Computed:
        """See `Form`."""
        shown = [node for node in self._below if not (node.is_input or _is_constant(node))]
        data = {name: [np.asarray(array, self.dtype)] for name, array in feed.items()}
        with options_of(self._runtime):
            values = self._net.forward(minibatch_of(self._net.network, data), shown)
        layers = {}
        for node in shown:
            reads = tuple(each.name for each in node.inputs)
            value = np.array(values[node.name].data)
            is_output = node in self._outputs
            layers[node.name] = Layer(node.name, node.operation, value, reads, is_output)
        return Computed(layers)


def _is_constant(node: Node) -> bool:
    """Whether a node has a value of its own: a parameter, or statistics."""
    return node.is_parameter or node.kind.precompute
