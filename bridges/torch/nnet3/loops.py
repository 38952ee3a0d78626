"""Steps of recurrent layers, in which components are calls of PyTorch's layers.

What a step reads of other layers is computed before, for all times at once; so is the part of an
affine layer that does not depend on the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ....nnet3.graph.loops import Loop, Term
from ....nnet3.graph.topology import Topology
from ...nnet3_rows.components import WRITTEN, component_net
from ...nnet3_rows.plan import Plan
from ...nnet3_rows.steps import LoopStep, Product
from .layer import Layer
from .layers import affine_layer, linear_layer, recurrent_layer


class Layers(Protocol):
    """Makes the layers of a network's components; see `TorchWalk`."""

    plan: Plan
    topology: Topology

    def member(self, node: Any, layer: Layer) -> str: ...

    def chain(self, node: Any) -> list[tuple[Any, Layer, str]]: ...


@dataclass(frozen=True, eq=False)
class Outside(Product):
    """What the `RecurrentLinear` of an affine component reads outside of a loop.

    Attributes:
        parts: side by side, each a sum of terms. module: the text of the layer.
    """

    parts: tuple[tuple[Term, ...], ...] = ()
    module: str = ""


class TorchStep(LoopStep):
    """Writes the operators of a step. Arguments as `LoopStep`; the walk has the layers."""

    def __init__(self, walk: Layers, loop: Loop) -> None:
        self.walk = walk
        super().__init__(walk.topology, loop, "step", np.float32)

    def _layer(self, name: str, call: str, inputs: list[str], columns: int) -> str:
        return self.ops("rows.layer", inputs, name=name, call=call, columns=columns)

    def _called(self, name: str, layer: Layer, module: str, x: str, columns: int) -> str:
        call = layer.call.replace("{m}", module)
        if layer.over_time:  # for [N, columns, T] alone
            call = f"{call.replace('{x}', '{x}[:, :, None]')}[:, :, 0]"
        return x if call == "{x}" else self._layer(name, call, [x], columns)

    def _applied(self, number: int, parts: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        node = self.topology.nodes[number]
        for c, layer, module in self.walk.chain(node):
            if c.type in WRITTEN:
                net = component_net(c, node.name, 2)
                for name, attribute in net.parameters.items():
                    self.parameters[name] = module, attribute
                parts = self._written(net, parts)
            else:
                x = self._join(parts)
                called = self._called(node.name, layer, module, x, c.output_dim)
                parts = [(called, c.output_dim)]
        return parts

    def _affine(self, number: int) -> str:
        """An affine member: what it reads outside is multiplied before the loop."""
        node = self.topology.nodes[number]
        walk = self.walk
        nodes = (self.topology.nodes[each] for each in walk.plan.grids)
        users = [
            each
            for each in nodes
            if each.kind == "component" and each.component_name == node.component_name
        ]
        inside: list[tuple[str, int]] = []
        outside: list[tuple[Term, ...]] = []
        columns: tuple[list[int], list[int]] = [], []
        begin = 0
        parts = self.topology.nodes[number - 1].expression().parts
        for part, terms in zip(parts, self.loop.parts[number - 1], strict=True):
            size = part.dim(self.topology.dims)
            own = len(users) > 1 or any(t.node < 0 or self._is_inside(t) for t in terms)
            columns[own].extend(range(begin, begin + size))
            begin += size
            if own:
                inside.append((self._part(terms, size), size))
            else:
                outside.append(tuple(terms))
        if not outside:  # several users need one form of it
            c = node.component
            layer = affine_layer(c, 1) if len(users) > 1 else linear_layer(c)
            x = self._join(inside)
            module = walk.member(node, layer)
            return self._called(node.name, layer, module, x, node.dim)
        layer = recurrent_layer(node.component, *columns)
        module = walk.member(node, layer)
        before = Outside(node.name, (), None, tuple(outside), module)
        given = self._take(before, node.dim)
        if not inside:
            return given
        call = f"{module}({{x}}, {{y}})"
        x = [given, self._join(inside)]
        return self._layer(node.name, call, x, node.dim)
