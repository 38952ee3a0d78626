"""Networks that Kaldi trained, on real speech: outputs with Kaldi's options of nnet3-compute."""

from __future__ import annotations

import numpy as np
import pytest

from kaldi_data import FOLDER, difference, need
from opscope.nnet3.components.batch_norm import BatchNormComponent
from opscope.nnet3.inference.chunks import ChunkComputer, ChunkOptions, Utterance
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.tables.tables import read_table

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
    nnet = Nnet.read(need("trained", model, "model.raw"))
    for component in nnet.components.values():
        if isinstance(component, BatchNormComponent):
            component.test_mode = True
    computer = ChunkComputer(nnet, CASES[case])
    features = read_table(f"ark:{need('trained', 'feats.ark')}", "matrix")
    wanted = dict(read_table(f"ark:{need('trained', model, f'{case}.ark')}", "matrix"))
    errors = {}
    for key, got in computer.compute_all(Utterance(key, x) for key, x in features):
        if case == "output_sub3":
            got = np.exp(got)  # computed with --apply-exp
        assert got.shape == wanted[key].shape
        errors[key] = difference(got, wanted[key])
    within(errors, TOLERANCE)
