"""The networks of trainings at their start."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.network.nnet import Nnet
from opscope.speech.training import networks
from opscope.speech.training.preparing import MOMENTS


@pytest.mark.parametrize("stage", ["network", "tdnnf-network"])
def test_columns_of_the_input_keep_their_proportions(trained, refined, stage):
    work = trained / "refined.work"
    mean, deviation = Reader(str(work / "features" / MOMENTS)).read_matrix(np.float64)
    assert deviation.max() > 5 * deviation.min()
    scaled = Nnet.read(str(work / stage / "0.raw")).components["scaled"]
    rows = np.stack([mean, mean + deviation]) @ scaled.linear_params.T + scaled.bias_params
    np.testing.assert_allclose(rows[0], 0, atol=1e-4)
    np.testing.assert_allclose(rows[1], deviation / np.sqrt(np.mean(deviation**2)), atol=1e-4)


def test_a_flat_start_is_regularized_as_in_kaldis_recipe():
    lines = networks.tdnn(8, 5).splitlines()
    assert all(line.endswith(" l2-regularize=0.01") for line in lines[:-1])
    assert lines[-1].endswith(" dim=5 include-log-softmax=false l2-regularize=0.005")
