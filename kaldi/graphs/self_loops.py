"""Self-loops of HMM states, added to graphs of the transitions that leave them.

Source: Kaldi's `AddSelfLoops` in `hmm/hmm-utils.cc`, `MakePrecedingInputSymbolsSameClass` and
`MakeFollowingInputSymbolsSameClass` in `fstext/fstext-utils-inl.h`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import repeated
from ..fst.algorithms.operations import add_arcs
from ..fst.fst import Fst
from .hmms import TransitionCosts
from .nonterminals import FIRST_LABEL


def add_self_loops(
    fst: Fst,
    hmms: TransitionCosts,
    scale: float = 1.0,
    symbols: Collection[int] = (),
    *,
    reorder: bool = True,
) -> Fst:
    """With a loop at each state that a transition leads into, or with `reorder=False` out of.

    Args:
        fst: from transition-ids that are no self-loops; disambiguation symbols and labels of
            nonterminals pass.
        scale: of the probabilities of staying in a state or leaving it.

    Raises:
        FormatError: an input label is something else.
    """
    state_of = _states_of(fst.ilabel, hmms, symbols)
    add = _loops_after if reorder else _loops_before
    return add(fst, state_of, hmms, np.float32(scale))


def _states_of(labels: np.ndarray, hmms: TransitionCosts, symbols: Collection[int]) -> np.ndarray:
    """The transition state of each label; 0: it is no transition-id."""
    is_id = labels < hmms.count
    ids = np.where(is_id, labels, 0)
    known = is_id | (labels >= FIRST_LABEL) | np.isin(labels, list(symbols))
    if not known.all():
        raise FormatError(
            f"the input label {labels[~known][0]} is no transition-id of the model, which has"
            f" {hmms.count - 1}, and no disambiguation symbol"
        )
    states = np.array(hmms.state_of, np.int32)[ids]
    if ((np.array(hmms.loop, np.int32)[states] == ids) & (ids > 0)).any():
        raise FormatError("the graph already has self-loops")
    return states


def _loops_after(fst: Fst, states: np.ndarray, hmms: TransitionCosts, scale: np.float32) -> Fst:
    """With the self-loop of the transition that leads into each state.

    A state that different transitions lead into gets a state before it for each of them.
    """
    target = fst.nextstate.copy()
    mixed, only = _kinds(target, states, np.arange(fst.states) == fst.start, len(hmms.loop))
    moved = np.flatnonzero(mixed[target] & (fst.ilabel != 0))
    pair = target[moved].astype(np.int64) * len(hmms.loop) + states[moved]
    _, first, which = np.unique(pair, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))  # in the order of their first arcs
    made = moved[np.sort(first)]
    after = target[made]
    state = np.concatenate((only, states[made]))
    target[moved] = fst.states + number[which.ravel()]
    leave = scale * hmms.leaving[state]
    weight = fst.weight + repeated(leave[: fst.states], np.diff(fst.begin))
    fst = fst.with_columns(nextstate=target, weight=weight)
    more = leave[fst.states :], after, np.zeros(len(after), np.int32)
    final = np.append(fst.final, np.full(len(after), np.inf, np.float32)) + leave
    return _with_states(fst, more, final, state, hmms, scale)


def _loops_before(fst: Fst, states: np.ndarray, hmms: TransitionCosts, scale: np.float32) -> Fst:
    """With the self-loop of the transition that leads out of each state.

    Where different transitions lead out of a state, or it is an end as well, each of them starts
    in a new state.
    """
    source = fst.source()
    mixed, only = _kinds(source, states, ~np.isinf(fst.final), len(hmms.loop))
    moved = np.flatnonzero(mixed[source] & (fst.ilabel != 0))
    labels, after = fst.ilabel[moved], fst.nextstate[moved]
    silent, target = fst.ilabel.copy(), fst.nextstate.copy()
    silent[moved], target[moved] = 0, fst.states + np.arange(len(moved))
    state = np.concatenate((only, states[moved]))
    leave = scale * hmms.leaving[state]
    weight = fst.weight + repeated(leave[: fst.states], np.diff(fst.begin))
    fst = fst.with_columns(ilabel=silent, nextstate=target, weight=weight)
    more = leave[fst.states :], after, labels
    final = np.append(fst.final, np.full(len(after), np.inf, np.float32))
    return _with_states(fst, more, final, state, hmms, scale)


def _kinds(
    places: np.ndarray, kinds: np.ndarray, silent: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Whether the arcs of a state are of several kinds, and else of which (0: of none), [states].

    Args:
        places: the state of each arc. kinds: below `count`.
        silent: whether a state has one of kind 0 besides, [states].
    """
    least, most = np.where(silent, 0, count), np.where(silent, 0, -1)
    np.minimum.at(least, places, kinds)
    np.maximum.at(most, places, kinds)
    mixed = least < most
    return mixed, np.where(mixed, 0, np.maximum(most, 0))


def _with_states(
    fst: Fst,
    more: tuple[np.ndarray, np.ndarray, np.ndarray],
    final: np.ndarray,
    state: np.ndarray,
    hmms: TransitionCosts,
    scale: np.float32,
) -> Fst:
    """With new states, one arc without an output label from each; and with self-loops.

    Args:
        more: the weight, target and input label of the arc of each new state.
        final: the weights of ending, new states included.
        state: the transition state whose self-loop each state gets (0: none).
    """
    weight, after, ilabel = more
    loop = np.array(hmms.loop, np.int32)[state]
    places = np.flatnonzero(loop)
    made = np.arange(fst.states, fst.states + len(after))
    return add_arcs(
        fst,
        np.concatenate((made, places)),
        np.concatenate((after, places)),
        ilabel=np.concatenate((ilabel, loop[places])),
        weight=np.concatenate((weight, scale * hmms.cost[loop[places]])),
        final=final,
    )
