"""Programs that Kaldi's training scripts call besides: features, alignments, trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import EXCHANGED_PDFS as MODEL
from kaldi_models import done
from opscope.framework.base.backend import gpu_present
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.testing.device_double import instead_of_cupy

TREE = """ContextDependency 3 1 ToPdf TE 1 3 ( NULL CE 4 SE 0 [ 1 ]
{ CE 0 CE 6 } )
EndContextDependency """
ALI = {"u1": [1, 1, 2, 3, 4], "u2": [3, 3, 4]}


@pytest.fixture
def tables(call):
    """Features of two speakers, their statistics, alignments, a model and a tree."""
    rng = np.random.default_rng(0)
    feats = {name: np.float32(rng.normal(2, 3, (5, 3))) for name in ("u1", "u2")}
    with (
        TableWriter("ark:feats.ark", "matrix") as writer,
        TableWriter("ark,t:s.ark", "token") as map_,
    ):
        for name, matrix in feats.items():
            writer.write(name, matrix)
            map_.write(name, f"s{name[1]}")
    with TableWriter("ark:cmvn.ark", "double_matrix") as writer:
        for name, matrix in feats.items():
            stats = np.zeros((2, 4))
            stats[:, :3] = matrix.sum(0), (matrix.astype(float) ** 2).sum(0)
            stats[0, 3] = 5
            writer.write(f"s{name[1]}", stats)
    with TableWriter("ark:ali.ark", "int_vector") as writer:
        for name, ids in ALI.items():
            writer.write(name, np.array(ids, np.int32))
    Path("final.mdl").write_text(MODEL)
    Path("tree").write_text(TREE)
    return feats


def refused(result, part):
    """Exit code 1, nothing printed, and one line of an error behind the command line."""
    code, out, err = result
    assert (code, out) == (1, b"")
    lines = err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("ERROR (") and part in lines[1], err


def normalized(call, *options):
    words = ["--utt2spk=ark:s.ark", *options, "ark:cmvn.ark", "ark:feats.ark", "ark:out.ark"]
    done(call("apply-cmvn", *words))
    return dict(read_table("ark:out.ark", "matrix"))


def test_apply_cmvn(call, tables):
    for name, matrix in normalized(call).items():
        np.testing.assert_allclose(matrix, tables[name] - tables[name].mean(0), atol=1e-5)
    for matrix in normalized(call, "--norm-vars=true").values():
        np.testing.assert_allclose(matrix.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(matrix.std(0), 1, rtol=1e-5)
    for name, matrix in normalized(call, "--skip-dims=1").items():
        np.testing.assert_array_equal(matrix[:, 1], tables[name][:, 1])
        np.testing.assert_allclose(matrix[:, 0].mean(), 0, atol=1e-5)
    for name, matrix in normalized(call, "--reverse", "--norm-vars=true").items():
        wanted = tables[name] * tables[name].std(0) + tables[name].mean(0)
        np.testing.assert_allclose(matrix, wanted, rtol=1e-4)
    for name, matrix in normalized(call, "--norm-means=false").items():
        np.testing.assert_array_equal(matrix, tables[name])


def test_cmvn_of_one_file_and_of_missing_speakers(call, tables):
    writer = Writer(True)
    writer.write_matrix(next(iter(read_table("ark:cmvn.ark", "double_matrix")))[1])
    Path("one.mat").write_bytes(writer.getvalue())
    done(call("apply-cmvn", "one.mat", "ark:feats.ark", "ark:out.ark"), "to 2 utterances")
    found = dict(read_table("ark:out.ark", "matrix"))
    np.testing.assert_allclose(found["u2"], tables["u2"] - tables["u1"].mean(0), atol=1e-5)
    Path("s.ark").write_text("u1 s1\nu2 s9\n")
    words = ("apply-cmvn", "--utt2spk=ark:s.ark", "ark:cmvn.ark", "ark:feats.ark", "ark:out.ark")
    done(call(*words), "No normalization statistics available for key u2", "errors on 1")


def test_cmvn_that_does_not_fit(call, tables):
    with TableWriter("ark:bad.ark", "double_matrix") as writer:
        for name in ("u1", "u2"):
            writer.write(name, np.zeros((2, 4)))
    out = ("ark:feats.ark", "ark:out.ark")
    refused(call("apply-cmvn", "ark:bad.ark", *out), "u1: statistics of 0 frames are not enough")
    with TableWriter("ark:bad.ark", "double_matrix") as writer:
        writer.write("u1", np.ones((2, 9)))
    refused(call("apply-cmvn", "ark:bad.ark", *out), "[2, 9] for features of 3 columns")
    wrong = ("--norm-vars", "--norm-means=false", "ark:bad.ark")
    refused(call("apply-cmvn", *wrong, *out), "wants --norm-means=true")
    refused(call("apply-cmvn", "--skip-dims=a", "ark:cmvn.ark", *out), "numbers with ':'")


def test_sizes_of_features(call, tables):
    assert done(call("feat-to-dim", "ark:feats.ark", "-")) == b"3\n"
    assert done(call("feat-to-len", "ark:feats.ark")) == b"10\n"
    assert done(call("feat-to-len", "ark:feats.ark", "ark,t:-")) == b"u1 5 \nu2 5 \n"
    with TableWriter("ark:none.ark", "matrix"):
        pass
    refused(call("feat-to-dim", "ark:none.ark", "-"), "no features in it")


def test_alignments(call, tables):
    done(call("ali-to-pdf", "final.mdl", "ark:ali.ark", "ark:pdf.ark"), "Converted 2 alignments")
    found = {key: ids.tolist() for key, ids in read_table("ark:pdf.ark", "int_vector")}
    assert found == {"u1": [1, 1, 1, 0, 0], "u2": [0, 0, 0]}
    done(call("ali-to-post", "ark:ali.ark", "ark:post.ark"), "Converted 2 alignments.")
    post = dict(read_table("ark:post.ark", "posterior"))["u2"]
    assert (post.ids.tolist(), post.weights.tolist()) == ([3, 3, 4], [1, 1, 1])
    done(call("post-to-tacc", "final.mdl", "ark:post.ark", "t.acc"), "over 2 utterances")
    assert Reader("t.acc").read_vector().tolist() == [0, 2, 1, 3, 2]
    done(call("post-to-tacc", "--per-pdf=true", "final.mdl", "ark:post.ark", "p.acc"))
    assert Reader("p.acc").read_vector().tolist() == [3, 3]  # as Kaldi: without the last id
    done(call("copy-int-vector", "ark:ali.ark", "ark,scp:a.ark,a.scp"), "Copied 2 vectors of int32")
    assert dict(read_table("scp:a.scp", "int_vector"))["u1"].tolist() == ALI["u1"]
    refused(call("copy-int-vector", "ark:ali.ark", "a"), "a table is copied to a table")
    Path("bad.ark").write_bytes(b"u1 1 9\n")
    words = ("final.mdl", "ark:bad.ark", "ark:x")
    refused(call("ali-to-pdf", *words), "u1: a transition-id is none of 1 to 4")


def test_trees_and_gpus(call, tables):
    told = b"num-pdfs 7\ncontext-width 3\ncentral-position 1\n"
    assert done(call("tree-info", "tree")) == told
    assert call("cuda-compiled", "--print-args=false")[0] in (0, 1)


def test_a_gpu_that_computes(call):
    """On the stand-in for CuPy; without it the program says what is missing."""
    if not gpu_present():
        code, _, err = call("cuda-gpu-available")
        assert code == 1 and "a GPU was asked for" in err.splitlines()[-1]
    with instead_of_cupy():
        done(call("cuda-gpu-available"), "IS CUDA GPU AVAILABLE?", "### Test OK! ###")
