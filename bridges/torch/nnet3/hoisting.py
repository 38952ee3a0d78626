"""Rows that recurrent layers read by more than offsets, computed by nodes of their own before.

A step of a loop reads rows of other nodes at offsets. `ReplaceIndex`, `Round`, `Switch` and
`Failover` of nodes outside become components that pass on what they read.
"""

from __future__ import annotations

import numpy as np

from ....nnet3.graph.loops import is_source
from ....nnet3.language.config import split_lines
from ....nnet3.language.descriptor import Descriptor, SumDescriptor
from ....nnet3.network.nnet import Nnet

_MORE_THAN_OFFSETS = ("ReplaceIndex(", "Round(", "Switch(", "Failover(")


def hoisted(nnet: Nnet) -> Nnet:
    """The network with such parts moved out of its loops; itself where there are none.

    It has the components of the network.
    """
    topology = nnet.topology()
    lines = list[str]()
    names = {node.name for node in nnet.nodes}
    for members, is_loop in topology.stages:
        if not is_loop or is_source(topology, members):
            continue
        inside = {topology.nodes[number].name for number in members}
        for number in members:
            node = topology.nodes[number]
            if node.kind != "descriptor" or node.is_output:
                continue
            parts = [str(part) for part in node.expression().parts]
            after = topology.nodes[number + 1]
            moved = False
            for place, part in enumerate(node.expression().parts):
                if not _is_moved(part, inside):
                    continue
                name = f"{after.name}.outside{place}"
                while name in names:
                    name += "_"
                names.add(name)
                columns = part.dim(topology.dims)
                lines += [
                    f"component name={name} type=NoOpComponent dim={columns}",
                    f"component-node name={name} component={name} input={part}",
                ]
                parts[place] = name
                moved = True
            if moved:
                whole = parts[0] if len(parts) == 1 else f"Append({', '.join(parts)})"
                line = f"component-node name={after.name} component={after.component_name}"
                lines.append(f"{line} input={whole}")
    if not lines:
        return nnet
    new = Nnet()
    new.components = dict(nnet.components)
    new.nodes = list(nnet.nodes)
    new.add_config(split_lines("\n".join(lines)), np.random.default_rng(0))
    return new


def _is_moved(part: SumDescriptor, inside: set[str]) -> bool:
    if not any(word in str(part) for word in _MORE_THAN_OFFSETS):
        return False
    return not inside & set(Descriptor((part,)).node_names())
