"""The sum over all paths through labels with blanks between them, in logarithms.

Source: A. Graves et al., Connectionist temporal classification (ICML 2006), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NEVER = -1e30
"""Logarithm of a probability of 0: finite, so that differences of two are no NaN."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Labels with blanks around them, a row for each sequence, which has one step or more.

    Attributes:
        lengths: steps of each sequence, [B]. states: states of each, 2 labels + 1, [B].
        symbols: class of each state, [B, most states]; blanks after the last.
        skip: whether a state may follow the one before the last, [B, most states].
    """

    lengths: Any
    states: Any
    symbols: Any
    skip: Any


def skips(xp: Any, symbols: Any, blank: int) -> Any:
    """Whether a state may follow the one before the last: a label, and not the same one."""
    skip = xp.zeros(symbols.shape, bool)
    # Between two equal labels the blank must be spoken, or they would be read as one.
    skip[:, 2:] = (symbols[:, 2:] != blank) & (symbols[:, 2:] != symbols[:, :-2])
    return skip


def occupation(xp: Any, paths: Paths, scores: Any) -> tuple[Any, Any, Any]:
    """Sums over all paths of each sequence.

    Args:
        scores: log probability of each state at each step, [T, B, most states].

    Returns:
        Logarithm of the probability of all paths [B]; whether there is any [B]; and the probability
        of each state at each step, [T, B, most states], 0 where there is no path or no step.
    """
    steps, count, states = scores.shape
    # Logarithms throughout: probabilities of long paths underflow.
    alpha = _forward(xp, paths, scores)
    places = xp.arange(count)
    # Sequences end at different steps: each is read off at its own.
    final = alpha[paths.lengths - 1, places]
    last = final[places, paths.states - 1]
    before = final[places, xp.maximum(paths.states - 2, 0)]
    # A path ends in the last label or in the blank after it. Without labels there is only one
    # state, which must not count twice.
    whole = xp.where(paths.states > 1, xp.logaddexp(last, before), last)
    # Sums of finite stand-ins for minus infinity drift, so the test has room on both sides.
    possible = whole > NEVER / 2
    ends = xp.full((count, states), NEVER)
    ends[places, paths.states - 1] = 0
    ends[places, xp.maximum(paths.states - 2, 0)] = 0
    jump = xp.full((count, states), NEVER)
    jump[:, :-2][paths.skip[:, 2:]] = 0
    # Two more columns that stay at NEVER: states are shifted by slices, with no case for the edge.
    after = xp.full((count, states + 2), NEVER)
    known = possible[:, None]
    for step in range(steps - 1, -1, -1):
        further = xp.logaddexp(after[:, :-2], after[:, 1:-1])
        further = xp.logaddexp(further, after[:, 2:] + jump)
        # From the back each sequence begins at its own end, whatever the longer ones hold by then.
        beta = xp.where((paths.lengths == step + 1)[:, None], ends, xp.maximum(further, NEVER))
        after[:, :-2] = beta + scores[step]
        # A probability is at most 1; rounding may put the exponent a little above 0.
        share = xp.exp(xp.minimum(alpha[step] + beta - whole[:, None], 0))
        # Over alpha itself, of which this step is not read again: no second array of its size.
        alpha[step] = share * (known & (paths.lengths > step)[:, None])
    return whole, possible, alpha


def _forward(xp: Any, paths: Paths, scores: Any) -> Any:
    """Logarithm of the probability of a state with all before it, [T, B, most states]."""
    alpha = xp.full(scores.shape, NEVER)
    # A path begins with a blank or with the first label.
    alpha[0, :, :2] = scores[0, :, :2]
    jump = xp.where(paths.skip, 0, NEVER)
    before = xp.full((scores.shape[1], scores.shape[2] + 2), NEVER)
    for step in range(1, len(scores)):
        before[:, 2:] = alpha[step - 1]
        here = xp.logaddexp(before[:, 2:], before[:, 1:-1])
        here = xp.logaddexp(here, before[:, :-2] + jump)
        # Held at the floor, or the stand-in would run off to minus infinity over many steps.
        xp.maximum(here + scores[step], NEVER, out=alpha[step])
    return alpha
