"""The operator `swish`."""

from opscope.framework.base.sizes.shape import same_as
from opscope.framework.fusion.scalars.derivative import gradients
from opscope.framework.ir.registry import AttrSpec, Slot, operator
from opscope.operators.base.derived import derived_kernel

VALUE = "x / (1 + exp(-beta * x))"

swish = operator(
    "swish",
    doc="Swish: out = x * sigmoid(beta * x).",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x", inplace="x", not_in_gradient=True)],
    attrs=[AttrSpec("beta", "float", "steepness", default=1.0)],
    source="Ramachandran et al. 2017, Searching for activation functions",
    shape=same_as("x"),
    scalar=VALUE,
)
swish.kernel(derived_kernel)
gradient = gradients(VALUE, ["x"])
swish.backward("x", scalar=gradient, inplace={"x_grad": "out_grad"})(derived_kernel)
