"""The rules of training by jobs, against numbers of Kaldi's scripts and by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from component_lines import from_config
from opscope.framework.base.errors import AttributeTypeError, FormatError
from opscope.nnet3.training.schedule import (
    Schedule,
    dropout_edits,
    halved,
    kept_jobs,
    saturation,
)


def schedule(epochs=4.0, archives=6, copies=1, jobs=(2, 4, 1), rates=(0.01, 0.001)):
    return Schedule(epochs, archives, copies, *jobs, *rates)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        # what Kaldi's own test of get_current_num_jobs wants for 12 iterations of 2 to 9 jobs
        (1, [2, 3, 3, 4, 4, 5, 6, 6, 7, 7, 8, 8]),
        (3, [2, 3, 3, 3, 3, 6, 6, 6, 6, 6, 9, 9]),
    ],
)
def test_jobs(step, wanted):
    made = schedule(epochs=6, archives=11, jobs=(2, 9, step))
    assert made.iterations == 12
    assert [made.jobs(iteration) for iteration in range(12)] == wanted


def test_archives_rates_and_shares():
    made = schedule()  # 24 archives, 8 iterations
    assert made.iterations == 8 and made.to_process == 24
    jobs = [made.jobs(i) for i in range(8)]
    assert jobs == [2, 2, 3, 3, 3, 3, 4, 4]
    assert [made.processed(i) for i in range(8)] == [0, 2, 4, 7, 10, 13, 16, 20]
    assert [made.place(3, job) for job in (1, 2, 3)] == [(2, 1), (3, 1), (4, 1)]
    assert made.place(2, 3) == (1, 1)  # the seventh archive processed is the first, again
    assert made.learning_rate(0) == 2 * 0.01
    assert made.learning_rate(3) == pytest.approx(3 * 0.01 * 0.1 ** (7 / 24), rel=1e-12)
    assert made.learning_rate(7) == 4 * 0.001
    assert made.share(4) == 10 / 24


def test_turns_of_frames():
    """Each pass over the archives takes another frame, neighbors in an archive another, too."""
    made = schedule(epochs=1, archives=2, copies=3, jobs=(1, 1, 1))
    assert made.iterations == 6
    assert [made.turn(iteration, 1) for iteration in range(6)] == [1, 2, 2, 0, 0, 1]


def test_models_that_are_combined():
    assert schedule(jobs=(1, 1, 1)).combined(20) == list(range(13, 25))
    assert schedule(epochs=20, jobs=(1, 1, 1)).combined(20) == list(range(101, 121))
    # half an epoch of 100 archives is 51 models: every second of them, and the last
    made = schedule(epochs=3, archives=100, jobs=(1, 1, 1)).combined(20)
    assert made == [*range(250, 301, 2)] and len(made) == 26
    assert schedule(epochs=1, archives=2, jobs=(1, 1, 1)).combined(20) == [2]


def test_minibatches_of_the_first_iteration():
    wanted = {"64": "32", "64,16:32": "32,8:16", "1": "1", "128=64/256=40,80:100": ""}
    wanted["128=64/256=40,80:100"] = "128=32/256=20,40:50"
    assert {text: halved(text) for text in wanted} == wanted


def test_models_that_fell_behind():
    assert kept_jobs([-1.0, -1.9, -2.1]) == ([1, 2], 1)
    assert kept_jobs([-3.0, -2.0, -2.5]) == ([1, 2, 3], 2)
    assert kept_jobs([-100000.0, -2.0]) == ([2], 2)


def test_dropout():
    assert dropout_edits("", 0.5) == ""
    assert dropout_edits("0,0.2,0", 0.25) == "set-dropout-proportion name=* proportion=0.1"
    assert dropout_edits("0.5 lstm*=0,0.3@0.75,0", 1.0) == (
        "set-dropout-proportion name=* proportion=0.5;"
        " set-dropout-proportion name=lstm* proportion=0.0"
    )
    with pytest.raises(AttributeTypeError, match="VALUE@SHARE"):
        dropout_edits("a*=x", 0.0)


def component(type, line, **statistics):
    made = from_config(type, line)
    vars(made).update(statistics)
    return made


def test_saturation():
    dim = 12
    sigmoid = component("SigmoidComponent", f"dim={dim}")
    assert saturation([sigmoid]) == 0.0  # without statistics
    sums = {"count": 3.0, "value_sum": np.zeros(dim)}
    vars(sigmoid).update(sums, deriv_sum=np.full(dim, 3 * 0.20049))
    tanh = component("TanhComponent", f"dim={dim}", **sums)
    tanh.deriv_sum = np.linspace(0, 3, dim)
    relu = component("RectifiedLinearComponent", f"dim={dim}", **sums)
    relu.deriv_sum = np.full(dim, 3 * 0.9)
    listed = component("TanhComponent", "dim=9", count=1.0)
    listed.value_sum = listed.deriv_sum = np.zeros(9)
    components = sigmoid, tanh, relu, listed
    assert saturation(components) == pytest.approx((0.2 + 0.5) / 2, abs=1e-12)  # of digits printed
    text = [re.search("deriv-avg.*?mean=([^,]+)", each.info()) for each in components]
    assert [each and each[1] for each in text] == ["0.2", "0.5", "0.9", None]
    tanh.deriv_sum = np.full(dim, 9.0)
    with pytest.raises(FormatError, match="not in 0 to 1"):
        saturation([tanh])


def test_saturation_of_cells():
    cell = component(
        "LstmNonlinearityComponent",
        "cell-dim=10",
        count=2.0,
        deriv_sum=np.repeat([[0.25], [0.25], [1.5], [0.25], [1.5]], 10, axis=1),
    )
    assert saturation([cell]) == pytest.approx((3 * 0.5 + 2 * 0.25) / 5)
    gru = component("OutputGruNonlinearityComponent", "cell-dim=10")
    gru.count = 4.0
    gru.deriv_sum = np.full(10, 1.0)
    assert saturation([gru]) == 0.75


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"jobs": (2, 9, 1)}, "jobs_final=9 is more than the 6"),
        ({"epochs": 0.1}, "0 archives are not enough"),
        ({"rates": (0.0, 1.0)}, "initial_rate=0.0 must be positive"),
        ({"epochs": math.nan}, "epochs=nan must be positive"),
    ],
)
def test_refusals(changes, part):
    with pytest.raises(AttributeTypeError, match=part):
        schedule(**changes)
