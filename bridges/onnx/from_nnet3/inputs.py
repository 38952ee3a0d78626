"""Networks whose inputs have names of their own: all side by side, as an `input` and an `ivector`.

What has a row for each frame becomes columns of `input`, what is read at time 0 alone columns of
`ivector`; both are cut again inside of the network. So contexts, edges and streams are as ever.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ....framework.base.errors import OpscopeError
from ....nnet3.language.nodes import DIM_RANGE, INPUT, NetworkNode
from ....nnet3.network.nnet import Nnet
from ...nnet3_rows.reads import reads_of

MOVING, STILL = "input", "ivector"


@dataclass(frozen=True)
class Inputs:
    """The inputs of a network.

    Attributes:
        moving: names and columns of those with a row for each frame, [N, T, columns].
        still: of those with one row for all, [N, columns].
    """

    moving: tuple[tuple[str, int], ...]
    still: tuple[tuple[str, int], ...]

    @property
    def are_usual(self) -> bool:
        """Whether they are `input` and at most `ivector`."""
        names = [name for name, _ in (*self.moving, *self.still)]
        return names in ([MOVING], [MOVING, STILL])

    def joined(self, given: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """The `input` and the `ivector` of a network that `joined_inputs` made."""
        moving, still = (
            [np.asarray(given[name], np.float32) for name, _ in names]
            for names in (self.moving, self.still)
        )
        return np.concatenate(moving, axis=-1), np.concatenate(still, axis=-1) if still else None


def joined_inputs(nnet: Nnet) -> tuple[Nnet, Inputs]:
    """The network with an `input` and at most an `ivector`, itself where that is so already."""
    listed = [(node.name, node.dim) for node in nnet.inputs()]
    names = {name for name, _ in listed}
    usual = MOVING in names and names <= {MOVING, STILL}
    still = names & {STILL} if usual else _still(nnet, names)
    inputs = Inputs(
        tuple(each for each in listed if each[0] not in still),
        tuple(each for each in listed if each[0] in still),
    )
    if usual:
        return nnet, inputs
    if not inputs.moving:
        raise OpscopeError("the network has no input with a row for each frame")
    used = {node.name for node in nnet.nodes}
    renamed = {name: _free(name, used) for name in (MOVING, STILL) if name in used}
    joined = Nnet()
    joined.components = dict(nnet.components)
    ranges: dict[str, NetworkNode] = {}
    for whole, parts in ((MOVING, inputs.moving), (STILL, inputs.still)):
        dims = [dim for _, dim in parts]
        if parts:
            joined.nodes.append(NetworkNode(whole, INPUT, dim=sum(dims)))
        for (name, dim), end in zip(parts, accumulate(dims), strict=True):
            own = renamed.get(name, name)
            place = {"source": whole, "dim_offset": end - dim}
            ranges[name] = NetworkNode(own, DIM_RANGE, dim=dim, **place)
    for node in nnet.nodes:
        node = ranges.get(node.name) or copy.copy(node)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(renamed)
        if node.kind == DIM_RANGE and node.name not in {each.name for each in ranges.values()}:
            node.source = renamed.get(node.source, node.source)
        joined.nodes.append(node)
    return joined, inputs


def _free(name: str, used: set[str]) -> str:
    free = f"{name}.own"
    while free in used:
        free += "_"
    return free


def _still(nnet: Nnet, names: set[str]) -> set[str]:
    """The inputs that are read at time 0 alone; `ivector` always."""
    topology = nnet.topology()
    moving: set[str] = set()
    read: set[str] = set()
    for node in topology.nodes:
        if node.kind == "dim-range":
            moving.add(topology.nodes[node.source].name)
        if node.kind != "descriptor":
            continue
        for leaf in (leaf for part in node.expression().parts for leaf in part.leaves()):
            for each in reads_of(leaf, topology.index):
                name = topology.nodes[each.node].name
                read.add(name)
                if each.at != 0:
                    moving.add(name)
    return {name for name in names if name == STILL or (name in read and name not in moving)}
