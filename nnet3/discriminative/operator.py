"""MMI, MPFE and sMBR as an operator between the forward and the backward part of a network."""

from __future__ import annotations

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.errors import ShapeError
from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .objective import CRITERIA, DiscriminativeOptions, discriminative_objective

_SUPERVISION = ("arcs", "costs", "accuracies", "reference", "weight")
_XENT = ("xent_output", "xent_deriv", "xent_totals")


def _rule(s: ShapeArgs) -> None:
    shape = s.rank("output", 2)
    dtype = s.floats("output")
    s.integers("arcs")
    s.integers("reference")
    (arcs,) = s.rank("costs", 1)
    s.same_shape("arcs and [A, 4], for costs [A],", s["arcs"], (arcs, 4))
    s.same_shape("costs and accuracies", s["costs"], s["accuracies"])
    s.same_shape("reference and [N]", s["reference"], shape[:1])
    s.same_shape("weight and [1]", s["weight"], (1,))
    s.rank("log_priors", 1)
    if s.has("deriv_weights"):
        s.same_shape("deriv_weights and [N]", s["deriv_weights"], shape[:1])
    s.set("deriv", (shape, dtype))
    s.set("totals", ((5,), np.dtype(np.float64)))
    present = [slot for slot in _XENT if s.has(slot)]
    if present and len(present) < len(_XENT):
        raise ShapeError(f"want all of {', '.join(_XENT)} or none, not {', '.join(present)} alone")
    if present:
        s.set("xent_deriv", (s.same_shape("outputs", shape, s["xent_output"]), dtype))
        s.set("xent_totals", ((2,), np.dtype(np.float64)))


discriminative = operator(
    "nnet3.discriminative_objective",
    doc="MMI: the log-probability of a reference less that of all paths of a lattice; MPFE, sMBR:"
    " the expected accuracy of a path. The derivative lacks the acoustic scale, as Kaldi's does."
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
        Slot("deriv_weights", "[N]: factor of each row's derivative", optional=True),
        Slot("xent_output", "[N, D]: log-probabilities", optional=True),
    ],
    outputs=[
        Slot("deriv", "[N, D]"),
        Slot("totals", "[5]"),
        Slot("xent_deriv", "[N, D]", optional=True),
        Slot("xent_totals", "[2]", optional=True),
    ],
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
    deriv = k["deriv"]
    totals = k["totals"]
    options = DiscriminativeOptions(**k.attrs)
    xent = k.get("xent_output")
    row_weights = k.get("deriv_weights")

    def compute() -> None:
        supervision = {name: to_host(k[name]) for name in _SUPERVISION}
        priors = to_host(k["log_priors"])
        result = discriminative_objective(
            options, supervision, output, priors, xent=xent is not None, xp=xp
        )
        deriv[...] = result.deriv
        for place, value in enumerate(result.totals):
            totals[place] = value
        if row_weights is not None:
            xp.multiply(deriv, row_weights[:, None], out=deriv)
        if xent is not None:
            xent_deriv = k["xent_deriv"]
            k["xent_totals"][0] = result.weight
            k["xent_totals"][1] = xp.vdot(xent, result.xent_deriv)
            xp.multiply(result.xent_deriv, output.dtype.type(options.xent_regularize), xent_deriv)
            if row_weights is not None:
                xp.multiply(xent_deriv, row_weights[:, None], out=xent_deriv)

    return compute
