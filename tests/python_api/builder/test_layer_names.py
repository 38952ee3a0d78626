"""What layers make inside themselves is called after them; parameters keep the names they had."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opscope import NetBuilder
from opscope.framework.files.checkpoint import net_difference
from opscope.framework.ir.desc import TEMPORARY


def encoder(b: NetBuilder) -> None:
    x = b.input("x", [-1, 5, 8])
    x = b.positional_encoding(x, kind="learned", max_length=9, name="layer.positions")
    b.transformer_encoder(x, layers=2, heads=2, name="layer")


def decoder(b: NetBuilder) -> None:
    x, memory = b.input("x", [-1, 5, 8]), b.input("memory", [-1, 7, 8])
    b.transformer_decoder(x, memory, layers=1, heads=2, norm_first=True, name="layer")


def additive(b: NetBuilder) -> None:
    memory = b.input("memory", [-1, 4], levels=1)
    b.attention(b.input("query", [-1, 4]), memory, kind="additive", size=3, name="layer")


def loss(b: NetBuilder) -> None:
    scores, label = b.input("scores", [-1, 3]), b.input("label", [-1], "int64")
    b.softmax_focal_loss(scores, label, alpha=[1.0, 2.0, 3.0], name="layer")


def recurrent(b: NetBuilder) -> None:
    b.lstm(b.input("x", [-1, 4], levels=1), 3, layers=2, dropout=0.5, name="layer")


LAYERS = [encoder, decoder, additive, loss, recurrent]


def built(make: Callable[[NetBuilder], None]) -> NetBuilder:
    b = NetBuilder("net")
    make(b)
    return b


@pytest.mark.parametrize("make", LAYERS)
def test_all_inside_a_layer_bears_its_name(make: Callable[[NetBuilder], None]) -> None:
    made = [var.name for var in built(make).op_list.vars if var.kind == TEMPORARY]
    assert made
    assert [
        name for name in made if name != "layer" and not name.startswith(("layer.", "layer@"))
    ] == []


def test_parts_are_called_as_their_parameters() -> None:
    names = set(built(encoder).forward_net.vars)
    for part in ("0.attention.q", "1.attention.out", "0.feedforward.in", "1.feedforward.out"):
        assert f"layer.{part}.w" in names
    assert {"layer.0.attention.q", "layer.0.norm1", "layer.1.feedforward.in"} <= names


def test_numbers_of_layers_without_a_name_count_what_is_inside_of_others() -> None:
    """Parameters of files that were saved before layers named their insides are called so."""
    b = NetBuilder("net")
    x = b.transformer_encoder_layer(b.input("x", [-1, 5, 8]), heads=2)
    assert b.layer_norm(x).name == "layer_norm_1"
    assert b.relu(x).name == "relu_1"


def test_a_checkpoint_with_other_names_inside_goes_on() -> None:
    now = built(encoder).op_list
    names = {var.name: f"affine_{n}" for n, var in enumerate(now.vars) if var.kind == TEMPORARY}
    before = now.copy()
    before.ops = [op.renamed(names) for op in now.ops]
    before.vars = [var.changed(name=names.get(var.name, var.name)) for var in now.vars]
    assert net_difference(before, now) == ""
    before.ops = before.ops[:-1]
    assert "ops there" in net_difference(before, now) or "there and" in net_difference(before, now)
