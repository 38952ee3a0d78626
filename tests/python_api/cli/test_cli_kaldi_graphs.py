"""ali-to-phones, chain-est-phone-lm and chain-make-den-fst: what Kaldi's recipes do with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import done
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
