"""acc-tree-stats to gmm-init-model: a model of Gaussians begun, and mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_data import need
from kaldi_models import call_main, done, one_state_model
from opscope.kaldi.files.context_dependency import ContextDependency
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.tables.tables import TableWriter
from opscope.speech.trees.gaussian_models import GaussianModel
from opscope.speech.trees.statistics import TreeStats

PHONES = 6
TOPOLOGY = f"""<Topology> <TopologyEntry> <ForPhones> {" ".join(map(str, range(1, PHONES + 1)))}
</ForPhones> <State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The command line in a folder with aligned features of phones that depend on neighbors."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centers = 5 * rng.normal(size=(PHONES + 1, 3))
    Path("mono.mdl").write_text(one_state_model(PHONES))
    Path("topo").write_text(TOPOLOGY)
    Path("sets").write_text("".join(f"{phone}\n" for phone in range(2, PHONES + 1)))
    Path("roots").write_text("not-shared not-split 1\nshared split 2 3 4\nshared split 5 6\n")
    with TableWriter("ark:f.ark", "matrix") as f, TableWriter("ark:a.ark", "int_vector") as a:
        for key in "abcdefgh":
            phones = rng.integers(1, PHONES + 1, 60)
            left = np.append(0, phones[:-1])
            means = np.repeat(centers[phones] + 0.5 * centers[left], 4, axis=0)
            f.write(key, (means + rng.normal(size=means.shape)).astype(np.float32))
            ids = [[2 * p - 1] * 3 + [2 * p] for p in phones]
            a.write(key, np.array(ids, np.int32).ravel())
    return call_main


def test_from_alignments_to_a_model(call):
    accumulate = ("acc-tree-stats", "--ci-phones=1", "mono.mdl")
    done(call(*accumulate, "ark:f.ark", "ark:a.ark", "1.acc"), "Accumulated stats for 8 files")
    done(call("sum-tree-stats", "--binary=false", "sum.acc", "1.acc", "1.acc"), "Wrote summed accs")
    one, total = TreeStats.read(Reader("1.acc")), TreeStats.read(Reader("sum.acc"))
    assert total.frames == 2 * one.frames == 2 * 8 * 240 and total.events == one.events
    assert ((-1, 0), (1, 1)) in one.events
    lists = ("--pdf-class-list=0", "1.acc", "sets")
    done(call("cluster-phones", *lists, "asked"), "Wrote questions")
    questions = [line.split() for line in Path("asked").read_text().splitlines()]
    assert sorted(q[0] for q in questions if len(q) == 1) == ["2", "3", "4", "5", "6"]
    done(
        call("cluster-phones", "--mode=k-means", "--num-classes=2", *lists, "two"), "ClusterKMeans"
    )
    assert sorted(Path("two").read_text().split()) == ["2", "3", "4", "5", "6"]
    with open("asked", "a") as file:
        file.write("1\n")
    done(call("compile-questions", "topo", "asked", "asked.qst"), "Max # pdf classes is 1")
    grow = ("build-tree", "--thresh=20", "--max-leaves=12", "1.acc", "roots", "asked.qst", "topo")
    done(call(*grow, "tree"), "Rounded num leaves", "Wrote tree")
    tree = ContextDependency.read(Reader("tree"))
    assert (tree.width, tree.central, tree.num_pdfs) == (3, 1, 8)
    begin = ("gmm-init-model", "--write-occs=occs", "tree", "1.acc", "topo")
    done(call(*begin, "1.mdl"), "Wrote model")
    assert Reader("occs").read_vector(np.float32).sum() == one.frames
    model = GaussianModel.read(Reader("1.mdl"))
    assert len(model.mixtures) == 8 and model.transitions.transitions().num_pdfs == 8
    # Each leaf begins as the mean and variance of its frames.
    mean = np.array([m.means[0] / m.inverse_variances[0] for m in model.mixtures])
    occupied = Reader("occs").read_vector(np.float64)[:, None]
    np.testing.assert_allclose((mean * occupied).sum(0), one.rows[:, 1:4].sum(0), rtol=1e-4)
    done(call(*begin, "2.mdl", "tree", "1.mdl"), "Wrote model")
    assert Path("2.mdl").read_bytes() == Path("1.mdl").read_bytes()


def test_models_without_statistics(call):
    done(call("gmm-init-mono", "--train-feats=ark:f.ark", "topo", "3", "m.mdl", "m.tree"))
    model = GaussianModel.read(Reader("m.mdl"))
    assert len(model.mixtures) == PHONES and abs(model.mixtures[0].constants[0]) > 0
    Path("shared").write_text("1\n2 3\n4 5 6\n")
    done(call("gmm-init-mono", "--shared-phones=shared", "topo", "3", "m.mdl", "m.tree"))
    assert ContextDependency.read(Reader("m.tree")).num_pdfs == 3
    both = ("gmm-init-biphone", "--binary=false", "--ci-phones=1", "topo", "3", "b.mdl", "b.tree")
    done(call(*both), "Num PDFs: 31")
    assert Path("b.tree").read_text().startswith("ContextDependency 2 1 ToPdf TE 1 7 ( NULL TE -1")


@pytest.mark.parametrize("folder", ["formats", "chain"])
def test_monophones_are_kaldis(call, folder):
    kaldis = need(folder)
    done(call("gmm-init-mono", str(kaldis / "topo"), "3", "m.mdl", "m.tree"))
    assert Path("m.tree").read_bytes() == (kaldis / "tree").read_bytes()


def refused(result, part):
    code, out, err = result
    assert (code, out) == (1, b"") and err.splitlines()[-1].startswith("ERROR (") and part in err


def test_mistakes(call):
    accumulate = ("acc-tree-stats", "mono.mdl", "ark:f.ark", "ark:a.ark", "1.acc")
    refused(call(accumulate[0], "--central-position=3", *accumulate[1:]), "is no place in a window")
    refused(call(accumulate[0], "--ci-phones=1:x", *accumulate[1:]), "--ci-phones=1:x: integers")
    done(call(*accumulate))
    refused(call("cluster-phones", "1.acc", "sets", "o"), "classes 1, which --pdf-class-list names")
    Path("bad").write_text("shared maybe 2\n")
    Path("q").write_text("1\n2\n9\n")
    refused(call("compile-questions", "topo", "q", "o"), "phones [9] are not in topo")
    Path("q").write_text("1\n2\n")
    call("compile-questions", "topo", "q", "q.qst")
    grow = ("build-tree", "1.acc", "bad", "q.qst", "topo", "tree")
    refused(call(*grow), "bad:1: `shared` or `not-shared`")
    Path("bad").write_text("shared split 2\n")
    refused(call(*grow), "no root for the phones [1, 3, 4, 5, 6]")
    refused(call("gmm-init-mono", "topo", "none", "m", "t"), "none is no number of columns")
    refused(call("gmm-init-mono", "--train-feats=ark:f.ark", "topo", "4", "m", "t"), "3 columns")
    refused(call("sum-tree-stats", "o", "topo"), "BTS was expected")
