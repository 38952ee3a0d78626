"""Programs for lattices, supervision of chain examples, and normalization as speech is heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import EXCHANGED_PDFS as MODEL
from kaldi_models import done
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.tables.tables import TableWriter, read_table

TREE = "ContextDependency 1 0 ToPdf TE 0 3 ( NULL CE 1 CE 0 ) EndContextDependency "
# transition-ids 1 and 3 are loops, 2 and 4 leave phones 1 and 2; a word may be 7 or 8
LATTICES = (
    b"u1 \n0\t1\t7\t1,8,2_1\n0\t1\t8\t2,6,4_3\n1\t2\t0\t0.5,3,1_4_3\n2\t0.25,0,\n\n"
    b"u2 \n0\t1\t9\t0,0,2_1_1\n1\n\n"
    b"u3 \n0\t1\t9\t0,0,1_1\n1\n\n"
)
PLAIN = b"u1 \n0\t3\t2\t7\t1,8\n0\t4\t4\t8\t2,6\n1\t5\t1\t0\t0.5,3\n2\t0.25,0\n"


@pytest.fixture
def lattices(call):
    Path("final.mdl").write_text(MODEL)
    Path("tree").write_text(TREE)
    Path("l.txt").write_bytes(LATTICES)


def refused(result, part):
    """Exit code 1, nothing printed, and one line of an error behind the command line."""
    code, out, err = result
    assert (code, out) == (1, b"")
    assert err.splitlines()[-1].startswith("ERROR (") and part in err.splitlines()[-1], err


def align(call, *options):
    words = ("lattice-align-phones", *options, "final.mdl", "ark:l.txt", "ark,t:-")
    return call(*words)


def test_copies(call, lattices):
    said = "Done copying 3 lattices."
    assert done(call("lattice-copy", "ark:l.txt", "ark,t:-"), said) == LATTICES
    done(call("lattice-copy", "ark:l.txt", "ark,scp:l.ark,l.scp"), said)
    assert done(call("lattice-copy", "scp:l.scp", "ark,t:-"), said) == LATTICES
    done(call("lattice-copy", "--write-compact=false", "ark:l.ark", "ark:p.ark"), said)
    plain = done(call("lattice-copy", "--write-compact=false", "ark:p.ark", "ark,t:-"), said)
    assert plain.startswith(
        b"u1 \n0\t3\t2\t7\t1,8\n0\t4\t4\t8\t2,6\n1\t5\t1\t0\t0.5,3\n2\t0.25,0\n"
    )
    # plain lattices are read where compact ones are wanted
    again = done(call("lattice-copy", "ark:p.ark", "ark,t:-"), said)
    assert again == LATTICES


def test_copies_of_some(call, lattices):
    Path("keys").write_text("u3 and more\nu1\n")
    said = "Wrote 2 out of 3 utterances."
    out = done(call("lattice-copy", "--include=keys", "ark:l.txt", "ark,t:-"), said)
    assert b"u1 \n" in out and b"u2" not in out and b"u3 \n" in out
    out = done(call("lattice-copy", "--exclude=keys", "ark:l.txt", "ark,t:-"), "Wrote 1 out of 3")
    assert b"u1" not in out and b"u2 \n" in out
    Path("keys").write_text("u1\n")
    said = "The utterance u2 is larger than the last key in the include list"
    done(call("lattice-copy", "--include=keys", "ark,s:l.txt", "ark,t:-"), said)
    Path("keys").write_text("u0\n")
    words = ("--include=keys", "ark:l.txt", "ark,t:-")
    code, _, err = call("lattice-copy", *words)
    assert code == 1 and "Wrote 0 out of 3" in err
    done(call("lattice-copy", "--ignore-missing", *words), "Wrote 0 out of 3")
    refused(call("lattice-copy", "--exclude=keys", *words), "should not have both")
    Path("keys").write_text("u1\n\n")
    refused(call("lattice-copy", *words), "keys: a key was expected on each line")


def test_phone_alignment(call, lattices):
    out = done(align(call, "--replace-output-symbols=true"), "aligned 2 lattices; 1 had errors")
    aligned = (
        b"u1 \n0\t1\t1\t1.5,11,2_1_1\n0\t1\t2\t2.5,9,4_3_1\n1\t2\t2\t0.25,0,4_3\n2\n\n"
        b"u2 \n0\t1\t1\t0,0,2_1_1\n1\n\n"
    )
    assert out.startswith(aligned + b"u3 \n")
    out = done(align(call))  # words: what comes behind the last one stands at the end
    words = b"u1 \n0\t1\t7\t1.5,11,2_1_1\n0\t1\t8\t2.5,9,4_3_1\n1\t0.25,0,4_3\n\n"
    assert out.startswith(words)
    code, out, err = align(call, "--output-error-lats=false")
    assert code == 0 and b"u3" not in out and "Lattice for u3 did not align correctly" in err
    Path("l.txt").write_bytes(b"u1 \n0\t1\t7\t0,0,9\n1\n\n")
    refused(align(call), "ark:l.txt: u1: 9 is no transition-id: the model has 1 to 4")


def test_best_paths_and_beams(call, lattices):
    out = done(call("lattice-1best", "ark:l.txt", "ark,t:-"), "Done converting 3 to best path")
    assert out.startswith(b"u1 \n0\t1\t8\t2,6,4_3\n1\t2\t0\t0.5,3,1_4_3\n2\t0.25,0,\n")
    out = done(call("lattice-1best", "--acoustic-scale=0.25", "ark:l.txt", "ark,t:-"))
    assert out.startswith(b"u1 \n0\t1\t7\t1,8,2_1\n")
    done(call("lattice-1best", "--word-ins-penalty=-1", "ark:l.txt", "ark:o"), "has no effect")
    refused(call("lattice-1best", "--lm-scale=0", "ark:l.txt", "ark:o"), "cannot be inverted")
    said = "For utterance u1, pruned #states from 3 to 3 and #arcs from 3 to 2"
    words = ("lattice-prune", "--acoustic-scale=0.25", "--beam=0.25", "ark:l.txt", "ark,t:-")
    assert b"\t8\t" not in done(call(*words), said, "Done 3 lattices.")
    out = done(call("lattice-prune", "--inv-acoustic-scale=4", "--beam=9", "ark:l.txt", "ark,t:-"))
    assert out == LATTICES
    refused(call("lattice-prune", "--beam=0", "ark:l.txt", "ark:o"), "--beam=0 must be positive")


def test_supervision_of_phones_and_of_lattices(call, lattices):
    Path("phones").write_text("u1 1 3 ; 2 2 \nu2 1 3\n")
    words = ("chain-get-supervision", "--left-tolerance=1", "--right-tolerance=1")
    said = "Generated chain supervision information for 2 utterances, errors on 0"
    done(call(*words, "tree", "final.mdl", "ark:phones", "ark:s.ark"), said)
    found = dict(read_table("ark:s.ark", "supervision"))
    assert [one.frames_per_sequence for one in found.values()] == [5, 3]
    fst = found["u1"].fst
    assert found["u1"].label_dim == 2 and set(fst.ilabel.tolist()) == {1, 2}
    Path("l.txt").write_bytes(LATTICES[: LATTICES.index(b"u3")])
    out = done(align(call, "--replace-output-symbols=true"))
    Path("p.txt").write_bytes(out.replace(b"4_3_1", b"2_1_1"))
    lattice = ("--lattice-input=true", "tree", "final.mdl", "ark:p.txt", "ark:s.ark")
    done(call(*words, *lattice), said)
    # with the second phone's alternative allowed there are more paths than with one
    more = dict(read_table("ark:s.ark", "supervision"))["u1"].fst
    assert len(more.arcs) > len(fst.arcs)
    done(call(*words, "--convert-to-pdfs=false", *lattice), said)
    assert dict(read_table("ark:s.ark", "supervision"))["u1"].label_dim == 4
    done(call(*words, "--weight=2", *lattice), "--weight=2 has no effect")


def test_supervision_that_fails(call, lattices):
    words = ("tree", "final.mdl", "ark:phones", "ark:s.ark")
    Path("phones").write_text("u1 1 1 ; 2 1 ; 1 1\n")
    code, _, err = call("chain-get-supervision", "--frame-subsampling-factor=3", *words)
    assert code == 1 and "too many phones for too few frames" in err and "errors on 1" in err
    code, _, err = call(
        "chain-get-supervision", "--lattice-input", *words[:2], "ark:l.txt", "ark:s"
    )
    assert code == 1 and "CompactLattice has epsilon arc." in err
    Path("phones").write_text("u1 5 3\n")
    refused(call("chain-get-supervision", *words), "u1: 5 is no phone of the transition model")
    small = ("--left-tolerance=0", "--right-tolerance=1", "--frame-subsampling-factor=3")
    refused(call("chain-get-supervision", *small, *words), "a phone could be lost")


def heard(speaker, features, stats, window, most_speaker, most_global, variances):
    """What apply-cmvn-online ought to give, from sums over each frame's window."""
    before = np.concatenate([np.zeros((0, 3)), *speaker])
    found = []
    for frame in range(len(features)):
        part = features[max(0, frame - window + 1) : frame + 1].astype(np.float64)
        count, sums, squares = len(part), part.sum(0), (part**2).sum(0)
        more = min(window - count, most_speaker, len(before))
        if more > 0:
            share = more / len(before)
            count, sums = count + more, sums + share * before.sum(0)
            squares = squares + share * (before**2).sum(0)
        more = min(window - count, most_global)
        if more > 0:
            share = more / stats[0, -1]
            count, sums = count + more, sums + share * stats[0, :-1]
            squares = squares + share * stats[1, :-1]
        mean = sums / count
        deviation = np.sqrt(squares / count - mean**2) if variances else 1.0
        found.append((features[frame] - mean) / deviation)
    return np.array(found)


