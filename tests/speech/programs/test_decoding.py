"""The forms of nnet3-latgen-faster: the same lattices by threads, minibatches, streams, graphs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.programs.base.saving import write_model
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.ivector.gmm import DiagGmm
from opscope.speech.trees.gaussian_models import GaussianModel
from speech_decoding import PHONES, write_decoding
from speech_graphs import (
    arc_fst,
    expanded,
    grammar_bytes,
    lookahead_bytes,
    lookahead_file,
    random_first,
    random_grammar,
    vector_bytes,
)
from speech_lattices import paths

OFFLINE = "nnet3-latgen-faster"
GIVEN = "--acoustic-scale=1.0", "--lattice-beam=1.5", "--ivectors=ark:ivectors.ark"
FEATURES = "ark:feats.ark"
BOS = PHONES + 1  # the first of the phones that stand for nonterminals
BEGIN, END, REENTER, NAMED = (BOS + kind for kind in range(1, 5))
SPECIAL = 4096.0
GOLDEN = Path(__file__).parents[2] / "golden" / "latgen"
KALDIS = dict(read_table(f"ark:{GOLDEN / 'grammar.txt'}", "lattice"))
"""What Kaldi's nnet3-latgen-grammar writes for the grammar below, without determinization."""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_decoding()


def lattices(*args: str, kind: str = "compact_lattice") -> dict[str, CompactLattice]:
    done(call_main(*args, "ark:o.lat"))
    return dict(read_table("ark:o.lat", kind))


def assert_same(ours: dict[str, CompactLattice], theirs: dict[str, CompactLattice]) -> None:
    assert list(ours) == list(theirs) and ours
    for key, lattice in theirs.items():
        mine, wanted = paths(ours[key]), paths(lattice)
        assert mine.keys() == wanted.keys()
        for path, costs in wanted.items():
            np.testing.assert_allclose(mine[path], costs, atol=2e-3)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("parallel", ("--num-threads=3",)),
        ("parallel", ("--num-threads=2", "--num-threads-total=2", "--frames-per-chunk=20")),
        ("batch", ("--num-threads=2", "--frames-per-chunk=20", "--minibatch-size=2")),
        ("looped", ()),
        ("looped-parallel", ("--num-threads=2", "--frames-per-chunk=10")),
    ],
)
def test_forms_give_the_same_lattices(form, options):
    wanted = lattices(OFFLINE, *GIVEN, "final.mdl", "HCLG.fst", FEATURES)
    assert_same(
        lattices(f"{OFFLINE}-{form}", *GIVEN, *options, "final.mdl", "HCLG.fst", FEATURES), wanted
    )


def test_words_alignments_and_graphs_of_utterances_by_threads():
    graph = Path("HCLG.fst").read_bytes()
    Path("graphs.ark").write_bytes(b"".join(key + b" " + graph for key in (b"a", b"x", b"c")))
    program = f"{OFFLINE}-parallel", *GIVEN, "--num-threads=2", "final.mdl"
    outputs = "ark:o.lat", "ark,t:-", "ark:o.ali"
    told = done(call_main(*program, "HCLG.fst", FEATURES, *outputs))
    assert told == b"a 3 3 3 3 1 \nb 5 3 \nc 5 5 2 5 1 1 2 5 2 1 \n"
    told = done(
        call_main(*program, "ark:graphs.ark", FEATURES, *outputs),
        "Not decoding utterance x because no features available.",
        "Done 2 utterances, failed for 1",
    )
    assert told == b"a 3 3 3 3 1 \nc 5 5 2 5 1 1 2 5 2 1 \n"


def test_minibatches_are_counted():
    program = f"{OFFLINE}-batch", *GIVEN, "--frames-per-chunk=20", "--minibatch-size=2"
    done(
        call_main(*program, "final.mdl", "HCLG.fst", FEATURES, "ark:o.lat"),
        "Minibatch stats: seconds-taken",
        "Done 3 utterances, failed for 0",
    )


def test_graphs_composed_on_the_way():
    random = np.random.default_rng(3)
    first, grammar = random_first(random, 5, 2 * PHONES), random_grammar(random, 5)
    Path("HCLr.fst").write_bytes(lookahead_bytes(first, 6))
    Path("Gr.fst").write_bytes(vector_bytes(grammar))
    Path("disambig").write_text("8\n")
    graph = LookaheadGraph.of(lookahead_file(first, 6), grammar, [8])
    Path("HCLG.fst").write_bytes(vector_bytes(expanded(graph)))
    wanted = lattices(OFFLINE, *GIVEN, "final.mdl", "HCLG.fst", FEATURES)
    program = f"{OFFLINE}-lookahead", *GIVEN, "final.mdl"
    for _ in range(2):  # the second time from what was kept
        found = lattices(*program, "HCLr.fst", "Gr.fst", "disambig", FEATURES)
        assert_same(found, wanted)
    refused(*program, "Gr.fst", "Gr.fst", "disambig", told="Gr.fst: a vector FST; an olabel_look")
    refused(*program, "ark:x", "Gr.fst", "disambig", told="ark:x: a table of graphs")


