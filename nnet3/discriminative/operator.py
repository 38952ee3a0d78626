"""MMI, MPFE and sMBR as an operator between the forward and the backward part of a network."""

from __future__ import annotations

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
from .objective import CRITERIA, DiscriminativeOptions, discriminative_objective

_SUPERVISION = ("arcs", "costs", "accuracies", "reference", "weight")


def _rule(s: ShapeArgs) -> None:
    shape = s.rank("output", 2)
    s.integers("arcs")
    s.integers("reference")
    (arcs,) = s.rank("costs", 1)
    s.same_shape("arcs and [A, 4], for costs [A],", s["arcs"], (arcs, 4))
    s.same_shape("costs and accuracies", s["costs"], s["accuracies"])
    s.same_shape("reference and [N]", s["reference"], shape[:1])
    s.same_shape("weight and [1]", s["weight"], (1,))
    s.rank("log_priors", 1)
    set_sequence_outputs(s, totals=5)


discriminative = operator(
    "nnet3.discriminative_objective",
    doc="MMI: the log-probability of a reference less the log-probability of all paths of a"
    " lattice; MPFE, sMBR: the expected accuracy of a path. The derivative lacks the acoustic"
    " scale, as Kaldi's does."
    " totals: the weight of the frames, the objective, the L2 regularization term, and the sums of"
    " the posteriors above and below 0; xent_totals: the weight, and the cross-entropy objective of"
    " xent_output, float64.",
    inputs=[
        Slot("output", "[N, D], row t * sequences + s is frame t of sequence s"),
        Slot("arcs", "[A, 4] int32: source (-1: padding), next state, row and pdf (-1: no frame)"),
        Slot("costs", "[A] float64: of the graph"),
        Slot("accuracies", "[A]: of the arcs' phones or pdfs"),
        Slot("reference", "[N] int32: pdfs"),
        Slot("weight", "[1]: of the supervision"),
        Slot("log_priors", "[D], or [0]: of the pdfs"),
        *SEQUENCE_INPUTS,
    ],
    outputs=sequence_outputs(totals=5),
    attrs=[
        AttrSpec("criterion", "string", "what is maximized", default="smbr", choices=CRITERIA),
        AttrSpec("acoustic_scale", "float", "of log-likelihoods", default=0.1),
        AttrSpec("drop_frames", "bool", "frames whose reference the lattice lacks", default=False),
        AttrSpec("l2_regularize", "float", "of the output", default=0.0, minimum=0),
        AttrSpec("xent_regularize", "float", "scale of xent_deriv", default=0.0, minimum=0),
    ],
    source="Kaldi: nnet3/discriminative-training.cc, nnet3/nnet-discriminative-training.cc",
    shape=_rule,
    no_gradient="it gives the derivative itself",
)


@discriminative.kernel
def discriminative_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    output = k["output"]
    options = DiscriminativeOptions(**k.attrs)
    xent = k.get("xent_output") is not None

    def compute() -> None:
        supervision = {name: to_host(k[name]) for name in _SUPERVISION}
        priors = to_host(k["log_priors"])
        result = discriminative_objective(options, supervision, output, priors, xent=xent, xp=xp)
        store_sequence(k, result.totals, result.deriv, result.xent_deriv)

    return compute
