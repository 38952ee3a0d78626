"""Merged decoders, as Optimum writes them: a branch for first tokens, and one that reads caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import ShapeError, VariableError
from opscope.python_api.generate.generation import Generator

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, types = onnx.helper, onnx.TensorProto
V, W = 7, 4


def array(name: str, value: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(value), name)


def save(path: Path, branches: list[Any], inputs: list[Any], shared: list[Any]) -> Path:
    """A file whose only node chooses between a branch with caches and one without."""
    then, other = branches
    names = [one.name for one in other.output]
    choice = helper.make_node(
        "If", ["use_cache_branch"], names, name="optimum::if", then_branch=then, else_branch=other
    )
    flag = helper.make_tensor_value_info("use_cache_branch", types.BOOL, [1])
    graph = helper.make_graph([choice], "merged", [*inputs, flag], list(other.output), shared)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def gpt(folder: Path, positions: str = "learned") -> tuple[Generator, Path]:
    """A net of two layers, and its step in a merged file; the branches share all weights."""
    b, wide = NetBuilder("gpt"), ("normal", {"std": 1.0})
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8], init=wide)
    x = b.positional_encoding(x, kind=positions, max_length=40, name="at")
    x = b.transformer_encoder(x, layers=2, heads=2, norm_first=True, causal=True)
    b.fc(x, size=V, init=wide, name="scores")
    scope = Scope()
    b.initialize(scope, opscope.OpContext(seed=5))
    own = Generator(b, scope)
    own.to_onnx(folder / "step.onnx", opset=17)
    step = onnx.load(folder / "step.onnx").graph
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in step.node]
    for node in nodes:  # without caches there is nothing to append to
        if node.op_type == "Concat" and node.input[0].startswith("past_key_values"):
            rows = node.input[1]
            node.CopyFrom(helper.make_node("Identity", [rows], list(node.output), node.name))
    branches = [helper.make_graph(one, "b", [], step.output) for one in (step.node, nodes)]
    path = save(folder / "merged.onnx", branches, list(step.input), list(step.initializer))
    return own, path


def with_encoder(path: Path, *, by_one: bool = False, mask: bool = False) -> Path:
    """A decoder that attends to an encoder's memory, whose keys the first tokens compute.

    Args:
        by_one: the branch with caches is right for a single token alone. mask: it has a mask.
    """
    rng = np.random.default_rng(3)
    shared = [array("table", rng.normal(size=(V, W)).astype("f4"))]
    shared += [array("project", rng.normal(size=(W, W)).astype("f4")), array("one", [1])]
    shared += [array("two", np.array(2)), array("last", [1 << 40]), array("axis", [2])]
    shared += [array("no_rows", np.zeros((0, 1, 1, W), np.float32))]
    both = [
        ("Gather", ["table", "input_ids"], ["rows"], {}),
        ("Unsqueeze", ["rows", "one"], ["new"], {}),
        ("CumSum", ["present.0.decoder.key", "two"], ["sums"], {}),
        ("Shape", ["input_ids"], ["steps"], {"start": 1}),
        ("Neg", ["steps"], ["begin"], {}),
        ("Slice", ["sums", "begin", "last", "axis"], ["own"], {}),
        ("Transpose", ["keys"], ["turned"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["own", "turned"], ["match"], {}),
        ("Softmax", ["match"], ["weights"], {"axis": -1}),
        ("MatMul", ["weights", "keys"], ["seen"], {}),
        ("Add", ["seen", "own"], ["joined"], {}),
        ("Squeeze", ["joined", "one"], ["state"], {}),
        ("Transpose", ["table"], ["columns"], {"perm": [1, 0]}),
        ("MatMul", ["state", "columns"], ["logits"], {}),
    ]
    first = [
        ("MatMul", ["encoder_hidden_states", "project"], ["projected"], {}),
        ("Unsqueeze", ["projected", "one"], ["keys"], {}),
        ("Identity", ["keys"], ["present.0.encoder.key"], {}),
        ("Identity", ["new"], ["present.0.decoder.key"], {}),
    ]
    cached = [
        ("Identity", ["past_key_values.0.encoder.key"], ["keys"], {}),
        ("Identity", ["no_rows"], ["present.0.encoder.key"], {}),
        ("Concat", ["past_key_values.0.decoder.key", "new"], ["grown"], {"axis": 2}),
        ("Identity", ["grown"], ["present.0.decoder.key"], {}),
    ]
    if by_one:  # one row is appended, whatever the number of tokens
        cached[2] = ("Concat", ["past_key_values.0.decoder.key", "newest"], ["grown"], {"axis": 2})
        cached.insert(0, ("Slice", ["new", "minus", "last", "axis"], ["newest"], {}))
        shared.append(array("minus", [-1]))
    given = {
        "encoder_attention_mask": (types.INT64, ["N", "S"]),
        "input_ids": (types.INT64, ["N", "T"]),
        "encoder_hidden_states": (types.FLOAT, ["N", "S", W]),
        "past_key_values.0.decoder.key": (types.FLOAT, ["N", 1, "P", W]),
        "past_key_values.0.encoder.key": (types.FLOAT, ["N", 1, "S2", W]),
    }
    if mask:
        given["attention_mask"] = (types.INT64, ["N", "P+T"])
        whole = ("Cast", ["attention_mask"], ["numbers"], {"to": types.FLOAT})
        apart = ("Unsqueeze", ["numbers", "outer"], ["column"], {})
        shared.append(array("outer", [1, 3]))
        masked = ("Mul", ["present.0.decoder.key", "column"], ["masked"], {})
        both[2:3] = [whole, apart, masked, ("CumSum", ["masked", "two"], ["sums"], {})]
    results = {
        "logits": ["N", "T", V],
        "present.0.decoder.key": ["N", 1, "Q", W],
        "present.0.encoder.key": ["N", 1, "S3", W],
    }
    outputs = [helper.make_tensor_value_info(n, types.FLOAT, dims) for n, dims in results.items()]
    branches = []
    for own in (cached, first):
        nodes = [*both[:2], *own, *both[2:]]
        made = [helper.make_node(kind, read, makes, **attrs) for kind, read, makes, attrs in nodes]
        branches.append(helper.make_graph(made, "b", [], outputs))
    inputs = [helper.make_tensor_value_info(name, *one) for name, one in given.items()]
    return save(path, branches, inputs, shared)


def written(path: Path, prompts: np.ndarray, steps: int, feed: dict[str, Any]) -> np.ndarray:
    """Tokens by ONNX Runtime, as Optimum feeds such a file; each run is compared with ours."""
    session, model = runtime.InferenceSession(path), opscope.from_onnx(path)
    names = [one.name for one in session.get_inputs()]
    shapes = {one.name: one.shape for one in session.get_inputs()}
    rows = len(prompts)
    caches = {
        name: np.zeros((rows, shapes[name][1], 0, shapes[name][3]), np.float32)
        for name in names
        if name.startswith("past")
    }
    ids, past, tokens = prompts, 0, []
    for _ in range(steps):
        many = ids.shape[1]
        given = {"input_ids": ids, "attention_mask": np.ones((rows, past + many), np.int64)}
        given["position_ids"] = np.tile(past + np.arange(many), (rows, 1))
        given = {name: value for name, value in given.items() if name in names}
        given |= {**feed, **caches, "use_cache_branch": np.array([past > 0])}
        scores, *present = results = session.run(None, given)
        for one, two in zip(results, model.run(given).values(), strict=True):
            assert one.shape == two.shape
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
        for name, new in zip(caches, present, strict=True):
            if len(new):  # keys of the memory come with the first tokens
                caches[name] = new
        past += many
        ids = scores[:, -1:].argmax(-1)
        tokens.append(ids[:, 0])
    return np.array(tokens).T


def merged(path: Path) -> Generator:
    return Generator(opscope.from_onnx(path), ids="input_ids", scores="logits")


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_both_branches_write_as_in_onnx_runtime(tmp_path: Path, positions: str) -> None:
    own, path = gpt(tmp_path, positions)
    other = merged(path)
    prompts = np.array([[1, 2, 3], [4, 0, 6]])
    wanted = written(path, prompts, 4, {})
    assert np.array_equal(other.greedy(prompts, 4), wanted)
    assert np.array_equal(own.greedy(prompts, 4), wanted)
    mixed = [[1], [2, 3, 1, 5, 6], [0, 4]]
    for one, two in zip(own.greedy(mixed, 8), other.greedy(mixed, 8), strict=True):
        assert one.tolist() == two.tolist()
    for one, two in zip(own.beam(mixed, 3), other.beam(mixed, 3), strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in two]
    after = other.greedy([[3], [4, 0]], 5, after=other.read([[1, 2]]))
    for one, two in zip(own.greedy([[1, 2, 3], [1, 2, 4, 0]], 5), after, strict=True):
        assert one.tolist() == two.tolist()
    assert other.stepper._ways[0] == "in place"


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("by_one", [False, True])
def test_keys_of_a_memory_are_computed_once(tmp_path: Path, by_one: bool, mask: bool) -> None:
    path = with_encoder(tmp_path / "merged.onnx", by_one=by_one, mask=mask)
    other = merged(path)
    rng = np.random.default_rng(0)
    for rows, length in ((2, 5), (1, 1), (2, 3)):
        feed = {
            "encoder_attention_mask": np.ones((rows, length), np.int64),
            "encoder_hidden_states": rng.normal(size=(rows, length, W)).astype(np.float32),
        }
        prompts = rng.integers(0, V, (rows, 4))
        wanted = written(path, prompts, 8, feed)
        assert np.array_equal(other.greedy(prompts, 8, feed=feed), wanted)
        if not mask:
            begun = other.read(prompts[:, :1], feed=feed)
            assert np.array_equal(other.greedy(prompts[:, 1:], 8, after=begun), wanted)
        best = other.beam(prompts, 8, width=1, feed=feed)
        assert [one[0].tokens for one in best] == [tuple(row) for row in wanted.tolist()]
    assert len(other.beam(prompts, 4, width=3, feed=feed)[0]) == 3


def test_what_a_merged_decoder_cannot_be_fed_is_named(tmp_path: Path) -> None:
    path = with_encoder(tmp_path / "merged.onnx", by_one=True)
    other = merged(path)
    feed = {
        "encoder_attention_mask": np.ones((2, 3), np.int64),
        "encoder_hidden_states": np.ones((2, 3, W), np.float32),
    }
    part = {"encoder_attention_mask": feed["encoder_attention_mask"]}
    wants = r"wants 'encoder_hidden_states' \[N, S, 4\] as well: feed it"
    with pytest.raises(VariableError, match=wants):
        other.greedy([[1], [2]], 2, feed=part)
    with pytest.raises(VariableError, match=r"no other input 'use_cache_branch' to feed; it has"):
        other.greedy([[1], [2]], 2, feed={**feed, "use_cache_branch": np.array([True])})
    with pytest.raises(ShapeError, match=r"_mask' is \[N, S\]; fed was \[2, 3\] for 1"):
        other.greedy([[1]], 2, feed=feed)
    begun = other.read([[1], [2]], feed=feed)
    with pytest.raises(ShapeError, match="prompts of 1 to 2 tokens want a common length"):
        other.greedy([[1], [2, 3]], 2, after=begun)
