"""Operators `rows.*` in functions that take `input` [N, T, columns]."""

from __future__ import annotations

import numpy as np

from ...formatting import atom
from ..emission import Emission, writes


def _plus(text: str, number: int) -> str:
    return text if not number else f"{text} {'+' if number > 0 else '-'} {abs(number)}"


def _count(e: Emission) -> str:
    """(end + more) // step."""
    text = _plus(e["end"], e.attrs["more"])
    step = e.attrs["step"]
    return f"({text}) // {step}" if step > 1 else text


@writes("rows.end")
def end(e: Emission) -> None:
    text = f"{e['x']}.shape[1] - 1"
    unit = e.attrs["unit"]
    e.set("out", f"({text}) // {unit} * {unit}" if unit > 1 else text)


@writes("rows.times")
def times(e: Emission) -> None:
    first, step = e.attrs["first"], e.attrs["step"]
    begin = f"{first}, " if first or step > 1 else ""
    more = f", {step}" if step > 1 else ""
    stop = _plus(e["end"], e.attrs["last"] + 1)
    e.set("out", f"torch.arange({begin}{stop}{more}, device=input.device)")


@writes("rows.inside")
def inside(e: Emission) -> None:
    times = e["times"]
    low = e.attrs["low"]
    high = e.attrs["high"]
    tests = list[str]()
    if low > -np.inf:
        tests.append(f"({times} >= {int(low)})")
    if high < np.inf:
        tests.append(f"({times} <= {_plus(e['end'], int(high))})")
    e.set("out", " & ".join(tests))


@writes("rows.periodic")
def periodic(e: Emission) -> None:
    values = e.attrs["values"].tolist()
    e.set("out", f"torch.tensor({values}, device=input.device)[{e['times']} % {len(values)}]")


@writes("rows.numbers")
def numbers(e: Emission) -> None:
    step, most = e.attrs["step"], e.attrs["most"]
    text = _plus(e["times"], -e.attrs["first"])
    text = f"({text}) // {step}" if step > 1 else text
    if e.has("end") or most >= 0:
        text = f"{atom(text)}.clamp(0, {_count(e) if e.has('end') else most})"
    e.set("out", text)


@writes("rows.cut")
def cut(e: Emission) -> None:
    start = e.attrs["start"] or ""
    e.set("out", f"{e['x']}[:, :, {start}: {_plus(e['end'], e.attrs['more'])}]")


@writes("rows.border")
def border(e: Emission) -> None:
    left = e.attrs["left"]
    right = e.attrs["right"]
    text = e["x"]
    if left > 0 or right > 0:
        text = f"F.pad({text}, ({max(left, 0)}, {max(right, 0)}))"
    if left < 0 or right < 0:  # after the zeros: there may be fewer rows without them
        text = f"{text}[:, :, {-left if left < 0 else ''}:{right if right < 0 else ''}]"
    e.set("out", text)


@writes("rows.spread")
def spread(e: Emission) -> None:
    count = _count(e) if e.has("end") else f"{e['like']}.shape[2]"
    e.set("out", f"{e['x']}.expand({e['like']}.shape[0], -1, {count})")


@writes("rows.layer")
def layer(e: Emission) -> None:
    text = e.attrs["call"]
    for place, x in zip(("{x}", "{y}"), e.list("x"), strict=False):
        text = text.replace(place, x)
    e.set("out", text)


@writes("rows.sequences")
def sequences(e: Emission) -> None:
    """As [N, T, columns], in the order of steps."""
    chains = e.attrs["chains"]
    back = ".flip(2)" if e.attrs["backward"] else ""
    for variable, x in zip(e.op.outputs["out"], e.list("x"), strict=True):
        text = f"{x}{back}.transpose(1, 2)"
        if chains > 1:
            text = f"{e.helper('chained')}({text}, {chains})"
        e.values.stack(variable, text)


@writes("rows.of_sequences")
def of_sequences(e: Emission) -> None:
    chains = e.attrs["chains"]
    back = ".flip(2)" if e.attrs["backward"] else ""
    texts: list[str] = []
    for x in e.op.inputs["x"]:
        text = f"{e.values.stacks[x]}.transpose(1, 2)"
        if chains > 1:
            text = f"{e.helper('unchained')}({e.values.stacks[x]}, {chains}, {e['like']})"
        texts.append(f"{text}{back}")
    e.set("out", *texts)
