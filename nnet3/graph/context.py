"""How much context a simple network needs. Source: `ComputeSimpleNnetContext` in Kaldi's
`nnet3/nnet-utils.cc`."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.untrusted.limits import check_limit
from .computable import COMPUTABLE, Explorer
from .fixed_context import fixed_context
from .topology import Topology

_FIRST_WINDOW = 40
_LAST_WINDOW = 800
_FEW_FRAMES = 8


def simple_context(topology: Topology, modulus: int) -> tuple[int, int]:
    """Frames of left and right context of `output`, at the worst of all shifts of t.

    Where not all is read at fixed offsets, a window of input frames is given, and the outputs
    within it that can be computed are looked for; where there are none the window is doubled.

    Raises:
        ShapeError: no window was large enough.
    """
    check_limit("period", modulus, "the period after which the network repeats itself")
    fixed = fixed_context(topology, modulus)
    if fixed is not None and sum(fixed) < _LAST_WINDOW // 2:
        return fixed
    return explored_context(topology, modulus)


def explored_context(topology: Topology, modulus: int) -> tuple[int, int]:
    """The same by following rows, as Kaldi does; see `simple_context`."""
    window = _FIRST_WINDOW
    while window < _LAST_WINDOW:
        contexts = [_context(topology, modulus, start, window) for start in range(modulus + 1)]
        known = [context for context in contexts if context is not None]
        if len(known) == len(contexts):
            return max(left for left, _ in known), max(right for _, right in known)
        window *= 2
    raise ShapeError(f"the context of the network is above {window // 2} frames, or none is enough")


def _context(topology: Topology, modulus: int, start: int, window: int) -> tuple[int, int] | None:
    """Contexts at one shift, or None where no output of the window can be computed."""
    times = range(start, start + window)
    source, target = topology.number("input"), topology.number("output")
    inputs = [(source, t, 0) for t in times]
    if "ivector" in topology.index:
        ivector = topology.number("ivector")
        inputs += [(ivector, t, 0) for t in range(start - modulus, start + window)]
    explorer = Explorer(topology, inputs, [(target, t, 0) for t in times])
    computable = [explorer.state[row] == COMPUTABLE for row in explorer.outputs]
    if True not in computable:
        return None
    first = computable.index(True)
    if False not in computable[first:]:
        return first, 0
    return first, window - computable.index(False, first)


def reads_further(
    topology: Topology, modulus: int, left: int, right: int, back: bool = False
) -> bool:
    """Whether outputs change where more input follows than the right context.

    So it is with recurrence from the future, statistics over all there is, and the like.

    Args:
        left, right: the network's context.
        back: more input also comes before the left context.
    """
    if fixed_context(topology, modulus) is not None:
        return False
    frames = -(-_FEW_FRAMES // modulus) * modulus
    times = np.arange(frames)
    furthest = 0
    ivector = topology.index.get("ivector")
    for node in range(len(topology)):
        for read, t, _ in topology.dependencies(node, times, times * 0):
            if np.any((np.asarray(read) == ivector) & (t != 0)):
                return True  # a chunk is given the iVector at time 0 only
            furthest = max(furthest, int((abs(t - times) if back else t - times).max()))
    source, target = topology.number("input"), topology.number("output")
    reads = []
    for more in (0, frames + furthest):
        before = more if back else 0
        inputs = [(source, t, 0) for t in range(-left - before, frames + right + more)]
        if "ivector" in topology.index:
            ivector = topology.number("ivector")
            begin = -left - modulus - before
            inputs += [(ivector, t, 0) for t in range(begin, frames + right + more)]
        explorer = Explorer(topology, inputs, [(target, t, 0) for t in range(frames)])
        used = {row: explorer.used(row) for row in explorer.required()[len(inputs) :]}
        rows = explorer.rows
        reads.append({rows[row]: {rows[one] for one in read} for row, read in used.items()})
    return reads[0] != reads[1]
