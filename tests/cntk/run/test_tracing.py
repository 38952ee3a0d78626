"""Values of nodes in the log, and the gradients that write gives."""

import re
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import read_model
from opscope.cntk.run.value_format import NodeWriter, WriteFormat
from opscope.cntk.run.values import NodeValue
from opscope.framework.base.errors import FormatError

NETWORK = """
    x = Input {3} ; y = Input {2, tag = 'label'}
    seen = Trace (x, say = 'x', logFirst = 1, logFrequency = 3, onlyUpToRow = 1,
        logGradientToo = true, format = [ precisionFormat = '.1' ; prologue = 'begin\\n' ])
    W = ParameterTensor {2:3, init = 'uniform', initValueScale = 20}
    z = W * seen
    ce = CrossEntropyWithSoftmax (y, z, tag = 'criterion')
    other = Tanh (z, tag = 'output')
"""
ROWS = np.array([[1.5, 2, 3], [-1, 0, 1], [2, 1, 0], [0.25, 0.5, 0], [1, 1, 1]])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"|x {' '.join(map(str, row))} |y {n % 2} {1 - n % 2}\n" for n, row in enumerate(ROWS)]
    Path("data.ctf").write_text("".join(lines))

    def call(action, text):
        log = []
        config = f"""command = C ; traceLevel = 1 ; deviceId = -1 ; modelPath = m
        C = [ action = {action}
            reader = [ readerType = CNTKTextFormatReader ; file = data.ctf ; randomize = false
                input = [ x = [ dim = 3 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ] ]
            {text} ]"""
        run_commands(parse_config(config), Run(say=log.append))
        return "".join(log)

    call("edit", f"BrainScriptNetworkBuilder = {{ {NETWORK} }} ; outputModelPath = m")
    return call


def table(path):
    return np.loadtxt(path, ndmin=2)


class TestTrace:
    def test_nodes_that_a_config_names(self, run):
        names = "traceNodeNamesReal = z:nothing ; traceNodeNamesCategory = y:other"
        log = run("test", f"minibatchSize = 1 ; {names} ; traceNodeNamesSparse = x")
        assert "EnableNodeTracing: No node named 'nothing'; skipping" in log
        assert log.count("Trace --> z = Times (W, seen) : [2 x 3], [3 x *] -> [2 x *]\n") == 5
        found = re.findall(r"Trace --> z .*\n +(\S+)\n +(\S+)\n", log)
        weights = read_model("m").find("W").value
        np.testing.assert_allclose(np.array(found, float), ROWS @ weights.T, rtol=1e-5)
        assert re.findall(r"Trace --> y .*\n +(\S)", log) == list("10101")
        assert "Trace --> x = InputValue() :  -> [3 x *]\n   1.5000000000[0]  2.0000" in log
        assert "Trace --> other" not in log  # no criterion needs it

    def test_trace_nodes_show_their_input_now_and_then(self, run):
        log = run("test", "minibatchSize = 1")
        shown = re.findall(r"Trace\[\] x --> x = InputValue\(\) :  -> \[3 x \*\]\n(.*)\n", log)
        assert shown == ["1.5 ...+2", "0.2 ...+2"]  # of the minibatches 1 and 4
        assert log.count("begin\n") == 1

    def test_trace_nodes_show_gradients_in_training(self, run):
        sgd = "SGD = [ maxEpochs = 1 ; minibatchSize = 1 ; learningRatesPerSample = 1e-7 ]"
        network = f"BrainScriptNetworkBuilder = {{ {NETWORK} }}"
        log = run("train", f"modelPath = t ; {network} ; {sgd}")
        shown = re.findall(r"Trace\[\] x \(gradient\) --> x .*\n(\S+) \.\.\.\+2\n", log)
        run("write", "outputNodeNames = ce ; outputPath = o ; nodeUnitTest = true")
        assert shown == [f"{value:.1f}" for value in table("o.x.grad")[[0, 3], 0]]

    def test_the_format_is_kept_in_models(self, run):
        assert read_model("m").find("seen").attributes["format"]["precisionFormat"] == ".1"
        network = NETWORK.replace("precisionFormat = '.1'", "type = 'category'")
        run("edit", f"BrainScriptNetworkBuilder = {{ {network} }} ; outputModelPath = e")
        form = read_model("e").find("seen").attributes["format"]
        assert form["isCategoryLabel"] and not form["isSparse"]

    def test_nodes_of_loops_and_parameters(self, run):
        network = """
            x = Input {3} ; y = Input {2, tag = 'label'}
            V = ParameterTensor {2:3, init = 'uniform'}
            seen = Trace (V * x + PastValue (2, h), say = 'loop', logGradientToo = true)
            h = Tanh (seen)
            ce = CrossEntropyWithSoftmax (y, h, tag = 'criterion')
        """
        run("edit", f"BrainScriptNetworkBuilder = {{ {network} }} ; outputModelPath = l")
        lines = [f"{n // 3} {line}" for n, line in enumerate(open("data.ctf"))]
        Path("data.ctf").write_text("".join(lines))
        log = run("test", "minibatchSize = 3 ; modelPath = l ; traceNodeNamesReal = V:h")
        loops = re.findall(r"Trace\[\] loop --> .*\n((?:[-\d]\S+ \S+\n)+)", log)
        values = np.array([line.split() for text in loops for line in text.splitlines()], float)
        steps = re.findall(r"Trace --> h .*\n +(.*)\n +(.*)\n", log)
        rows = np.concatenate([np.array([line.split() for line in one], float).T for one in steps])
        assert values.shape == rows.shape == (5, 2)
        np.testing.assert_allclose(np.tanh(values), rows, atol=1e-5)
        assert log.count("Trace --> V = LearnableParameter() :  -> [2 x 3]\n  [0,0]\t") == 2

    def test_only_where_the_node_is_computed(self, run):
        network = NETWORK.replace("z = W * seen", "z = W * (x - Mean (x)) ; q = Tanh (seen)")
        sgd = "SGD = [ maxEpochs = 1 ; minibatchSize = 1 ; learningRatesPerSample = 1e-7 ]"
        log = run("train", f"modelPath = t ; BrainScriptNetworkBuilder = {{ {network} }} ; {sgd}")
        assert "Trace[]" not in log


