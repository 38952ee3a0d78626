"""Operators whose meaning is CNTK's own."""

from __future__ import annotations

import math

import numpy as np

from .....cntk.operators.windows import table
from ..emission import SEQUENCES, Emission, writes


@writes("cntk.with_sequences")
def with_sequences(e: Emission) -> None:
    e.set("out", e["x"])


@writes("cntk.expand_rows")
def expand_rows(e: Emission) -> None:
    x = e["x"]
    e.set("out", f"{x}.expand({e['like']}.shape[0], *{x}.shape)")


@writes("cntk.initial_state")
def initial_state(e: Emission) -> None:
    if e.has("carried"):
        e.refuse("states that are kept from minibatch to minibatch are of training")
    e.set_rows("out", f"{e['x']}.expand({SEQUENCES}, *{e['x']}.shape)")


@writes("cntk.cos_distance")
def cos_distance(e: Emission) -> None:
    first = e.attrs["shift"]
    turned = [f"{e['y']}.roll({-first - number}, 0)" for number in range(e.attrs["negatives"])]
    columns = [f"F.cosine_similarity({e['x']}, {y}, 1, 1e-30)" for y in (e["y"], *turned)]
    e.set("out", f"torch.stack([{', '.join(columns)}], 1)")


@writes("cntk.unfold")
def unfold(e: Emission) -> None:
    """By places: the places of all windows are known, and the padding is one more element."""
    places = table(e.attrs)
    inside = places >= 0
    x = e["x"]
    if not inside.all():
        x = f"F.pad({x}, (0, 1), value={e.number(e.attrs['fill'])})"
        places = np.where(inside, places, math.prod(e.attrs["shape"]))
    e.set("out", f"{x}[:, {e.constant(places)}]")


@writes("cntk.fold")
def fold(e: Emission) -> None:
    places = table(e.attrs).reshape(-1)
    x = f"{e['x']}.flatten(1)"
    inside = np.flatnonzero(places >= 0)
    if len(inside) < len(places):
        x = f"{x}[:, {e.constant(inside)}]"
    size = math.prod(e.attrs["shape"])
    zeros = f"{e['x']}.new_zeros({e['x']}.shape[0], {size})"
    e.set("out", f"{zeros}.index_add(1, {e.constant(places[inside])}, {x})")