def symbol(kind: int, phone: int) -> int:
    return 10_000_000 + 1000 * kind + phone


def entered(kind: int, target: int) -> list[tuple[int, int, float, int]]:
    """Arcs for each phone that may come before, one of which has all of the probability."""
    return [(symbol(kind, phone), 0, math.log(BOS), target) for phone in range(1, BOS + 1)]


def said(phone: int, word: int, cost: float, at: int) -> list[list[tuple[int, int, float, int]]]:
    """States `at` and `at + 1`: a word of one phone, which may last."""
    return [
        [(2 * phone, word, cost, at + 1)],
        [(2 * phone - 1, 0, 0.25, at + 1), (0, 0, 0.5, at + 2)],
    ]


def called(word: int, cost: float, phone: int, name: int, at: int) -> list:
    """A word of one phone, then another graph, after which comes state `at + 4`."""
    return [
        *said(phone, word, cost, at),
        [(symbol(name, phone), 0, 0.125, at + 3)],
        entered(REENTER, at + 4),
    ]


def part(*rows: list, calls: tuple[int, ...] = ()) -> Fst:
    """A nonterminal's graph that ends with phone 3."""
    last = len(rows)
    ends = dict.fromkeys((last, *calls), SPECIAL)
    return arc_fst([*rows, [(symbol(END, 3), 0, 0.25, last + 1)], []], ends | {last + 1: 0.0})


def test_a_grammar_is_what_its_graphs_make_together():
    """Word 1, then word 2 once or more by right recursion, and all of it again and again."""
    top = arc_fst(
        [*called(1, 1.0, 2, NAMED, 0), [(0, 0, 0.0, 0), (0, 0, 0.5, 5)], []], {2: SPECIAL, 5: 0.25}
    )
    again = [
        *[entered(BEGIN, 1)],
        *said(3, 2, 1.5, 1),
        [(0, 0, 0.75, 4), (0, 0, 1.0, 6)],
        [(symbol(NAMED, 3), 0, 0.125, 5)],
        entered(REENTER, 6),
    ]
    Path("grammar.fst").write_bytes(grammar_bytes(BOS, top, part(*again, calls=(4,))))
    # the same without calls: each call costs 0.125 and its return 0.25
    flat = arc_fst(
        [
            *said(2, 1, 1.0, 0),
            [(0, 0, 0.125, 3)],
            *said(3, 2, 1.5, 3),
            [(0, 0, 0.75 + 0.125 + 0.25, 3), (0, 0, 1.0 + 0.25, 6)],
            [(0, 0, 0.0, 0), (0, 0, 0.5, 7)],
            [],
        ],
        {7: 0.25},
    )
    Path("HCLG.fst").write_bytes(vector_bytes(flat))
    program = "nnet3-latgen-grammar", *GIVEN
    raw = *program, "--determinize-lattice=false", "final.mdl", "grammar.fst", FEATURES
    for key, lattice in lattices(*raw, kind="lattice").items():  # beside that of Kaldi's program
        mine, theirs = ([*map(sorted, each.arcs)] for each in (lattice, KALDIS[key]))
        assert len(mine) == len(theirs)
        for ours, other in zip(mine, theirs, strict=True):
            assert [(arc.label, arc.weight.ids, arc.target) for arc in ours] == [
                (arc.label, arc.weight.ids, arc.target) for arc in other
            ]
            for arc, wanted in zip(ours, other, strict=True):
                costs = arc.weight.graph, arc.weight.acoustic
                np.testing.assert_allclose(costs, wanted.weight[:2], atol=2e-3)
    wide = *GIVEN, "--beam=40"
    wanted = lattices(OFFLINE, *wide, "final.mdl", "HCLG.fst", FEATURES)
    found = lattices("nnet3-latgen-grammar", *wide, "final.mdl", "grammar.fst", FEATURES)
    assert list(found) == list(wanted) == ["a", "b", "c"]
    for key, lattice in wanted.items():
        best, other = (
            min(paths(each[key]).items(), key=lambda one: one[1].sum()) for each in (found, wanted)
        )
        assert lattice.states and best[0] == other[0] and 2 in best[0][0]
        np.testing.assert_allclose(best[1], other[1], atol=2e-3)