@pytest.mark.parametrize("by_speaker", [False, True])
@pytest.mark.parametrize("variances", [False, True])
def test_normalization_as_speech_is_heard(call, by_speaker, variances):
    rng = np.random.default_rng(0)
    features = {name: np.float32(rng.normal(3, 2, (n, 3))) for name, n in (("a", 9), ("b", 30))}
    with TableWriter("ark:feats.ark", "matrix") as table:
        for name, matrix in features.items():
            table.write(name, matrix)
    stats = np.array([[40.0, 30, 20, 10], [200, 150, 90, 0]])
    writer = Writer(True)
    writer.write_matrix(stats)
    Path("global").write_bytes(writer.getvalue())
    Path("spk2utt").write_text("s a none b\n")
    words = ["--cmn-window=12", "--speaker-frames=6", "--global-frames=4"]
    words += [f"--norm-vars={str(variances).lower()}"]
    words += ["--spk2utt=ark:spk2utt"] if by_speaker else []
    said = ["Applied online CMVN to 2 files, or 39 frames."]
    said += ["No features for utterance none"] if by_speaker else []
    done(call("apply-cmvn-online", *words, "global", "ark:feats.ark", "ark:out.ark"), *said)
    before: list[np.ndarray] = []
    for name, matrix in read_table("ark:out.ark", "matrix"):
        wanted = heard(before, features[name], stats, 12, 6, 4, variances)
        np.testing.assert_allclose(matrix, wanted, atol=2e-5)
        before += [features[name]] if by_speaker else []
    for wrong in ("--global-frames=-1", "--cmn-window=0"):
        refused(call("apply-cmvn-online", wrong, "global", "ark:feats.ark", "ark:o"), wrong)
    copied = ["--norm-means=false", "global", "ark:feats.ark", "ark:out.ark"]
    done(call("apply-cmvn-online", *copied))
    assert all((features[name] == m).all() for name, m in read_table("ark:out.ark", "matrix"))
