"""Long chains in models of Kaldi and CNTK, and what nests to its limit: little stack is enough.

As in test_deep_nets.py every stage runs on something short first, so that all it imports is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import opscope
from little_stack import little_stack
from nested_models import branches, calls, calls_in_macros, functions, macros
from opscope.bridges.profile.flame import flame_graph
from opscope.bridges.profile.timed import Timed
from opscope.cntk.config import parse_config
from opscope.cntk.config.printer import format_config
from opscope.cntk.models.v1 import write_model
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import CycleError, FormatError, VariableError
from opscope.framework.base.untrusted.values import json_value
from opscope.framework.fusion.scalars.array_calls import array_plan
from opscope.framework.fusion.scalars.expression import ExpressionError, parse
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.messages import serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.verify.verifier import problems
from opscope.nnet3 import ChunkComputer, Nnet, xconfig_to_config
from opscope.nnet3.language.descriptor_parse import parse_descriptor
from tree_cells import binary_desc, binary_values
from tree_nets import run_tree

FRAMES = np.ones((5, 4), np.float32)


# -- chains ------------------------------------------------------------------------------------


@cache
def _rectified(length: int) -> Nnet:
    lines, before = ["input-node name=input dim=4"], "input"
    for i in range(length):
        lines.append(f"component name=c{i} type=RectifiedLinearComponent dim=4")
        lines.append(f"component-node name=c{i} component=c{i} input={before}")
        before = f"c{i}" if i % 2 else f"Sum(c{i}, {before})"
    lines.append(f"output-node name=output input={before}")
    return Nnet.from_config_text("\n".join(lines) + "\n", 0)


@cache
def _affine(length: int) -> Nnet:
    lines, before = ["input-node name=input dim=4"], "input"
    for i in range(length):
        sizes = "input-dim=4 output-dim=4 param-stddev=0.4"
        lines.append(f"component name=c{i} type=NaturalGradientAffineComponent {sizes}")
        lines.append(f"component-node name=c{i} component=c{i} input={before}")
        before = f"c{i}"
    lines.append(f"output-node name=output input={before}")
    return Nnet.from_config_text("\n".join(lines) + "\n", 0)


def _xconfig(length: int) -> str:
    lines = ["input dim=4 name=input"]
    for i in range(length):
        source = f" input=Append(r{i - 1}, Offset(r{i - 1}, 0))" if i else ""
        lines.append(f"relu-layer name=r{i} dim=4{source}")
    return xconfig_to_config("\n".join([*lines, "output-layer name=output dim=2"]))


@cache
def _cntk(length: int, folder: Path) -> Path:
    network, path = Network(), folder / f"{length}.dnn"
    node = network.add("InputValue", "x", shape=2, tags=["feature"])
    weight = network.add("LearnableParameter", "w", shape=2, attributes={"value": 0.5})
    for number in range(length):
        node = network.add("Sigmoid", f"n{number}", [node])
    network.add("Plus", "total", [node, weight], tags=["output"])
    network.validate()
    initialize(network)
    write_model(network, path)
    return path


def _script(suffix: str, lines: list[str], folder: Path) -> Path:
    path = folder / f"{len(lines)}{suffix}"
    path.write_text("\n".join(lines) + "\n")
    return path


def _ndl(length: int, folder: Path) -> Path:
    """Each node is named before it is defined."""
    names = [*(f"n{i}" for i in range(length)), "x"]
    lines = [f"{name}=RectifiedLinear({below})" for name, below in pairwise(names)]
    last = "c=SumElements(n0, tag=criterion)"
    return _script(".ndl", ["x=InputValue(3, tag=feature)", *lines, last], folder)


def _brainscript(length: int, folder: Path) -> Path:
    names = ["x", *(f"n{i}" for i in range(length))]
    lines = [f"{name}=ReLU({below})" for below, name in pairwise(names)]
    last = f"c=ReduceSum({names[-1]}); criterionNodes=(c)"
    return _script(".bs", ["x=Input(3)", *lines, last], folder)


def _tree(height: int, _: Path) -> None:
    values = binary_values(np.random.default_rng(0), np.arange(-1, height - 1), 1)
    found = run_tree(binary_desc(), values, ["OUT"], np.array([0, height]))
    assert np.isfinite(found["OUT"]).all()


def _scopes(length: int, _: Path) -> None:
    scope = opscope.Scope()
    scope.var("a").set(np.ones(2))
    for _number in range(length):
        scope = scope.new_scope()
    assert scope.numpy("a").sum() == 2
    with pytest.raises(VariableError, match="no variable 'b'"):
        scope.get("b")


def _flame(length: int, _: Path) -> None:
    row = Timed(
        path=tuple(f"g{i}" for i in range(length)), name="a", kind="add", seconds=1.0, bytes=0
    )
    assert flame_graph("net", "seconds", [row]).count("<title>") == length + 2


CHAINS: dict[str, Callable[[int, Path], object]] = {
    "nnet3 config": lambda n, _: _rectified.__wrapped__(n),
    "nnet3 files": lambda n, f: (_rectified(n).write(f / "a.raw"), Nnet.read(f / "a.raw")),
    "nnet3 compute": lambda n, _: ChunkComputer(_rectified(n)).compute(FRAMES),
    "nnet3 ONNX": lambda n, f: opscope.to_onnx(_rectified(n), f / f"{n}.onnx"),
    "nnet3 PyTorch": lambda n, f: opscope.to_torch(_rectified(n), f / f"{n}"),
    "nnet3 drawn": lambda n, _: _rectified(n).to_svg(),
    "nnet3 viewed": lambda n, _: opscope.view(_rectified(n)),
    "affine ONNX": lambda n, f: opscope.to_onnx(_affine(n), f / f"{n}.onnx", streaming=True),
    "affine PyTorch": lambda n, f: opscope.to_torch(_affine(n), f / f"a{n}"),
    "xconfig": lambda n, _: _xconfig(n),
    "CNTK PyTorch": lambda n, f: opscope.to_torch(_cntk(n, f), f / f"c{n}"),
    "CNTK ONNX": lambda n, f: opscope.to_onnx(_cntk(n, f), f / f"c{n}.onnx"),
    "CNTK nnet3": lambda n, f: opscope.convert(_cntk(n, f), f / f"c{n}.raw"),
    "CNTK Python": lambda n, f: opscope.convert(_cntk(n, f), f / f"c{n}.py"),
    "CNTK compared": lambda n, f: opscope.compare(_cntk(n, f), _cntk(n, f)),
    "NDL": lambda n, f: opscope.view(_ndl(n, f)),
    "BrainScript": lambda n, f: opscope.view(_brainscript(n, f)),
    "trees": _tree,
    "scopes": _scopes,
    "flame graph": _flame,
    "merged sections": lambda n, _: format_config(parse_config("k = [ a = 1 ]\n" * n)),
}


@pytest.mark.parametrize("stage", CHAINS)
def test_no_stage_calls_itself_from_node_to_node(stage, tmp_path):
    CHAINS[stage](3, tmp_path)
    with little_stack():
        CHAINS[stage](400, tmp_path)


VERY_LONG = {
    **dict.fromkeys(CHAINS, 2_000),
    **dict.fromkeys(["NDL", "CNTK PyTorch", "CNTK ONNX", "xconfig"], 4_000),
    **dict.fromkeys(["scopes", "flame graph"], 100_000),
    "BrainScript": 9_900,  # 20,000 values may need each other, two for a node
    "nnet3 ONNX": 1_000,  # ONNX Runtime's check of the file takes quadratic time
    "nnet3 drawn": 1_000,  # a drawing is laid out layer by layer
}
"""How many nodes each stage takes within some 3 s."""
SECONDS = 10  # what grows with the square of the length takes longer


@pytest.mark.slow
@pytest.mark.parametrize("stage", VERY_LONG)
def test_time_does_not_grow_beyond_the_length(stage, tmp_path):
    before = time.process_time()
    CHAINS[stage](VERY_LONG[stage], tmp_path)
    assert time.process_time() - before < SECONDS


@pytest.mark.slow
def test_a_tree_of_great_height(tmp_path):
    _tree(20_000, tmp_path)


# -- nesting -----------------------------------------------------------------------------------


def _nested_net(levels: int) -> OpList:
    net = OpList(name="inner", ops=[make_op("relu", {"x": "x"}, {"out": "y"})])
    for _ in range(levels):
        net = OpList(name="outer", ops=[make_op("composite", {}, {}, {"net": net})])
    return net


NESTED = {
    "nets as text": (lambda n: net_text(_nested_net(n)), 100),
    "nets as messages": (lambda n: serialize_net(_nested_net(n)), 100),
    "nets as they are verified": (lambda n: problems(_nested_net(n)), 100),
    "brackets of an expression": (lambda n: parse("(" * n + "x" + ")" * n), 39),
    "terms of an expression": (lambda n: parse("x" + "+x" * n), 99),
    "factors in array calls": (lambda n: array_plan((("out", "x" + "*x" * n),), ("out",)), 99),
    "offsets": (lambda n: parse_descriptor("Offset(" * n + "a" + ", 1)" * n), 99),
    "sums": (lambda n: parse_descriptor("Sum(a, " * n + "a" + ")" * n), 99),
    "choices": (lambda n: parse_descriptor("Failover(a, " * n + "a" + ")" * n), 99),
    "sections of a config": (lambda n: parse_config("a=[" * n + "b=1" + "]" * n), 199),
    "branches of ONNX": (branches, 31),
    "functions of ONNX": (functions, 101),
    "macros of NDL": (macros, 60),
    "calls of NDL": (calls, 101),
    "calls in macros of NDL": (calls_in_macros, 60),
    "JSON": (lambda n: json_value("[" * n + "]" * n, "this"), 100),
}


@pytest.mark.parametrize("what", NESTED)
def test_nesting_has_a_limit_that_half_of_the_stack_is_enough_for(what):
    build, most = NESTED[what]
    build(2)
    with little_stack(480):
        build(most)
        for levels in (most + 2, 1000, 20_000):
            with pytest.raises((CycleError, ExpressionError, FormatError)):
                build(levels)
