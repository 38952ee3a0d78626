"""Parameters of ranks that train apart from each other, averaged from time to time."""

from __future__ import annotations

from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying
from ..base.ranks import ranks_of
from .ranks import (
    PERIOD,
    STEP,
    TOTAL,
    WEIGHT,
    Bucket,
    check_step,
    check_weight,
    is_due,
    one_dtype,
    scale,
    share_of,
    split,
)

_PARAM = Slot("param", "parameters, any shapes, one dtype", duplicable=True)
_PARAM_OUT = Slot("param_out", "the new parameters", duplicable=True, inplace="param")
_UPDATE = "an update of parameters"

average_parameters = operator(
    "average_parameters",
    doc="""Every `period` steps, parameters become their mean over all ranks, with `weight` the mean
weighted by it: param_out = sum(weight param) / sum(weight). In other steps they stay. Where no
rank has any weight, all count the same.""",
    inputs=[_PARAM, STEP, WEIGHT, TOTAL],
    outputs=[_PARAM_OUT],
    attrs=[PERIOD],
    source="McDonald et al. 2010; CNTK: SGDLib/MASGD.h",
    no_gradient=_UPDATE,
    world=True,
)


@average_parameters.shape_rule
def average_parameters_shape(s: ShapeArgs) -> None:
    one_dtype(s, "param", floats=True)
    check_weight(s)
    check_step(s)
    s.set("param_out", *s.specs("param"))


@average_parameters.kernel
def average_parameters_kernel(k: KernelArgs) -> Call:
    average = _Average(k)
    due = is_due(k)
    # Outputs are new variables unless the plan put them in place: other steps must fill them, too.
    keep = _keeping(k, "param", "param_out")

    def run() -> None:
        if due():
            average()
            average.bucket.unpack()
        else:
            keep()

    return run


block_momentum = operator(
    "block_momentum",
    doc="""Blockwise model-update filtering. Every `period` steps, which are a block, with the mean
m of the parameters over all ranks and the parameters g that the block began with:

delta_out = momentum delta + rate (m - g);
model_out = model + delta_out;
param_out = model_out + momentum delta_out where `nesterov`, else model_out;

and g is model + momentum delta where `nesterov`, else model. `model` begins as the parameters,
equal on all ranks, and `delta` as zeros. In other steps everything stays.""",
    inputs=[
        _PARAM,
        Slot("model", "the model after the last block, shapes of param", duplicable=True),
        Slot("delta", "the last block's change of it", duplicable=True),
        STEP,
        WEIGHT,
        TOTAL,
    ],
    outputs=[
        _PARAM_OUT,
        Slot("model_out", "the new model", duplicable=True, inplace="model"),
        Slot("delta_out", "its change", duplicable=True, inplace="delta"),
    ],
    attrs=[
        AttrSpec("momentum", "float", "share of the last change", minimum=0, maximum=1),
        AttrSpec("rate", "float", "block learning rate", 1.0, minimum=0),
        AttrSpec("nesterov", "bool", "begin the next block ahead by the momentum", True),
        PERIOD,
    ],
    source="Chen and Huo 2016, Scalable training of deep learning machines by incremental block"
    " training with intra-block parallel optimization and blockwise model-update filtering",
    no_gradient=_UPDATE,
    world=True,
)


@block_momentum.shape_rule
def block_momentum_shape(s: ShapeArgs) -> None:
    dtype = one_dtype(s, "param", floats=True)
    specs = s.specs("param")
    for slot in ("model", "delta"):
        own_specs = s.specs(slot)
        s.same(f"the numbers of param and {slot}", len(specs), len(own_specs))
        for (shape, _), (other, own) in zip(specs, own_specs, strict=True):
            s.same_shape(f"param and {slot}", shape, other)
            if own != dtype:
                s.fail(f"{slot} wants the dtype of param, {dtype}, and has {own}")
    check_weight(s)
    check_step(s)
    for slot in ("param", "model", "delta"):
        s.set(f"{slot}_out", *specs)


@block_momentum.kernel
def block_momentum_kernel(k: KernelArgs) -> Call:
    average = _Average(k)
    due = is_due(k)
    keep = in_order(*(_keeping(k, slot, f"{slot}_out") for slot in ("param", "model", "delta")))
    slots = ("model", "delta", "param_out", "model_out", "delta_out")
    arrays = list(zip(*(k.list(slot) for slot in slots), strict=True))
    momentum, rate = k.attrs["momentum"], k.attrs["rate"]
    # Without Nesterov the block began at the model itself.
    ahead = momentum if k.attrs["nesterov"] else 0.0

    def run() -> None:
        if not due():
            keep()
            return
        average()
        for mean, (model, delta, param_out, model_out, delta_out) in zip(
            average.parts, arrays, strict=True
        ):
            real = mean.dtype.type
            # The block began ahead by the momentum, which is no gain of its own.
            gained = mean - (model + real(ahead) * delta)
            # New arrays, and outputs written last: they may be the memory of the inputs.
            change = real(momentum) * delta + real(rate) * gained
            new = model + change
            for out, value in ((delta_out, change), (model_out, new)):
                if out is not None:
                    out[...] = value
            if param_out is not None:
                param_out[...] = new + real(ahead) * change

    return run


class _Average:
    """The mean of the parameters over all ranks.

    Attributes:
        parts: the means, in the shapes of the parameters.
        bucket: of the means, to be unpacked to `param_out`.
    """

    def __init__(self, k: KernelArgs) -> None:
        self._ranks = ranks_of(k)
        self._share = share_of(k)
        self.bucket = Bucket(k, "param", "param_out")
        self.parts = split(self.bucket.flat, k.list("param"))

    def __call__(self) -> None:
        self.bucket.pack()
        others = self._ranks()
        flat = self.bucket.flat
        # Before the sum, as shares differ between ranks; a plain mean is divided once, after it.
        if self._share is not None:
            scale(flat, self._share(others))
        others.all_reduce(flat)
        if self._share is None:
            scale(flat, 1 / others.size)


def _keeping(k: KernelArgs, slot: str, target: str) -> Call:
    """A call that copies variables to the outputs for them, where these are other memory."""
    xp: Any = k.xp
    pairs = zip(k.list(slot), k.list(target), strict=True)
    return in_order(*(copying(xp, a, out) for a, out in pairs if out is not None))
