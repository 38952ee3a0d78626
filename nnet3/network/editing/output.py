"""Another number of outputs: replaces the last affine component of a network."""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError, ShapeError, nearest
from ....framework.editing.operations import NewOutput
from ...components.base.initial import normal
from ...components.products.affine import AffineComponent, LinearComponent
from ...language.nodes import COMPONENT, NetworkNode, input_name
from ..nnet import Nnet
from .structure import configured_component

_FREE_OF_PARAMETERS = ("LogSoftmaxComponent", "SoftmaxComponent", "NoOpComponent")
"""Types between the affine component and the output that any dimension suits."""


def new_output(nnet: Nnet, edit: NewOutput) -> str:
    """Replace the affine component that the output reads, directly or through a softmax. The new
    one keeps its settings of training.

    Raises:
        FormatError: what the output reads is something else, or others also read it.
    """
    output = _output(nnet, edit.output)
    chain = _chain(nnet, output)
    last = chain[-1]
    old = nnet.components[last.component]
    assert isinstance(old, AffineComponent | LinearComponent)
    if edit.size < 1:
        raise ShapeError(f"size={edit.size}: an output has at least one column")
    before = old.output_dim
    new = old.copy()
    rng = np.random.default_rng(edit.seed)
    stddev = old.input_dim**-0.5 if edit.random else 0.0
    weights = normal(rng, (edit.size, old.input_dim), stddev)
    if isinstance(new, LinearComponent):
        new.params = weights
    else:
        new.linear_params = weights
        new.bias_params = np.zeros(edit.size, np.float32)
    nnet.components[last.component] = new
    for node in chain[:-1]:
        kind = nnet.components[node.component].type
        sizes = {"dim": edit.size, "input-dim": edit.size, "output-dim": edit.size}
        nnet.components[node.component] = configured_component(node.component, kind, {}, sizes)
    nnet.check()
    return f"Replaced {last.component}: output {output.name} has {edit.size} columns, not {before}."


def _output(nnet: Nnet, name: str) -> NetworkNode:
    outputs = {node.name: node for node in nnet.outputs()}
    if not name and len(outputs) > 1:
        raise FormatError(f"say which output: {', '.join(outputs)}")
    name = name or next(iter(outputs))
    if name not in outputs:
        raise FormatError(f"there is no output {name!r}{nearest(name, outputs)}")
    return outputs[name]


def _chain(nnet: Nnet, output: NetworkNode) -> list[NetworkNode]:
    """The component nodes from an output back to the affine one, that one last."""
    chain: list[NetworkNode] = []
    feed = output
    while True:
        read = str(feed.descriptor)
        node = nnet.node(read) if nnet.has_node(read) else None
        if node is None or node.kind != COMPONENT:
            raise FormatError(
                f"{feed.name!r} reads {read}, which is no affine layer that could be replaced"
            )
        others = [n.name for n in nnet.nodes if _reads(n, read) and n is not feed]
        others += [n.name for n in nnet.nodes if n.component == node.component and n is not node]
        if others:
            raise FormatError(
                f"{read!r} is the output's, and also used by {', '.join(others)}: its size cannot"
                " change for one of them"
            )
        chain.append(node)
        component = nnet.components[node.component]
        if isinstance(component, AffineComponent | LinearComponent):
            return chain
        if component.type not in _FREE_OF_PARAMETERS:
            raise FormatError(
                f"{read!r} ({component.type}) stands between output {output.name!r} and its affine"
                f" layer, and has {component.output_dim} columns of its own"
            )
        feed = nnet.node(input_name(read))


def _reads(node: NetworkNode, name: str) -> bool:
    return node.source == name or (
        node.descriptor is not None and name in node.descriptor.node_names()
    )
