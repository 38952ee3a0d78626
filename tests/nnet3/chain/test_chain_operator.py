"""The operator of the LF-MMI objective: sums over all paths, from variables of padded arrays."""

from __future__ import annotations

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401 - registers the operators
from chain_graphs import brute_force, leaky_paths, paths, random_hmm, random_supervision
from opscope.framework.base.errors import ShapeError
from opscope.nnet3.chain.arrays import graph_arrays, supervision_arrays, supervision_of
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.supervisions.supervision import Supervision, merge_supervision
from opscope.testing import Case, OpTest

FRAMES, PDFS, LEAKY = 3, 3, 0.1


class TestChainObjective(OpTest):
    type = "nnet3.chain_objective"
    exact_dtype = ("totals", "xent_totals")
    tolerance = 1e-4
    tolerance64 = 1e-6  # weights of arcs are float32 in files

    def cases(self, rng):
        graph = DenominatorGraph.of_fst(random_hmm(rng, states=3), PDFS)
        parts = [random_supervision(rng, FRAMES, weight=0.5) for _ in range(2)]
        loops = [
            Supervision(0.5, 1, FRAMES, PDFS, e2e_fsts=[random_hmm(rng, states=n)]) for n in (2, 3)
        ]
        attrs = {
            "leaky_hmm_coefficient": LEAKY,
            "out_of_range_regularize": 0.0,
            "l2_regularize": 0.3,
            "xent_regularize": 0.25,
        }
        for several in (parts, loops):
            inputs = {
                "output": rng.normal(size=(2 * FRAMES, PDFS)),
                **supervision_arrays(merge_supervision(several)),
                **graph_arrays(graph),
            }
            yield Case(inputs, attrs)
            more = {
                "deriv_weights": rng.uniform(size=2 * FRAMES),
                "xent_output": rng.normal(size=(2 * FRAMES, PDFS)),
            }
            yield Case(inputs | more, attrs)

    def reference(self, inputs, attrs):
        output = inputs["output"].reshape(FRAMES, 2, PDFS)
        supervision = supervision_of(inputs, 2 * FRAMES, PDFS)
        columns = inputs["graph_arcs"].T
        graph = DenominatorGraph(
            len(inputs["graph_initial"]),
            PDFS,
            *columns,
            inputs["graph_probs"],
            inputs["graph_initial"],
        )
        everything = leaky_paths(graph, FRAMES, LEAKY)
        if supervision.e2e_fsts:
            sums = [
                brute_force(paths(fst, FRAMES), output[:, s])
                for s, fst in enumerate(supervision.fsts)
            ]
        else:  # the sequences follow each other in one FST
            one_by_one = output.transpose(1, 0, 2).reshape(-1, PDFS)
            total, posterior = brute_force(paths(supervision.fst, 2 * FRAMES), one_by_one)
            sums = [(total, posterior[:FRAMES]), (0.0, posterior[FRAMES:])]
        others = [brute_force(everything, output[:, s]) for s in range(2)]
        objective = sum(ours[0] - theirs[0] for ours, theirs in zip(sums, others, strict=True))
        wanted = np.stack([posterior for _, posterior in sums], axis=1).reshape(-1, PDFS)
        found = np.stack([posterior for _, posterior in others], axis=1).reshape(-1, PDFS)
        flat = inputs["output"]
        deriv = 0.5 * (wanted - found) - 0.5 * 0.3 * flat
        weights = inputs.get("deriv_weights", np.ones(len(flat)))[:, None]
        l2 = -0.5 * 0.5 * 0.3 * (flat**2).sum()
        result = {
            "deriv": weights * deriv,
            "totals": np.array([0.5 * len(flat), 0.5 * objective, l2]),
        }
        if "xent_output" in inputs:
            xent = 0.5 * wanted
            result["xent_deriv"] = 0.25 * weights * xent
            result["xent_totals"] = np.array(
                [0.5 * len(flat), (xent * inputs["xent_output"]).sum()]
            )
        return result

    def test_refuses(self):
        rng = np.random.default_rng(0)
        case = next(iter(self.cases(rng)))
        given = case.inputs
        for slot, array, why in (
            ("output", np.zeros(6), "output wants 2 dimensions"),
            ("arcs", given["arcs"].astype(np.float64), "arcs wants an integer dtype"),
            ("arcs", given["arcs"][:, :3], r"arcs and \[A, 4\]"),
            ("weights", given["weights"][:3], r"arcs and \[A, 4\]"),
            ("graph_probs", given["graph_probs"][:1], r"graph_arcs and \[G, 3\]"),
            ("finals", given["finals"][:, 0], r"finals and \[S, 2\]"),
            ("layout", given["layout"][:1], r"layout and \[2\]"),
            ("deriv_weights", np.ones(1), r"deriv_weights and \[N\]"),
        ):
            self.refuses(why, {**given, slot: array}, case.attrs)

    def test_refuses_arcs_to_what_there_is_not(self):
        case = next(iter(self.cases(np.random.default_rng(0))))
        for slot, column, why in (
            ("graph_arcs", 1, "states of the denominator graph run from 0 to 99"),
            ("graph_arcs", 2, "pdfs of the denominator graph run from 0 to 99"),
            ("arcs", 2, "states in FST 0 of the supervision run from 0 to 99"),
            ("arcs", 3, "labels of the supervision run from 1 to 99"),
        ):
            array = case.inputs[slot].copy()
            array[0, column] = 99
            with pytest.raises(ShapeError, match=why):
                self.output(Case({**case.inputs, slot: array}, case.attrs))


def test_few_sizes_for_many_supervisions():
    rng = np.random.default_rng(0)
    sizes = set()
    for frames in range(2, 60):
        supervision = random_supervision(rng, frames)
        arrays = supervision_arrays(supervision)
        sizes.add(tuple(array.shape for array in arrays.values()))
        again = supervision_of(arrays, frames, 3)
        for name in ("ilabel", "weight", "nextstate", "final", "begin"):
            np.testing.assert_array_equal(getattr(again.fst, name), getattr(supervision.fst, name))
    assert len(sizes) < 30


def test_the_number_of_graphs_must_fit():
    arrays = supervision_arrays(random_supervision(np.random.default_rng(0)))
    with pytest.raises(ShapeError, match="3 rows are no whole number of frames of 2"):
        supervision_of(arrays | {"layout": np.array([2, 0])}, 3, 3)
    with pytest.raises(ShapeError, match="2 sequences with 1 FSTs"):
        supervision_of(arrays | {"layout": np.array([2, 1])}, 4, 3)
