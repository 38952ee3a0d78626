"""The context of networks that read fixed frames: by adding up offsets, without following rows."""

from __future__ import annotations

import numpy as np

from ..language.descriptor import ForwardingDescriptor
from .topology import Topology, linear_leaf


def fixed_context(topology: Topology, modulus: int) -> tuple[int, int] | None:
    """Left and right context of `output` where all it needs are fixed offsets that must be there.

    None where that is not so: loops, rows that need not be there, times that are rounded.
    An iVector may be read at a fixed or a rounded time, which is given with every window.
    """
    inputs = topology.number("input"), topology.index.get("ivector")
    furthest: dict[int, tuple[int, int]] = {topology.number("output"): (0, 0)}
    for members, is_loop in reversed(topology.stages):
        for node in members:
            if node not in furthest or node in inputs:
                continue
            steps = _steps(topology, node, modulus)
            if is_loop or steps is None or topology.nodes[node].kind == "input":
                return None
            low, high = furthest[node]
            for source, offset in steps:
                before = furthest.get(source, (low + offset, high + offset))
                furthest[source] = min(before[0], low + offset), max(before[1], high + offset)
    low, high = furthest.get(inputs[0], (0, 0))
    return max(-low, 0), max(high, 0)


def _steps(topology: Topology, node: int, modulus: int) -> list[tuple[int, int]] | None:
    """The nodes that a node reads, at which offsets; None where they are not fixed.

    The iVector is left out.
    """
    if not topology.needs_all[node]:
        return None
    info = topology.nodes[node]
    ivector = topology.index.get("ivector")
    if info.kind != "descriptor":
        listed = topology.steps[node]
        if listed is None or any(x for _, _, x in listed):
            return None
        return [(source, t) for source, t, _ in listed]
    steps: list[tuple[int, int]] = []
    for leaf in info.expression().leaves():
        step = linear_leaf(leaf, topology.index)
        if step is not None and not step[2] and step[0] != ivector:
            steps.append(step[:2])
        elif ivector is None or not _is_within_window(leaf, ivector, topology, modulus):
            return None
    return steps


def _is_within_window(
    leaf: ForwardingDescriptor, ivector: int, topology: Topology, modulus: int
) -> bool:
    """Whether a leaf reads the iVector at time 0, or at most `modulus` frames back."""
    if [topology.index[name] for name, _ in leaf.scales()] != [ivector]:
        return False
    t = np.arange(2 * modulus)
    _, times, x = leaf.map_to_input(t, t * 0, topology.index)
    fixed = not np.any(times)
    return not np.any(x) and (fixed or bool(((times <= t) & (times >= t - modulus)).all()))
