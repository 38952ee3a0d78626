"""Requests: text form, refusals."""

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification

TEXT = """\
input input has_deriv=1 0,-1,0 0,0,0 1,-1,2
input ivector has_deriv=0 0,0,0
output output has_deriv=1 0,0,0
need_model_derivative=1 store_component_stats=0
"""


def test_text_form():
    request = ComputationRequest.parse(TEXT)
    assert request.to_text() == TEXT
    assert request.inputs[0].indexes.tolist() == [[0, -1, 0], [0, 0, 0], [1, -1, 2]]
    assert request.inputs[0].has_deriv and not request.inputs[1].has_deriv
    assert request.need_model_derivative and request.needs_derivatives()
    assert request.key() == ComputationRequest.parse(TEXT).key()
    assert request.find("ivector", output=False) is request.inputs[1]
    assert request.find("ivector", output=True) is None
    kaldi = request.to_kaldi()
    assert "input-0: name=input, has-deriv=true, indexes=[(0,-1:0), (1,-1,2)]" in kaldi
    wanted = "input=0,-1:0;1,-1,2/deriv ivector=0,0 output=0,0/deriv need_model_derivative"
    assert str(request) == wanted


def test_ranges_in_lines():
    text = "input input has_deriv=0 0,-1:1 0,5,3 1,9:20:5,0:1\noutput output 0:1@2:3\n"
    request = ComputationRequest.parse(text)
    rows = [(0, -1, 0), (0, 0, 0), (0, 1, 0), (0, 5, 3)]
    rows += [(1, 9, 0), (1, 9, 1), (1, 14, 0), (1, 14, 1), (1, 19, 0), (1, 19, 1)]
    assert [tuple(row) for row in request.inputs[0].indexes.tolist()] == rows
    rows = [(0, 2, 0), (1, 2, 0), (0, 3, 0), (1, 3, 0)]
    assert [tuple(row) for row in request.outputs[0].indexes.tolist()] == rows
    assert ComputationRequest.parse(request.to_text()).key() == request.key()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("input", "wants a node's name"),
        ("input a has_deriv=2", "NAME=0 or NAME=1"),
        ("input a wrong=1", "unknown word 'wrong='"),
        ("input a 0", "'0' is no index; it is written n,t"),
        ("input a 0,0,x", "'x' is no number x"),
        ("input a 0,99999999999,0", "'99999999999' is no time t"),
        ("input a 0,3:1", "'3:1' ends before it begins"),
        ("input a 0:9999,0:9999", "more than 4,194,304 rows"),
        ("input a -1,0,0", "out of range"),
        ("input a 0,2000000000,0", "out of range"),
        ("input a 0,0,9000", "out of range"),
        ("verbose=1", "unknown word"),
        ("nonsense", "NAME=0 or NAME=1"),
    ],
)
def test_refusals(line, message):
    with pytest.raises(FormatError, match=f"r.txt, line 2: .*{message}"):
        ComputationRequest.parse(f"\n{line}\n", "r.txt")


def test_derivatives_without_any_at_an_output():
    request = ComputationRequest.parse("output output 0,0,0\nneed_model_derivative=1\n")
    with pytest.raises(ShapeError, match="gives none at an output"):
        request.needs_derivatives()


def test_indexes_from_arrays():
    io = IoSpecification("input", np.array([[0, 1, 0]], np.int64))
    assert io.indexes.dtype == np.int32


@pytest.mark.parametrize("values", [[[1, 2]], [["a", 0, 0]], [[None, 0, 0]], [[0, 0, 1 << 70]]])
def test_indexes_that_are_none(values):
    with pytest.raises(
        ShapeError, match=r"'input': each index is a row of whole numbers \(n, t, x\)"
    ):
        IoSpecification("input", values)
