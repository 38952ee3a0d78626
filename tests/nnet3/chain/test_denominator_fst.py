"""Phone language models and denominator graphs against those that Kaldi's programs make."""

from __future__ import annotations

import numpy as np
import pytest

from kaldi_data import need
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.context_dependency import ContextDependency, new_transition_model
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.files.fst_io import read_fst
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.chain.graphs.denominator_fst import denominator_fst, normalization_fst
from opscope.nnet3.chain.graphs.phone_lm import PhoneLanguageModel, PhoneLmOptions
from opscope.nnet3.programs.base.graphs import open_fst

SENTENCES = ("121 3", "221233", "112321", "2", "1322112", "2113", "32313")
# chain-est-phone-lm --ngram-order=3 --no-prune-ngram-order=2 --num-extra-lm-states=4
KALDI_LM = """0 1 1 1 0.8472978
0 3 2 2 0.8472978
0 6 3 3 1.94591
1 1 1 1 1.94591
1 2 2 2 0.8472978
1 5 3 3 0.8472978
2 4 1 1 1.386294
2 6 3 3 0.6931472
2 1.386294
3 4 1 1 0.6931472
3 3 2 2 1.386294
3 6 3 3 2.079442
3 2.079442
4 1 1 1 0.9162908
4 2 2 2 1.609438
4 5 3 3 1.609438
4 1.609438
5 3 2 2 1.386294
5 0.2876821
6 1 1 1 1.386294
6 3 2 2 0.6931472
6 7 3 3 1.386294
7
"""
CHAIN = """<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5
</State> <State> 1 </State>"""
HMM = """<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 <PdfClass> 1 <Transition> 2 0.625 <Transition> 3 0.375 </State> <State> 3 </State>"""
NO_LOOP = """<State> 0 <PdfClass> 0 <Transition> 1 0.625 <Transition> 2 0.375 </State>
<State> 1 <PdfClass> 1 <Transition> 2 1.0 </State> <State> 2 </State>"""
TOPOLOGIES = {"chain": CHAIN, "hmm": HMM, "no loop": NO_LOOP}
WINDOWS = {"alone": (1, 0, None), "left": (2, 1, 0), "right": (2, 0, 1)}
WINDOWS |= {"both": (3, 1, 2), "two left": (3, 2, 0)}
# Of Kaldi's graphs: states, arcs, of the normalization FST as well, `log_prob` of the first. Kaldi
# sorts no arcs before it minimizes, and takes states with the same arcs in another order for
# different ones; where that made its graph larger, these are of a build that does sort them, and
# the states of the released program are behind.
KALDI = {
    ("alone", "chain"): (8, 25, 8, 36, -1.05003),
    ("alone", "hmm"): (22, 53, 22, 71, -0.73701),
    ("alone", "no loop"): (15, 43, 15, 58, -1.01476),
    ("left", "chain"): (9, 29, 9, 43, 3.03458, 10),
    ("left", "hmm"): (26, 63, 26, 85, 2.28313, 28),
    ("left", "no loop"): (16, 44, 16, 63, 2.64709),
    ("right", "chain"): (11, 41, 11, 53, 3.26667),
    ("right", "hmm"): (31, 81, 31, 103, 4.39238),
    ("right", "no loop"): (18, 63, 18, 78, 1.48878),
    ("both", "chain"): (11, 41, 11, 53, 3.26667),
    ("both", "hmm"): (31, 81, 31, 103, 4.39238),
    ("both", "no loop"): (19, 72, 19, 86, 1.48469),
    ("two left", "chain"): (17, 60, 17, 91, 3.1292, 19),
    ("two left", "hmm"): (51, 128, 51, 175, 4.00192, 55),
    ("two left", "no loop"): (28, 81, 28, 123, 1.83005),
}


def text_fst(text):
    return read_fst(Reader(text.encode(), name="graph", binary=False))


def tree_of(window, *, phones=3):
    """Two classes for each of three phones; the first two ask about another place."""
    width, central, asked = WINDOWS[window]
    if asked is None:
        leaves = ["CE 0 CE 1", "CE 2 CE 3", "CE 4 CE 5"]
    else:
        leaves = [f"SE {asked} [ 0 1 ]\n{{ CE 0 CE 1 }} CE 2"]
        leaves += [f"CE 3 SE {asked} [ 0 2 ]\n{{ CE 4 CE 5 }}", "CE 6 CE 7"]
    tables = " ".join(f"TE -1 2 ( {leaf} )" for leaf in leaves[:phones])
    text = (
        f"ContextDependency {width} {central} ToPdf TE {central} {phones + 1} ( NULL {tables} )\n"
    )
    return ContextDependency.read(Reader(f"{text}EndContextDependency ".encode(), binary=False))


