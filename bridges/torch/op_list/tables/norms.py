"""Reductions, norms, softmax, normalization."""

from __future__ import annotations

import math

import numpy as np

from ..emission import Emission, dtype_text, lists, writes


def _over(e: Emission) -> str:
    """Axes as PyTorch takes them, and whether they stay."""
    axes = e.axes()
    given = str(axes[0]) if len(axes) == 1 else lists([str(axis) for axis in axes])
    return f"{given}, keepdim=True" if e.attrs["keepdims"] else given


def _as(e: Emission, text: str) -> str:
    """A result in the dtype of the operator's."""
    wanted = e.values.specs.get(e.op.outputs["out"][0])
    own = e.dtype("x")
    if wanted is None or wanted[1] == own and own.kind == "f":
        return text
    return f"{text}.to({dtype_text(wanted[1])})"


@writes("logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_sum")
def reduce(e: Emission) -> None:
    if not e.rank("x"):
        e.set("out", _as(e, e["x"]))
        return
    x = e["x"]
    if e.op.type == "reduce_mean" and not e.is_float():
        x = _as(e, x)
    e.set("out", _as(e, f"{x}.{e.theirs}({_over(e)})"))


@writes("reduce_prod")
def product(e: Emission) -> None:
    keep = ", keepdim=True" if e.attrs["keepdims"] else ""
    axes = sorted(e.axes(), reverse=True)
    e.set("out", _as(e, e["x"] + "".join(f".prod({axis}{keep})" for axis in axes)))


@writes("mean")
def mean(e: Emission) -> None:
    e.set("out", f"{e['x']}.mean()")


@writes("reduce_all", "reduce_any")
def all_or_any(e: Emission) -> None:
    keep = ", keepdim=True" if e.attrs["keepdims"] else ""
    name = e.op.type.removeprefix("reduce_")
    axes = sorted(e.axes(), reverse=True)
    e.set("out", f"{e['x']}.bool()" + "".join(f".{name}({axis}{keep})" for axis in axes))


@writes("reduce_var", "reduce_std")
def spread(e: Emission) -> None:
    name = e.op.type.removeprefix("reduce_")
    e.set("out", f"{e['x']}.{name}({_over(e)}, correction={e.attrs['ddof']})")


@writes("norm")
def norm(e: Emission) -> None:
    p = e.attrs["p"]
    order = ("torch.inf" if p > 0 else "-torch.inf") if math.isinf(p) else repr(p)
    e.set("out", f"torch.linalg.vector_norm({e['x']}, {order}, {_over(e)})")


@writes("normalize")
def normalize(e: Emission) -> None:
    e.set("out", f"F.normalize({e['x']}, dim={e.axis()}, eps={e.attrs['epsilon']!r})")


@writes("cosine_similarity")
def cosine_similarity(e: Emission) -> None:
    rank = max(e.rank("x"), e.rank("y"))
    axis = e.attrs["axis"] % rank - rank
    given = f"{e['x']}, {e['y']}, {axis}, {e.attrs['epsilon']!r}"
    e.set("out", f"F.cosine_similarity({given})")


@writes("hardmax")
def hardmax(e: Emission) -> None:
    axis = e.axis()
    x = e["x"]
    places = f"{x}.argmax({axis}, keepdim=True)"
    e.set("out", f"torch.zeros_like({x}).scatter({axis}, {places}, 1.0)")


@writes("batch_norm", "batch_norm_apply")
def batch_norm(e: Emission) -> None:
    slots = ("scale", "bias", "mean", "variance")
    arrays = [e.owned(slot) for slot in slots]
    epsilon = repr(float(e.attrs["epsilon"]))
    rank = {2: 1, 3: 1, 4: 2, 5: 3}.get(e.rank("x"))
    held = [array for array in arrays if array is not None]
    if len(held) < 4 or rank is None or len({array.dtype for array in held}) > 1:
        scale, bias, mean, variance = (e[slot] for slot in slots)
        given = f"{mean}, {variance}, {scale}, {bias}"
        e.set("out", f"F.batch_norm({e['x']}, {given}, eps={epsilon})")
        return
    names = ("weight", "bias", "running_mean", "running_var")
    momentum = float(e.attrs.get("momentum", 0.1))
    more = "" if momentum == 0.1 else f", momentum={momentum!r}"
    make = f"nn.BatchNorm{rank}d({held[0].size}, eps={epsilon}{more})"
    tensors = list(zip(names, held, slots, strict=True))
    count = np.zeros((), np.int64)
    e.set("out", f"{e.layer(make, *tensors, num_batches_tracked=count)}({e['x']})")


@writes("layer_norm")
def layer_norm(e: Emission) -> None:
    axis = e.axis(name="begin_norm_axis")
    epsilon = repr(float(e.attrs["epsilon"]))
    shape = list(e.shape("x")[axis:])
    tensors = [
        (name, array.reshape(shape), slot)
        for name, slot in (("weight", "scale"), ("bias", "bias"))
        if min(shape) >= 0 and (array := e.owned(slot)) is not None and array.shape == tuple(shape)
    ]
    if tensors and tensors[0][0] == "weight" and len(tensors) == e.has("scale") + e.has("bias"):
        more = "" if len(tensors) == 2 else ", bias=False"
        layer = e.layer(f"nn.LayerNorm({shape}, eps={epsilon}{more})", *tensors)
        e.set("out", f"{layer}({e['x']})")
        return
    over = f"{e['x']}.shape[{axis}:]"
    weights = [
        f"{e[slot]}.reshape({over})" if e.has(slot) else "None" for slot in ("scale", "bias")
    ]
    e.set("out", f"F.layer_norm({e['x']}, {over}, {', '.join(weights)}, {epsilon})")


@writes("rms_norm")
def rms_norm(e: Emission) -> None:
    axes = [str(axis) for axis in range(e.axis(name="begin_norm_axis"), e.rank("x"))]
    power = f"{e['x']}.square().mean({lists(axes)}, keepdim=True)"
    text = f"{e['x']} * ({power} + {e.attrs['epsilon']!r}).rsqrt()"
    e.set("out", f"{text} * {e['scale']}" if e.has("scale") else text)


@writes("group_norm", "instance_norm")
def group_norm(e: Emission) -> None:
    epsilon = repr(float(e.attrs["epsilon"]))
    weight, bias = (e.get(slot) for slot in ("scale", "bias"))
    groups = f"{e.attrs['groups']}" if "groups" in e.attrs else f"{e['x']}.shape[1]"
    e.set("out", f"F.group_norm({e['x']}, {groups}, {weight}, {bias}, {epsilon})")
