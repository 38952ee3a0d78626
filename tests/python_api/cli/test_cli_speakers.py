"""Programs for Gaussians, iVector extractors and PLDA: what is missing, what does not fit.

What they compute is in `tests/conformance/test_kaldi_ivectors.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter, read_table

DIM = 3


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The command line in a folder with features, Gaussians, posteriors and vectors."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    tables = {"f": "matrix", "g": "int_vector_vector", "p": "posterior", "w": "vector"}
    tables |= {"v": "vector"}
    entries = {
        "f": lambda: rng.normal(size=(40, DIM)).astype(np.float32) * 3,
        "g": lambda: rng.integers(0, 2, (40, 2)),
        "p": lambda: Posterior.from_frames([[(0, 0.25), (1, 0.75)]] * 40),
        "w": lambda: np.ones(40, np.float32),
        "v": lambda: rng.normal(size=DIM).astype(np.float32),
    }
    for name, kind in tables.items():
        with TableWriter(f"ark:{name}", kind) as table:
            for key in ("a", "b", "c", "d", "e"):
                table.write(key, entries[name]())
    for name in ("g", "p", "w"):  # of utterance b alone, with too few frames
        with TableWriter(f"ark:short.{name}", tables[name]) as table:
            short = entries[name]()
            table.write("b", Posterior.from_frames([[(0, 1.0)]]) if name == "p" else short[:5])
            table.write("c", entries[name]())
    Path("spk2utt").write_text("s a b\nt c d e\nu nobody\n")
    Path("utt2spk").write_text("a s\nb s\nc t\nd t\n")
    Path("trials").write_text("s a\ns nobody\nnobody a\n")
    start = ("gmm-global-init-from-feats", "--num-gauss=2", "--num-iters=2", "ark:f", "0.dubm")
    done(call_main(*start), "Kept 200 out of 200 input frames = 100%", "Wrote model to 0.dubm")
    done(call_main("gmm-global-to-fgmm", "0.dubm", "0.ubm"))
    shape = ("--use-weights=false", "--ivector-dim=2")
    done(call_main("ivector-extractor-init", *shape, "0.ubm", "0.ie"), "dimension 2")
    return call_main


def test_what_is_missing_is_passed_over_and_counted(call):
    both = ("gmm-global-acc-stats", "fgmm-global-acc-stats")
    for program, model in zip(both, ("0.dubm", "0.ubm"), strict=True):
        for option in ("--gselect=ark:short.g", "--weights=ark:short.w"):
            told = ("for utterance a", "5 frames of 40", "Done 1 files, 4 with errors")
            done(call(program, option, model, "ark:f", "acc"), *told)
        code, _, err = call(program, "--gselect=ark:short.g", model, "ark:v", "acc")
        assert code == 1 and "this is a vector" in err
    args = ("0.ie", "ark:f", "ark:short.p")
    told = "No posteriors for utterance a", "Size mismatch between posterior 1 and features 40"
    done(call("ivector-extractor-acc-stats", *args, "acc"), *told, "Done 1 files, 4 with errors")
    done(call("ivector-extract", *args, "ark:i"), *told, "Done 1 iVectors")
    by_speaker = ("ivector-extract", "--spk2utt=ark:spk2utt", "--max-count=10", "0.ie")
    told = "No features for utterance nobody", "No stats accumulated for speaker u", "by scale"
    done(call(*by_speaker, "ark:f", "ark:p", "ark:i"), *told)
    assert [key for key, _ in read_table("ark:i", "vector")] == ["s", "t"]
    absent = "No iVector present in input for utterance nobody"
    told = absent, "speaker u since no utterances had iVectors", "5 utterances (1 absent"
    done(call("ivector-mean", "ark:spk2utt", "ark:v", "ark:m", "ark:n"), *told)
    told = "e has no speaker", "Read 4 utterances, 1 with errors"
    done(call("ivector-compute-lda", "--dim=2", "ark:v", "ark:utt2spk", "lda"), *told)
    told = absent, "No vector of speaker u"
    done(call("ivector-compute-plda", "ark:spk2utt", "ark:v", "plda"), *told)
    score = ("ivector-plda-scoring", "--num-utts=ark:n", "plda", "ark:m", "ark:v", "trials")
    told = "Key nobody not present in ark:v", "Processed 1 trials, 2 had errors"
    done(call(*score, "scores"), *told)
    assert Path("scores").read_text().startswith("s a ")
    unvoiced = ("compute-vad", "--vad-energy-threshold=1000", "ark:f", "ark:vad")
    code, _, err = call(*unvoiced)
    assert code == 1 and "5 were completely unvoiced" in err
    code, _, err = call("select-voiced-frames", "ark:f", "ark:vad", "ark:o")
    assert code == 1 and "No features were judged as voiced" in err
    code, _, err = call("scale-post", "ark:p", "ark:nothing.scale", "ark:o")
    assert code == 1
    done(call("scale-post", "ark:p", "0", "ark:o"), "Done 5 posteriors")
    assert all(not len(post.ids) for _, post in read_table("ark:o", "posterior"))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("gmm-global-init-from-feats --num-gauss=30 ark:f o", "200 frames for 30 Gaussians"),
        ("gmm-global-init-from-feats --num-gauss=0 ark:f o", "--num-gauss must be positive"),
        ("gmm-gselect --n=0 0.dubm ark:f ark:o", "--n=0 must be positive"),
        ("gmm-global-get-post --min-post=1 0.dubm ark:f ark:o", "--min-post=1 must lie"),
        ("fgmm-gselect 0.dubm ark:f ark:o", "<FullGMM>"),
        ("gmm-global-est 0.dubm 0.ubm o", "<GMMACCS>"),
        ("gmm-global-acc-stats --update-flags=x 0.dubm ark:f o", "letters of mvwta"),
        ("scale-post ark:p half ark:o", "half is neither a number"),
        ("scale-post ark:p \udcff ark:o", "is neither a number"),
        ("ivector-extractor-init --ivector-dim=0 0.ubm o", "--ivector-dim=0"),
        ("ivector-extract 0.ie ark:f ark:wrong.p ark:o", "there are 2"),
        ("ivector-compute-lda --dim=4 ark:v ark:utt2spk o", "--dim=4 must be positive"),
        ("ivector-compute-plda ark:few ark:v o", "too few"),
        ("transform-vec eye.mat ark:v ark:o", "for features of 3 columns"),
        ("compute-eer trials", "a score and target or nontarget"),
        ("compute-eer bytes", "a score and target or nontarget"),
        ("ivector-subtract-global-mean short.vec ark:v ark:o", "3 elements, not 2"),
        ("select-voiced-frames ark:f ark:halves ark:o", "numbers other than 0 and 1"),
    ],
)
def test_mistakes(call, line, part):
    with TableWriter("ark:wrong.p", "posterior") as table:
        table.write("a", Posterior.from_frames([[(2, 1.0)]] * 40))
    with TableWriter("ark:halves", "vector") as table:
        table.write("a", np.full(40, 0.5, np.float32))
    Path("few").write_text("s a b\n")
    Path("bytes").write_bytes(b"\xff target\n")
    Path("eye.mat").write_text(" [\n 1 0\n 0 1 ]\n")
    Path("short.vec").write_text(" [ 1 2 ]\n")
    code, _, err = call(*line.split())
    last = err.splitlines()[-1]
    assert code == 1 and last.startswith("ERROR (") and part in last, err
