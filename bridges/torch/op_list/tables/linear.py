"""Products of matrices and tensors, and attention."""

from __future__ import annotations

import math

import numpy as np

from ..emission import Emission, dtype_text, writes


def _linear(e: Emission, w: np.ndarray, slot: str, turned: bool) -> str | None:
    """nn.Linear of a weight [K, N], or [N, K] if it is turned, and the bias that goes with it."""
    if w.ndim != 2:
        return None
    array = w if turned else w.T
    bias = e.owned("b") if "b" in e.op.inputs else None
    own = bias is not None and bias.shape == array.shape[:1] and bias.dtype == w.dtype
    more = "" if own else ", bias=False"
    if w.dtype != np.float32:
        more += f", dtype={dtype_text(w.dtype)}"
    make = f"nn.Linear({array.shape[1]}, {array.shape[0]}{more})"
    tensors = [("weight", array, slot)]
    if own and bias is not None:
        tensors.append(("bias", bias, "b"))
    text = e.layer(make, *tensors) + "({})"
    return text if own or not e.has("b") else f"{text} + {e['b']}"


@writes("affine")
def affine(e: Emission) -> None:
    x = e["x"]
    rows = e.attrs["num_flatten_dims"]
    rank = e.rank("x")
    if rows >= 0 and rows != rank - 1:
        x = f"{x}.flatten({rows})" if rank else x
    w = e.owned("w")
    template = _linear(e, w, "w", False) if w is not None else None
    if template is not None:
        e.set("out", template.format(x))
    else:
        e.set("out", f"{x} @ {e['w']}" + (f" + {e['b']}" if e.has("b") else ""))


@writes("matmul")
def matmul(e: Emission) -> None:
    alpha = e.attrs["alpha"]
    w = e.owned("y")
    turned = e.attrs["transpose_y"]
    x = f"{e['x']}.mT" if e.attrs["transpose_x"] and e.rank("x") > 1 else e["x"]
    template = _linear(e, w, "y", turned) if w is not None else None
    if template is None:
        y = f"{e['y']}.mT" if turned and e.rank("y") > 1 else e["y"]
        template = f"{{}} @ {y}"
    text = template.format(x)
    e.set("out", text if alpha == 1 else f"{e.number(alpha)} * ({text})")


@writes("einsum")
def einsum(e: Emission) -> None:
    equation = e.attrs["equation"].replace(" ", "")
    e.set("out", f'torch.einsum("{equation}", {", ".join(e.list("x"))})')


@writes("scaled_dot_product_attention")
def attention(e: Emission) -> None:
    heads, causal = e.attrs["heads"], e.attrs["causal"]
    if e.has("past"):
        e.refuse("it reads a cache of earlier tokens")
    width = e.shape("query")[-1]
    if width < 0:
        e.refuse("the width of the query is not known; declare it")
    scale = e.attrs["scale"] or 1 / math.sqrt(max(width // (heads or 1), 1))
    cut = f".unflatten(-1, ({heads}, -1)).transpose(1, 2)" if heads else ""
    given = ", ".join(e[slot] + cut for slot in ("query", "key", "value"))
    masks = [e["mask"]] if e.has("mask") else []
    if e.has("key_mask"):
        rank = 4 if heads else max(e.rank("query"), e.rank("key"))
        masks.append(e["key_mask"] + ".unsqueeze(1)" * (rank - 2))
    if masks:
        more = "".join(f", {mask}" for mask in masks)
        text = f"{e.helper('attention')}({given}, {scale!r}, {causal}{more})"
    else:
        how = ", is_causal=True" if causal else ""
        text = f"F.scaled_dot_product_attention({given}{how}, scale={scale!r})"
    e.set("out", f"{text}.transpose(1, 2).flatten(2)" if heads else text)


@writes("positions")
def positions(e: Emission) -> None:
    past = f"{e['past']}[:, None] + " if e.has("past") else ""
    e.set("out", f"{past}torch.arange({e['x']}.shape[{e.axis()}], device={e['x']}.device)")


def _angles(e: Emission, numbers: str, width: int) -> str:
    return f"{e.helper('angles')}({numbers}, {width}, {e.attrs['base']!r})"


@writes("sinusoidal_encoding")
def sinusoidal_encoding(e: Emission) -> None:
    size = e.attrs["size"]
    (name,) = e.op.outputs["out"]
    angles = e.values.name(f"{name}_angles")
    e.values.write([angles], f"{angles} = {_angles(e, e['positions'], size)}")
    text = f"torch.stack([{angles}.sin(), {angles}.cos()], -1).flatten(-2)"
    text += f"[..., :{size}]" if size % 2 else ""
    e.set("out", f"{text}.to({dtype_text(e.attrs['dtype'])})")


@writes("rotary_embedding")
def rotary_embedding(e: Emission) -> None:
    heads = e.attrs["heads"]
    x = e["x"]
    width = e.shape("x")[-1] // (heads or 1)
    if width < 0:
        e.refuse("the width of x is not known; declare it")
    numbers = e.get("positions") or (
        f"torch.arange({x}.shape[{e.rank('x') - 2}], device={x}.device)"
    )
    turns = _angles(e, numbers, width) + (".unsqueeze(-2)" if heads else "")
    given = f"{x}.unflatten(-1, ({heads}, {width}))" if heads else x
    text = f"{e.helper('rotary')}({given}, {turns}, {e.attrs['interleaved']})"
    e.set("out", f"{text}.flatten(-2)" if heads else text)
