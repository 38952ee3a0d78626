"""Filling, reshaping, joining, cutting, padding, running sums and products."""

from __future__ import annotations

import numpy as np

from ..emission import Emission, lists, writes


@writes("constant")
def constant(e: Emission) -> None:
    e.set("out", e.constant(np.asarray(e.attrs["value"])))


@writes("fill_constant")
def fill_constant(e: Emission) -> None:
    e.set("out", e.constant(np.full(e.attrs["shape"], e.attrs["value"], e.attrs["dtype"])))


@writes("arange")
def arange(e: Emission) -> None:
    a = e.attrs
    count = max(int(np.ceil((a["stop"] - a["start"]) / a["step"])), 0)
    e.set("out", e.constant((a["start"] + np.arange(count) * a["step"]).astype(a["dtype"])))


@writes("linspace")
def linspace(e: Emission) -> None:
    a = e.attrs
    e.set("out", e.constant(np.linspace(a["start"], a["stop"], a["num"]).astype(a["dtype"])))


@writes("eye")
def eye(e: Emission) -> None:
    a = e.attrs
    columns = a["rows"] if a["columns"] < 0 else a["columns"]
    e.set("out", e.constant(np.eye(a["rows"], columns, a["diagonal"], a["dtype"])))


@writes("fill_like")
def fill_like(e: Emission) -> None:
    e.set("out", f"torch.full_like({e['x']}, {e.number(e.attrs['value'])})")


def sizes(e: Emission) -> list[str]:
    """The attribute `shape`, where 0 keeps a dimension."""
    x = e["x"]
    shape = e.shape("x")
    texts: list[str] = []
    for axis, size in enumerate(e.attrs["shape"]):
        kept = shape[axis] if size == 0 and axis < len(shape) else size
        texts.append(f"{x}.shape[{axis}]" if size == 0 and kept < 0 else str(kept))
    return texts


@writes("reshape")
def reshape(e: Emission) -> None:
    given = sizes(e)
    e.set("out", f"{e['x']}.reshape({', '.join(given) or '()'})")


@writes("flatten")
def flatten(e: Emission) -> None:
    axis = int(e.attrs["axis"])
    rank = e.rank("x")
    axis = axis + rank if axis < 0 else axis
    if axis == 1 and rank > 1:
        e.set("out", e["x"] if rank == 2 else f"{e['x']}.flatten(1)")
    elif axis in (0, rank):
        e.set("out", f"{e['x']}.flatten().unsqueeze({0 if axis == 0 else 1})")
    else:
        after = "" if axis == rank - 1 else ".flatten(1)"
        e.set("out", f"{e['x']}.flatten(0, {axis - 1}){after}")


@writes("squeeze")
def squeeze(e: Emission) -> None:
    axes = sorted({axis % e.rank("x") for axis in e.attrs["axes"]}, reverse=True)
    e.set("out", e["x"] + "".join(f".squeeze({axis})" for axis in axes))


@writes("unsqueeze")
def unsqueeze(e: Emission) -> None:
    rank = e.rank("x") + len(e.attrs["axes"])
    axes = sorted(axis % rank for axis in e.attrs["axes"])
    e.set("out", e["x"] + "".join(f".unsqueeze({axis})" for axis in axes))


@writes("transpose")
def transpose(e: Emission) -> None:
    rank = e.rank("x")
    perm = [axis % rank for axis in e.attrs["perm"]] or list(range(rank))[::-1]
    e.set("out", f"{e['x']}.permute({', '.join(map(str, perm))})" if rank else e["x"])


@writes("expand")
def expand(e: Emission) -> None:
    e.set("out", f"{e['x']}.expand({', '.join(map(str, e.attrs['shape'])) or '()'})")


@writes("tile")
def tile(e: Emission) -> None:
    e.set("out", f"{e['x']}.tile({lists([str(n) for n in e.attrs['repeats']])})")


@writes("meshgrid")
def meshgrid(e: Emission) -> None:
    given = ", ".join(e.list("x"))
    text = f'torch.meshgrid({given}, indexing="{e.attrs["indexing"]}")'
    e.set("out", *(f"{text}[{place}]" for place in range(len(e.op.outputs["out"]))))


@writes("concat")
def concat(e: Emission) -> None:
    e.set("out", f"torch.cat([{', '.join(e.list('x'))}], {e.axis()})")


@writes("stack")
def stack(e: Emission) -> None:
    axis = e.attrs["axis"] % (e.rank("x") + 1)
    e.set("out", f"torch.stack([{', '.join(e.list('x'))}], {axis})")


