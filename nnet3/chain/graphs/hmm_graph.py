"""From acceptors over phones to acceptors over transition-ids: phones in context, HMMs, self-loops.

Self-loops stand after the transition that leaves their state, as chain models have them.

Source: Kaldi's `fstext/context-fst.cc`, `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.fst.algorithms.acceptors import Arc, States, acceptor
from ....kaldi.fst.fst import Fst
from ....kaldi.graphs.context import Context, Window, compose_context
from ....kaldi.graphs.hmms import PhoneHmms

_WIDEST = 32


def in_context(lm: Fst, tree: ContextDependency, phones: list[int]) -> tuple[Fst, list[Window]]:
    """The paths of an acceptor over phones, each phone in the window that a tree wants.

    Args:
        lm: labels are phones; 0 is no phone.
        phones: all that may occur.

    Returns:
        an acceptor whose labels are places in the list of windows; label 0 is none.

    Raises:
        FormatError: a label of `lm` is no phone, or there are too many windows.
    """
    strange = sorted(set(lm.ilabel.tolist()) - {0, *phones})
    if strange:
        raise FormatError(f"phone {strange[0]} of the phone language model is none of the model's")
    if tree.width > _WIDEST:
        raise FormatError(f"the tree's window has {tree.width} phones, at most {_WIDEST} are known")
    context = Context((), tree.width, tree.central)
    fst = compose_context(context, lm)
    rows = fst.source(), fst.ilabel, fst.weight, fst.nextstate
    return Fst.of_arcs(*rows, fst.final, start=fst.start), context.windows


def with_hmms(context: Fst, windows: list[Window], hmms: PhoneHmms) -> Fst:
    """The acceptor over transition-ids of one over windows of phones, self-loops included.

    Each phone becomes a copy of its HMM that ends where the phone's arc does; a state is copied for
    each transition state that it may be entered from, since the self-loop after belongs to that.
    """
    chosen = [-1, *(hmms.of_window(window) for window in windows[1:])]
    number: dict[tuple[int, int, int, int], int] = {}
    arcs: list[list[Arc]] = [[] for _ in range(context.states)]
    nodes: list[tuple[int, int, int, int]] = []

    def enter(end: int, hmm: int, arc: Arc, more: np.float32) -> Arc:
        """The arc that a transition becomes: it leads to the copy of the state it enters, or where
        the phone ends and no self-loop follows, to what is after."""
        ident, weight, place = arc
        if place == len(hmms.hmms[hmm]) - 1 and not hmms.loop[hmms.state_of[ident]]:
            return ident, weight + more, end
        key = end, hmm, place, hmms.state_of[ident]
        if key not in number:
            number[key] = context.states + len(nodes)
            nodes.append(key)
        return ident, weight + more, number[key]

    for state, group in enumerate(States(context).arcs):
        for label, weight, end in group:
            if label == 0:
                arcs[state].append((0, weight, end))
                continue
            hmm = chosen[label]
            arcs[state].extend(enter(end, hmm, arc, weight) for arc in hmms.hmms[hmm][0])
    for here, (end, hmm, place, entered) in enumerate(nodes, context.states):  # grows in the loop
        leave = hmms.leaving[entered]
        outgoing: list[Arc] = [enter(end, hmm, arc, leave) for arc in hmms.hmms[hmm][place]]
        if place == len(hmms.hmms[hmm]) - 1:
            outgoing.append((0, leave, end))
        if hmms.loop[entered]:
            ident = hmms.loop[entered]
            outgoing.append((ident, hmms.cost[ident], here))
        arcs.append(outgoing)
    final = np.full(len(arcs), np.inf, np.float32)
    final[: context.states] = context.final
    return acceptor(arcs, final, context.start)
