"""Graphs made in one call: what mkgraph.sh's commands make, of every kind of grammar."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fst_relations import relation, rows
from kaldi_models import call_main, done
from lexicons import write_small
from opscope.framework.base.errors import ArgumentError, FormatError
from opscope.nnet3.programs.base.graphs import open_fst, save_fst
from opscope.speech import load_graph, make_graph, make_lang
from opscope.speech.fst.words import Words
from opscope.speech.graph_making.grammars import Vocabulary, of_phrases

MODEL = """<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 </State> </TopologyEntry> </Topology>
<Triples> 3
1 0 0
2 0 1
3 0 2
</Triples>
<LogProbs>
 [ 0 -0.2876821 -1.386294 -0.2876821 -1.386294 -0.2876821 -1.386294 ]
</LogProbs>
</TransitionModel>
"""
TREE = "ContextDependency 1 0 ToPdf TE 0 4 ( NULL CE 0 CE 1 CE 2 ) EndContextDependency "
WORDS = ["<eps>", "a", "b", "c", "<UNK>", "#0", "<s>", "</s>"]
# a and b are spelled alike, phones 1 2 with #1 and #2; c is phone 2, <UNK> phone 3.
LEXICON = """0 1 1 1
1 2 2 0
2 0 5 0
0 3 1 2
3 4 2 0
4 0 6 0
0 0 2 3
0 0 3 4
0 0 4 5
0
"""
ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-99 <s> -0.3
-0.5 </s>
-0.5 a -0.2
-0.6 b
-0.7 c

\\2-grams:
-0.3 <s> a
-0.4 a c

\\end\\
"""
GOLDEN = Path(__file__).parents[2] / "golden"
LEAVING = {1: 2, 2: 4, 3: 6}
"""The transition-id that leaves each phone."""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lang/phones").mkdir(parents=True)
    Path("model").mkdir()
    Path("model/final.mdl").write_text(MODEL)
    Path("model/tree").write_text(TREE)
    table = "".join(f"{word} {number}\n" for number, word in enumerate(WORDS))
    Path("lang/words.txt").write_text(table)
    Path("lang/phones.txt").write_text("<eps> 0\nx 1\ny 2\nz 3\n#0 4\n#1 5\n#2 6\n")
    Path("lang/phones/disambig.int").write_text("4\n5\n6\n")
    Path("lang/phones/silence.csl").write_text("3\n")
    Path("lang/oov.int").write_text("4\n")
    Path("lang/L_disambig.fst").write_text(LEXICON)
    Path("lm.arpa").write_text(ARPA)
    return tmp_path


def said(graph, steps=12):
    """The best cost of each sentence of a graph without self-loops."""
    best = {}
    for (_, words), weight in relation(graph, steps=steps).items():
        best[words] = min(weight, best.get(words, math.inf))
    return best


def run_steps(width, *nonterminals):
    """Make the graph `9` of lang/G.fst, each step by Kaldi's program of that name."""
    for line in (
        ("fsttablecompose", "lang/L_disambig.fst", "lang/G.fst", "1"),
        ("fstdeterminizestar", "--use-log=true", "1", "2"),
        ("fstminimizeencoded", "2", "3"),
        ("fstpushspecial", "3", "LG"),
        (
            *("fstcomposecontext", f"--context-size={width}", f"--central-position={width - 1}"),
            *nonterminals,
            *("--read-disambig-syms=lang/phones/disambig.int", "ilabels", "LG", "CLG"),
        ),
        (
            *("make-h-transducer", *nonterminals, "--disambig-syms-out=tids", "ilabels"),
            *("model/tree", "model/final.mdl", "Ha"),
        ),
        ("fsttablecompose", "Ha", "CLG", "4"),
        ("fstdeterminizestar", "--use-log=true", "4", "5"),
        ("fstrmsymbols", "tids", "5", "6"),
        ("fstrmepslocal", "6", "7"),
        ("fstminimizeencoded", "7", "8"),
        ("add-self-loops", "--self-loop-scale=0.1", "model/final.mdl", "8", "9"),
    ):
        assert call_main(*line)[0] == 0, line


