"""Fusion: which operators become one loop; a fused net computes what the plain one does."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuse_ops import fuse_operators
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.fusion import chains
from opscope.framework.fusion.cuda import cuda_source
from opscope.framework.fusion.scalars.expression import ExpressionError, cost, parse
from opscope.framework.fusion.team import task_of
from opscope.framework.ir.desc import INPUT, STATE, make_var
from opscope.framework.ir.names import FILL_OP
from opscope.framework.ir.op_list import OpList, View
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import lookup
from opscope.framework.runtime.fused import fuse
from opscope.framework.runtime.plain_net import PlainNet

pytestmark = pytest.mark.skipif(not chains.available(), reason="there is no native library")


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    with fuse_operators():
        yield


def chain(*ops: tuple[str, str, str], **attrs: Any) -> PlainNet:
    """A net of (type, inputs, output); attributes go to every `fz_elu`."""
    net = PlainNet()
    for op_type, inputs, out in ops:
        slots = dict(zip(("x", "y"), inputs.split(), strict=False))
        given = attrs if op_type == "fz_elu" else {}
        net.add_op(op_type, {s: [n] for s, n in slots.items()}, {"out": [out]}, given)
    return net


def steps(net: PlainNet, feed: dict[str, Any], keep: Any = None) -> list[list[str]]:
    """Operator types by step."""
    scope = Scope()
    scope.feed(feed)
    frame = net.frame(scope, OpContext(live_out=keep))
    return [[op.type for op in step.operators] for step in frame.plan.steps]


def both(net: PlainNet, feed: dict[str, Any], names: list[str], monkeypatch: Any) -> None:
    """Assert that `names` are the same after a fused and a plain run."""
    results = []
    for switch in "10":
        monkeypatch.setenv("OPSCOPE_FUSE", switch)
        scope = Scope()
        scope.feed(feed)
        for _ in range(2):
            net.run(scope)
        results.append([scope.numpy(name) for name in names])
    for fused, plain in zip(*results, strict=True):
        tolerance = 2e-6 if fused.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(fused, plain, rtol=tolerance, atol=tolerance)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


CHAIN = (
    ("fz_add", "a b", "t"),
    ("fz_elu", "t", "u"),
    ("fz_tanh", "u", "v"),
    ("fz_mul", "v a", "w"),
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (5, 7)),
        ((5, 7), (7,)),
        ((5, 7), (1, 7)),
        ((5, 7), (5, 1)),
        ((5, 7), (1,)),
        ((5, 7), ()),
        ((2, 3, 4), (3, 4)),
        ((2, 3, 4), (2, 1, 1)),
        ((1, 7), (7,)),
        ((7,), (7,)),
        ((), ()),
        ((0, 7), (7,)),
        ((0, 7), (1, 7)),
        ((0, 7), (0, 1)),
        ((0, 7), (1, 1)),
        ((3, 0), (0,)),
        ((3, 0), (1, 0)),
        ((3, 0), (3, 1)),
        ((3, 0), (1,)),
        ((1, 0), (1, 0)),
        ((3, 1), (1, 1)),
        ((2, 3, 1, 0), (1, 1, 1, 0)),
        ((2, 0, 3), (2, 1, 1)),
        ((1500, 700), (700,)),
    ],
)
def test_one_loop_with_broadcasting(a: Any, b: Any, dtype: Any, monkeypatch: Any) -> None:
    net = chain(*CHAIN, alpha=0.7)
    feed = {"a": normal(*a, dtype=dtype), "b": normal(*b, dtype=dtype)}
    assert steps(net, feed) == [[op[0] for op in CHAIN]]
    both(net, feed, ["w"], monkeypatch)


def test_temporaries_inside_get_no_memory() -> None:
    scope = Scope()
    scope.feed({"a": normal(5, 7), "b": normal(7)})
    frame = chain(*CHAIN).frame(scope, OpContext())
    assert frame.plan.blocks == []
    assert set(frame.arrays) == {"a", "b", "w"}


def test_kept_temporaries_are_stored(monkeypatch: Any) -> None:
    net = chain(*CHAIN)
    scope = Scope()
    scope.feed({"a": normal(5, 7), "b": normal(7)})
    net.run(scope, OpContext(live_out=["t", "v"]))
    np.testing.assert_allclose(scope.numpy("t"), scope.numpy("a") + scope.numpy("b"))
    assert scope.numpy("v").shape == (5, 7)


def test_a_chain_that_nobody_reads_is_left_out() -> None:
    """Such as a sum of losses that is not fetched: its gradient asks for its shape alone."""
    net = chain(("fz_add", "a b", "t"), ("fz_half", "t", "w"))
    net.add_op(FILL_OP, {"x": ["w"]}, {"out": ["seed"]}, {"value": 1.0})
    feed = {"a": normal(4, 5), "b": normal(5)}
    assert steps(net, feed, keep=["seed"]) == [[FILL_OP]]
    scope = Scope()
    scope.feed(feed)
    net.run(scope, OpContext(live_out=["seed"]))
    np.testing.assert_array_equal(scope.numpy("seed"), np.ones((4, 5)))


@pytest.mark.parametrize(
    ("ops", "feed", "wanted"),
    [
        # a broadcast that is neither rows nor columns
        (
            [("fz_add", "a b", "t"), ("fz_half", "t", "w")],
            {"a": normal(2, 3, 4), "b": normal(1, 3, 1)},
            [["fz_add"], ["fz_half"]],
        ),
        # rows and columns that cut the shape at different places
        (
            [("fz_add", "a b", "t"), ("fz_add", "t c", "w")],
            {"a": normal(2, 3, 4), "b": normal(4), "c": normal(2, 1, 1)},
            [["fz_add"], ["fz_add"]],
        ),
        # the shape grows between two operators
        (
            [("fz_half", "a", "t"), ("fz_add", "b t", "w")],
            {"a": normal(4), "b": normal(3, 4)},
            [["fz_half"], ["fz_add"]],
        ),
        # integers, half precision
        (
            [("fz_add", "a a", "t"), ("fz_add", "t t", "w")],
            {"a": np.arange(3)},
            [["fz_add"], ["fz_add"]],
        ),
        # an expression out of the grammar
        (
            [("fz_bad", "a", "t"), ("fz_half", "t", "u"), ("fz_half", "u", "w")],
            {"a": normal(3)},
            [["fz_bad"], ["fz_half", "fz_half"]],
        ),
    ],
)
def test_what_does_not_fuse(ops: Any, feed: Any, wanted: Any, monkeypatch: Any) -> None:
    net = chain(*ops)
    assert steps(net, feed) == wanted
    both(net, feed, ["w"], monkeypatch)


def test_a_row_written_by_the_chain_is_not_broadcast_in_it(monkeypatch: Any) -> None:
    net = chain(("fz_half", "b", "b"), ("fz_add", "a b", "w"))
    feed = {"a": normal(3, 4), "b": normal(4)}
    assert steps(net, feed) == [["fz_half"], ["fz_add"]]
    both(net, feed, ["b", "w"], monkeypatch)


def test_in_place_on_a_variable_from_outside(monkeypatch: Any) -> None:
    net = chain(("fz_half", "a", "a"), ("fz_add", "a b", "a"), ("fz_mul", "a b", "w"))
    feed = {"a": normal(3, 4), "b": normal(4)}
    assert len(steps(net, feed)) == 1
    both(net, feed, ["a", "w"], monkeypatch)


def test_in_place_on_temporaries(monkeypatch: Any) -> None:
    # t is written by one step, overwritten and read in the next one, and nobody reads it later
    net = chain(
        ("fz_bad", "a", "t"),
        ("fz_half", "t", "t"),
        ("fz_add", "t a", "u"),
        ("fz_bad", "u", "v"),
        ("fz_add", "v a", "w"),
    )
    both(net, {"a": normal(3, 4)}, ["w"], monkeypatch)


def _viewed() -> PlainNet:
    net = PlainNet(OpList())
    net.add_var(make_var("m", (4, 10), "float32", STATE))
    for name, first, last in (("left", 0, 6), ("right", 4, 10), ("end", 6, 10), ("first", 0, 4)):
        view = View("m", 0, -1, first, last)
        net.add_var(make_var(name, (4, last - first), "float32", view=view))
    return net


def test_strided_views_are_operands(monkeypatch: Any) -> None:
    net = _viewed()
    net.add_op("fz_tanh", {"x": ["left"]}, {"out": ["t"]})
    net.add_op("fz_add", {"x": ["t"], "y": ["right"]}, {"out": ["u"]})
    net.add_op("fz_tanh", {"x": ["u"]}, {"out": ["w"]})
    net.add_op("fz_tanh", {"x": ["w"]}, {"out": ["left"]})
    feed = {"m": normal(4, 10)}
    # `left` is written and `right` shares its memory
    assert steps(net, feed) == [["fz_tanh", "fz_add", "fz_tanh"], ["fz_tanh"]]
    both(net, feed, ["m"], monkeypatch)


def test_columns_that_no_other_view_has_are_memory_of_their_own(monkeypatch: Any) -> None:
    net = _viewed()
    net.add_op("fz_tanh", {"x": ["left"]}, {"out": ["left"]})
    net.add_op("fz_tanh", {"x": ["left"]}, {"out": ["t"]})
    net.add_op("fz_tanh", {"x": ["end"]}, {"out": ["end"]})  # another width
    net.add_op("fz_tanh", {"x": ["first"]}, {"out": ["first"]})
    net.add_op("fz_add", {"x": ["first"], "y": ["end"]}, {"out": ["end"]})
    net.add_op("fz_tanh", {"x": ["right"]}, {"out": ["right"]})
    feed = {"m": normal(4, 10)}
    assert [len(step) for step in steps(net, feed)] == [2, 3, 1]
    both(net, feed, ["m", "t"], monkeypatch)


def test_views_that_share_no_element() -> None:
    left, right, end = View("m", 0, -1, 0, 6), View("m", 0, -1, 4, 10), View("m", 0, -1, 6, -1)
    assert left.is_apart(end) and end.is_apart(left)
    assert not left.is_apart(right) and not right.is_apart(end)
    assert not left.is_apart(left) and not View("m", 0, -1, 0, -1).is_apart(end)
    upper, lower = View("m", 0, 2, 0, -1), View("m", 2, 4, 0, -1)
    assert upper.is_apart(lower) and not upper.is_apart(left)


def test_a_view_that_is_written_keeps_its_memory(monkeypatch: Any) -> None:
    net = _viewed()
    net.add_op("fz_tanh", {"x": ["left"]}, {"out": ["left"]})
    net.add_op("fz_tanh", {"x": ["left"]}, {"out": ["left"]})
    feed = {"m": normal(4, 10)}
    assert len(steps(net, feed)) == 1
    both(net, feed, ["m"], monkeypatch)


def test_arrays_that_overlap_are_run_one_by_one() -> None:
    net = chain(("fz_half", "a", "t"), ("fz_add", "t b", "b"))
    memory = np.arange(12, dtype=np.float32)
    scope = Scope()
    scope.var("a").bind(memory[:8])
    scope.var("b").bind(memory[4:])
    wanted = memory[:8] / 2 + memory[4:]
    frame = net.frame(scope, OpContext())
    assert [len(step.operators) for step in frame.plan.steps] == [1, 1]
    net.run(scope)
    np.testing.assert_array_equal(memory[4:], wanted)


def _adams(count: int, dtype: Any, scale: bool = False) -> tuple[PlainNet, dict, list[str]]:
    net, feed = PlainNet(), {"lr": np.float32(0.1), "step": np.int64(3), "s": np.float32(0.5)}
    names = []
    for i in range(count):
        slots = {slot: [f"{slot}{i}"] for slot in ("param", "grad", "m", "v")}
        slots |= {"lr": ["lr"], "step": ["step"]} | ({"grad_scale": ["s"]} if scale else {})
        outs = {f"{slot}_out": [f"{slot}{i}"] for slot in ("param", "m", "v")}
        net.add_op("fz_adam", slots, outs)
        names += [f"param{i}", f"m{i}", f"v{i}"]
        feed |= {f"{s}{i}": abs(normal(3 + i, 5, dtype=dtype)) for s in ("param", "grad", "m", "v")}
    return net, feed, names


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_share_one_call(dtype: Any, scale: bool, monkeypatch: Any) -> None:
    net, feed, names = _adams(3, dtype, scale)
    assert steps(net, feed) == [["fz_adam"] * 3]
    both(net, feed, names, monkeypatch)


def test_long_lists_are_cut(monkeypatch: Any) -> None:
    net, feed, names = _adams(40, np.float32)
    assert [len(step) for step in steps(net, feed)] == [32, 8]
    both(net, feed, names, monkeypatch)


def test_long_chains_are_cut(monkeypatch: Any) -> None:
    net = chain(*(("fz_add", f"t{i} a", f"t{i + 1}") for i in range(70)))
    feed = {"a": normal(3, 4), "t0": normal(3, 4)}
    assert [len(step) for step in steps(net, feed)] == [64, 6]
    both(net, feed, ["t70"], monkeypatch)


def test_loops_of_very_many_arrays_are_cut(monkeypatch: Any) -> None:
    """C compilers take more than twice the time for twice the arrays."""
    net = chain(*(("fz_add", f"a{i} b{i}", f"c{i}") for i in range(50)))
    feed = {f"{name}{i}": normal(3, 4) for name in "ab" for i in range(50)}
    scope = Scope()
    scope.feed(feed)
    plan = net.frame(scope, OpContext()).plan
    sizes = [len(loop) for step in plan.steps for loop in step.loops]
    assert sum(sizes) == 50 and max(sizes) * 3 <= 100
    both(net, feed, [f"c{i}" for i in range(50)], monkeypatch)


@pytest.mark.parametrize(("size", "is_a_list"), [(0, True), (1, True), (16, True), (17, False)])
def test_a_few_numbers_break_no_list(size: int, is_a_list: bool, monkeypatch: Any) -> None:
    net = chain(("fz_add", "a b", "c"))
    feed = {"a": normal(size), "b": normal(size)}
    scope = Scope()
    scope.feed(feed)
    (call,) = net.frame(scope, OpContext()).calls
    assert (task_of(call) is not None) == is_a_list
    both(net, feed, ["c"], monkeypatch)


def test_updates_of_the_same_variable_stay_in_order(monkeypatch: Any) -> None:
    net, feed, names = _adams(1, np.float32)
    net.add_op(net.op_list.ops[0])
    both(net, feed, names, monkeypatch)


def test_sparse_rows_are_left_to_the_kernel() -> None:
    net, feed, _ = _adams(1, np.float32)
    dense = net.op_list.ops[0]
    sparse = dense.changed(inputs={**dense.inputs, "rows": ("ids",)})
    specs = {name: (np.shape(v), np.asarray(v).dtype) for name, v in feed.items()}
    specs["ids"] = ((2,), np.dtype(np.int64))
    assert fuse.pointwise(Operator(dense), specs, "cpu") is not None
    assert fuse.pointwise(Operator(sparse), specs, "cpu") is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity_survive(dtype: Any, monkeypatch: Any) -> None:
    net = chain(("fz_elu", "a", "t"), ("fz_max", "t b", "u"), ("fz_tanh", "u", "w"), alpha=0.5)
    values = np.tile(np.array([np.nan, np.inf, -np.inf, 0, -1, 1, 1e30, -1e30], dtype), 5)
    feed = {"a": values, "b": -values}
    assert len(steps(net, feed)) == 1
    with np.errstate(all="ignore"):
        both(net, feed, ["w"], monkeypatch)


def test_vector_functions_are_accurate() -> None:
    net = chain(("fz_elu", "a", "w"), alpha=1.0)
    scope = Scope()
    a = -np.linspace(1e-3, 80, 100_001)
    scope.feed({"a": a.astype(np.float32)})
    net.run(scope)
    wanted = np.exp(a.astype(np.float32).astype(np.float64)) - 1
    assert np.abs(scope.numpy("w") - wanted).max() < 4 * np.finfo(np.float32).eps


def test_sizes_are_arguments_not_code() -> None:
    net = chain(*CHAIN)
    feed = {"a": normal(5, 7), "b": normal(7)}
    steps(net, feed)
    before = len(chains._programs)
    steps(net, {"a": normal(9, 3), "b": normal(3)})
    assert len(chains._programs) == before


def test_the_switch_and_the_missing_library(monkeypatch: Any) -> None:
    feed = {"a": normal(5, 7), "b": normal(7)}
    for name, value in (("OPSCOPE_FUSE", "0"), ("OPSCOPE_CPU", "none")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert len(steps(chain(*CHAIN), feed)) == 4


def test_lone_operators_are_loops_where_that_gains() -> None:
    feed = {"a": normal(5, 7), "b": normal(7)}
    for op, is_loop in ((CHAIN[0], False), (CHAIN[1], True)):
        scope = Scope()
        scope.feed({"a": feed["a"], "b": feed["b"], "t": feed["a"]})
        frame = chain(op).frame(scope, OpContext())
        assert (task_of(frame.calls[0]) is not None) is is_loop


def test_random_chains_agree(monkeypatch: Any) -> None:
    rng = np.random.default_rng(5)
    types = {"fz_add": 2, "fz_mul": 2, "fz_max": 2, "fz_tanh": 1, "fz_elu": 1, "fz_bad": 1}
    for _ in range(8):
        have, ops = ["a", "b", "c"], []
        for i in range(10):
            kind = str(rng.choice(list(types)))
            inputs = [str(name) for name in rng.choice(have[-4:], types[kind])]
            first = [n for n in inputs if n not in "bc"] or ["a"]
            inputs = [*first, *(n for n in inputs if n in "bc")][: types[kind]]
            inputs += ["a"] * (types[kind] - len(inputs))
            over = i < 9 and inputs[0] != "a" and rng.random() < 0.3
            out = inputs[0] if over else f"t{i}"
            ops.append((kind, " ".join(inputs), out))
            have += [out] if out not in have else []
        feed = {"a": normal(6, 5), "b": normal(5), "c": normal(6, 1)}
        both(chain(*ops), feed, [ops[-1][2]], monkeypatch)


class _FakeCupy:
    """Stands for CuPy: keeps what kernels were made of, and what they were called with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, ...]] = []

    def ElementwiseKernel(self, *source: str) -> Any:  # noqa: N802  CuPy's name
        self.made.append(source)
        return lambda *arrays: [array.fill(1) for array in arrays[-1:]]


