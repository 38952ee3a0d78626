"""Joining neighboring components of a trained network, so that it computes less.

    nnet = Nnet.read("final.raw")
    prepare_for_test(nnet)

An affine component takes in the affine one that it reads, unless that one reduces the dimension,
and the fixed scale after it. Source: `CollapseModel` in Kaldi's `nnet3/nnet-utils.cc`, with the
defaults of its options.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.errors import check_kind
from ..components import Component
from ..components.products.affine import AffineComponent, FixedAffineComponent
from ..components.scale_offset import FixedScaleComponent
from ..language.descriptor import (
    Descriptor,
    OffsetForwardingDescriptor,
    SimpleForwardingDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from ..language.descriptor_parse import parse_descriptor
from ..language.nodes import COMPONENT
from .adjust import set_batchnorm_test_mode, set_dropout_test_mode
from .nnet import Nnet

_MOST_ROUNDS = 10


def prepare_for_test(nnet: Nnet) -> tuple[int, int]:
    """Set test mode in batch-norm and dropout components, and join components.

    Args:
        nnet: is changed.

    Returns:
        As `collapse_model`.
    """
    check_kind(nnet, Nnet, "the network")
    set_batchnorm_test_mode(nnet, True)
    set_dropout_test_mode(nnet, True)
    return collapse_model(nnet)


def collapse_model(nnet: Nnet) -> tuple[int, int]:
    """Join components where that is possible.

    Args:
        nnet: is changed; what it computes stays the same.

    Returns:
        How many components were added, and how many removed.
    """
    from .editing.orphans import remove_orphan_components, remove_orphan_nodes

    before = len(nnet.components)
    for _ in range(_MOST_ROUNDS):
        numbers = {node.name: i for i, node in enumerate(nnet.nodes)}
        changed = [_collapse_node(nnet, i, numbers) for i in range(1, len(nnet.nodes))]
        if not any(changed):
            break
    added = len(nnet.components)
    remove_orphan_nodes(nnet)
    remove_orphan_components(nnet)
    nnet.check()
    return added - before, added - len(nnet.components)


def _collapse_node(nnet: Nnet, i: int, numbers: Mapping[str, int]) -> bool:
    """Join the component of node `i` with the one that it reads; whether it was done.

    Args:
        numbers: of the nodes by name.
    """
    node = nnet.nodes[i]
    feed = nnet.nodes[i - 1]
    if node.kind != COMPONENT or feed.descriptor is None:
        return False
    names = {_only_node(part) for part in feed.descriptor.parts}
    read = names.pop()
    if names or read is None or read not in numbers:
        return False
    j = numbers[read]
    if nnet.nodes[j].kind != COMPONENT:
        return False
    first = nnet.nodes[j].component
    second = node.component
    assert first is not None and second is not None, "both are nodes of components"
    joined = f"{first}.{second}"
    if joined not in nnet.components:
        component = _join(nnet.components[first], nnet.components[second])
        if component is None:
            return False
        nnet.components[joined] = component
    source = nnet.nodes[j - 1].descriptor
    assert source is not None
    node.component = joined
    feed.descriptor = _replaced(feed.descriptor, read, source)
    return True


def _only_node(part: SumDescriptor) -> str | None:
    """The node of `NODE` or `Offset(NODE, ...)`; None for all else."""
    inner = part.src if isinstance(part, SimpleSumDescriptor) else None
    if isinstance(inner, OffsetForwardingDescriptor):
        inner = inner.src
    if isinstance(inner, SimpleForwardingDescriptor) and inner.scale == 1:
        return inner.node
    return None


def _replaced(descriptor: Descriptor, node: str, source: Descriptor) -> Descriptor:
    """The descriptor with what `node` reads in place of `node`."""
    return parse_descriptor(str(descriptor.renamed({node: str(source)})))


def _join(first: Component, second: Component) -> Component | None:
    """A component that does what both do, one after the other, or None."""
    if isinstance(second, AffineComponent):
        if not isinstance(first, AffineComponent | FixedAffineComponent):
            return None
        if first.input_dim > first.output_dim:
            return None  # two small products cost less than a large one
        return _join_affine(first, second)
    if isinstance(first, AffineComponent) and isinstance(second, FixedScaleComponent):
        if first.output_dim != second.input_dim:
            return None
        joined = first.copy()
        joined.linear_params = first.linear_params * second.scales[:, None]
        joined.bias_params = first.bias_params * second.scales
        return joined
    return None


def _join_affine(
    first: AffineComponent | FixedAffineComponent, second: AffineComponent
) -> AffineComponent:
    """W2 (W1 x + b1) + b2; where the second reads several outputs of the first side by side, each
    of its blocks of columns meets W1."""
    rows = second.output_dim
    blocks = second.input_dim // first.output_dim
    # In float64, so that the parameters are the same whatever BLAS adds up first.
    linear = second.linear_params.reshape(rows, blocks, first.output_dim).astype(np.float64)
    weights = (linear @ first.linear_params.astype(np.float64)).reshape(rows, -1)
    bias = second.bias_params + (linear @ first.bias_params.astype(np.float64)).sum(1)
    joined = AffineComponent()
    joined.linear_params = np.ascontiguousarray(weights, np.float32)
    joined.bias_params = bias.astype(np.float32)
    joined.orthonormal_constraint = 0.0
    return joined
