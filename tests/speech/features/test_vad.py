"""Frames with speech, by a count for each frame."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.speech.features.vad import VadOptions, voiced


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_frames_with_speech(context, scale):
    energy = (np.random.default_rng(0).normal(size=60) * 4 + 10).astype(np.float32)
    options = VadOptions(10.0 * (1 - scale), scale, context, 0.6)
    threshold = 10 * (1 - scale) + scale * energy.mean()
    wanted = []
    for frame in range(60):
        around = energy[max(frame - context, 0) : frame + context + 1]
        wanted.append((around > threshold).mean() >= 0.6)
    found = voiced(np.stack((energy, -energy), axis=1), options)
    assert found.tolist() == wanted and 0 < found.sum() < 60
    assert voiced(np.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"frames_context": -1}, "vad-frames-context=-1"),
        ({"energy_mean_scale": -1.0}, "must not be negative"),
        ({"proportion_threshold": 1.0}, "vad-proportion-threshold=1"),
    ],
)
def test_options_that_do_not_go(changes, part):
    with pytest.raises(OpscopeError, match=part):
        VadOptions(**changes)