def test_as_the_commands_do(folders):
    words = "--disambig-symbol=#0", "--read-symbol-table=lang/words.txt"
    assert call_main("arpa2fst", *words, "lm.arpa", "lang/G.fst")[0] == 0
    run_steps(1)
    done(call_main("make-graph", "lang", "model", "graph", "--arpa", "lm.arpa"))
    make_graph("lang", "model", "same")  # of G.fst
    for folder in ("graph", "same"):
        made = open_fst(f"{folder}/HCLG.fst")
        assert rows(made) == rows(open_fst("9")) and made.header.kind == "const"
        assert Path(folder, "disambig_tid.int").read_text() == Path("tids").read_text()
        assert Path(folder, "num_pdfs").read_text() == "3\n"
        copied = {"words.txt", "phones.txt", "phones/disambig.int", "phones/silence.csl"}
        for name in copied:
            assert Path(folder, name).read_bytes() == Path("lang", name).read_bytes()
    Path("model/frame_subsampling_factor").write_text("3\n")
    make_graph("lang", "model", "chain")
    make_graph("lang", "model", "one", self_loop_scale=1.0)
    assert Path("chain/HCLG.fst").read_bytes() == Path("one/HCLG.fst").read_bytes()
    assert Path("one/HCLG.fst").read_bytes() != Path("same/HCLG.fst").read_bytes()


YESNO = {
    "lexicon.txt": "<SIL> SIL\nYES Y\nNO N\n",
    "silence_phones.txt": "SIL\n",
    "optional_silence.txt": "SIL\n",
    "nonsilence_phones.txt": "Y\nN\n",
}
"""The dictionary of Kaldi's example of two words."""


def test_yesno_is_kaldis(tmp_path, monkeypatch):
    """The graph that Kaldi's programs make, but for the order of its states."""
    monkeypatch.chdir(tmp_path)
    Path("dict").mkdir()
    Path("model").mkdir()
    for name, text in YESNO.items():
        Path("dict", name).write_text(text)
    unigrams = "".join(f"-1 {word}\n" for word in ("NO", "YES", "</s>"))
    Path("lm").write_text(f"\\data\\\nngram 1=4\n\n\\1-grams:\n{unigrams}-99 <s>\n\n\\end\\\n")
    make_lang("dict", "lang", position_dependent_phones=False, oov="<SIL>")
    done(call_main("gmm-init-mono", "lang/topo", "39", "model/final.mdl", "model/tree"))
    make_graph("lang", "model", "graph", arpa="lm")
    ours, kaldis = open_fst("graph/HCLG.fst"), open_fst(str(GOLDEN / "yesno" / "HCLG.txt"))
    assert (ours.states, len(ours.arcs)) == (kaldis.states, len(kaldis.arcs))
    state = {ours.start: kaldis.start}
    waiting = [ours.start]
    while waiting:
        mine = waiting.pop()
        both = (
            fst.arcs[fst.begin[at] : fst.begin[at + 1]]
            for fst, at in ((ours, mine), (kaldis, state[mine]))
        )
        one, other = (np.sort(arcs, order=["ilabel", "olabel"]) for arcs in both)
        for side in ("ilabel", "olabel"):
            assert one[side].tolist() == other[side].tolist()
        assert one["weight"] == pytest.approx(other["weight"], abs=2e-3)
        assert ours.final[mine] == pytest.approx(kaldis.final[state[mine]], abs=2e-3)
        for here, there in zip(one["nextstate"].tolist(), other["nextstate"].tolist(), strict=True):
            waiting += [here] if here not in state else []
            assert state.setdefault(here, there) == there
    assert len(state) == len(set(state.values())) == ours.states


def test_graphs_that_call_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_small(Path("dict"), nonterminals="#nonterm:contact\n")
    make_lang(
        "dict", "lang", position_dependent_phones=False, num_sil_states=1, num_nonsil_states=1
    )
    Path("model").mkdir()
    done(call_main("gmm-init-biphone", "lang/topo", "1", "model/final.mdl", "model/tree"))
    Path("p").write_text("YES #nonterm:contact\nNO\n")
    words = Words.read("lang/words.txt")
    grammar = of_phrases("p", Vocabulary(words, 0, skip=False, name="words"))
    save_fst(grammar, "lang/G.fst")
    offset = int(Path("lang/phones/nonterm_phones_offset.int").read_text())
    option = f"--nonterm-phones-offset={offset}"
    run_steps(2, option)
    assert call_main("make-grammar-fst", option, "9", "10")[0] == 0
    make_graph("lang", "model", "graph", phrases="p")
    made = open_fst("graph/HCLG.fst")
    assert rows(made) == rows(open_fst("10")) and (made.ilabel > 10_000_000).any()
    with pytest.raises(ArgumentError, match="look-ahead graphs cannot call"):
        make_graph("lang", "model", "other", look_ahead=True)
    Path("model/tree").write_text(TREE)
    with pytest.raises(FormatError, match="want a tree for a phone and the one before it"):
        make_graph("lang", "model", "other")


