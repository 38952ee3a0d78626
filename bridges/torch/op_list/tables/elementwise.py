"""Elementwise operators that neither a name in PyTorch nor an expression is enough for."""

from __future__ import annotations

from .....operators.names import names_of
from ..emission import Emission, dtype_text, writes
from ..expressions import called


@writes("cast")
def cast(e: Emission) -> None:
    same = e.dtype("x") == e.attrs["dtype"]
    e.set("out", e["x"] if same else f"{e['x']}.to({dtype_text(e.attrs['dtype'])})")


@writes("dropout")
def dropout(e: Emission) -> None:
    rank = e.rank("x") - 2
    kind = f"Dropout{rank}d" if e.attrs["channels"] and rank in (1, 2, 3) else "Dropout"
    layer = e.layer(f"nn.{kind}({e.attrs['p']!r})")
    e.set("out", f"{layer}({e['x']})")


@writes("glu")
def glu(e: Emission) -> None:
    e.set("out", f"F.glu({e['x']}, {e.axis()})")


@writes("prelu")
def prelu(e: Emission) -> None:
    w = e.owned("w")
    if w is not None and e.rank("x") > 1:
        make = f"nn.PReLU({w.size})"
        e.set("out", f"{e.layer(make, ('weight', w, 'w'))}({e['x']})")
    else:
        e.set("out", f"F.prelu({e['x']}, {e['w']})")


@writes("floor_divide", "fmod", "mod")
def of_whole(e: Emission) -> None:
    """Of integers the result is 0 where y is."""
    name = names_of(e.op.type)["torch"]
    x = e["x"]
    y = e["y"]
    if e.is_float():
        e.set("out", called(name, [x, y], {}))
    else:
        quotient = called(name, [x, f"{y}.where({y} != 0, 1)"], {})
        e.set("out", f"torch.where({y} == 0, 0, {quotient})")
