"""What a checkpoint holds of ranks that train apart, so that a restart continues bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.scope import Scope
from ..lower.emitter import dims
from ..models.checkpoint import Checkpoint, LearnerStates, format_checkpoint, parse_checkpoint
from ..network.nodes.node import Node
from .blocks import block_states
from .ranks import Ranks


def saved_changes(scope: Scope, parameters: Sequence[Node]) -> list[np.ndarray]:
    """The last change of each parameter by block momentum, as a row; empty where there was none."""
    states = [scope.find(block_states(node.name)[1]) for node in parameters]
    return [var.numpy().reshape(1, -1).copy() for var in states if var is not None]


def take_changes(scope: Scope, parameters: Sequence[Node], saved: Sequence[np.ndarray]) -> None:
    """Go on from the changes of a checkpoint; from none where it holds none.

    Raises:
        FormatError: they belong to other parameters.
    """
    shapes = {node.name: dims(node) for node in parameters}
    if saved and [value.size for value in saved] != [math.prod(s) for s in shapes.values()]:
        raise FormatError("the checkpoint holds the block momentum of other parameters")
    for number, (name, shape) in enumerate(shapes.items()):
        change = block_states(name)[1]
        if saved:
            scope.var(change).set(np.array(saved[number], order="C").reshape(shape))
        elif (var := scope.find(change)) is not None:
            var.set(np.zeros_like(var.numpy()))


def own_states(state: Checkpoint, ranks: Ranks | None) -> Checkpoint:
    """A checkpoint with the learner's states of this rank, if it holds states of as many ranks as
    there are; otherwise all continue from the main rank's states."""
    if ranks is None or ranks.is_main or len(state.others) != ranks.count - 1:
        return state
    own = state.others[ranks.rank - 1]
    return replace(state, gradients=own.gradients, counts=own.counts)


def gather_states(state: Checkpoint, ranks: Ranks | None, epoch: int) -> None:
    """Put the states of all ranks into the main one's checkpoint, where each has its own."""
    if ranks is None or not ranks.keeps_own_states(epoch):
        return
    ranks.communicator.operator = "the states of the learners"
    parts = ranks.communicator.exchange(format_checkpoint(state))
    if ranks.is_main:
        others = map(parse_checkpoint, parts[1:])
        state.others = [LearnerStates(other.gradients, other.counts) for other in others]