@pytest.mark.parametrize("look_ahead", [False, True])
def test_sentences(folders, look_ahead):
    Path("lines").write_text("a c\n\nb\nb\nc a b\n")
    Path("g.jsgf").write_text("public <g> = /1/ a c | /2/ b | /1/ c a b;")
    scales = {"transition_scale": 0.0, "self_loop_scale": 0.0}
    for kind, path in (("phrases", "lines"), ("jsgf", "g.jsgf")):
        make_graph("lang", "model", kind, look_ahead=look_ahead, **{kind: path}, **scales)
        if look_ahead:
            graph = load_graph(kind, keep=False).graph
            assert {1, 2, 3} <= set(graph.first.olabel.tolist())
            assert len(said(graph.second)) == 3
        else:
            found = said(open_fst(f"{kind}/HCLG.fst"))
            wanted = {(1, 3): 0.25, (2,): 0.5, (3, 1, 2): 0.25}
            assert {key: math.exp(-cost) for key, cost in found.items()} == pytest.approx(
                wanted, abs=2e-3
            )


def test_texts(folders):
    Path("text").write_text("a c\nb\na\n")
    make_graph("lang", "model", "graph", text="text", order=2, look_ahead=True)
    loaded = load_graph("graph", keep=False)
    grammar = loaded.graph.second
    assert (grammar.ilabel == 0).any() and not (grammar.olabel == loaded.words.find("#0")).any()
    Path("text").write_text("a c\nb d\n")
    with pytest.raises(FormatError, match="text: line 2: the word 'd' is not in lang/words.txt"):
        make_graph("lang", "model", "other", text="text")
    make_graph("lang", "model", "other", text="text", order=1, skip_unknown=True)
    assert set(open_fst("other/HCLG.fst").olabel.tolist()) == {0, 1, 2, 3, 4}
    make_graph("lang", "model", "third", text="text", order=1, skip_unknown=True, remove_oov=True)
    assert set(open_fst("third/HCLG.fst").olabel.tolist()) == {0, 1, 2, 3}


def replaced(name, old, new):
    path = Path(name)
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("change", "given", "told"),
    [
        (("lm.arpa", "a c", "a d"), {"arpa": "lm.arpa"}, "lm.arpa: line 14: the word 'd'"),
        (("lm.arpa", " -0.2", ""), {"arpa": "lm.arpa"}, "lm.arpa: line 8: 'a': there are longer"),
        (("lm.arpa", " b", " d"), {"arpa": "lm.arpa"}, "lm.arpa: line 9: 'd': the word 'd'"),
        (("lang/words.txt", "#0 5\n", ""), {"arpa": "lm.arpa"}, "words.txt: there is no #0"),
        (("lang/words.txt", "c 3\n", ""), {"phrases": "p"}, "p: line 1: the word 'c'"),
        (
            ("lang/L_disambig.fst", "4 0 6 0", "4 0 5 0"),
            {"arpa": "lm.arpa"},
            "both the output labels",
        ),
        (("lang/L_disambig.fst", "0 0 2 3", "0 0 2 9"), {"phrases": "p"}, "the word 9 is none"),
        (("lang/L_disambig.fst", "0 0 2 3", "0 0 8 3"), {"phrases": "p"}, "the label 8 is neither"),
        (("lang/L_disambig.fst", "0 0 2 3\n", ""), {"phrases": "p"}, "no path of it is one of"),
        (("p", "c\n", "\n"), {"phrases": "p"}, "p: there is no phrase"),
        (("p", "c\n", "c\n"), {}, "lang/G.fst"),
        (("p", "c\n", "a"), {"jsgf": "p"}, "p: line 1: no ';' ends"),
    ],
)
def test_mistakes(folders, change, given, told):
    Path("p").write_text("c\n")
    replaced(*change)
    code, _, err = call_main(
        "make-graph",
        "lang",
        "model",
        "graph",
        *(f"--{kind}={path}" for kind, path in given.items()),
    )
    assert code == 1 and told in err, err
    assert not Path("graph").exists()


def test_more_mistakes(folders, monkeypatch):
    Path("p").write_text("c\n")
    with pytest.raises(ArgumentError, match="not phrases and jsgf"):
        make_graph("lang", "model", "graph", phrases="p", jsgf="p")
    with pytest.raises(ArgumentError, match="self_loop_scale"):
        make_graph("lang", "model", "graph", phrases="p", self_loop_scale=math.nan)
    monkeypatch.setenv("OPSCOPE_LIMITS", "graph=1000")
    for look_ahead in (False, True):
        with pytest.raises(FormatError, match="limit"):
            make_graph("lang", "model", "graph", arpa="lm.arpa", look_ahead=look_ahead)
    assert not Path("graph").exists()
