"""The two factors whose product is the gradient of a GRU's weights, for natural gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import in_order
from .gru import gru_delta, gru_parts


def _factors(name: str, doc: str, weights: str, value: str, shape: Any) -> Any:
    return operator(
        f"nnet3.{name}_factors",
        doc=doc + " delta [N, C]: the gradient at the argument of h's tanh.",
        inputs=[
            Slot("x", f"as in nnet3.{name}"),
            Slot("w", weights),
            Slot("out", "[N, 2C]"),
            Slot("out_grad", "[N, 2C]"),
            Slot("repair", "[C]", optional=True),
        ],
        outputs=[Slot("value", value), Slot("delta", "[N, C]")],
        source="Kaldi: nnet3/nnet-combined-component.cc (UpdateParameters)",
        shape=shape,
        no_gradient="it serves updates of parameters",
    )


def _rule(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "out", "out_grad")
    rows, cols = s.same_shape("out and out_grad", s["out"], s["out_grad"])
    s.same("the rows of x and out", s.rank("x", 2)[0], rows)
    cells = s.same("half the columns of out and the rows of w", cols // 2, s["w"][0])
    s.set("value", ((rows, s["w"][-1]), dtype))
    s.set("delta", ((rows, cells), dtype))


gru_factors = _factors(
    "gru",
    "Factors of the gradient of w in nnet3.gru, which is delta' value. value [N, R]: r s'.",
    "[C, R]",
    "[N, R]",
    _rule,
)


@gru_factors.kernel
def gru_factors_kernel(k: KernelArgs) -> Call:
    z, r, _, before, state = gru_parts(k["x"], *k["w"].shape)
    delta, call = gru_delta(k, z, before, None, None)
    return in_order(
        call,
        partial(k.xp.copyto, k["delta"], delta),
        partial(k.xp.multiply, r, state, k["value"]),
    )


output_gru_factors = _factors(
    "output_gru",
    "Factors of the gradient of w in nnet3.output_gru, the sum of delta * value over rows."
    " value [N, C]: c'.",
    "[C]",
    "[N, C]",
    _rule,
)


@output_gru_factors.kernel
def output_gru_factors_kernel(k: KernelArgs) -> Call:
    x, cells = k["x"], len(k["w"])
    before = x[:, 2 * cells : 3 * cells]
    delta, call = gru_delta(k, x[:, :cells], before, None, None)
    return in_order(
        call,
        partial(k.xp.copyto, k["delta"], delta),
        partial(k.xp.copyto, k["value"], before),
    )
