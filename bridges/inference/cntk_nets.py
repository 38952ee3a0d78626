"""Networks of CNTK in inference form: what their lowering gives, with dense inputs.

A sample of CNTK's shape [d1 x ... x dk] is an array [dk, ..., d1]. An input with a dynamic axis is
[T, dk, ..., d1], the samples of one sequence, or, where nothing looks along the sequence,
[N, dk, ..., d1], any samples. Values are float32, of networks in double precision too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from ....cntk.lower import Lowered, Sparse, lower
from ....cntk.lower.emitter import dims, size
from ....cntk.lower.table import TABLE
from ....cntk.network.network import Network
from ....cntk.network.nodes.node import Node
from ....cntk.run.runtime import CntkNet
from ....framework.base.errors import VariableError, nearest
from ....framework.ir.desc import INPUT, make_op, make_var
from ....framework.ir.op_list import OpList, OpNode
from .checking import ExportError
from .net import Inference, inference_form


class CntkRun:
    """A network in inference form, and its own run.

    Args:
        net: it, with its values.
        outputs: names of nodes; by default the network's output nodes.

    Attributes:
        inference: what is exported. arrays: its parameters. one_hot: inputs of words, dense here.

    Raises:
        VariableError: there is no such node, or no output node.
        ExportError: positions in sequences that only values tell.
    """

    def __init__(self, net: CntkNet, outputs: Iterable[str] | None = None) -> None:
        net = net if net.dtype == np.float32 else _single(net)
        self._net = net
        self._roots = _roots(net.network, outputs)
        lowered = lower(net.network, self._roots, net.dtype)
        if lowered.conditions:
            node = lowered.conditions[0]
            raise ExportError(
                f"ONNX: {node.name} ({node.operation}): which rows it takes is known from values"
                " alone, so that nothing after it has a shape; export the network before it"
            )
        self.one_hot: Collection[str] = {
            node.name for node, sparse in lowered.inputs.items() if sparse
        }
        op_list, names = _dense(lowered, self._roots)
        form = inference_form(op_list, names)
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
        found = self._net.eval({n: [array] for n, array in inputs.items()}, self._roots)
        values: dict[str, np.ndarray] = {}
        for name, value in found.items():
            values[name] = np.asarray(value[0] if isinstance(value, list) else value)
        return values


def _single(net: CntkNet) -> CntkNet:
    """The network in float32, for which runtimes have all kernels."""
    made = CntkNet(net.network, dtype=np.float32)
    for name, node in net.network.nodes.items():
        if net.scope.find(node.name) is not None and (node.is_parameter or node.kind.precompute):
            made.set(name, net.get(name))
    return made


def _roots(network: Network, outputs: Iterable[str] | None) -> list[Node]:
    if outputs is None:
        found = [node for node in network.groups["output"] if not _is_criterion(node)]
        if not found:
            raise VariableError("ONNX: the network has no output nodes: name those to export")
        return found
    found = []
    for name in outputs:
        node = network.nodes.get(name)
        if node is None:
            hint = nearest(name, network.nodes)
            raise VariableError(f"ONNX: the network has no node {name!r}{hint}")
        found.append(node)
    return found


def _is_criterion(node: Node) -> bool:
    lowering = TABLE.get(node.operation)
    return lowering is not None and lowering.__module__.endswith("criteria")


def _dense(lowered: Lowered, roots: list[Node]) -> tuple[OpList, list[str]]:
    """The operators with dense inputs in place of sparse rows, and the variables of the outputs,
    which are called as their nodes are."""
    net = lowered.op_list.copy()
    rows = {Sparse.of(node.name): node for node, sparse in lowered.inputs.items() if sparse}
    gone = {name for sparse in rows for name in sparse.slots.values()}
    by_values = {sparse.values: node for sparse, node in rows.items()}
    net.ops = [made for op in net.ops for made in _without_sparse(op, by_values)]
    net.vars = [var for var in net.vars if var.name not in gone]
    for node in rows.values():
        dtype = next(v.dtype for v in lowered.op_list.vars if v.name == Sparse.of(node.name).values)
        net.vars.append(make_var(node.name, (-1, *dims(node)), dtype, INPUT))
    axes = {node.name: node.axis for node in lowered.inputs}
    net.vars = [
        var.changed(sequence_levels=1) if axes.get(var.name) in lowered.sequences else var
        for var in net.vars
    ]
    names: list[str] = []
    for node in roots:
        name = lowered.values[node]
        if name != node.name:
            net.ops.append(make_op("assign", {"x": name}, {"out": node.name}))
        names.append(node.name)
    return net, names


def _without_sparse(op: OpNode, inputs: Mapping[str, Node]) -> list[OpNode]:
    """An operator over sparse rows as operators over dense ones."""
    values = op.inputs.get("values")
    node = inputs.get(values[0]) if values else None
    if node is None or op.type not in ("cntk.sparse_times", "cntk.to_dense"):
        return [op]
    width = size(node)
    if op.type == "cntk.to_dense":
        shape = {"shape": (-1, int(op.attrs["width"]))}
        return [make_op("reshape", {"x": node.name}, dict(op.outputs), shape, source=op.source)]
    out = op.outputs["out"][0]
    parts, turned = int(op.attrs.get("parts", 1)), bool(op.attrs.get("transpose", False))
    cut, flat = f"{out}@ROWS", f"{out}@FLAT"
    rows = {"shape": (-1, width) if parts == 1 else (-1, parts, width // parts)}
    made = [make_op("reshape", {"x": node.name}, {"out": cut}, rows)]
    weights = op.inputs["w"][0]
    matrix = {"shape": (-1, width // parts) if turned else (width // parts, -1)}
    made.append(make_op("reshape", {"x": weights}, {"out": flat}, matrix))
    product = out if parts == 1 else f"{out}@PARTS"
    reads = {"x": cut, "y": flat}
    how = {"transpose_y": turned}
    made.append(make_op("matmul", reads, {"out": product}, how, source=op.source))
    if parts > 1:
        made.append(make_op("flatten", {"x": product}, {"out": out}, {"axis": 1}))
    return made
