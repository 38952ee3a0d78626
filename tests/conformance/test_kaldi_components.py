"""Single components against Kaldi's own results: output, input derivative, parameter gradient.

Runs over `components/` of the folder named by OPSCOPE_KALDI_DATA (default: ../shared/data/kaldi
beside the repository) and skips where that is missing.
"""

import numpy as np
import pytest

from component_runs import arrays, backprop, backprop_reads, propagate
from kaldi_data import FOLDER, difference, need, read_archive
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, make_var
from opscope.framework.ir.names import grad_name
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.components import Component, ComponentOps, Properties

CASES = sorted(path.parent.name for path in FOLDER.glob("components/*/component.bin"))
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""


def run_component(component, x, out_deriv):
    """Output, input derivative and parameter gradient of a simple component."""
    ops = ComponentOps(component, "p")
    trained = ops.parameters()
    made = propagate(ops, "x", "y")
    made += backprop(ops, "x", "y", "y_deriv", "x_deriv", trained=bool(trained))
    net = OpList(name="component", ops=made)
    feeds = arrays(ops) | {"x": x, "y_deriv": out_deriv}
    for name, array in feeds.items():
        net.vars.append(make_var(name, array.shape, array.dtype, INPUT))
    results = ["y", "x_deriv", *map(grad_name, trained)]
    for name in results:
        net.vars.append(make_var(name, None, "float32", OUTPUT))
    scope = Scope()
    scope.feed(feeds)
    PlainNet(net).run(scope)
    values = [scope.numpy(name) for name in results]
    return values[0], values[1], np.concatenate([v.ravel() for v in values[2:]] or [[]])


def as_read(matrix):
    """What Kaldi saw of a matrix that it took for one without gaps between its rows.

    Its rows begin at multiples of 16 bytes; the bytes between them are unknown (here NaN).
    """
    rows, cols = matrix.shape
    memory = np.full((rows, -cols % 4 + cols), np.nan, np.float32)
    memory[:, :cols] = matrix
    return memory.ravel()[: rows * cols].reshape(rows, cols)


def as_written(matrix):
    """The opposite: what a matrix holds after Kaldi wrote its elements without gaps."""
    rows, cols = matrix.shape
    memory = np.full(rows * (-cols % 4 + cols), np.nan, np.float32)
    memory[: matrix.size] = matrix.ravel()
    return memory.reshape(rows, -1)[:, :cols]


def has_gaps(component):
    """Whether Kaldi's results stem from misread memory.

    Components that cut rows into blocks want matrices without gaps between rows. The program that
    made the results gave them ordinary ones, with Kaldi's check of that compiled out: where a
    matrix is not a multiple of four columns wide, blocks came from the wrong places.
    """
    contiguous = Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS
    return component.properties & contiguous and (
        component.input_dim % 4 or component.output_dim % 4
    )


@pytest.mark.parametrize("name", CASES or ["any"])
def test_component(name, within, remark):
    folder = need("components", name)
    component = Component.read_new(Reader(folder / "component.bin"))
    io = read_archive(folder / "io.ark")
    if has_gaps(component):
        remark("compared where Kaldi's results do not stem from misread memory")
        within(errors_with_gaps(component, io), TOLERANCE)
        return
    output, input_deriv, param_deriv = run_component(component, io["input"], io["output_deriv"])
    results = {"output": (output, io["output"]), "input_deriv": (input_deriv, io["input_deriv"])}
    if component.is_updatable:
        results["param_deriv"] = param_deriv, read_archive(folder / "grad.ark")["param_deriv"]
    within({what: difference(*pair) for what, pair in results.items()}, TOLERANCE)


def errors_with_gaps(component, io):
    """Compares what depends on known memory; parameter gradients sum over unknown memory, too."""
    x, out_deriv = as_read(io["input"]), as_read(io["output_deriv"])
    output, input_deriv, _ = run_component(component, x, out_deriv)
    errors = {}
    for what, got in (("output", output), ("input_deriv", input_deriv)):
        got = as_written(got)
        known = ~np.isnan(got)
        assert known.any()
        errors[what] = difference(got[known], io[what][known])
    return errors


@pytest.mark.parametrize("name", CASES or ["any"])
def test_backprop_reads_no_more_than_in_kaldi(name):
    """A compiler lets go of what Kaldi's properties say is not needed."""
    component = Component.read_new(Reader(need("components", name) / "component.bin"))
    reads_input, reads_output = backprop_reads(ComponentOps(component, name))
    assert not reads_input or component.properties & Properties.BACKPROP_NEEDS_INPUT
    assert not reads_output or component.properties & Properties.BACKPROP_NEEDS_OUTPUT
