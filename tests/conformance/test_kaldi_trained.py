"""Networks that Kaldi trained, on real speech: outputs with Kaldi's options of nnet3-compute."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from doc_blocks import blocks
from kaldi_data import FOLDER, difference, need
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.pieces import ChunkOptions, Utterance
from opscope.nnet3.lower import requests, step_net
from opscope.nnet3.lower.step_net import LoopStep
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet

MODELS = sorted(path.parent.name for path in FOLDER.glob("trained/*/model.raw")) or ["tdnn"]
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""
CASES = {
    "output": ChunkOptions(),
    "output_chunk20": ChunkOptions(
        frames_per_chunk=20,
        extra_left_context=5,
        extra_right_context=3,
        extra_left_context_initial=0,
        extra_right_context_final=0,
    ),
    "output_sub3": ChunkOptions(frame_subsampling_factor=3),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", MODELS)
def test_output(model, case, within):
    computer = ChunkComputer(need("trained", model, "model.raw"), CASES[case])
    features = read_table(f"ark:{need('trained', 'feats.ark')}", "matrix")
    wanted = dict(read_table(f"ark:{need('trained', model, f'{case}.ark')}", "matrix"))
    errors = {}
    for key, got in computer.compute_all(Utterance(key, x) for key, x in features):
        if case == "output_sub3":
            got = np.exp(got)  # computed with --apply-exp
        assert got.shape == wanted[key].shape
        errors[key] = difference(got, wanted[key])
    within(errors, TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_recurrences_as_operators(case, within, monkeypatch):
    """Those of longer recordings (`lower/requests.py`) give the scores of Kaldi's commands."""
    monkeypatch.setattr(requests, "LONG", 4)
    made = []
    monkeypatch.setattr(step_net, "LoopStep", lambda *args: made.append(1) or LoopStep(*args))
    test_output("lstmp", case, within)
    assert made


PAGE = Path(__file__).resolve().parents[2] / "docs/nnet3.md"


@pytest.mark.parametrize("file", ["model.raw", "final.mdl"])
@pytest.mark.parametrize("model", MODELS)
def test_scores_in_the_words_of_the_page(model, file, within, tmp_path, monkeypatch):
    """The page's own lines, on a network of Kaldi alone and within an acoustic model."""
    raw, features = need("trained", model, "model.raw"), need("trained", "feats.ark")
    transitions = AmNnetSimple.read(need("formats", "final.mdl")).transition_model
    monkeypatch.chdir(tmp_path)
    shutil.copy(features, "feats.ark")
    shutil.copy(raw, "model.raw")
    whole = AmNnetSimple(Nnet.read(raw), transitions)
    whole.set_context()
    whole.write("final.mdl")
    (block,) = (b for b in blocks(PAGE) if 'ChunkComputer("model.raw")' in b.text)
    names = {}
    exec(block.text.replace('"model.raw"', f'"{file}"'), names)  # our own page
    wanted = dict(read_table(f"ark:{need('trained', model, 'output.ark')}", "matrix"))
    assert list(names["scores"]) == list(wanted)
    for key, got in names["scores"].items():
        np.testing.assert_allclose(got, wanted[key], rtol=TOLERANCE, atol=TOLERANCE)
    within({key: difference(names["scores"][key], wanted[key]) for key in wanted}, TOLERANCE)