@writes("slice")
def slice_(e: Emission) -> None:
    a = e.attrs
    rank = e.rank("x")
    steps = list(a["steps"]) or [1] * len(a["axes"])
    ends = list(a["ends"]) or [None] * len(a["axes"])
    cuts = [":"] * rank
    for axis, start, end, step in zip(a["axes"], a["starts"], ends, steps, strict=True):
        far = end is None or abs(end) > 1 << 40
        stop = "" if far else str(end)
        if step > 0:
            begin = "" if start == 0 or start < -(1 << 40) else str(start)
            cuts[axis] = f"{begin}:{stop}" + (f":{step}" if step != 1 else "")
        else:
            begin = "" if abs(start) > 1 << 40 else str(start)
            numbers = f"range({e['x']}.shape[{axis % rank}])"
            cuts[axis] = f"list({numbers}[{begin}:{stop}:{step}])"
    picked = [axis for axis, cut in enumerate(cuts) if cut.startswith("list")]
    text = e["x"]
    for axis in picked:  # one at a time: several lists would be pairs of places
        text += f"[{', '.join([*[':'] * axis, cuts[axis]])}]"
        cuts[axis] = ":"
    while cuts and cuts[-1] == ":":
        cuts.pop()
    e.set("out", f"{text}[{', '.join(cuts)}]" if cuts else text)


@writes("split")
def split(e: Emission) -> None:
    axis = e.axis()
    names = e.op.outputs["out"]
    sections = list(e.attrs["sections"])
    count = len(names)
    if -1 in sections:
        rest = sum(sections) + 1
        size = e.shape("x")[axis]
        free = sections.index(-1)
        known = size - rest if size >= 0 else f"{e['x']}.shape[{axis}] - {rest}"
        sections[free] = known
    given = str(count) if not sections else f"[{', '.join(map(str, sections))}]"
    function = "split" if sections else "chunk"
    names_out = [e.values.name(name) for name in names]
    left = ", ".join(names_out) + "," * (count == 1)
    e.values.write(names_out, f"{left} = {e['x']}.{function}({given}, {axis})")
    e.set("out", *names_out)


@writes("pad")
def pad(e: Emission) -> None:
    pads = list(e.attrs["paddings"])
    mode = e.attrs["mode"]
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    if mode == "constant":
        turned = [str(n) for pair in reversed(pairs) for n in pair]
        while len(turned) > 2 and turned[-2:] == ["0", "0"]:
            turned = turned[:-2]
        value = f", value={e.number(e.attrs['value'])}" if e.attrs["value"] else ""
        e.set("out", f"F.pad({e['x']}, {lists(turned)}{value})" if any(pads) else e["x"])
        return
    text = e["x"]
    if mode == "edge" and e.rank("x") == 3 and not any(pads[:4]) and e.is_float():
        e.set("out", f'F.pad({text}, {pairs[2]}, mode="replicate")')
        return
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            text = f'{e.helper("padded")}({text}, {axis}, {before}, {after}, "{mode}")'
    e.set("out", text)


@writes("flip")
def flip(e: Emission) -> None:
    axes = e.axes()
    e.set("out", f"{e['x']}.flip({lists([str(axis) for axis in axes])})" if axes else e["x"])


@writes("repeat_interleave")
def repeat_interleave(e: Emission) -> None:
    e.set("out", f"{e['x']}.repeat_interleave({e.attrs['repeats']}, {e.axis()})")


@writes("roll")
def roll(e: Emission) -> None:
    shifts, axes = list(e.attrs["shifts"]), list(e.attrs["axes"])
    if not axes:
        e.set("out", f"{e['x']}.roll({sum(shifts)})")
    else:
        given = (lists([str(n) for n in one]) for one in (shifts, axes))
        e.set("out", f"{e['x']}.roll({', '.join(given)})")


@writes("cumsum", "cumprod")
def running(e: Emission) -> None:
    axis = e.axis()
    a = e.attrs
    if not a["exclusive"] and not a["reverse"]:
        e.set("out", f"{e['x']}.{e.op.type}({axis})")
        return
    start = 0 if e.op.type == "cumsum" else 1
    given = f"{axis}, torch.{e.op.type}, {a['exclusive']}, {a['reverse']}, {start}"
    e.set("out", f"{e.helper('running')}({e['x']}, {given})")


@writes("tril", "triu")
def triangle(e: Emission) -> None:
    e.set("out", f"{e['x']}.{e.op.type}({e.attrs['diagonal'] or ''})")


@writes("diag")
def diag(e: Emission) -> None:
    e.set("out", f"{e['x']}.diag({e.attrs['diagonal'] or ''})")
