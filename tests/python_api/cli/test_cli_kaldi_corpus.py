"""Programs that copy tables and add up features, as scripts call them to prepare a corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chain_graphs import random_hmm
from kaldi_models import done, one_state_model
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.tables import TableWriter, read_table


@pytest.fixture
def feats(call):
    rng = np.random.default_rng(0)
    made = {name: np.float32(rng.normal(2, 3, (n, 3))) for name, n in (("a", 9), ("b", 4))}
    with TableWriter("ark:feats.ark", "matrix") as table:
        for name, matrix in made.items():
            table.write(name, matrix)
    return made


def refused(result, part):
    """Exit code 1, nothing printed, and one line of an error behind the command line."""
    code, out, err = result
    assert (code, out) == (1, b"")
    assert err.splitlines()[-1].startswith("ERROR (") and part in err.splitlines()[-1], err


def matrices(name):
    return dict(read_table(name, "matrix"))


def test_features(call, feats):
    words = ("--write-num-frames=ark,t:frames", "ark:feats.ark", "ark,scp:o.ark,o.scp")
    done(call("copy-feats", *words), "Copied 2 feature matrices.")
    assert all((feats[name] == matrix).all() for name, matrix in matrices("scp:o.scp").items())
    assert Path("frames").read_text() == "a 9 \nb 4 \n"
    words = ("--compress", "--compression-method=3", "ark:feats.ark", "ark:c.ark")
    done(call("copy-feats", *words))
    assert Path("c.ark").stat().st_size < Path("o.ark").stat().st_size
    for name, matrix in matrices("ark:c.ark").items():
        np.testing.assert_allclose(matrix, feats[name], atol=1e-3)
    assert Path("c.ark").read_bytes()[4:7] == b"CM2"
    refused(call("copy-feats", "--compression-method=8", *words[2:]), "none of 1 to 7")
    refused(call("copy-feats", "--htk-in=true", *words[2:]), "invalid option --htk-in=true")
    refused(call("copy-feats", "ark:feats.ark", "o"), "a table is copied to a table")
    with TableWriter("ark:none.ark", "matrix"):
        pass
    code, _, err = call("copy-feats", "ark:none.ark", "ark:o.ark")
    assert code == 1 and "Copied 0 feature matrices." in err


def test_parts_of_features(call, feats):
    done(call("subsample-feats", "--n=3", "--offset=2", "ark:feats.ark", "ark:o.ark"))
    assert {k: len(m) for k, m in matrices("ark:o.ark").items()} == {"a": 3, "b": 1}
    assert (matrices("ark:o.ark")["a"] == feats["a"][[2, 5, 8]]).all()
    said = "For utterance b, output would have no rows", "Processed 13 input frames and 2 output"
    done(call("subsample-feats", "--n=4", "--offset=4", "ark:feats.ark", "ark:o.ark"), *said)
    done(call("subsample-feats", "--n=-2", "ark:feats.ark", "ark:o.ark"))
    assert (matrices("ark:o.ark")["b"] == feats["b"].repeat(2, 0)).all()
    for options in (("--n=0",), ("--n=-1", "--offset=1")):
        refused(call("subsample-feats", *options, "ark:feats.ark", "ark:x"), "no such frames")
    done(call("subset-feats", "--n=1", "ark:feats.ark", "ark:o.ark"))
    assert list(matrices("ark:o.ark")) == ["a"]
    Path("keys").write_text("b and more\n")
    for option, key in (("include", "b"), ("exclude", "a")):
        told = done(
            call("subset-feats", f"--{option}=keys", "ark:feats.ark", "ark,t:-"), "out of 2"
        )
        assert told.startswith(f"{key}  [".encode()) and told.count(b"]") == 1
    refused(call("subset-feats", "--n=1", "--include=keys", "ark:feats.ark", "ark:x"), "more than")


def test_transitions_in_words(call):
    Path("final.mdl").write_text(one_state_model(2, stays=-0.25, leaves=-1.5))
    Path("phones.txt").write_text("<eps> 0\nsil 1\na 2\n")
    told = done(call("show-transitions", "phones.txt", "final.mdl")).decode()
    assert told == (
        "Transition-state 1: phone = sil hmm-state = 0 pdf = 0\n"
        " Transition-id = 1 p = 0.778801 [self-loop]\n"
        " Transition-id = 2 p = 0.22313 [0 -> 1]\n"
        "Transition-state 2: phone = a hmm-state = 0 pdf = 1\n"
        " Transition-id = 3 p = 0.778801 [self-loop]\n"
        " Transition-id = 4 p = 0.22313 [0 -> 1]\n"
    )
    writer = Writer(False)
    writer.write_vector(np.array([4.0, 0.5], np.float32))
    Path("occs").write_bytes(writer.getvalue())
    told = done(call("show-transitions", "phones.txt", "final.mdl", "occs")).decode()
    assert " Transition-id = 4 p = 0.22313 count of pdf = 0.5 [0 -> 1]\n" in told
    Path("phones.txt").write_text("sil 1\n")
    refused(call("show-transitions", "phones.txt", "final.mdl"), "the phone 2 has no name")


def test_matrices(call, feats):
    assert done(call("matrix-dim", "ark:feats.ark")) == b"a\t9\t3\nb\t4\t3\n"
    writer = Writer(True)
    writer.write_matrix(feats["b"])
    Path("m").write_bytes(writer.getvalue())
    assert done(call("matrix-dim", "m")) == b"4\t3\n"
    done(call("copy-feats", "--binary=false", "m", "t"), "Copied features from m to t")
    np.testing.assert_allclose(Reader("t").read_matrix(), feats["b"], rtol=1e-5)
    done(call("copy-matrix", "--scale=2", "--apply-exp", "m", "e"), "Copied matrix to e")
    np.testing.assert_allclose(Reader("e").read_matrix(), np.exp(2 * feats["b"]), rtol=1e-5)
    words = ("--apply-softmax-per-row", "--apply-power=0.5", "ark:feats.ark", "ark:s.ark")
    done(call("copy-matrix", *words), "Copied 2 matrices.")
    for name, matrix in matrices("ark:s.ark").items():
        wanted = np.exp(feats[name]) / np.exp(feats[name]).sum(1, keepdims=True)
        np.testing.assert_allclose(matrix, np.sqrt(wanted), rtol=1e-5)
    done(call("copy-matrix", "--apply-log", "ark:feats.ark", "ark:l.ark"))
    floored = np.maximum(feats["a"], 1e-20)
    np.testing.assert_allclose(matrices("ark:l.ark")["a"], np.log(floored), rtol=1e-5)
    refused(call("copy-matrix", "--apply-log", "--apply-exp", "m", "o"), "Only one of apply-log")


def stats_of(*matrices):
    joined = np.concatenate(matrices).astype(np.float64)
    found = np.zeros((2, 4))
    found[:, :3] = joined.sum(0), (joined**2).sum(0)
    found[0, 3] = len(joined)
    return found


def test_statistics(call, feats):
    said = "Done accumulating CMVN stats for 2 utterances; 0 had errors."
    done(call("compute-cmvn-stats", "ark:feats.ark", "ark:u.ark"), said)
    for name, stats in read_table("ark:u.ark", "double_matrix"):
        np.testing.assert_allclose(stats, stats_of(feats[name]), rtol=1e-6)
    done(call("compute-cmvn-stats", "ark:feats.ark", "all"), said, "Wrote global CMVN stats to all")
    np.testing.assert_allclose(Reader("all").read_matrix(), stats_of(*feats.values()), rtol=1e-6)
    Path("spk2utt").write_text("s b a\nt none\n")
    words = ("--spk2utt=ark:spk2utt", "ark:feats.ark", "ark:s.ark")
    said = ["Did not find features for utterance none", "No stats accumulated for speaker t"]
    done(call("compute-cmvn-stats", *words), *said, "for 2 utterances; 1 had errors.")
    ((speaker, stats),) = read_table("ark:s.ark", "double_matrix")
    np.testing.assert_allclose(stats, stats_of(feats["b"], feats["a"]), rtol=1e-6)
    assert speaker == "s"
    # what these make of features has no mean
    Path("utt2spk").write_text("a s\nb s\n")
    done(call("apply-cmvn", "--utt2spk=ark:utt2spk", "ark:s.ark", "ark:feats.ark", "ark:n.ark"))
    mean = np.concatenate([*matrices("ark:n.ark").values()]).mean(0)
    np.testing.assert_allclose(mean, 0, atol=1e-5)
    refused(call("compute-cmvn-stats", *words[:2], "file"), "did you forget ark:?")


def test_statistics_with_weights(call, feats):
    weights = {"a": np.float32([1, 0, 0.5, 1, 1, 0, 0, 2, 1]), "b": np.ones(3, np.float32)}
    with TableWriter("ark:w.ark", "vector") as table:
        for name, vector in weights.items():
            table.write(name, vector)
    words = ("--weights=ark:w.ark", "ark:feats.ark", "ark:s.ark")
    said = "Weights for utterance b have wrong dimension 3 vs. 4"
    done(call("compute-cmvn-stats", *words), said, "for 1 utterances; 1 had errors.")
    ((name, stats),) = read_table("ark:s.ark", "double_matrix")
    column = weights["a"][:, None].astype(np.float64)
    assert name == "a" and stats[0, 3] == 6.5
    np.testing.assert_allclose(stats[0, :3], (feats["a"] * column).sum(0), rtol=1e-6)
    np.testing.assert_allclose(stats[1, :3], (feats["a"] ** 2 * column).sum(0), rtol=1e-6)


def test_fsts(call):
    fst = random_hmm(np.random.default_rng(0))
    with TableWriter("ark,t:f.txt", "fst") as table:
        table.write("a", fst)
        table.write("b", fst)
    done(call("fstcopy", "ark:f.txt", "ark,scp:f.ark,f.scp"), "Copied 2 FSTs.")
    # behind the key stands OpenFst's magic number, as in Kaldi's binary tables
    assert Path("f.ark").read_bytes().startswith(b"a \xd6\xfd\xb2\x7e\x06\0\0\0vector")
    assert done(call("fstcopy", "scp:f.scp", "ark,t:-")) == Path("f.txt").read_bytes()
