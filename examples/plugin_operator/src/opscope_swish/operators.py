"""The operator `swish`, as `docs/adding_an_operator.md` walks through it."""

from __future__ import annotations

from opscope.framework.base.shape import same_as
from opscope.framework.ir.kernel_args import Call, KernelArgs
from opscope.framework.ir.registry import AttrSpec, Slot, operator

swish = operator(
    "swish",
    doc="Swish: out = x * sigmoid(beta * x).",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[AttrSpec("beta", "float", "steepness", default=1.0)],
    source="Ramachandran et al. 2017, Searching for activation functions",
    shape=same_as("x"),
    scalar="x / (1 + exp(-beta * x))",
)


@swish.kernel
def swish_kernel(k: KernelArgs) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    minus_beta = x.dtype.type(-k.attrs["beta"])

    def run() -> None:
        xp.multiply(x, minus_beta, out=out)
        xp.exp(out, out=out)
        xp.add(out, 1, out=out)
        xp.divide(x, out, out=out)

    return run


@swish.backward("x")
def swish_grad_kernel(k: KernelArgs) -> Call:
    xp, x, out_grad, x_grad = k.xp, k["x"], k["out_grad"], k["x_grad"]
    beta = x.dtype.type(k.attrs["beta"])
    s = k.scratch(x.shape, x.dtype)

    def run() -> None:
        xp.multiply(x, -beta, out=s)
        xp.exp(s, out=s)
        xp.add(s, 1, out=s)
        xp.reciprocal(s, out=s)  # sigmoid(beta x)
        xp.subtract(1, s, out=x_grad)
        xp.multiply(x_grad, x, out=x_grad)
        xp.multiply(x_grad, beta, out=x_grad)
        xp.add(x_grad, 1, out=x_grad)  # 1 + beta x (1 - s)
        xp.multiply(x_grad, s, out=x_grad)
        xp.multiply(x_grad, out_grad, out=x_grad)

    return run
