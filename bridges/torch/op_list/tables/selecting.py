"""Selecting and looking up: by position, by order, by index."""

from __future__ import annotations

from ..emission import Emission, dtype_text, writes


@writes("argmax", "argmin")
def position_of_extreme(e: Emission) -> None:
    keep = ", keepdim=True" if e.attrs["keepdims"] else ""
    x = e["x"] if e.dtype("x").kind != "b" else f"{e['x']}.int()"
    e.set("out", f"{x}.{e.op.type}({e.axis()}{keep})")


@writes("sort")
def sort(e: Emission) -> None:
    _pair(e, f"{e['x']}.sort({_order(e)})", "out", "ids")


def _order(e: Emission) -> str:
    descending = ", descending=True" if e.attrs["descending"] else ""
    return f"dim={e.axis()}{descending}, stable=True"


def _pair(e: Emission, text: str, *slots: str) -> None:
    names = [e.values.name(e.op.outputs[slot][0]) if e.has(slot) else "_" for slot in slots]
    e.values.write([name for name in names if name != "_"], f"{', '.join(names)} = {text}")
    for slot, name in zip(slots, names, strict=True):
        e.set(slot, name)


@writes("argsort")
def argsort(e: Emission) -> None:
    e.set("out", f"{e['x']}.argsort({_order(e)})")


@writes("top_k")
def top_k(e: Emission) -> None:
    _pair(e, f"{e['x']}.topk({e.attrs['k']}, {e.axis()})", "values", "ids")


def _index(e: Emission, slot: str = "ids") -> str:
    return e[slot] if e.dtype(slot).name == "int64" else f"{e[slot]}.long()"


@writes("gather")
def gather(e: Emission) -> None:
    before = ":, " * e.axis()
    e.set("out", f"{e['x']}[{before}{_index(e)}]")


@writes("embedding")
def embedding(e: Emission) -> None:
    ids = _index(e)
    pad = e.attrs["padding_idx"]
    w = e.owned("w")
    if w is not None and w.ndim == 2:
        make = f"nn.Embedding({w.shape[0]}, {w.shape[1]})"
        text = f"{e.layer(make, ('weight', w, 'w'))}({ids})"
    else:
        text = f"{e['w']}[{ids}]"
    e.set("out", f"{text} * ({ids} != {pad}).unsqueeze(-1)" if pad >= 0 else text)


@writes("one_hot")
def one_hot(e: Emission) -> None:
    depth = e.attrs["depth"]
    ids = _index(e)
    there = f"{ids}.unsqueeze(-1) == torch.arange({depth}, device={ids}.device)"
    e.set("out", f"({there}).to({dtype_text(e.attrs['dtype'])})")


@writes("scatter_add")
def scatter_add(e: Emission) -> None:
    e.set("out", f"{e['x']}.index_put(({_index(e)},), {e['updates']}, accumulate=True)")


@writes("gather_nd")
def gather_nd(e: Emission) -> None:
    if e.attrs["batch_dims"]:
        e.refuse("places in batches have no text here; gather from the flattened array")
    e.set("out", f"{e['x']}[{_index(e)}.unbind(-1)]")


@writes("scatter_nd")
def scatter_nd(e: Emission) -> None:
    more = ", accumulate=True" if e.attrs["mode"] == "add" else ""
    e.set("out", f"{e['x']}.index_put({_index(e)}.unbind(-1), {e['updates']}{more})")


@writes("take_along_axis")
def take_along_axis(e: Emission) -> None:
    e.set("out", f"torch.take_along_dim({e['x']}, {_index(e)}, {e.axis()})")


@writes("put_along_axis")
def put_along_axis(e: Emission) -> None:
    given = f"{e['x']}, {e.axis()}, {_index(e)}, {e['updates']}, {e.attrs['mode'] == 'add'}"
    e.set("out", f"{e.helper('scattered')}({given})")