def model_of(tree, topology, phones="1 2 3"):
    text = f"<Topology> <TopologyEntry> <ForPhones> {phones} </ForPhones> {TOPOLOGIES[topology]}"
    text += " </TopologyEntry> </Topology> "
    return new_transition_model(tree, Reader(text.encode(), name="topo", binary=False))


def graph_of(tree, model, lm, lines=None):
    lines = [] if lines is None else lines
    return denominator_fst(tree, model, lm, lines.append, lines.append)


def log_prob(fst, frames=25):
    """The log-probability of a random output of a network, added up over all paths."""
    output = np.random.default_rng(5).normal(size=(frames, int(fst.ilabel.max()) + 1))
    alpha = np.full(fst.states, -np.inf)
    alpha[fst.start] = 0
    for frame in output:
        through = alpha[fst.source()] - fst.weight + frame[fst.ilabel]
        alpha = np.full(fst.states, -np.inf)
        np.logaddexp.at(alpha, fst.nextstate, through)
    return float(np.logaddexp.reduce(alpha - fst.final))


def rows(fst):
    """The arcs in an order of their own."""
    order = np.lexsort((fst.nextstate, fst.ilabel, fst.source()))
    return np.stack([fst.source(), fst.ilabel, fst.nextstate])[:, order], fst.weight[order]


def same(one, other, tolerance):
    assert (one.start, one.states, len(one.arcs)) == (other.start, other.states, len(other.arcs))
    np.testing.assert_array_equal(rows(one)[0], rows(other)[0])
    np.testing.assert_allclose(rows(one)[1], rows(other)[1], atol=tolerance)
    np.testing.assert_allclose(one.final, other.final, atol=tolerance)


def small_lm(lines=None, **options):
    chosen = {"ngram_order": 3, "no_prune_ngram_order": 2, "num_extra_lm_states": 4} | options
    lm = PhoneLanguageModel(PhoneLmOptions(**chosen), (lines or []).append)
    for sentence in SENTENCES:
        lm.add(int(phone) for phone in sentence.replace(" ", ""))
    return lm.estimate()


# Language models


def test_small_language_model():
    same(small_lm(), text_fst(KALDI_LM), 1e-6)


# states and arcs that chain-est-phone-lm makes of SENTENCES
@pytest.mark.parametrize(
    ("order", "kept", "extra", "states", "arcs"),
    [(4, 3, 1000, 26, 29), (4, 3, 0, 13, 25), (3, 1, 0, 2, 6), (2, 2, 0, 4, 12), (4, 1, 3, 6, 17)],
)
def test_sizes_of_language_models(order, kept, extra, states, arcs):
    made = small_lm(ngram_order=order, no_prune_ngram_order=kept, num_extra_lm_states=extra)
    assert (made.states, len(made.arcs)) == (states, arcs)
    total = np.bincount(made.source(), np.exp(-made.weight), made.states) + np.exp(-made.final)
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    keys = made.source() * 10 + made.ilabel
    assert np.all(np.diff(keys) > 0)  # deterministic, and sorted


def test_language_model_of_the_reference():
    lm = PhoneLanguageModel(PhoneLmOptions(3, 30, 2))
    for line in need("chain", "durs.txt").read_text().splitlines():
        lm.add(int(pair.split()[0]) for pair in line.split(None, 1)[1].split(";"))
    same(lm.estimate(), open_fst(str(need("chain", "phone_lm.fst"))), 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((1, 0, 1), "n-gram order of 1"),
        ((3, 0, 4), "not pruned below order 4"),
        ((3, 0, 0), "not pruned below order 0"),
        ((3, -1, 2), "-1 extra states"),
    ],
)
def test_orders_that_do_not_fit(options, told):
    with pytest.raises(ShapeError, match=told):
        PhoneLmOptions(*options)


def test_sequences_that_are_none():
    lm = PhoneLanguageModel(PhoneLmOptions())
    with pytest.raises(ShapeError, match="no sequence of phones"):
        lm.estimate()
    with pytest.raises(ShapeError, match="phone 0 is not positive"):
        lm.add([1, 0, 2])
    lm.add([])
    made = lm.estimate()
    assert (made.states, len(made.arcs), made.final[0]) == (1, 0, 0)


# Denominator graphs