def test_wrong_grammars():
    program = "nnet3-latgen-grammar", *GIVEN, "final.mdl", "grammar.fst"
    words = said(3, 2, 1.5, 1)
    top = arc_fst([*called(1, 1.0, 2, NAMED, 0), []], {2: SPECIAL, 4: 0.0})
    right = part(entered(BEGIN, 1), *words)
    for data, told in (
        (grammar_bytes(BOS, top, part([(2, 0, 0.0, 1)], *words)), "the label 2 is no nonterminal"),
        (
            grammar_bytes(BOS, top, part(entered(END, 1), *words)),
            "#nonterm_begin or #nonterm_reenter",
        ),
        (grammar_bytes(BOS, top, right)[:-9], "grammar.fst"),
        (grammar_bytes(BOS, top), f"the nonterminal {NAMED} has no graph"),
        (grammar_bytes(BOS, top, part(entered(BEGIN, 1)[:1], *words)), "with the phone 2, which"),
        (b"\0B<GrammarFst> \4\2\0\0\0\4\0\0\0\0\4\5\0\0\0", "a grammar of form 2"),
    ):
        Path("grammar.fst").write_bytes(data)
        refused(*program, told=told)


def refused(*args: str, told: str) -> None:
    code, out, err = call_main(*args, *((FEATURES,) if FEATURES not in args else ()), "ark:x.lat")
    assert code == 1 and out == b"" and "Traceback" not in err
    assert err.splitlines()[-1].startswith("ERROR (") and told in err.splitlines()[-1]


@pytest.mark.parametrize("prune", [0.0, 1.5])
def test_gaussians(prune):
    """Log-likelihoods by the formula of a mixture of Gaussians, then as of a table."""
    rng = np.random.default_rng(4)
    matrices = {key: 0.3 * matrix for key, matrix in read_table(FEATURES, "matrix")}
    dim = matrices["a"].shape[1]
    sizes = [1, 3, 2, 2]
    mixtures = [
        (
            rng.dirichlet(np.ones(size)),
            rng.normal(size=(size, dim)),
            rng.uniform(0.5, 2, (size, dim)),
        )
        for size in sizes
    ]

    def loglikes(frames: np.ndarray) -> np.ndarray:
        columns = []
        for weights, means, variances in mixtures:
            away = (frames[:, None] - means) ** 2 / variances + np.log(2 * np.pi * variances)
            each = np.log(weights) - 0.5 * away.sum(axis=2)
            kept = each >= each.max(axis=1, keepdims=True) - (prune or math.inf)
            columns.append(np.log((np.exp(each) * kept).sum(axis=1)))
        return np.stack(columns, axis=1).astype(np.float32)

    made = [
        DiagGmm.of(*(part.astype(np.float32) for part in (w, m / v, 1 / v))) for w, m, v in mixtures
    ]
    transitions = TransitionModel.read_from(Reader("final.mdl"))
    write_model(GaussianModel(transitions, made), "gmm.mdl", True)
    with (
        TableWriter("ark:f.ark", "matrix") as features,
        TableWriter("ark:l.ark", "matrix") as table,
    ):
        for key, matrix in matrices.items():
            features.write(key, matrix)
            table.write(key, loglikes(matrix))
    limits = "--acoustic-scale=0.5", "--lattice-beam=2"
    wanted = lattices("latgen-faster-mapped", *limits, "final.mdl", "HCLG.fst", "ark:l.ark")
    pruned = f"--log-sum-exp-prune={prune}"
    model = "gmm.mdl", "HCLG.fst", "ark:f.ark"
    assert_same(lattices("gmm-latgen-faster", *limits, pruned, *model), wanted)
    threads = "--num-threads=2", pruned
    assert_same(lattices("gmm-latgen-faster-parallel", *limits, *threads, *model), wanted)


def test_gaussians_of_another_model():
    transitions = TransitionModel.read_from(Reader("final.mdl"))
    one = DiagGmm.of(*(np.ones(shape, np.float32) for shape in (1, (1, 2), (1, 2))))
    run = "gmm-latgen-faster", "gmm.mdl", "HCLG.fst", FEATURES
    write_model(GaussianModel(transitions, [one] * PHONES), "gmm.mdl", True)
    refused(*run, told="a: features of 3 columns for Gaussians of 2")
    write_model(GaussianModel(transitions, [one]), "gmm.mdl", True)
    refused(*run, told=f"1 mixtures for {PHONES} outputs")
