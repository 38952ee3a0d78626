"""Operators over sequences: [N T, ...] with one length T."""

from __future__ import annotations

from typing import Final

from ..emission import SEQUENCES, Emission, dtype_text, writes

_POOLED: Final = {
    "max": ".amax(1)", "sum": ".sum(1)", "mean": ".mean(1)", "first": "[:, 0]", "last": "[:, -1]",
}  # fmt: skip


@writes("sequence_context")
def context(e: Emission) -> None:
    a = e.attrs
    given = f"{e.sequences()}, {a['left']}, {a['right']}, {a['padding'] == 'edge'}"
    e.set("out", f"{e.helper('context')}({given}).flatten(0, 1)")


@writes("sequence_shift")
def shift(e: Emission) -> None:
    by = int(e.attrs["by"])
    if by == 0:
        e.set("out", e["x"])
        return
    start = e.get("boundary") or e.number(e.attrs["fill"])
    if e.has("boundary"):
        start = f"{start}.unsqueeze(1)"
    e.set("out", f"{e.helper('shifted')}({e.sequences()}, {by}, {start}).flatten(0, 1)")


@writes("sequence_expand")
def expand(e: Emission) -> None:
    text = f"{e['x']}.repeat_interleave({e.steps('like')}, 0)"
    e.set("out", text)


@writes("sequence_pool")
def pool(e: Emission) -> None:
    kind = e.attrs["pool_type"]
    if kind in _POOLED:
        e.set_rows("out", e.sequences() + _POOLED[kind])
    else:
        e.set_rows("out", f"{e.sequences()}.sum(1) / {e.steps('x')} ** 0.5")


@writes("sequence_concat")
def join(e: Emission) -> None:
    parts = [e.sequences("x", number) for number in range(len(e.op.inputs["x"]))]
    e.set_sequences("out", f"torch.cat([{', '.join(parts)}], 1)")


@writes("sequence_length")
def length(e: Emission) -> None:
    x = e["x"]
    steps = e.steps("x")
    e.set_rows("out", f"torch.full(({SEQUENCES},), {steps}, device={x}.device)")


@writes("sequence_mask")
def mask(e: Emission) -> None:
    x = e["x"]
    own = e.steps("x")
    steps = e.attrs["steps"]
    dtype = dtype_text(e.attrs["dtype"])
    row = f"(torch.arange({steps if steps >= 0 else own}, device={x}.device) < {own}).to({dtype})"
    e.set_rows("out", f"{row}.expand({SEQUENCES}, -1)")


@writes("sequence_pad")
def pad(e: Emission) -> None:
    text = e.sequences()
    steps = e.attrs["steps"]
    if steps >= 0:
        zeros = "0, 0, " * (e.rank("x") - 1)
        value = f", value={e.number(e.attrs['value'])}" if e.attrs["value"] else ""
        text = f"F.pad({text}, ({zeros}0, {steps} - {e.steps('x')}){value})"
    e.set_rows("out", text)


@writes("sequence_unpad")
def unpad(e: Emission) -> None:
    e.set_sequences("out", f"{e['x']}[:, :{e.steps('like')}]")


@writes("sequence_rows")
def rows(e: Emission) -> None:
    e.set_sequences("out", e["x"])


@writes("sequence_reverse")
def reverse(e: Emission) -> None:
    e.set("out", f"{e.sequences()}.flip(1).flatten(0, 1)")


@writes("sequence_slice")
def part(e: Emission) -> None:
    if e.has("offset"):
        e.refuse("where its part begins is data; give it as `start`")
    start, count = int(e.attrs["start"]), int(e.attrs["length"])
    end = "" if count < 0 or start < 0 <= start + count else str(start + count)
    e.set_sequences("out", f"{e.sequences()}[:, {start or ''}:{end}]")


@writes("sequence_softmax")
def softmax(e: Emission) -> None:
    e.set("out", f"torch.softmax({e.sequences()}, 1).flatten(0, 1)")
