"""Training in half precision: float32 copies of parameters, and scaled losses, as operators.

framework/passes/precision/mixed_precision.py and framework/passes/precision/loss_scaling.py put
them into nets.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.dtypes import HALVES, is_float
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.conversions import convert_call
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ..base.calls import copying
from ..base.derived import derived_kernel

_SOURCE = "Micikevicius et al. 2018, Mixed Precision Training; PyTorch: torch.amp.GradScaler"
_SERVES = "it serves updates of parameters"
_SCALE = Slot("scale", "factor of the loss, float32 []")
_TOP = {dtype: np.uint16({"float16": 0x7C00, "bfloat16": 0x7F80}[dtype.name]) for dtype in HALVES}
"""The exponent's bits: all of them are set in infinities and NaN alone."""
_FINITE = "1 where every gradient of the step is finite, else 0, float32 []"

# -- copies in float32 -------------------------------------------------------------------------

master_sync = operator(
    "master_sync",
    doc="The float32 copy of a parameter of half precision, before an update: out = master where it"
    " rounds to param, and param where it does not, since somebody has set the parameter.",
    inputs=[Slot("param", "float16 or bfloat16, any shape"), Slot("master", "float32, as param")],
    outputs=[Slot("out", "float32, shape of param", inplace="master")],
    source=_SOURCE,
    no_gradient=_SERVES,
    takes_halves=EVERYWHERE,
)


@master_sync.shape_rule
def master_sync_shape(s: ShapeArgs) -> None:
    if s.dtype("param") not in HALVES or s.dtype("master") != np.float32:
        s.fail(
            "wants a param of half precision and a float32 master, not"
            f" {s.dtype('param')} and {s.dtype('master')}"
        )
    s.set("out", (s.same_shape("param and master", s["param"], s["master"]), np.float32))


@master_sync.kernel
def master_sync_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    param = k["param"]
    master = k["master"]
    out = k["out"]
    rounded = k.scratch(param.shape, param.dtype)
    other = k.scratch(param.shape, bool)

    def take() -> None:
        if xp is not np or other.any():  # nearly always false; a GPU is not asked
            xp.copyto(out, param, where=other)

    return in_order(
        convert_call(xp, master, rounded),
        # Compared as bits: a NaN equals itself, and no half is converted.
        partial(xp.not_equal, rounded.view(np.uint16), param.view(np.uint16), other),
        copying(xp, master, out),
        take,
    )


master_store = operator(
    "master_store",
    doc="A parameter of half precision from its float32 copy: out = x, rounded to `dtype`.",
    inputs=[Slot("x", "floats of any shape")],
    outputs=[Slot("out", "shape of x, of the dtype `dtype`")],
    attrs=[AttrSpec("dtype", "dtype", "dtype of out, a floating one")],
    source=_SOURCE,
    scalar="x",
    no_gradient=_SERVES,
)


@master_store.shape_rule
def master_store_shape(s: ShapeArgs) -> None:
    s.floats("x")
    s.set("out", (s["x"], s.float_dtype("dtype wants a floating one")))


@master_store.kernel
def master_store_kernel(k: KernelArgs) -> Call:
    return in_order(copying(k.xp, k["x"], k["out"]))


# -- scaled losses -----------------------------------------------------------------------------

loss_scale_seed = operator(
    "loss_scale_seed",
    doc="The gradient of a scaled loss with respect to itself: out = scale, everywhere.",
    inputs=[Slot("x", "the loss, floats of any shape", shape_only=True), _SCALE],
    outputs=[Slot("out", "shape and dtype of x")],
    source=_SOURCE,
    no_gradient="the gradient of a gradient is not built",
)


@loss_scale_seed.shape_rule
def loss_scale_seed_shape(s: ShapeArgs) -> None:
    s.rank("scale", 0)
    s.floats("scale")
    s.set("out", (s["x"], s.floats("x")))


@loss_scale_seed.kernel
def loss_scale_seed_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["out"], k["scale"], casting="unsafe")


loss_scale_check = operator(
    "loss_scale_check",
    doc="Whether the gradients of a scaled loss are finite, and the factor that undoes the scale.",
    inputs=[Slot("x", "gradients, floats of any shapes", duplicable=True), _SCALE],
    outputs=[
        Slot("factor", "1 / scale, float32 []"),
        Slot("finite", _FINITE, optional=True),
    ],
    source=_SOURCE,
    no_gradient=_SERVES,
    takes_halves=EVERYWHERE,
)


@loss_scale_check.shape_rule
def loss_scale_check_shape(s: ShapeArgs) -> None:
    s.rank("scale", 0)
    if not all(is_float(dtype) for _, dtype in s.specs("x")):
        s.fail("every x wants a floating dtype")
    for slot in ("factor", "finite"):
        s.set(slot, ((), s.floats("scale")))