def test_gpu_kernels() -> None:
    scope = Scope()
    scope.feed({"a": normal(5, 7), "b": normal(7)})
    plan = chain(*CHAIN, alpha=0.25).frame(scope, OpContext()).plan
    arrays = {name: scope.get(name).array for name in ("a", "b", "w")}
    xp = _FakeCupy()
    frame = SimpleNamespace(plan=plan, arrays=arrays, xp=xp, place=SimpleNamespace(kind="gpu"))
    frame.least_cost = 2
    fuse.bind_chain(frame, plan.steps[0])()
    assert (arrays["w"] == 1).all()
    ins, outs, operation, _ = xp.made[0]
    assert (ins, outs) == ("float32 a0, float32 a1", "float32 o2")
    assert operation.splitlines() == [
        "const float x0 = (float)a0;",
        "const float x1 = (float)a1;",
        "const float v0 = (x0 + x1);",
        "const float t0 = (float)(exp(v0));",
        "const float v1 = ((v0 > 0.0f) ? v0 : (0.25f * (t0 - 1.0f)));",
        "const float t1 = (float)(tanh(v1));",
        "const float v2 = t1;",
        "const float v3 = (v2 * x0);",
        "o2 = v3;",
    ]


def test_gpu_half_precision_and_updates() -> None:
    net, feed, _ = _adams(2, np.float16)
    specs = {name: (np.shape(v), np.asarray(v).dtype) for name, v in feed.items()}
    groups = fuse.group_chains(net.operators, specs, set(specs), {}, "gpu")
    assert [len(group) for group in groups] == [2]  # updates of all parameters share a call
    found = fuse.pointwise(net.operators[0], specs, "gpu")
    source = cuda_source.gpu_source(fuse.build_loop([found], {"param0", "m0", "v0"}).loop)
    assert "const double h_x" in source.operation
    assert "float16 o" in source.out_params and "int64 a" in source.in_params
    lines = source.operation.splitlines()
    assert [line[0] for line in lines[-3:]] == ["o"] * 3  # every read comes before the first write


