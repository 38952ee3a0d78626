"""Supervision of chain examples from graphs of phones.

Each phone becomes the HMM that tree and topology give it in its context, with the self-loop of a
state after the transition that leaves it; then only paths stay whose phones are allowed on their
frames. The states and arcs that Kaldi makes by composing FSTs are found here one by one, for a
frame after the other, in the same order.

Source: `ProtoSupervisionToSupervision` in Kaldi's `chain/chain-supervision.cc`; `GetHTransducer`,
`AddSelfLoops` in `hmm/hmm-utils.cc`; `fstext/context-fst.cc`; OpenFst's `rmepsilon.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.untrusted.limits import check_limit
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.algorithms.acceptors import connect
from ....kaldi.fst.fst import Fst
from ....kaldi.lattices.lattice import single
from ....kaldi.lattices.transition_ids import TransitionIds
from ..graphs.phone_graphs import PhoneArc, PhoneGraph
from .supervision import Supervision, breadth_first

_Window = tuple[int, ...]


class _Node(NamedTuple):
    """A place in the graph of phones, with the phones before it that are context."""

    history: _Window
    state: int


class _Place(NamedTuple):
    """A state of the graph of transition-ids.

    `hmm` and `inner` say which HMM was entered and its state there, -1 at the start; `node` is
    where the graph of phones goes on after it; `led` is the transition state that led here, 0 at
    the start.
    """

    hmm: int
    inner: int
    node: _Node
    led: int


@dataclass(frozen=True)
class _Hmm:
    """The HMM of a phone in its context.

    Attributes:
        arcs: transition-id and next state of the arcs of each state, without self-loops.
        end: the last state.
        mixed: for each state whether transitions of several transition states lead there.
    """

    arcs: tuple[tuple[tuple[int, int], ...], ...]
    end: int
    mixed: tuple[bool, ...]


class SupervisionMaker:
    """Makes supervision with a tree and a transition model.

    Args:
        tree: gives the outputs of phones in context.
        model: its transitions; it must be the tree's.
        to_pdfs: labels are pdfs counted from 1; else transition-ids.
    """

    def __init__(
        self, tree: ContextDependency, model: TransitionModel, *, to_pdfs: bool = True
    ) -> None:
        self._tree = tree
        self._model = model
        self._to_pdfs = to_pdfs
        self._ids = TransitionIds.of(model)
        self._phones = frozenset(model.phones)
        self._after = max(model.phones, default=0) + 1  # stands for what follows the last phone
        self._numbers = _transition_numbers(model)
        self._loop_of = {
            self._ids.state[i]: i for i in range(1, self._ids.count + 1) if self._ids.is_loop[i]
        }
        self._hmms: list[_Hmm] = []
        self._hmm_of: dict[_Window, int] = {}
        self._known: dict[tuple[tuple[int, ...], ...], int] = {}

    def make(self, graph: PhoneGraph) -> Supervision | None:
        """The supervision of one utterance; None where no path is left.

        Raises:
            ShapeError: a phone is none of the model, or the tree is not the model's.
            FormatError: there are too many states.
        """
        fst = connect(_Unfolding(self, graph).fst())
        if not fst.states:
            return None
        return Supervision(
            frames_per_sequence=len(graph.allowed),
            label_dim=self._ids.num_pdfs if self._to_pdfs else self._ids.count,
            fst=breadth_first(fst),
        )

    def label(self, number: int) -> int:
        """The label of a transition-id."""
        return self._ids.pdf[number] + 1 if self._to_pdfs else number

    def phone(self, number: int) -> int:
        """The phone of a transition-id."""
        return self._ids.phone[number]

    def hmm(self, window: _Window) -> int:
        """The number of the HMM of a window of phones."""
        if window not in self._hmm_of:
            self._hmm_of[window] = self._find_hmm(window)
        return self._hmm_of[window]

    def hmm_arcs(self, hmm: int, state: int) -> tuple[tuple[int, int], ...]:
        """Transition-id and next state of the arcs of a state of an HMM."""
        return self._hmms[hmm].arcs[state]

    def is_end(self, hmm: int, state: int) -> bool:
        """Whether it is the last state of an HMM."""
        return self._hmms[hmm].end == state

    def is_mixed(self, hmm: int, state: int) -> bool:
        """Whether transitions of several transition states lead to a state of an HMM."""
        return self._hmms[hmm].mixed[state]

    def led(self, number: int) -> int:
        """The transition state of a transition-id."""
        return self._ids.state[number]

    def loop(self, led: int) -> int:
        """The transition-id of the loop of a transition state; 0 where it has none."""
        return self._loop_of.get(led, 0)

    def _find_hmm(self, window: _Window) -> int:
        phone = window[self._tree.central]
        states = self._model.entries[self._model.entry_of[phone]]
        classes = max((max(s.forward, s.self_loop) for s in states), default=-1) + 1
        pdfs = [self._pdf(window, pdf_class) for pdf_class in range(classes)]
        key = ((phone,), tuple(pdfs))
        if key in self._known:
            return self._known[key]
        end = len(states) - 1
        arcs: list[tuple[tuple[int, int], ...]] = []
        for place, state in enumerate(states):
            outgoing: list[tuple[int, int]] = []
            for index, (target, _) in enumerate(state.transitions):
                if state.forward < 0 or target == place:
                    continue
                row = (phone, place, pdfs[state.forward], pdfs[state.self_loop])
                number = self._number(row, index)
                outgoing += [(number, to) for to in self._emitting(phone, target)]
            arcs.append(tuple(dict.fromkeys(outgoing)))
        if states and states[0].forward < 0:  # the first state has no output of its own
            first = self._emitting(phone, 0)
            arcs[0] = tuple(arc for to in first for arc in arcs[to])
        mixed = [
            len({self._ids.state[n] for group in arcs for n, to in group if to == place}) > 1
            for place in range(len(states))
        ]
        self._hmms.append(_Hmm(tuple(arcs), end, tuple(mixed)))
        self._known[key] = len(self._hmms) - 1
        return self._known[key]

    def _pdf(self, window: _Window, pdf_class: int) -> int:
        outputs = self._tree.outputs(dict(enumerate(window)), pdf_class)
        if len(outputs) != 1:
            raise ShapeError(
                f"the tree has no output for class {pdf_class} of the phones {list(window)}"
            )
        return outputs.pop()

    def _number(self, row: tuple[int, int, int, int], index: int) -> int:
        """The transition-id of a transition of a state."""
        known = row[:3] if self._model.opening == "<Triples>" else row
        first = self._numbers.get(known)
        if first is None or (len(known) == 3 and row[2] != row[3]):
            raise ShapeError(
                f"the transition model has no state {row[1]} of phone {row[0]} with output"
                f" {row[2]}: tree and model do not belong together"
            )
        return first + index

    def _emitting(self, phone: int, state: int) -> list[int]:
        """The states with outputs, and the last one, that a state without one leads to."""
        states = self._model.entries[self._model.entry_of[phone]]
        places: list[int] = []
        seen: set[int] = set()
        stack = [state]
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            if not 0 <= place < len(states):
                raise ShapeError(f"the topology of phone {phone} has no state {place}")
            if states[place].forward >= 0 or place == len(states) - 1:
                places.append(place)
            else:
                stack += [target for target, _ in reversed(states[place].transitions)]
        return places

    def context_arcs(
        self, node: _Node, arcs: list[PhoneArc]
    ) -> Iterator[tuple[_Window, float, _Node]]:
        """The arcs of a place in the graph of phones, each with its window of phones; an empty one
        where the phone in its middle is not there yet."""
        history = node.history
        width = self._tree.width
        central = self._tree.central
        for phone, weight, target in arcs:
            if phone == self._after:
                if central + 1 == width or history[central] == self._after:
                    continue
            elif phone not in self._phones:
                raise ShapeError(f"{phone} is no phone of the transition model")
            elif history and history[-1] == self._after:
                continue
            window = (*history, phone)
            following = _Node(window[1:], target)
            window = tuple(
                0 if place > central and known == self._after else known
                for place, known in enumerate(window)
            )
            yield (window if window[central] else ()), weight, following

    def may_end(self, node: _Node) -> bool:
        """Whether all phones of the window were put out."""
        central = self._tree.central
        return central == self._tree.width - 1 or node.history[central] == self._after

    def extended(self, graph: PhoneGraph) -> tuple[list[list[PhoneArc]], list[float]]:
        """Arcs and ends of a graph whose last phones get the context that nothing follows."""
        if self._tree.central == self._tree.width - 1:
            return graph.arcs, graph.final
        last = len(graph.arcs)
        arcs = [
            group if math.isinf(end) else [*group, (self._after, end, last)]
            for group, end in zip(graph.arcs, graph.final, strict=True)
        ]
        return [*arcs, [(self._after, 0.0, last)]], [*graph.final, 0.0]

    @property
    def width(self) -> int:
        """How many phones a window has."""
        return self._tree.width


def _transition_numbers(model: TransitionModel) -> dict[tuple[int, ...], int]:
    """The first transition-id of each transition state, by its row."""
    numbers: dict[tuple[int, ...], int] = {}
    number = 1
    for row in model.tuples.tolist():
        numbers[tuple(row)] = number
        number += len(model.entries[model.entry_of[row[0]]][row[1]].transitions)
    return numbers


_Out = tuple[int, float, _Place]


class _Unfolding:
    """The graph of transition-ids of one utterance, unfolded over its frames."""

    def __init__(self, maker: SupervisionMaker, graph: PhoneGraph) -> None:
        self._maker = maker
        self._graph = graph
        self._arcs, self._final = maker.extended(graph)
        self._outs: dict[_Place, tuple[list[_Out], float]] = {}

    def fst(self) -> Fst:
        """The FST over all frames; states may be on no path to an end."""
        maker = self._maker
        allowed = self._graph.allowed
        start = _Place(-1, -1, _Node((0,) * (maker.width - 1), self._graph.start), 0)
        number = {(start, 0): 0}
        queue = [(start, 0)]
        source, label, weights, target, final = [], [], [], [], []
        for place, time in queue:  # grows in the loop
            here = number[place, time]
            outs, end = self._out(place)
            final.append(end if time == len(allowed) else math.inf)
            if time == len(allowed):
                continue
            for transition, weight, following in outs:
                if maker.phone(transition) not in allowed[time]:
                    continue
                key = following, time + 1
                if key not in number:
                    number[key] = len(queue)
                    queue.append(key)
                    check_limit("lattice", len(queue), "the states of the FST of a supervision")
                source.append(here)
                label.append(maker.label(transition))
                weights.append(weight)
                target.append(number[key])
        columns = np.array(source, np.int64), np.array(label), np.array(weights), np.array(target)
        return Fst.of_arcs(*columns, np.array(final))

    def _out(self, place: _Place) -> tuple[list[_Out], float]:
        """The arcs of a state and the weight of ending in it."""
        if place not in self._outs:
            self._outs[place] = self._find_out(place)
        return self._outs[place]

    def _find_out(self, place: _Place) -> tuple[list[_Out], float]:
        maker = self._maker
        loop = maker.loop(place.led) if place.led else 0
        looping = [(loop, 0.0, place)] if loop else []
        if place.hmm >= 0 and not maker.is_end(place.hmm, place.inner):
            forward = self._enter(place.hmm, place.inner, 0.0, place.node)
            first = maker.is_mixed(place.hmm, place.inner)
            out = looping + forward if first else forward + looping
            return out[::-1], math.inf
        distance = self._empty_ways(place.node)
        out = looping
        end = math.inf
        seen: set[_Node | tuple[int, _Node]] = set()
        # Nodes, and HMMs that begin with several arcs, stand after arcs without labels.
        stack: list[_Node | tuple[int, _Node]] = [place.node]
        entries: dict[tuple[int, _Node], float] = {}
        while stack:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            if not isinstance(top, _Node):
                out = out + self._enter(top[0], 0, entries[top], top[1])
                continue
            so_far = distance[top]
            if maker.may_end(top):
                end = min(end, single(so_far + self._final[top.state]))
            for window, weight, node in maker.context_arcs(top, self._arcs[top.state]):
                if not window:
                    stack.append(node)
                    continue
                hmm = maker.hmm(window)
                total = single(so_far + weight)
                if len(maker.hmm_arcs(hmm, 0)) == 1:
                    out = out + self._enter(hmm, 0, total, node)
                else:
                    entries[hmm, node] = min(entries.get((hmm, node), math.inf), total)
                    stack.append((hmm, node))
        best: dict[tuple[int, _Place], float] = {}
        for number, weight, following in out:
            best[number, following] = min(best.get((number, following), math.inf), weight)
        return [(number, w, to) for (number, to), w in best.items()][::-1], end

    def _enter(self, hmm: int, inner: int, weight: float, node: _Node) -> list[_Out]:
        """The arcs of a state of an HMM, after which the graph of phones goes on at `node`."""
        maker = self._maker
        return [
            (number, weight, _Place(hmm, to, node, maker.led(number)))
            for number, to in maker.hmm_arcs(hmm, inner)
        ]

    def _empty_ways(self, first: _Node) -> dict[_Node, float]:
        """The least weight of the ways without labels to each place; phones do not form loops."""
        distance = {first: 0.0}
        waiting = [first]
        for node in waiting:  # grows in the loop; a place whose weight falls comes again
            for window, weight, following in self._maker.context_arcs(node, self._arcs[node.state]):
                total = single(distance[node] + weight)
                if not window and total < distance.get(following, math.inf):
                    distance[following] = total
                    waiting.append(following)
        return distance
