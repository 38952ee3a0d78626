"""lattice-lmrescore and its forms, arpa-to-const-arpa: Kaldi's results, and mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done, refused
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.programs.base.graphs import open_fst, save_fst
from opscope.speech.language_model.automaton import projected
from speech_lattices import paths

GOLDEN = Path(__file__).parents[2] / "golden" / "rescoring"
RUNS = json.loads((GOLDEN / "kaldi.json").read_text())["runs"]
SYMBOLS = "--bos-symbol=1", "--eos-symbol=2"
LM = "arpa2fst", "--disambig-symbol=#0", "--bos-symbol=1", "--eos-symbol=2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models that Kaldi's programs had; FSTs are made of the ARPA files."""
    place = tmp_path_factory.mktemp("rescoring")
    shutil.copytree(GOLDEN, place, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        labels = "".join(f"{word} {word}\n" for word in range(1, 13))
        Path("words").write_text(f"<eps> 0\n{labels}#0 100\n")
        for name in ("small", "big"):
            done(call_main(*LM, "--read-symbol-table=words", f"{name}.arpa", f"{name}.fst"))
        save_fst(projected(open_fst("big.fst")), "projected.fst")
    return place


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def table(text: str) -> dict[str, CompactLattice]:
    Path("table").write_text(text)
    return dict(read_table("ark:table", "compact_lattice"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["command"].split(" ark")[0])
def test_lattices_are_kaldis(run):
    """States, arcs and the costs of paths, whose parts have six digits in text."""
    ours = table(done(call_main(*run["command"].split())).decode())
    theirs = table(run["lattices"])
    assert list(ours) == list(theirs) and len(ours) > 1
    for key, lattice in theirs.items():
        assert (ours[key].states, ours[key].num_arcs) == (lattice.states, lattice.num_arcs)
        mine, wanted = paths(ours[key]), paths(lattice)
        assert mine.keys() == wanted.keys()
        for path, costs in wanted.items():
            np.testing.assert_allclose(mine[path], costs, rtol=5e-6, atol=1e-4)


@pytest.mark.parametrize("name", ["big", "uni"])
def test_const_arpa_is_kaldis(name):
    done(call_main("arpa-to-const-arpa", *SYMBOLS, "--unk-symbol=3", f"{name}.arpa", "made"))
    assert Path("made").read_bytes() == Path(f"{name}.carpa").read_bytes()


def test_a_scale_of_zero_changes_nothing():
    run = "lattice-lmrescore-const-arpa", "--lm-scale=0", "ark:lats", "big.carpa", "ark,t:-"
    assert done(call_main(*run)).decode().split() == Path("lats").read_text().split()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("arpa-to-const-arpa big.arpa o", "Please set --bos-symbol and --eos-symbol"),
        ("arpa-to-const-arpa --bos-symbol=1 --eos-symbol=7 big.arpa o", "the word 7 has no"),
        ("arpa-to-const-arpa --bos-symbol=1 --eos-symbol=77 big.arpa o", "the label 77 of </s>"),
        ("arpa-to-const-arpa --bos-symbol=1 --eos-symbol=2 named.arpa o", "labels above 0"),
        ("arpa-to-const-arpa --bos-symbol=1 --eos-symbol=2 bare.arpa o", "no back-off weight"),
        ("lattice-lmrescore-const-arpa ark:lats big.arpa ark:o", "a const-ARPA file is binary"),
        ("lattice-lmrescore-const-arpa ark:lats cut.carpa ark:o", "bytes are wanted"),
        ("lattice-lmrescore-kaldi-rnnlm emb.mat rnn.raw ark:lats ark:o", "You must set --bos"),
        (
            "lattice-lmrescore-kaldi-rnnlm --bos-symbol=1 --eos-symbol=99 emb.mat rnn.raw ark:lats"
            " ark:o",
            "--eos-symbol=99 is none of the labels of the 13 words",
        ),
        (
            "lattice-lmrescore-pruned --acoustic-scale=0 small.fst big.fst ark:lats ark:o",
            "Acoustic scale cannot be zero",
        ),
        (
            "lattice-lmrescore-pruned --growth-ratio=1 small.fst big.fst ark:lats ark:o",
            "growth_ratio=1",
        ),
        ("lattice-lmrescore ark:lats loop.fst ark:o", "a: the lattice has a loop"),
        ("lattice-lmrescore-pruned silent.fst big.fst ark:lats ark:o", "a: arcs without labels"),
    ],
)
def test_mistakes(command, told):
    Path("named.arpa").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1 <s>\n-0.3 2\n\n\\end\\\n")
    Path("bare.arpa").write_text(
        "\\data\\\nngram 1=2\nngram 2=1\n\n\\1-grams:\n-1 1\n-0.3 2\n\n"
        "\\2-grams:\n-0.5 1 2\n\n\\end\\\n"
    )
    Path("cut.carpa").write_bytes(Path("big.carpa").read_bytes()[:900])
    words = "".join(f"0 0 {word} {word}\n" for word in range(3, 13))
    for name, arcs in (("loop", words), ("silent", "")):
        Path("text").write_text(f"0 0 0 0 1\n{arcs}0\n")
        done(call_main("fstcompile", "text", f"{name}.fst"))
    refused(call_main(*command.split()), told)


def test_models_without_a_common_word():
    Path("none.txt").write_text("0 0 77 77 1\n0\n")
    done(call_main("fstcompile", "none.txt", "none.fst"))
    code, _, err = call_main("lattice-lmrescore", "ark:lats", "none.fst", "ark:o")
    assert code == 1 and "Empty lattice for utterance a (incompatible LM?)" in err
    code, _, err = call_main("lattice-lmrescore-pruned", "none.fst", "big.fst", "ark:lats", "ark:o")
    assert code == 1 and "a: Composed lattice has no states" in err