@pytest.mark.parametrize(
    "text",
    ["", "x +", "(x", "x ? y", "f(x)", "pow(x)", "x = y", "x; y", "x.y", '"x"', "x[0]", "1x"],
)
def test_expressions_out_of_the_grammar(text: str) -> None:
    with pytest.raises(ExpressionError, match="scalar expression, want"):
        parse(text)


def test_expressions() -> None:
    assert parse("-x * 2") == ("binary", "*", ("unary", "-", ("var", "x")), ("num", 2.0))
    assert parse("a ? b : c ? d : 1e-3")[3] == ("choose", ("var", "c"), ("var", "d"), ("num", 1e-3))
    assert parse("a - b - c")[2] == ("binary", "-", ("var", "a"), ("var", "b"))
    assert cost(parse("x")) == 0 and cost(parse("x + 1")) == 1 and cost(parse("exp(x)")) > 2


def test_the_bias_of_a_layer_joins_the_loop_of_its_activation(monkeypatch):
    """affine with bias, then relu: a product, and one loop that adds the bias and clips."""
    net = PlainNet()
    for name, shape in (("x", (-1, 5)), ("w", (5, 7)), ("b", (7,))):
        net.add_var(make_var(name, shape, "float32", INPUT))
    net.add_op("affine", {"x": "x", "w": "w", "b": "b"}, {"out": "h"})
    net.add_op("relu", {"x": "h"}, {"out": "y"})
    rng = np.random.default_rng(0)
    given = {n: rng.normal(size=s).astype("f4") for n, s in (("x", (6, 5)), ("w", (5, 7)))}
    given["b"] = rng.normal(size=7).astype("f4")
    scope, context = Scope(), OpContext(live_out=["y"])
    scope.feed(given)
    net.run(scope, context)
    steps = [[op.type for op in step.operators] for step in net.frame(scope, context).plan.steps]
    assert steps == [["affine"], ["add", "relu"]]
    want = np.maximum(given["x"] @ given["w"] + given["b"], 0)
    np.testing.assert_allclose(scope.numpy("y"), want, rtol=1e-5, atol=1e-6)
    assert lookup("affine").split_epilogue is not None
    kept = Scope()
    kept.feed(given)
    net.run(kept, OpContext(live_out=["h", "y"]))  # the sum itself may be wanted too
    np.testing.assert_allclose(np.maximum(kept.numpy("h"), 0), kept.numpy("y"))
