"""Programs for alignments, phone models and graphs: what Kaldi's recipes do with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import done
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.programs.base.graphs import open_fst

MODEL = """<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State> </TopologyEntry> </Topology>
<Triples> 4
1 0 0
1 1 1
2 0 2
2 1 3
</Triples>
<LogProbs>
 [ 0 -0.2876821 -1.386294 -0.6931472 -0.6931472 -0.2876821 -1.386294 -0.6931472 -0.6931472 ]
</LogProbs>
</TransitionModel>
"""
TREE = """ContextDependency 1 0 ToPdf TE 0 3 ( NULL TE -1 2 ( CE 0 CE 1 ) TE -1 2 ( CE 2 CE 3 ) )
EndContextDependency """
# Transitions 1, 3 are the self-loops of phone 1, and 5, 7 of phone 2; the others leave a state.
LOOPS_FIRST = [1, 1, 2, 4, 6, 7, 7, 8, 1, 2, 3, 4]
LOOPS_LAST = [2, 1, 1, 4, 6, 8, 7, 7, 2, 1, 4, 3]


def refused(result, part):
    """Exit code 1, nothing printed, and the last line is an error."""
    code, out, err = result
    assert (code, out) == (1, b"")
    line = err.splitlines()[-1]
    assert line.startswith("ERROR (") and part in line, err


@pytest.fixture
def recipe(call):
    """Alignments of two utterances whose phones are 1 2 1, a model and a tree."""
    with TableWriter("ark:ali.ark", "int_vector") as writer:
        writer.write("u1", np.array(LOOPS_FIRST, np.int32))
        writer.write("u2", np.array(LOOPS_LAST, np.int32))
        writer.write("u3", np.zeros(0, np.int32))
    Path("final.mdl").write_text(MODEL)
    Path("tree").write_text(TREE)
    return call


def phones(call, *options, output="ark,t:out.txt", told="Done 3 utterances."):
    done(call("ali-to-phones", *options, "final.mdl", "ark:ali.ark", output), told)
    return Path("out.txt").read_text()


# What Kaldi's program writes for the same files.
def test_phones(recipe):
    assert phones(recipe) == "u1 1 2 1 \nu2 1 2 1 \nu3 \n"
    by_frame = "u1 1 1 1 1 2 2 2 2 1 1 1 1 \nu2 1 1 1 1 2 2 2 2 1 1 1 1 \nu3 \n"
    assert phones(recipe, "--per-frame") == by_frame
    lengths = "u1 1 4 ; 2 4 ; 1 4 \nu2 1 4 ; 2 4 ; 1 4 \nu3 \n"
    assert phones(recipe, "--write-lengths=true") == lengths
    assert phones(recipe, "--write-lengths=true", output="ark:out.ark") == lengths  # as it was
    pairs = dict(read_table("ark:out.ark", "int_pair_vector"))
    assert pairs["u1"].tolist() == [[1, 4], [2, 4], [1, 4]] and pairs["u3"].shape == (0, 2)
    assert dict(read_table("ark:out.txt", "int_pair_vector"))["u2"].tolist() == pairs["u2"].tolist()


def test_times_of_phones(recipe):
    lines = phones(recipe, "--ctm-output", output="out.txt").splitlines()
    assert lines[:3] == ["u1 1 0.000 0.040 1", "u1 1 0.040 0.040 2", "u1 1 0.080 0.040 1"]
    assert len(lines) == 6
    lines = phones(recipe, "--ctm-output", "--frame-shift=0.03", output="out.txt").splitlines()
    assert lines[2] == "u1 1 0.24 0.12 1"


def test_alignments_that_are_none(recipe):
    with TableWriter("ark:ali.ark", "int_vector") as writer:
        writer.write("u1", np.array([1, 2, 3], np.int32))  # ends in the second state
    assert phones(recipe, told="u1: the alignment begins or ends within a phone") == "u1 1 \n"
    for ids, told in (
        ([9], "u1: a transition-id is none of 1 to 8"),
        ([2, 4, 3, 6, 8, 3], "u1: a self-loop follows that belongs to another state"),
        ([1, 3, 4], "u1: two self-loops of different states follow each other"),
    ):
        with TableWriter("ark:ali.ark", "int_vector") as writer:
            writer.write("u1", np.array(ids, np.int32))
        refused(recipe("ali-to-phones", "final.mdl", "ark:ali.ark", "ark:x"), told)
    both = ("--per-frame", "--write-lengths", "final.mdl", "ark:ali.ark", "ark:x")
    refused(recipe("ali-to-phones", *both), "only one of --per-frame")
    Path("bad.txt").write_text("u1 1 2 ; 3\n")
    with pytest.raises(Exception, match="pairs of integers"):
        list(read_table("ark:bad.txt", "int_pair_vector"))


def test_from_alignments_to_graphs(recipe):
    done(recipe("ali-to-phones", "final.mdl", "ark:ali.ark", "ark:phones.ark"), "Done 3")
    done(
        recipe(
            "chain-est-phone-lm",
            "--ngram-order=2",
            "--no-prune-ngram-order=2",
            "ark:phones.ark",
            "lm",
        ),
        "LOG (chain-est-phone-lm[",
        "In LM [hard] backoff",
        "Total number of phone instances seen was 9",
        "Created phone language model with 3 states and 3 arcs.",
        "Estimated phone language model and wrote it to lm",
    )
    lm = open_fst("lm")
    assert (lm.states, len(lm.arcs), lm.start) == (3, 3, 0)
    done(
        recipe("chain-make-den-fst", "tree", "final.mdl", "lm", "den.fst", "normalization.fst"),
        "Number of states and arcs in phone-LM",
        "Number of states and arcs in transition-id FST",
        "Write denominator FST to den.fst and normalization FST to normalization.fst",
    )
    den, normal = open_fst("den.fst"), open_fst("normalization.fst")
    assert set(den.ilabel.tolist()) == {1, 2, 3, 4}
    assert np.all(den.ilabel == den.olabel)
    assert normal.states == den.states and len(normal.arcs) > len(den.arcs)
    done(recipe("chain-est-phone-lm", "--binary=false", "ark:phones.ark", "lm.txt"))
    assert Path("lm.txt").read_text().startswith("\n0\t1\t1\t1")


def test_files_that_do_not_fit(recipe):
    Path("phones.txt").write_text("u1 1 2\nu2 1 0 2\n")
    refused(recipe("chain-est-phone-lm", "ark:phones.txt", "lm"), "u2: phone 0 is not positive")
    refused(recipe("chain-est-phone-lm", "--ngram-order=1", "ark:phones.txt", "lm"), "n-gram order")
    Path("none.txt").write_text("")
    refused(recipe("chain-est-phone-lm", "ark:none.txt", "lm"), "no sequence of phones was given")
    assert not Path("lm").exists()
    Path("lm").write_text("0 0 3 3\n0\n")
    words = ("chain-make-den-fst", "tree", "final.mdl", "lm", "den.fst", "n.fst")
    refused(recipe(*words), "phone 3 of the phone language model is none of the model's")
    Path("lm").write_bytes(b"\xd6\xfd\xb2\x7e\x06\0\0\0vec")
    refused(recipe(*words), "lm")
    Path("lm").write_text("0 0 1 1\n0\n")
    Path("tree").write_text("ContextDependency 1 0 ToPdf CE 0")
    refused(recipe(*words), "tree")
    assert not Path("den.fst").exists() and not Path("n.fst").exists()


def test_sizes_of_models(recipe):
    told = b"number of phones 2\nnumber of pdfs 4\nnumber of transition-ids 8\n"
    told += b"number of transition-states 4\n"
    assert done(recipe("am-info", "final.mdl")) == done(recipe("hmm-info", "final.mdl")) == told
    assert done(recipe("am-info", "net.mdl")).startswith(b"number of phones ")
    refused(recipe("am-info", "tree"), "<TransitionModel> was expected here")


def test_alignments_of_another_model(recipe):
    files = ("final.mdl", "final.mdl", "tree", "ark:ali.ark", "ark,t:out.txt")
    done(recipe("convert-ali", *files), "Succeeded converting alignments for 3 files, failed for 0")
    found = {key: ids.tolist() for key, ids in read_table("ark:out.txt", "int_vector")}
    assert found == {"u1": LOOPS_LAST, "u2": LOOPS_LAST, "u3": []}
    Path("map").write_text("1 2\n2 1\n")
    done(recipe("convert-ali", "--phone-map=map", "--reorder=false", *files))
    found = {key: ids.tolist() for key, ids in read_table("ark:out.txt", "int_vector")}
    assert found["u2"] == [5, 5, 6, 8, 2, 3, 3, 4, 5, 6, 7, 8]
    thirds = ("--frame-subsampling-factor=3", "--repeat-frames=true")
    code, _, err = recipe("convert-ali", *thirds, *files[:3], "ark:ali.ark", "ark:none.ark")
    assert code == 0 and "for key u1: 4 frames are too few for 3 phones" in err
    for text, told in (("1 2 3\n", "line 1: an old phone"), ("1 2\n1 1\n", "mapped twice")):
        Path("map").write_text(text)
        refused(recipe("convert-ali", "--phone-map=map", *files), told)
    refused(recipe("convert-ali", "--frame-subsampling-factor=0", *files), "must be at least 1")


def test_graphs_of_transcripts(recipe):
    """A word of phone 1 and one of phones 2 1; no path where a word is not in the lexicon."""
    Path("L.txt").write_text("0 0 1 5 0.5\n0 1 2 6\n1 0 1 0\n0\n")
    Path("text").write_text("u1 5 6\nu2 7\n")
    files = ("tree", "final.mdl", "L.txt")
    code, _, err = recipe("compile-train-graphs", *files, "ark:text", "ark:graphs")
    assert code == 0 and "Empty decoding graph for utterance u2" in err
    assert "succeeded for 1 graphs, failed for 1" in err
    ((key, graph),) = read_table("ark:graphs", "fst")
    assert key == "u1" and sorted(graph.olabel[graph.olabel > 0].tolist()) == [5, 6]
    loops = graph.ilabel[graph.nextstate == graph.source()]
    assert sorted(loops.tolist()) == [1, 1, 3, 3, 5, 7]
    assert graph.weight.sum() == pytest.approx(0.5, abs=1e-3)

    Path("L.txt").write_text("0 0 1 5 0.5\n0 1 2 6\n1 2 1 0\n2 0 9 0\n0\n")
    Path("symbols").write_text("9\n")
    with TableWriter("ark:grammars", "fst") as writer:
        either = np.array([0, 0]), [5, 6], [0.25, 0.5], [1, 1], [np.inf, 0]
        writer.write("u1", Fst.of_arcs(*either))
    words = ("compile-train-graphs-fsts", "--read-disambig-syms=symbols", "--self-loop-scale=1")
    done(recipe(*words, *files, "ark:grammars", "ark:graphs"), "succeeded for 1 graphs, failed for")
    ((_, graph),) = read_table("ark:graphs", "fst")
    assert set(graph.olabel.tolist()) == {0, 5, 6} and graph.ilabel.max() == 8
    lacking = recipe("compile-train-graphs-fsts", *files, "ark:grammars", "ark:graphs")
    refused(lacking, "the lexicon has the label 9, which is neither a phone")
    assert "no disambiguation symbols are given" in lacking[2]
    Path("text").write_text("u1 5 0\n")
    refused(recipe("compile-train-graphs", *files[:2], "L.txt", "ark:text", "ark:x"), "label 9")


def test_from_phones_to_transitions(recipe):
    """What mkgraph.sh calls after L and G are one: contexts, HMMs, self-loops."""
    Path("LG.txt").write_text("0 1 1 5 0.5\n1 2 9 0\n2 0 2 0\n1 0 2 6\n0\n")
    Path("symbols").write_text("9\n")
    lists = "--read-disambig-syms=symbols", "--write-disambig-syms=ilabel_symbols"
    sizes = "--context-size=1", "--central-position=0"
    done(recipe("fstcomposecontext", *sizes, *lists, "ilabels", "LG.txt", "CLG.fst"))
    assert Path("ilabel_symbols").read_text() == "2\n"
    made = "--disambig-syms-out=tid_symbols"
    done(recipe("make-h-transducer", made, "ilabels", "tree", "final.mdl", "Ha.fst"))
    assert Path("tid_symbols").read_text() == "9\n"
    done(recipe("fsttablecompose", "Ha.fst", "CLG.fst", "HCLGa.fst"))
    loops = "--self-loop-scale=0.1", "--disambig-syms=tid_symbols"
    done(recipe("add-self-loops", *loops, "final.mdl", "HCLGa.fst", "HCLG.fst"))
    graph = open_fst("HCLG.fst")
    at_loops = graph.nextstate == graph.source()
    assert set(graph.ilabel[at_loops].tolist()) == {1, 3, 5, 7}
    assert graph.weight[graph.ilabel == 1] == pytest.approx(-0.1 * np.log(0.75))
    refused(recipe("add-self-loops", "final.mdl", "HCLGa.fst", "x"), "the input label 9 is no")
    refused(
        recipe("add-self-loops", *loops, "final.mdl", "HCLG.fst", "x"), "already has self-loops"
    )
    lone = lists[1], "ilabels", "LG.txt"
    refused(recipe("fstcomposecontext", *lone), "--write-disambig-syms wants --read")
    offset = "--nonterm-phones-offset=9", "ilabels", "LG.txt"
    refused(recipe("fstcomposecontext", *offset), "wants --context-size=2")
    Path("ilabels.txt").write_text("2 [ ] [ 3 ]\n")
    refused(
        recipe("make-h-transducer", "ilabels.txt", "tree", "final.mdl", "x"), "ilabels.txt, tree"
    )
    assert not Path("x").exists()


def test_labels_with_equal_hmms(recipe):
    """Both contexts of phone 1 have one HMM."""
    Path("tree").write_text(
        "ContextDependency 2 1 ToPdf TE 1 3 ( NULL TE -1 2 ( CE 0 CE 1 ) TE -1 2 ( CE 2 CE 3 ) )\n"
        "EndContextDependency "
    )
    Path("ilabels").write_text("6 [ ] [ -9 ] [ 0 1 ] [ 2 1 ] [ -8 ] [ 1 2 ]\n")
    options = "--binary=false", "--write-disambig-syms=symbols", "--old-to-new-mapping=map"
    done(recipe("make-ilabel-transducer", *options, "ilabels", "tree", "final.mdl", "fewer", "m"))
    assert Path("fewer").read_text().split() == "5 [ ] [ -9 ] [ 0 1 ] [ -8 ] [ 1 2 ]".split()
    assert Path("symbols").read_text() == "1\n3\n"
    assert Path("map").read_text() == "0\n1\n2\n2\n3\n4\n"
    mapped = open_fst("m")
    assert mapped.olabel.tolist() == [1, 2, 3, 4, 5] and mapped.ilabel.tolist() == [1, 2, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "options", "told", "code"),
    [
        ("0 0\n", (), "0 0", 0),
        ("0 1\n", (), "1 1", 1),
        ("0 0 0 0 0.693147\n0 1 0 0 0.693147\n1 0\n", (), "0 -1.7", 0),
        ("0 0 0 0 0.693147\n0 1 0 0 0.693147\n1 0\n", ("--test-in-log=false",), "0.693147 0", 1),
        ("0 0 0 0 0.7\n0 1 0 0 0.7\n1 0\n", ("--test-in-log=false", "--delta=1"), "0.7 0", 0),
    ],
)
def test_stochastic(recipe, text, options, told, code):
    """The examples in the source of Kaldi's program."""
    Path("fst").write_text(text)
    found, out, _ = recipe("fstisstochastic", *options, "fst")
    assert found == code and out.decode().startswith(told)
