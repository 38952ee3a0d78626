"""8-bit integers that stand for reals: products of float64 are exact, PyTorch has none of bytes."""

from __future__ import annotations

import numpy as np

from .....operators.base.nbits import BFLOAT16, elements, middle
from ..emission import Emission, dtype_text, writes
from .conv import windows


def _shifted(e: Emission, slot: str, zero: str, dtype: np.dtype, axes_after: int = 0) -> str:
    """Integers without their zero point, as floats."""
    kind = dtype_text(dtype)
    whole = f"{e[slot]}.to({kind})"
    return f"({whole} - {_spread(e, zero, axes_after)}.to({kind}))" if e.has(zero) else whole


def _spread(e: Emission, slot: str, axes_after: int) -> str:
    several = axes_after and e.shape(slot) not in ((), (1,))
    return f"{e[slot]}.reshape(-1{', 1' * axes_after})" if several else e[slot]


def _bytes(e: Emission, reals: str, zero: str, dtype: np.dtype) -> str:
    """Reals in units of a scale as integers."""
    info = np.iinfo(dtype)
    shift = f" + {e[zero]}.to(torch.int32)" if e.has(zero) else ""
    whole = f"torch.round({reals}).clamp(-1e6, 1e6).to(torch.int32)"
    return f"({whole}{shift}).clamp({info.min}, {info.max}).to({dtype_text(dtype)})"


def _ended(e: Emission, sums: str, axes_after: int) -> None:
    if e.has("bias"):
        sums = f"({sums} + {_spread(e, 'bias', axes_after)})"
    text = f"{sums}.long().int()"
    if e.has("scale"):
        text = f"{text}.to({dtype_text(e.dtype('scale'))}) * {_spread(e, 'scale', axes_after)}"
    if e.has("out_zero"):
        text = _bytes(e, text, "out_zero", e.dtype("out_zero"))
    e.set("out", text)


_WIDE = np.dtype("float64")


@writes("integer_matmul")
def integer_matmul(e: Emission) -> None:
    left, right = (_shifted(e, slot, f"{slot}_zero", _WIDE) for slot in "xy")
    _ended(e, f"({left} @ {right})", 0)


@writes("integer_conv")
def integer_conv(e: Emission) -> None:
    rank = e.rank("x") - 2
    x, options = windows(e, _shifted(e, "x", "x_zero", _WIDE))
    w = _shifted(e, "w", "w_zero", _WIDE, rank + 1)
    groups = f", groups={e.attrs['groups']}" if e.attrs["groups"] != 1 else ""
    _ended(e, f"F.conv{rank}d({x}, {w}, None{options}{groups})", rank)


@writes("matmul_nbits")
def matmul_nbits(e: Emission) -> None:
    bits, kind, depth = e.attrs["bits"], dtype_text(e.dtype("x")), e.shape("x")[-1]
    bias = f", {e['bias']}" if e.has("bias") else ""
    if bits == BFLOAT16:
        matrix = f"{e['w']}.view(torch.bfloat16).flatten(1)[:, :{depth}].to({kind})"
        e.set("out", f"F.linear({e['x']}, {matrix}{bias})")
        return

    def whole(slot: str) -> str:
        if bits == 8:
            return e[slot]
        return f"torch.stack(({e[slot]} & 15, {e[slot]} >> 4), -1).flatten(-2)"

    blocks = e.shape("scale")[1]
    zero = f"({whole('zero')})[:, :{blocks}, None].to({kind})" if e.has("zero") else middle(bits)
    reals = f"(({whole('w')}).to({kind}) - {zero}) * {e['scale']}[..., None]"
    x = e["x"]
    if e.attrs["int8_x"]:
        size = elements(e.shape("w")[2], bits)
        cut = f"F.pad({x}, (0, {blocks * size - depth})).unflatten(-1, ({blocks}, {size}))"
        step = f"(({cut}).abs().amax(-1, keepdim=True) / 127).clamp(min={np.finfo('f4').tiny})"
        x = f"(torch.round(({cut}) / {step}) * {step}).flatten(-2)[..., :{depth}]"
    e.set("out", f"F.linear({x}, ({reals}).flatten(1)[:, :{depth}]{bias})")


@writes("quantize_linear")
def quantize_linear(e: Emission) -> None:
    dtype = e.dtype("zero") if e.has("zero") else np.dtype("uint8")
    e.set("out", _bytes(e, f"({e['x']} / {e['scale']})", "zero", dtype))


@writes("dequantize_linear")
def dequantize_linear(e: Emission) -> None:
    e.set("out", f"{_shifted(e, 'x', 'zero', e.dtype('scale'))} * {e['scale']}")


@writes("dynamic_quantize_linear")
def dynamic_quantize_linear(e: Emission) -> None:
    title = e.op.outputs["out"][0]
    scale, zero, whole = (e.values.name(title, what) for what in ("scale", "zero", "whole"))
    x, low = e["x"], f"-{e['x']}.amin().clamp(max=0)"
    lines = (
        f"{scale} = ({x}.amax().clamp(min=0) + {low}) / 255",
        (f"{scale} = {scale}.masked_fill({scale} == 0, 1)"),
    )
    e.values.write([scale], *lines)
    e.values.write([zero], f"{zero} = torch.round({low} / {scale}).clamp(0, 255)")
    e.values.write([whole], f"{whole} = (torch.round({x} / {scale}) + {zero}).clamp(0, 255)")
    e.set("out", f"{whole}.to(torch.uint8)")
    e.set("scale", scale)
    e.set("zero", f"{zero}.to(torch.uint8)")


def _reals(e: Emission, name: str) -> str:
    kind = e.dtype("x_scale")
    return f"{_shifted(e, name, f'{name}_zero', kind)} * {e[f'{name}_scale']}"


@writes("quantized_add", "quantized_mul")
def combined(e: Emission) -> None:
    sign = "+" if e.op.type == "quantized_add" else "*"
    reals = f"({_reals(e, 'x')}) {sign} ({_reals(e, 'y')})"
    e.set("out", _bytes(e, f"({reals}) / {e['out_scale']}", "out_zero", e.dtype("x")))


@writes("quantized_global_avg_pool")
def global_mean(e: Emission) -> None:
    axes = tuple(range(2, e.rank("x")))
    mean = f"({_reals(e, 'x')}).mean({axes}, keepdim=True)"
    e.set("out", _bytes(e, f"{mean} / {e['out_scale']}", "out_zero", e.dtype("x")))


@writes("byte_table")
def byte_table(e: Emission) -> None:
    e.set("out", f"{e['table']}[{e['x']}.long()]")
