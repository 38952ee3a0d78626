"""Supervision of alignments and lattices, cut and normalized, as it stands in Kaldi's examples."""

from __future__ import annotations

import numpy as np
import pytest

from kaldi_data import need
from opscope.kaldi.files.context_dependency import ContextDependency
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.algorithms.acceptors import Matcher
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.kaldi.tables.streams import open_reader
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.chain.graphs.phone_graphs import Tolerances, alignment_graph, lattice_graph
from opscope.nnet3.chain.supervisions.chunks import SupervisionSplitter, normalized
from opscope.nnet3.chain.supervisions.supervision import state_times
from opscope.nnet3.chain.supervisions.supervision_maker import SupervisionMaker
from opscope.nnet3.programs.base.graphs import open_fst

TOLERANCES = Tolerances(3, 3, 3)
ARRAYS = ("begin", "ilabel", "olabel", "nextstate", "weight", "final")


@pytest.fixture(scope="module")
def models():
    tree = ContextDependency.read(open_reader(str(need("chain", "tree"))))
    return tree, TransitionModel.read_from(open_reader(str(need("chain", "0.trans_mdl"))))


@pytest.fixture(scope="module")
def alignments():
    table = read_table(f"ark:{need('chain', 'durs.txt')}", "int_pair_vector")
    return {key: [tuple(pair) for pair in pairs.tolist()] for key, pairs in table}


@pytest.fixture(scope="module")
def supervisions(models, alignments):
    maker = SupervisionMaker(*models)
    return {
        key: maker.make(alignment_graph(phones, TOLERANCES)) for key, phones in alignments.items()
    }


def test_chunks_are_kaldis(supervisions):
    graph = Matcher(open_fst(str(need("chain", "normalization.fst"))))
    for key, example in read_table(f"ark:{need('chain', 'egs.two.ark')}", "chain_example"):
        name, _, first = key.rpartition("-")
        wanted = example.outputs[0].supervision
        chunk = SupervisionSplitter(supervisions[name]).part(int(first) // 3, 20)
        found = normalized(chunk, graph)
        assert found.label_dim == wanted.label_dim and found.weight == wanted.weight
        for array in ARRAYS:
            assert np.array_equal(getattr(found.fst, array), getattr(wanted.fst, array)), array


def labels_by_frame(fst):
    times, source = state_times(fst), fst.source()
    found = [set() for _ in range(times[-1])]
    for state, label in zip(source.tolist(), fst.ilabel.tolist(), strict=True):
        found[times[state]].add(label)
    return [tuple(sorted(labels)) for labels in found]


def test_labels_of_merged_examples(supervisions):
    """Each of the 48 sequences has the labels that a chunk of an utterance has, frame by frame."""
    chunks = set()
    for supervision in supervisions.values():
        labels = labels_by_frame(supervision.fst)
        chunks |= {tuple(labels[i : i + 20]) for i in range(len(labels) - 19)}
    count = 0
    for _, example in read_table(f"ark:{need('chain', 'egs.ark')}", "chain_example"):
        supervision = example.outputs[0].supervision
        labels = labels_by_frame(supervision.fst)
        for sequence in range(supervision.num_sequences):
            count += 1
            # the normalization FST may have forbidden some
            mine = labels[20 * sequence : 20 * sequence + 20]
            assert any(
                all(set(a) <= set(b) for a, b in zip(mine, chunk, strict=True)) for chunk in chunks
            )
    assert count == 48


def test_lattices_give_the_same(models, alignments, supervisions):
    """Alignments as lattices of words with transition-ids, made into lattices of phones."""
    tree, model = models
    ids = TransitionIds.of(model)
    maker = SupervisionMaker(tree, model)
    first = {ids.phone[i]: i for i in range(ids.count, 0, -1) if ids.is_last[i]}
    loop = {ids.phone[i]: i for i in range(ids.count, 0, -1) if ids.is_loop[i]}
    for name, phones in list(alignments.items())[:20]:
        frames = [i for p, n in phones for i in (first[p], *[loop[p]] * (n - 1))]
        middle = len(frames) // 2
        words = CompactLattice(0, [[], [], []], [None, None, Weight(0.0, 1.5)])
        words.arcs[0].append(Arc(77, Weight(2.0, 3.0, tuple(frames[:middle])), 1))
        words.arcs[1].append(Arc(0, Weight(1.0, 3.0, tuple(frames[middle:])), 2))
        told: list[str] = []
        options = PhoneAlignOptions(replace_output_symbols=True)
        aligned, right = phone_aligned(words, ids, options, told.append)
        assert right and not told
        assert [len(arc.weight.ids) for group in aligned.arcs for arc in group] == [
            n for _, n in phones
        ]
        found = maker.make(lattice_graph(aligned, TOLERANCES))
        for array in ARRAYS:
            wanted = getattr(supervisions[name].fst, array)
            assert np.array_equal(getattr(found.fst, array), wanted), array
