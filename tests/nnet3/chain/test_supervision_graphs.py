"""Supervision from phones and lattices, against paths that are enumerated one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from chain_graphs import language, same
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.context_dependency import ContextDependency, new_transition_model
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.nnet3.chain.graphs.phone_graphs import Tolerances, alignment_graph, lattice_graph
from opscope.nnet3.chain.supervisions.supervision import state_times
from opscope.nnet3.chain.supervisions.supervision_maker import SupervisionMaker

TRIPHONE = b"""ContextDependency 3 1 ToPdf TE 1 4 ( NULL
TE -1 2 ( SE 0 [ 0 2 ]
{ CE 0 CE 1 } CE 2 )
TE -1 2 ( SE 2 [ 1 ]
{ CE 3 CE 4 } CE 5 )
TE -1 2 ( CE 6 CE 7 ) ) EndContextDependency """
BIPHONE = b"""ContextDependency 2 1 ToPdf TE 1 4 ( NULL
TE -1 2 ( SE 0 [ 0 2 ]
{ CE 0 CE 1 } CE 2 ) TE -1 2 ( CE 3 CE 4 ) TE -1 2 ( CE 5 CE 6 ) ) EndContextDependency """
ALONE = b"""ContextDependency 1 0 ToPdf TE 0 4 ( NULL TE -1 2 ( CE 0 CE 1 )
TE -1 2 ( CE 2 CE 3 ) TE -1 2 ( CE 4 CE 5 ) ) EndContextDependency """
ONE_STATE = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology> """
# the first state may be left to the second or out of the phone; the second has a way back
SKIPPING = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.4 <Transition> 1 0.3 <Transition> 2 0.3 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State> </TopologyEntry> </Topology> """
# the first state has no output, and leads to two that have
SILENT = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 1 <PdfClass> 0 <Transition> 1 0.5 <Transition> 3 0.5 </State>
<State> 2 <PdfClass> 1 <Transition> 2 0.5 <Transition> 3 0.5 </State>
<State> 3 </State> </TopologyEntry> </Topology> """
CASES = list(itertools.product((TRIPHONE, BIPHONE, ALONE), (ONE_STATE, SKIPPING, SILENT)))


def made(tree, topology):
    tree = ContextDependency.read(Reader(tree, binary=False))
    return tree, new_transition_model(tree, Reader(topology, binary=False))


def phone_lattice(rng, phones=3):
    """Two or three phones of one to three frames, in a lattice of all their orders of two."""
    lattice = CompactLattice(0, [[], [], [], []], [None, None, None, Weight(0.5)])
    for state, (target, frames) in itertools.product(range(3), ((1, 2), (2, 3), (3, 5))):
        length = frames - (0, 2, 3)[state]
        if target > state:
            for phone in {1 + int(rng.integers(phones)), 1 + int(rng.integers(phones))}:
                weight = Weight(float(rng.integers(1, 9)) / 4, 2.0, (1,) * length)
                lattice.arcs[state].append(Arc(phone, weight, target))
    return lattice


def enumerated(tree, model, graph):
    """The least weight of each sequence of pdfs counted from 1."""
    found = {}

    def phones(state, so_far, weight):
        if not np.isinf(graph.final[state]):
            spread(so_far, 0, None, 0, (), weight + graph.final[state])
        for phone, more, target in graph.arcs[state]:
            phones(target, (*so_far, phone), weight + more)

    def pdf(so_far, place, pdf_class):
        window = {
            i: so_far[place + i - tree.central]
            if 0 <= place + i - tree.central < len(so_far)
            else 0
            for i in range(tree.width)
        }
        (answer,) = tree.outputs(window, pdf_class)
        return answer

    def spread(so_far, place, left, state, pdfs, weight):
        """`left` is the state that was left last, whose loop may follow; `state` is entered."""
        if len(pdfs) == len(graph.allowed):
            if place == len(so_far):
                found[pdfs] = min(found.get(pdfs, np.inf), weight)
            return
        if left:
            at, hmm_state = left
            if any(to == hmm_state for to, _ in states_of(so_far[at])[hmm_state].transitions):
                stay(so_far, place, left, state, pdfs, weight)
        if place < len(so_far):
            leave(so_far, place, state, pdfs, weight)

    def states_of(phone):
        return model.entries[model.entry_of[phone]]

    def stay(so_far, place, left, state, pdfs, weight):
        at, hmm_state = left
        if so_far[at] in graph.allowed[len(pdfs)]:
            loop = pdf(so_far, at, states_of(so_far[at])[hmm_state].self_loop)
            spread(so_far, place, left, state, (*pdfs, loop + 1), weight)

    def leave(so_far, place, state, pdfs, weight):
        states = states_of(so_far[place])
        if states[state].forward < 0:
            for to, _ in states[state].transitions:
                leave(so_far, place, to, pdfs, weight)
            return
        if so_far[place] not in graph.allowed[len(pdfs)]:
            return
        label = pdf(so_far, place, states[state].forward) + 1
        for to, _ in states[state].transitions:
            if to != state:
                last = to == len(states) - 1
                then = (place + 1, (place, state), 0) if last else (place, (place, state), to)
                spread(so_far, *then, (*pdfs, label), weight)

    phones(graph.start, (), 0.0)
    return found


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("seed", range(3))
def test_all_paths(case, seed):
    tree, model = made(*CASES[case])
    tolerances = Tolerances(1, 1, 1, lm_scale=0.5 if seed else 0.0)
    graph = lattice_graph(phone_lattice(np.random.default_rng(seed)), tolerances)
    found = SupervisionMaker(tree, model).make(graph)
    same(language(found.fst), enumerated(tree, model, graph))
    assert found.frames_per_sequence == 5 and found.label_dim == model.transitions().num_pdfs
    assert state_times(found.fst)[-1] == 5
    # with transition-ids as labels the pdfs are the same
    ids = SupervisionMaker(tree, model, to_pdfs=False).make(graph)
    known = model.transitions()
    assert ids.label_dim == len(known.pdf) - 1
    mapped = {}
    for labels, weight in language(ids.fst).items():
        pdfs = tuple(int(known.pdf[label]) + 1 for label in labels)
        mapped[pdfs] = min(mapped.get(pdfs, np.inf), weight)
    same(mapped, language(found.fst))