class TestGradients:
    def test_of_inputs_and_parameters(self, run):
        run("write", "outputNodeNames = ce ; outputPath = o ; nodeUnitTest = true")
        weights = read_model("m").find("W").value.astype(float)
        scores = np.exp(ROWS @ weights.T)
        labels = np.array([[n % 2, 1 - n % 2] for n in range(5)])
        slopes = scores / scores.sum(1, keepdims=True) - labels
        np.testing.assert_allclose(table("o.x.grad"), slopes @ weights, atol=1e-5)
        columns = table("o.W.grad")  # a line for each column
        np.testing.assert_allclose(columns, (slopes.T @ ROWS).T, atol=1e-5)
        losses = -(labels * np.log(scores / scores.sum(1, keepdims=True))).sum()
        assert float(Path("o.ce").read_text()) == pytest.approx(losses, rel=1e-5)

    def test_of_each_element_of_an_output(self, run):
        run("write", "outputNodeNames = z ; outputPath = o ; nodeUnitTest = true")
        weights = read_model("m").find("W").value
        np.testing.assert_allclose(table("o.x.grad"), np.tile(weights.sum(0), (5, 1)), atol=1e-5)

    def test_of_sparse_inputs(self, run):
        network = "s = SparseInput {4} ; w = ParameterTensor {2:4} ; z = Sigmoid (w * s)"
        lines = [f"|s {sample} |x 1 2 3 |y 0 1\n" for sample in ("1:2", "0:1 3:1")]
        Path("s.ctf").write_text("".join(lines))
        reader = """reader = [ readerType = CNTKTextFormatReader ; file = s.ctf
            input = [ s = [ dim = 4 ; format = sparse ] ] ]"""
        builder = f"BrainScriptNetworkBuilder = {{ {network} }} ; outputNodeNames = z"
        run("write", f"{builder} ; {reader} ; outputPath = o ; nodeUnitTest = true")
        rows = np.array([[0, 2, 0, 0], [1, 0, 0, 1]])
        assert table("o.s.grad").shape == (2, 4)
        np.testing.assert_allclose(table("o.w.grad"), np.tile(rows.sum(0), (2, 1)).T / 4, atol=0.01)

    def test_only_one_output(self, run):
        with pytest.raises(FormatError, match="exactly 1 output node for unit test, got 2"):
            run("write", "outputNodeNames = z:ce ; outputPath = o ; nodeUnitTest = true")


def test_only_the_first_elements_and_samples():
    rows = np.arange(12.0).reshape(4, 3)
    value = NodeValue(rows, np.array([0, 4]), None, (3,))

    def text(**options):
        form = WriteFormat(precision=".0", transpose=options.pop("transpose", True))
        return NodeWriter("n", (3,), form, **options).text(value, 0)

    assert text(most_samples=2) == "0 1 2\n3 4 5\n...+2\n"
    assert text(most_samples=3, most_elements=1) == text(most_elements=1)  # one more is shown
    assert text(transpose=False, most_samples=2, most_elements=1) == "0 3 ...+2\n...+2\n"
    form = WriteFormat(precision=".0", element_separator="%")
    assert NodeWriter("n", (3,), form).text(value, 0).startswith("0%1%2\n")
