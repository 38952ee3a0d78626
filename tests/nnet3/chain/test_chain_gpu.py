"""LF-MMI on the stand-in of CuPy: its kernels against the CPU's operator."""

from __future__ import annotations

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401 - registers the operators
from chain_graphs import random_hmm, random_supervision
from opscope.framework.base.backend import CPUPlace
from opscope.framework.ir.registry import lookup
from opscope.nnet3.chain.arrays import graph_arrays, supervision_arrays
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.supervisions.supervision import merge_supervision
from opscope.testing import Case
from opscope.testing.device_double import DOUBLE, instead_of_cupy, launches
from opscope.testing.device_raw import lanes
from opscope.testing.op_setup import Setup, run

PDFS, SEQUENCES = 7, 3
ATTRS = {
    "leaky_hmm_coefficient": 0.01,
    "l2_regularize": 0.3,
    "xent_regularize": 0.25,
    "out_of_range_regularize": 0.5,
    "lwf_scale": 0.5,
    "lwf_den_scale": 0.25,
}
KERNELS = ["numerator_paths", "chain_denominator", "chain_totals", "chain_derivative"]


def arrays(frames: int, states: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(frames)
    graph = DenominatorGraph.of_fst(random_hmm(rng, states, PDFS), PDFS)
    parts = [random_supervision(rng, frames, PDFS, weight=0.5) for _ in range(SEQUENCES)]
    shape = SEQUENCES * frames, PDFS
    return {
        "output": rng.normal(size=shape),
        **supervision_arrays(merge_supervision(parts)),
        **graph_arrays(graph),
        "deriv_weights": rng.uniform(size=shape[0]),
        "xent_output": rng.normal(size=shape),
        "posteriors": rng.uniform(size=shape),
    }


def on_both(inputs: dict[str, np.ndarray], dtype: str, threads: int = 1) -> tuple[dict, dict]:
    more = ("xent_deriv", "xent_totals") if "xent_output" in inputs else ()
    case = Case(inputs, ATTRS, outputs=more)
    setup = Setup(lookup("nnet3.chain_objective"), case, dtype, None)
    wanted = run(setup, CPUPlace()).arrays
    with instead_of_cupy(), lanes(threads):
        launches.clear()
        found = run(setup, DOUBLE, libraries=("cuda", "xp")).arrays
    return wanted, found


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-6)])
def test_the_kernels_compute_what_the_cpu_does(dtype, tolerance, threads):
    inputs = arrays(20)
    inputs["output"][::5] *= 40  # beyond the limit, some of them
    wanted, found = on_both(inputs, dtype, threads)
    for name in ("deriv", "totals", "xent_deriv", "xent_totals"):
        np.testing.assert_allclose(found[name], wanted[name], tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("frames", [1, 2, 30])
def test_frames_cost_no_launches(frames):
    wanted, found = on_both(arrays(frames), "float32")
    assert [
        name for name in launches if name in KERNELS
    ] == KERNELS * 2  # the harness runs it twice
    np.testing.assert_allclose(found["totals"], wanted["totals"], 1e-5)


def test_many_frames_in_float32():
    """Probabilities are divided by the sum of each frame: none of them underflows."""
    inputs = arrays(400, 4)
    inputs["output"] -= 25
    wanted, found = on_both(inputs, "float32")
    assert found["totals"][1] != -10 * found["totals"][0]
    np.testing.assert_allclose(found["totals"], wanted["totals"], 1e-4)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite(broken):
    inputs = arrays(4)
    inputs["output"][2, 3] = broken
    wanted, found = on_both(inputs, "float64")
    for name in ("totals", "xent_deriv", "xent_totals", "deriv"):
        np.testing.assert_allclose(found[name], wanted[name], 1e-6, 1e-6, err_msg=name)


def test_a_graph_of_one_state_and_one_pdf():
    rng = np.random.default_rng(0)
    graph = DenominatorGraph.of_fst(random_hmm(rng, 1, 1), 1)
    inputs = {
        "output": rng.normal(size=(2, 1)),
        **supervision_arrays(random_supervision(rng, 2, 1)),
        **graph_arrays(graph),
    }
    wanted, found = on_both(inputs, "float64", 8)
    for name in ("totals", "deriv"):
        np.testing.assert_allclose(found[name], wanted[name], 1e-6, 1e-9, err_msg=name)
