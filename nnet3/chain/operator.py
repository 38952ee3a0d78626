"""The LF-MMI objective as an operator between the forward and the backward part of a network."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..operators.objectives import (
    SEQUENCE_INPUTS,
    sequence_outputs,
    set_sequence_outputs,
    store_sequence,
)
from .arrays import GRAPH, SUPERVISION, graph_of, supervision_of
from .objective import ChainOptions, chain_objective


def _rule(s: ShapeArgs) -> None:
    shape = s.rank("output", 2)
    for slot in ("arcs", "layout", "graph_arcs"):
        s.integers(slot)
    (arcs,), (moves,) = s.rank("weights", 1), s.rank("graph_probs", 1)
    s.same_shape("arcs and [A, 4], for weights [A],", s["arcs"], (arcs, 4))
    s.same_shape("graph_arcs and [G, 3], for graph_probs [G],", s["graph_arcs"], (moves, 3))
    s.same_shape("finals and [S, 2]", s["finals"], (-1, 2))
    s.same_shape("weight and [1]", s["weight"], (1,))
    s.same_shape("layout and [2]", s["layout"], (2,))
    s.rank("graph_initial", 1)
    set_sequence_outputs(s, totals=3)
    if s.has("posteriors"):
        s.same_shape("outputs and posteriors", shape, s["posteriors"])


chain = operator(
    "nnet3.chain_objective",
    doc="LF-MMI: the log-probability of the supervision's paths less the log-probability of all"
    " paths of the denominator graph. totals: the weight of the frames, the objective, and the L2"
    " regularization term; xent_totals: the weight, and the cross-entropy objective of xent_output,"
    " float64. Half of the runs that train, chosen at random, also pull outputs beyond [-30, 30]"
    " back, with twice the scale.",
    inputs=[
        Slot("output", "[N, D], row t * sequences + s is frame t of sequence s"),
        Slot("arcs", "[A, 4] int32: FST, source, next state, label; label 0 is padding"),
        Slot("weights", "[A]"),
        Slot("finals", "[S, 2]: FST (-1: padding) and final weight of its states"),
        Slot("weight", "[1]: of the supervision"),
        Slot("layout", "[2] int32: sequences, and 1 where each has an FST of its own"),
        Slot("graph_arcs", "[G, 3] int32: source, next state, pdf"),
        Slot("graph_probs", "[G] float64"),
        Slot("graph_initial", "[H] float64"),
        *SEQUENCE_INPUTS,
        Slot("posteriors", "[N, D]: of another network, not to be forgotten", optional=True),
    ],
    outputs=sequence_outputs(totals=3),
    attrs=[
        AttrSpec("l2_regularize", "float", "of the output", default=0.0, minimum=0),
        AttrSpec(
            "out_of_range_regularize", "float", "of outputs beyond 30", default=0.01, minimum=0
        ),
        AttrSpec("leaky_hmm_coefficient", "float", "above 0, below 1", default=1e-5, minimum=0),
        AttrSpec("xent_regularize", "float", "scale of xent_deriv", default=0.0, minimum=0),
        AttrSpec("lwf_scale", "float", "of the posteriors", default=0.0),
        AttrSpec("lwf_den_scale", "float", "of these and of the graph's part", default=0.0),
    ],
    source="Kaldi: chain/chain-training.cc, nnet3/nnet-chain-training.cc",
    shape=_rule,
    no_gradient="it gives the derivative itself",
    random=True,
)


@chain.kernel
def chain_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    output = k["output"]
    attrs, state = k.attrs, k.state
    options = ChainOptions(**{field.name: attrs[field.name] for field in fields(ChainOptions)})
    posteriors, xent = k.get("posteriors"), k.get("xent_output") is not None
    rows, pdfs = output.shape
    held: dict[str, Any] = {}

    def host(names: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {name: k.host(name) for name in names}

    def compute() -> None:
        if not held:  # the graph stays the same
            held["graph"] = graph_of(host(GRAPH), pdfs)
        supervision = supervision_of(host(SUPERVISION), rows, pdfs)
        penalize = bool(options.out_of_range_regularize and state.host_generator.random() < 0.5)
        result = chain_objective(
            options,
            held["graph"],
            supervision,
            to_host(output),
            xent=xent,
            penalize=penalize,
            posteriors=None if posteriors is None else to_host(posteriors),
        )
        totals = result.weight, result.objective, result.l2_term
        xent_deriv = xp.asarray(result.xent_deriv) if xent else None
        store_sequence(k, totals, xp.asarray(result.deriv), xent_deriv)

    return compute


@chain.kernel(device="gpu", dtypes=(np.float32, np.float64), library="cuda")
def chain_gpu_kernel(k: KernelArgs) -> Call | None:
    from .operator_cuda import chain_on_gpu  # without a GPU it is not needed

    return chain_on_gpu(k)
