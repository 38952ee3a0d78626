"""opscope.quantize_weights: nets that write with matrices of 4, 8 and 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.inference.form import ExportError
from opscope.python_api.cli.main import main

Net = tuple[NetBuilder, Scope]


@pytest.fixture(scope="module")
def net() -> Net:
    b, scope = NetBuilder("writer"), Scope()
    ids = b.input("ids", [-1, -1], "int64")
    after = b.input("next", [-1, -1], "int64")
    x = b.embedding(ids, [40, 64])
    x = b.positional_encoding(x, kind="learned", max_length=32, name="positions")
    x = b.transformer_encoder(x, layers=2, heads=4, causal=True, norm_first=True)
    scores = b.fc(x, size=40, name="scores")
    b.mean(b.softmax_cross_entropy(scores, after), name="loss")
    b.backward_from("loss")
    b.add_optimization(1e-3, "adam")
    b.initialize(scope)
    return b, scope


@pytest.mark.parametrize("weights, error", [("q8", 0.03), ("q4", 0.3), ("bf16", 0.01)])
@pytest.mark.parametrize("block", [32, 64])
def test_what_is_read_at_once_and_token_by_token(
    weights: str, error: float, block: int, net: Net
) -> None:
    if weights == "bf16":
        pytest.importorskip("ml_dtypes")
    small = opscope.quantize_weights(*net, weights, block=block)
    feed = {"ids": np.arange(24).reshape(2, 12)}
    wanted = net[0].predict(feed, "scores", scope=net[1])["scores"]
    found = small.predict(feed, "scores")["scores"]
    assert 1e-4 < np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < error
    kinds = [op.type for op in small.desc.ops]
    assert kinds.count("matmul_nbits") == 13 and not {"affine", "matmul", "adam"} & {*kinds}
    assert sum(var.name.endswith(f".{weights}") for var in small.desc.vars) == 13
    generator: Any = opscope.Generator(small)
    tokens = generator.greedy([feed["ids"][0], feed["ids"][1, :5]], 4)
    assert tokens[0][0] == found[0, -1].argmax() and tokens[1][0] == found[1, 4].argmax()


def test_a_matrix_that_others_read_stays() -> None:
    b, scope = NetBuilder("tied"), Scope()
    x = b.embedding(b.input("ids", [-1], "int64"), [50, 64], name="words")
    b.matmul(x, b.var("words.w"), transpose_y=True, name="scores")
    b.initialize(scope)
    small = opscope.quantize_weights(b, scope, "q8")
    assert {"embedding", "matmul_nbits"} == {op.type for op in small.desc.ops}
    feed = {"ids": np.arange(50)}
    wanted = b.predict(feed, "scores", scope=scope)["scores"]
    found = small.predict(feed, "scores")["scores"]
    assert abs(found - wanted).max() < 0.02 * abs(wanted).max()


def test_refuses() -> None:
    b, scope = NetBuilder("narrow"), Scope()
    b.fc(b.input("x", [-1, 31]), size=4, name="y")
    b.initialize(scope)
    with pytest.raises(ExportError, match="float32 matrix of at least 32 rows"):
        opscope.quantize_weights(b, scope, "q4")


@pytest.mark.parametrize("options", ["--weights q4 --how dynamic", "--block 64"])
def test_options_that_would_say_nothing_are_refused(options: str) -> None:
    done = CliRunner().invoke(main, ["quantize", "none.onnx", "small.onnx", *options.split()])
    assert done.exit_code == 2 and options.split()[0] in done.output.splitlines()[-1]
