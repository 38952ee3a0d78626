"""Looped (streaming) computation of networks that Kaldi trained, against Kaldi's own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kaldi_data import FOLDER, difference, need
from opscope.nnet3.chunks import Utterance
from opscope.nnet3.components.normalize import BatchNormComponent
from opscope.nnet3.looped_computer import LoopedComputer, LoopedOptions
from opscope.nnet3.nnet import Nnet
from opscope.nnet3.tables import read_table

CASES = sorted(
    (path.parent.name, int(re.sub(r"\D", "", path.stem)))
    for path in FOLDER.glob("trained/*/output_looped*.ark")
) or [("tdnn", 20)]
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""


@pytest.mark.parametrize(
    ("model", "chunk", "optimize"), [*((*case, True) for case in CASES), ("tdnn", 20, False)]
)
def test_looped_output(model, chunk, optimize, within):
    nnet = Nnet.read(need("trained", model, "model.raw"))
    for component in nnet.components.values():
        if isinstance(component, BatchNormComponent):
            component.test_mode = True
    options = LoopedOptions(frames_per_chunk=chunk)
    computer = LoopedComputer(nnet, options, optimize=optimize)
    features = list(read_table(f"ark:{need('trained', 'feats.ark')}", "matrix"))
    wanted = dict(
        read_table(f"ark:{need('trained', model, f'output_looped{chunk}.ark')}", "matrix")
    )
    errors = {}
    for key, got in computer.compute_all(Utterance(key, x) for key, x in features):
        assert got.shape == wanted[key].shape
        errors[key] = difference(got, wanted[key])
    within(errors, TOLERANCE)
    key, frames = features[0]
    stream = computer.stream()
    parts = [stream.accept(frames[i : i + 7]) for i in range(0, len(frames), 7)]
    streamed = np.concatenate([*parts, stream.finish()])
    np.testing.assert_allclose(streamed, computer.compute(frames), rtol=0, atol=1e-6)
