"""The factor that makes a focal loss of the cross entropy of a softmax."""

from __future__ import annotations

from ...framework.ir.registry import AttrSpec
from ..math.elementwise_math import unary

focal_modulation = unary(
    "focal_modulation",
    "Focal loss of cross entropies x = -log(p) >= 0, p the probability of the right class:"
    " out = (1 - p)^gamma x. Easy samples hardly count.",
    # expm1, as 1 - exp(-x) loses its digits where p is near 1; fabs, as expm1(-x) is below 0.
    "pow(fabs(expm1(-x)), gamma) * x",
    # the derived one is infinite at 0 for a gamma below 1
    gradient=(
        "out_grad * (pow(fabs(expm1(-x)), gamma)"
        " + gamma * pow(fmax(fabs(expm1(-x)), 1e-7), gamma - 1) * exp(-x) * x)"
    ),
    attrs=[AttrSpec("gamma", "float", "how fast easy samples lose weight", 2.0, minimum=0.0)],
    source="Lin et al. 2017, Focal loss for dense object detection",
)
