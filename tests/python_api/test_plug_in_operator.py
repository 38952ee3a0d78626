"""An operator of a plug-in is one registration, and everything else follows from its expression."""

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.bridges.inference.cases import OwnRun
from opscope.bridges.inference.form import inference_form
from opscope.bridges.onnx.export.checking import check_export
from opscope.bridges.onnx.export.net import graph_of
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import AttrSpec, unregister
from opscope.operators.math.elementwise_math import unary
from opscope.python_api.cli.ops import ops
from opscope.testing import Case, OpTest

KIND = "a_plug_in.swirl"
SCALAR = "x > -a ? x * sin(a * x) / (1 + exp(-x)) : atan2(x, 1 + a) * log1p(x * x)"


@pytest.fixture(autouse=True)
def swirl():
    yield unary(KIND, "A swirl above -a.", SCALAR, attrs=[AttrSpec("a", "float", "rate", 0.5)])
    unregister(KIND)


def form():
    net = OpList("swirls")
    net.vars = [make_var("x", (-1, 3), "float32", INPUT), make_var("out", None, None)]
    net.ops = [make_op(KIND, {"x": "x"}, {"out": "out"}, {"a": 1.5})]
    return inference_form(net, ["out"])


def inputs() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).normal(size=(40, 3)).astype("f4")}


def values(x: np.ndarray, a: float) -> np.ndarray:
    below = np.arctan2(x, 1 + a) * np.log1p(x * x)
    return np.where(x > -a, x * np.sin(a * x) / (1 + np.exp(-x)), below)


class TestSwirl(OpTest):
    """Values in every dtype, and the gradient."""

    type = KIND
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(5, 4))}, {"a": 1.5})

    def reference(self, inputs, attrs):
        return {"out": values(inputs["x"], attrs["a"])}


def test_onnx_runtime_computes_the_same():
    pytest.importorskip("onnxruntime")
    wanted = OwnRun(form(), {})(inputs())
    np.testing.assert_allclose(wanted["out"], values(inputs()["x"], 1.5), atol=1e-5)
    graph = graph_of(form(), {})
    assert check_export(graph, [(inputs(), wanted)], 1e-5) < 1e-5
    assert "Sigmoid" in [node.op_type for node in graph.message.node]


def test_pytorch_computes_the_same():
    torch = pytest.importorskip("torch")
    from opscope.bridges.torch.op_list.to_torch import NetWriter
    from torch_texts import error_of, run_module

    writer = NetWriter(form(), {})
    assert "torch.atan2(x, x.new_tensor(2.5)) * (x * x).log1p()" in writer.source("", 0)
    wanted = OwnRun(form(), {})(inputs())["out"]
    assert error_of(run_module(writer, inputs())["out"], wanted) < 1e-6
    assert torch.is_grad_enabled()


def test_the_command_line_tells_about_it():
    told = CliRunner().invoke(ops, [KIND]).output
    assert told.startswith(KIND) and "a  [float, default 0.5] rate" in told
    assert f"out = {SCALAR}" in told and "gradient: yes" in told


def test_the_command_line_tells_other_names():
    told = CliRunner().invoke(ops, ["relu"]).output
    known = "also: ONNX Relu; CNTK RectifiedLinear; nnet3 RectifiedLinearComponent; PyTorch nn.ReLU"
    assert known in told and "Keras keras.layers.Activation" in told