@pytest.mark.parametrize(("window", "topology"), KALDI)
def test_small_graphs(window, topology):
    states, arcs, normal_states, normal_arcs, total, *released = KALDI[window, topology]
    tree = tree_of(window)
    lines: list[str] = []
    found = graph_of(tree, model_of(tree, topology), text_fst(KALDI_LM), lines)
    assert (found.states, len(found.arcs)) == (states, arcs) and found.ilabel.min() > 0
    assert all(found.states < count for count in released)
    assert log_prob(found) == pytest.approx(total, abs=2e-5)
    normal = normalization_fst(found, 8)
    assert (normal.states, len(normal.arcs)) == (normal_states, normal_arcs)
    assert lines[0] == "Number of states and arcs in phone-LM FST is 8 and 18"
    assert lines[-1].startswith(f"Number of states is {states} and arcs {arcs}; number of states")


def test_graphs_of_the_reference():
    tree = ContextDependency.read(Reader(str(need("chain", "tree"))))
    model = TransitionModel.read_from(Reader(str(need("chain", "0.trans_mdl"))))
    found = graph_of(tree, model, open_fst(str(need("chain", "phone_lm.fst"))))
    same(found, open_fst(str(need("chain", "den.fst"))), 1e-6)
    normal = normalization_fst(found, model.transitions().num_pdfs)
    same(normal, open_fst(str(need("chain", "normalization.fst"))), 1e-6)


def test_pdfs_that_are_not_seen():
    tree = tree_of("alone")
    lines: list[str] = []
    lm = text_fst("0 0 1 1 0.5\n0 0.9\n")
    graph_of(tree, model_of(tree, "chain"), lm, lines)
    assert [f"Pdf-id {pdf} is not seen in denominator graph." for pdf in range(2, 6)] == lines[
        -5:-1
    ]


def test_what_does_not_belong_together():
    tree = tree_of("left")
    model = model_of(tree, "chain")
    with pytest.raises(FormatError, match="phone 4 of the phone language model is none"):
        graph_of(tree, model, text_fst("0 1 4 4\n1\n"))
    with pytest.raises(FormatError, match="has no path"):
        graph_of(tree, model, text_fst("0 1 1 1\n2\n"))
    with pytest.raises(FormatError, match="has a phone in it"):
        graph_of(tree, model, text_fst("0\n"))
    with pytest.raises(FormatError, match="is a transducer"):
        graph_of(tree, model, text_fst("0 1 1 2\n1\n"))
    lm = text_fst(KALDI_LM)
    with pytest.raises(FormatError, match="do not belong together"):
        graph_of(tree, model_of(tree_of("alone"), "chain"), lm)
    with pytest.raises(FormatError, match="no output for class 0 of phones"):
        graph_of(tree_of("left", phones=2), model, lm)


def test_values_that_are_none():
    tree, lm = tree_of("left"), text_fst(KALDI_LM)
    model = model_of(tree, "chain")
    for weight in (-1e30, 101.0):
        with pytest.raises(FormatError, match="-log probabilities of at most 100"):
            graph_of(tree, model, text_fst(f"0 0 1 1 {weight}\n0\n"))
    for wrong in (0.5, np.nan, -np.inf):
        model = model_of(tree, "chain")
        model.log_probs[2] = wrong
        with pytest.raises(FormatError, match="log-probabilities that are none"):
            graph_of(tree, model, lm)
    model = model_of(tree, "chain")
    model.log_probs = model.log_probs[:-1]
    with pytest.raises(FormatError, match="9 probabilities for 10 transitions"):
        graph_of(tree, model, lm)
    model = model_of(tree, "chain")
    model.entries[0][0].self_loop = -1
    with pytest.raises(FormatError, match="the classes 0 and -1; one of them is no class"):
        graph_of(tree, model, lm)
    model = model_of(tree, "chain")
    model.entries[0][0].transitions[1] = (7, 0.5)
    with pytest.raises(FormatError, match="phone 1 has no state 7"):
        graph_of(tree, model, lm)
    with pytest.raises(FormatError, match="window has 50 phones"):
        graph_of(ContextDependency(50, 0, tree.tree), model, lm)


def test_states_that_no_chunk_reaches():
    far = np.arange(150)
    chain = Fst.of_arcs(far, far * 0 + 1, far * 0, far + 1, [np.inf] * 150 + [0])
    with pytest.raises(FormatError, match="state 100 .* is not reached within 100 frames"):
        normalization_fst(chain, 1)
    with pytest.raises(FormatError, match="all its paths end within 2 arcs"):
        normalization_fst(text_fst("0 1 1 1\n1 2 1 1\n2\n"), 1)
