"""Networks of CNTK in inference form.

A sample of CNTK's shape [d1 x ... x dk] is an array [dk, ..., d1]. An input with a dynamic axis is
[T, dk, ..., d1], the samples of one sequence, or, where nothing looks along the sequence,
[N, dk, ..., d1], any samples. Values are float32, also in networks of double precision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from ...cntk.lower import Lowered, lower
from ...cntk.lower.emitter import dims
from ...cntk.lower.table import is_criterion
from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import VariableError, nearest
from ...framework.ir.desc import INPUT, make_op
from ...framework.ir.names import COPY_OP
from ...framework.ir.op_list import OpList
from .form import ExportError, Inference, inference_form


class CntkRun:
    """A network in inference form, and its own run.

    Args:
        net: it, with its values.
        outputs: names of nodes; by default the network's output nodes.
        use: what it is written to, for errors.

    Attributes:
        inference: what is exported. arrays: its parameters. one_hot: inputs of words, dense here.

    Raises:
        VariableError: there is no such node, or no output node.
        ExportError: positions in sequences that only values tell.
    """

    def __init__(
        self, net: CntkNet, outputs: Iterable[str] | None = None, use: str = "ONNX"
    ) -> None:
        net = net if net.dtype == np.float32 else _single(net)
        self._net = net
        self._roots = _roots(net.network, outputs, use)
        lowered = lower(net.network, self._roots, net.dtype, inference=True)
        if lowered.conditions:
            node = lowered.conditions[0]
            raise ExportError(
                f"{use}: {node.name} ({node.operation}): which rows it takes is known from values"
                " alone, so that nothing after it has a shape; export the network before it"
            )
        self.one_hot: Collection[str] = {
            node.name for node, sparse in lowered.inputs.items() if sparse
        }
        op_list, names = _declared(lowered, self._roots)
        form = inference_form(op_list, names, use)
        specs = dict(form.specs)
        for node, name in zip(self._roots, names, strict=True):
            if name not in specs:
                rows = () if node.axis is None else (-1,)
                specs[name] = ((*rows, *dims(node)), net.dtype)
        axes = {node.name: node.axis for node in lowered.inputs}
        named = {axes[name]: "T" for name in form.steps}
        if len(named) > 1:
            named = {axis: f"T_{axis.name if axis else 'none'}" for axis in named}
        steps = {name: named[axes[name]] for name in form.steps}
        self.inference: Inference = replace(form, specs=specs, steps=steps)
        self.arrays: dict[str, np.ndarray] = {
            name: np.full(one[0], one[2], one[1]) for name, one in lowered.states.items()
        }
        for var in self.inference.net.vars:
            held = net.scope.find(var.name)
            if held is not None and held.inner is not None and var.kind != INPUT:
                self.arrays[var.name] = held.numpy()

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of one sequence.

        Raises:
            OpscopeError: inputs that the network cannot take.
        """
        outputs = self._net.eval({n: [array] for n, array in inputs.items()}, self._roots)
        values: dict[str, np.ndarray] = {}
        for name, value in outputs.items():
            values[name] = np.asarray(value[0] if isinstance(value, list) else value)
        return values


def _single(net: CntkNet) -> CntkNet:
    """The network in float32, for which runtimes have all kernels."""
    single = CntkNet(net.network, dtype=np.float32)
    for name, node in net.network.nodes.items():
        if net.scope.find(node.name) is not None and (node.is_parameter or node.kind.precompute):
            single.set(name, net.get(name))
    return single


def _roots(network: Network, outputs: Iterable[str] | None, use: str) -> list[Node]:
    if outputs is None:
        nodes = [node for node in network.groups["output"] if not is_criterion(node)]
        if not nodes:
            raise VariableError(f"{use}: the network has no output nodes: name those to export")
        return nodes
    nodes = []
    for name in outputs:
        node = network.nodes.get(name)
        if node is None:
            hint = nearest(name, network.nodes)
            raise VariableError(f"{use}: the network has no node {name!r}{hint}")
        nodes.append(node)
    return nodes


def _declared(lowered: Lowered, roots: list[Node]) -> tuple[OpList, list[str]]:
    """The operators, with inputs that are sequences declared as such, and the variables of the
    outputs, which are called as their nodes are."""
    net = lowered.op_list.copy()
    axes = {node.name: node.axis for node in lowered.inputs}
    net.vars = [
        var.changed(sequence_levels=1) if axes.get(var.name) in lowered.sequences else var
        for var in net.vars
    ]
    names: list[str] = []
    for node in roots:
        name = lowered.values[node]
        if name != node.name:
            net.ops.append(make_op(COPY_OP, {"x": name}, {"out": node.name}))
        names.append(node.name)
    return net, names
