"""The operator of MMI, MPFE and sMBR: sums over all paths of small lattices, one by one."""

from __future__ import annotations

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401 - registers the operators
from discriminative_cases import PDFS, supervision, transition_ids
from opscope.framework.base.errors import AttributeTypeError, ShapeError
from opscope.nnet3.discriminative.objective import (
    DiscriminativeOptions,
    discriminative_objective,
    lattice_arrays,
)
from opscope.nnet3.discriminative.supervision import merge_supervision
from opscope.testing import Case, OpTest

FRAMES = 3
NO_PRIORS = np.zeros(0)


def all_paths(arcs):
    """Numbers of the arcs of each path from state 0 to the last state."""
    last = arcs[:, 1].max()
    waiting = [(0, [])]
    while waiting:
        state, path = waiting.pop()
        if state == last:
            yield path
        waiting += [(arcs[i, 1], [*path, i]) for i in np.flatnonzero(arcs[:, 0] == state)]


def sums(inputs, attrs, output):
    """The objective without its weight, and the posteriors that its derivative is made of."""
    arcs = inputs["arcs"]
    scale = attrs["acoustic_scale"]
    likes = output - inputs["log_priors"] if len(inputs["log_priors"]) else output
    paths = list(all_paths(arcs))
    scores, right = [], []
    for path in paths:
        frames = [(row, pdf) for _, _, row, pdf in arcs[path] if row >= 0]
        scores.append(scale * sum(likes[f] for f in frames) - inputs["costs"][path].sum())
        right.append(inputs["accuracies"][path].sum())
    scores = np.array(scores, np.float64)
    total = np.logaddexp.reduce(scores)
    share = np.exp(scores - total)
    expected = float(share @ np.array(right, np.float64))
    posterior = np.zeros(output.shape)
    for path, p, r in zip(paths, share, right, strict=True):
        for _, _, row, pdf in arcs[path]:
            if row >= 0:
                posterior[row, pdf] += p if attrs["criterion"] == "mmi" else p * (r - expected)
    if attrs["criterion"] != "mmi":
        return expected, posterior
    rows = np.arange(len(output))
    wanted = np.zeros(output.shape)
    wanted[rows, inputs["reference"]] = 1.0
    values = wanted - posterior
    if attrs.get("drop_frames"):
        values[posterior[rows, inputs["reference"]] == 0] = 0.0
    return scale * likes[rows, inputs["reference"]].sum() - total, values


class TestDiscriminativeObjective(OpTest):
    type = "nnet3.discriminative_objective"
    exact_dtype = ("costs", "totals", "xent_totals")
    tolerance = 1e-4
    tolerance64 = 1e-6  # accuracies and weights are float32

    def cases(self, rng):
        parts = [supervision(rng, FRAMES, width=2) for _ in range(2)]
        for part in parts:
            part.weight = 0.5
        merged = merge_supervision(parts)
        for criterion, more in (
            ("mmi", {"boost": 0.2, "silence_phones": "1"}),
            ("mmi", {"drop_frames": True}),
            ("mpfe", {"silence_phones": "1:4"}),
            ("smbr", {"one_silence_class": True, "silence_phones": "1:2"}),
        ):
            options = DiscriminativeOptions(criterion=criterion, **more)
            attrs = {
                "criterion": criterion,
                "acoustic_scale": 0.4,
                "drop_frames": options.drop_frames,
                "l2_regularize": 0.3,
                "xent_regularize": 0.25,
            }
            logs = np.log(rng.dirichlet(np.ones(PDFS), size=2 * FRAMES))
            inputs = {
                "output": logs,
                **lattice_arrays(merged, transition_ids(), options),
                "log_priors": np.log(rng.dirichlet(np.ones(PDFS))),
            }
            yield Case(inputs, attrs)
            inputs = inputs | {
                "log_priors": NO_PRIORS,
                "deriv_weights": rng.uniform(size=2 * FRAMES),
                "xent_output": rng.normal(size=(2 * FRAMES, PDFS)),
            }
            yield Case(inputs, attrs)

    def reference(self, inputs, attrs):
        output = inputs["output"]
        rows = len(output)
        objective, values = sums(inputs, attrs, output)
        weights = inputs.get("deriv_weights", np.ones(rows))[:, None]
        result = {
            "deriv": weights * (0.5 * values - 0.5 * 0.3 * output),
            "totals": np.array(
                [
                    *(0.5 * rows, 0.5 * objective, -0.5 * 0.5 * 0.3 * (output**2).sum()),
                    *(values[values > 0].sum(), -values[values < 0].sum()),
                ]
            ),
        }
        if "xent_output" in inputs:
            wanted = np.zeros(output.shape)
            wanted[np.arange(rows), inputs["reference"]] = 0.5
            result["xent_deriv"] = 0.25 * weights * wanted
            result["xent_totals"] = np.array([0.5 * rows, (wanted * inputs["xent_output"]).sum()])
        return result


def test_a_derivative_is_the_gradient_but_for_the_acoustic_scale():
    rng = np.random.default_rng(3)
    ids = transition_ids()
    part = supervision(rng, 6)
    for criterion in ("mmi", "mpfe", "smbr"):
        options = DiscriminativeOptions(criterion=criterion, acoustic_scale=0.3)
        arrays = lattice_arrays(part, ids, options)
        output = rng.normal(size=(6, PDFS))
        towards = rng.normal(size=output.shape)
        deriv = discriminative_objective(options, arrays, output, NO_PRIORS).deriv
        near = [
            discriminative_objective(options, arrays, output + e * towards, NO_PRIORS).objective
            for e in (1e-4, -1e-4)
        ]
        slope = (near[0] - near[1]) / 2e-4
        np.testing.assert_allclose(0.3 * np.vdot(deriv, towards), slope, rtol=1e-5, atol=1e-7)


def test_what_is_not_finite_counts_as_kaldi_says(caplog):
    options = DiscriminativeOptions(criterion="mmi")
    arrays = lattice_arrays(supervision(np.random.default_rng(0), 4), transition_ids(), options)
    result = discriminative_objective(options, arrays, np.full((4, PDFS), np.nan), NO_PRIORS)
    assert result.objective == -40 and not result.deriv.any()
    assert "taking -10" in caplog.text


def test_refuses():
    ids = transition_ids()
    part = supervision(np.random.default_rng(0), 4)
    options = DiscriminativeOptions()
    arrays = lattice_arrays(part, ids, options)
    logs = np.log(np.full((4, PDFS), 1 / PDFS))
    priors = np.log(np.full(PDFS, 1 / PDFS))
    for output, log_priors, why in (
        (logs[:3], priors, "a supervision of 4 rows for an output of 3"),
        (logs[:, :1], priors[:1], "the supervision has the pdf 2, the network's output 1 columns"),
        (logs, priors[:2], "2 priors for an output of 3 columns"),
        (logs + 5, priors, "logarithms of probabilities"),
    ):
        with pytest.raises(ShapeError, match=why):
            discriminative_objective(options, arrays, output, log_priors)
    part.alignment = part.alignment.copy()
    part.alignment[2] = 9
    with pytest.raises(ShapeError, match="9 is no transition-id of the model, which has 1 to 8"):
        lattice_arrays(part, ids, options)
    for given, why in (
        ({"criterion": "mpe"}, "mpe is none of mmi, mpfe, smbr"),
        ({"silence_phones": "1,2"}, "no list of numbers"),
    ):
        with pytest.raises(AttributeTypeError, match=why):
            DiscriminativeOptions(**given)