def test_frames_of_phones():
    graph = alignment_graph([(1, 4), (2, 6), (1, 3)], Tolerances(2, 1, 3))
    # frames 0 to 4 for the first, 2 to 10 for the second, 8 to 12 for the third, one in 3
    assert graph.allowed == [{1}, {1, 2}, {2}, {1, 2}, {1}]
    # the same as of a lattice with these phones, whose ids count for their lengths alone
    lattice = CompactLattice(0, [[], [], [], []], [None, None, None, Weight()])
    for state, (phone, frames) in enumerate([(1, 4), (2, 6), (1, 3)]):
        lattice.arcs[state].append(Arc(phone, Weight(3.0, 4.0, (1,) * frames), state + 1))
    same_graph = lattice_graph(lattice, Tolerances(2, 1, 3))
    assert same_graph.allowed == graph.allowed and same_graph.arcs == graph.arcs


def test_weights_come_early_and_the_best_path_has_none():
    graph = lattice_graph(phone_lattice(np.random.default_rng(4)), Tolerances(1, 1, 1, 0.5))
    best = {3: graph.final[3]}
    for state in (2, 1, 0):
        best[state] = min(weight + best[target] for _, weight, target in graph.arcs[state])
    assert best == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}


def test_too_many_phones_for_the_frames():
    tree, model = made(ALONE, SKIPPING)
    graph = alignment_graph([(1, 1)] * 4, Tolerances(1, 1, 3))
    assert SupervisionMaker(tree, model).make(graph) is None


def test_mistakes():
    tree, model = made(TRIPHONE, ONE_STATE)
    maker = SupervisionMaker(tree, model)
    with pytest.raises(ShapeError, match="9 is no phone of the transition model"):
        maker.make(alignment_graph([(9, 2)], Tolerances()))
    other = ContextDependency.read(Reader(ALONE.replace(b"CE 0", b"CE 9"), binary=False))
    with pytest.raises(ShapeError, match="tree and model do not belong together"):
        SupervisionMaker(other, model).make(alignment_graph([(1, 2)], Tolerances()))
    with pytest.raises(FormatError, match="one frame in 9"):
        Tolerances(2, 2, 9)
    with pytest.raises(FormatError, match="lm-scale=1 is not from 0"):
        Tolerances(lm_scale=1.0)
    with pytest.raises(ShapeError, match="not above 0"):
        alignment_graph([(1, 0)], Tolerances())
    with pytest.raises(FormatError, match="frames of a supervision.*lattice=NUMBER"):
        alignment_graph([(1, (1 << 31) - 1)], Tolerances())
    lattice = phone_lattice(np.random.default_rng(0))
    lattice.arcs[0].append(Arc(0, Weight(0, 0, (1, 1)), 1))
    with pytest.raises(ShapeError, match="epsilon arc"):
        lattice_graph(lattice, Tolerances())
    nothing = CompactLattice(0, [[Arc(1, Weight(), 1)], []], [None, Weight()])
    with pytest.raises(ShapeError, match="the lattice has no frames"):
        lattice_graph(nothing, Tolerances())