@loss_scale_check.kernel
def loss_scale_check_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    arrays = k.list("x")
    finite = k.get("finite")
    calls: list[Call] = [partial(xp.divide, 1, k["scale"], k["factor"])]
    if finite is None:
        return calls[0]
    # A flag for each gradient, put together at the end: nothing is asked of a GPU on the way.
    flags = k.scratch((len(arrays),), bool)
    # One mask, as large as the largest gradient, serves all of them in turn.
    largest = max((array.size for array in arrays), default=0)
    masks = k.scratch((largest,), bool)
    exponents = k.scratch((largest,), np.uint16)
    for number, array in enumerate(arrays):
        mask = masks[: array.size].reshape(array.shape)
        top = _TOP.get(array.dtype)
        if top is None:
            calls.append(partial(xp.isfinite, array, mask))
        else:  # several times as fast as `isfinite`
            exponent = exponents[: array.size].reshape(array.shape)
            calls.append(partial(xp.bitwise_and, array.view(np.uint16), top, exponent))
            calls.append(partial(xp.not_equal, exponent, top, mask))
        calls.append(partial(mask.all, out=flags[number : number + 1].reshape(())))
    every = k.scratch((), bool)
    return in_order(*calls, partial(flags.all, out=every), partial(xp.copyto, finite, every))


loss_scale_undo = operator(
    "loss_scale_undo",
    doc="A gradient of the loss itself from a gradient of the scaled loss: out = grad_scale * x,"
    " in the dtype `dtype`; without grad_scale a mere conversion.",
    inputs=[
        Slot("x", "a gradient, floats of any shape"),
        Slot("grad_scale", "1 / scale, []", optional=True),
    ],
    outputs=[Slot("out", "shape of x, of the dtype `dtype`")],
    attrs=[AttrSpec("dtype", "dtype", "dtype of out, a floating one")],
    source=_SOURCE,
    scalar="grad_scale * x",
    no_gradient=_SERVES,
)


@loss_scale_undo.shape_rule
def loss_scale_undo_shape(s: ShapeArgs) -> None:
    if s.has("grad_scale"):
        s.rank("grad_scale", 0)
    master_store_shape(s)


loss_scale_undo.kernel(derived_kernel)


loss_scale_commit = operator(
    "loss_scale_commit",
    doc="The end of an update that may be skipped: out = new where finite is 1, else old.",
    inputs=[
        Slot("new", "what the update has computed, any shape and dtype"),
        Slot("old", "the value before, as new"),
        Slot("finite", _FINITE),
    ],
    outputs=[Slot("out", "shape of new", inplace="old")],
    source=_SOURCE,
    scalar="finite > 0 ? new : old",
    no_gradient=_SERVES,
    takes_halves=EVERYWHERE,
)


@loss_scale_commit.shape_rule
def loss_scale_commit_shape(s: ShapeArgs) -> None:
    s.rank("finite", 0)
    if s.dtype("new") != s.dtype("old"):
        s.fail("new and old want one dtype")
    s.set("out", (s.same_shape("new and old", s["new"], s["old"]), s.dtype("new")))


@loss_scale_commit.kernel
def loss_scale_commit_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    done = k.scratch((), bool)
    return in_order(
        partial(xp.greater, k["finite"], 0, done),
        copying(xp, k["old"], out),
        # A choice and no product: what is skipped may be infinite or NaN.
        partial(xp.copyto, out, k["new"], where=done),
    )


loss_scale_update = operator(
    "loss_scale_update",
    doc="The scale of the next step: scale * backoff_factor after gradients that are not finite;"
    " scale * growth_factor after growth_interval steps in a row with finite ones.",
    inputs=[
        _SCALE,
        Slot("steps", "steps with finite gradients since the scale changed, int64 []"),
        Slot("finite", _FINITE),
    ],
    outputs=[
        Slot("scale_out", "the new scale"),
        Slot("steps_out", "the new count"),
    ],
    attrs=[
        AttrSpec("growth_factor", "float", "factor that raises the scale", 2.0, minimum=1.0),
        AttrSpec("backoff_factor", "float", "factor that lowers it", 0.5, 0.0, 1.0),
        AttrSpec("growth_interval", "int", "steps before it is raised", 2000, minimum=1),
    ],
    source=_SOURCE,
    no_gradient=_SERVES,
)


@loss_scale_update.shape_rule
def loss_scale_update_shape(s: ShapeArgs) -> None:
    for slot in ("scale", "steps", "finite"):
        s.rank(slot, 0)
    s.set("scale_out", ((), s.floats("scale")))
    s.set("steps_out", ((), s.integers("steps")))


@loss_scale_update.kernel
def loss_scale_update_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    scale = k["scale"]
    steps = k["steps"]
    finite = k["finite"]
    scale_out = k["scale_out"]
    steps_out = k["steps_out"]
    number = k["scale"].dtype.type
    growth, backoff = number(k.attrs["growth_factor"]), number(k.attrs["backoff_factor"])
    interval = k.attrs["growth_interval"]
    # The scale stays a normal number, or its inverse would be infinite.
    least = np.finfo(scale.dtype).tiny

    def run() -> None:
        good = finite > 0
        grown = scale * growth
        counted = steps + 1
        # All cases are computed and one is chosen: the verdict stays on the device.
        due = counted >= interval
        grown = xp.where(due & xp.isfinite(grown), grown, scale)
        lowered = xp.maximum(scale * backoff, least)
        scale_out[...] = xp.where(good, grown, lowered)
        # Counted anew after each change of the scale, up or down.
        steps_out[...] = xp.where(good & ~due, counted, 0)

    return run
