"""What texts and pages say of kinds of nodes, and of the functions of BrainScript's library."""

from __future__ import annotations

import re

import pytest

from opscope.cntk.network.catalog import kind, operations
from opscope.cntk.network.nodes.node import Kind
from opscope.cntk.programs import nodes
from opscope.cntk.programs.library import library_functions
from opscope.framework.base.errors import UnknownOperatorError


@pytest.mark.parametrize("operation", operations())
def test_every_kind_says_what_it_computes(operation: str) -> None:
    found = kind(operation)
    least, most = found.inputs
    assert found.doc.endswith(".") and len(found.doc) < 400
    assert least <= len(found.reads) and (most is None or len(found.reads) == most)
    assert not [row.name for row in nodes.attribute_rows(found) if not row.doc]
    for function in found.ndl:
        assert not [row.name for row in nodes.option_rows(found, function) if not row.doc]


def test_most_tell_their_operators() -> None:
    told = {name: nodes.operators_of(name) for name in operations()}
    assert told["Tanh"] == ["tanh"] and told["Plus"] == ["add"]
    assert {"reduce_sum", "argmax", "cast"} <= set(told["ReduceElements"])
    silent = [name for name, operators in told.items() if not operators]
    assert len(silent) < 20, silent  # views, inputs, and names that are put together


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("Times", "Times"),
        ("ErrorPrediction", "ClassificationError"),
        ("cewithsm", "CrossEntropyWithSoftmax"),
        ("Parameter", "LearnableParameter"),
        ("ParameterTensor", "LearnableParameter"),
        ("Input", "InputValue"),
        ("BS.Boolean.If", "If"),
        ("CNTK2.Relu", "RectifiedLinear"),
    ],
)
def test_a_name_of_any_language_finds_its_kind(name: str, operation: str) -> None:
    found = nodes.find(name)
    assert isinstance(found, Kind) and found.operation == operation


def test_texts_about_a_name() -> None:
    text = "\n".join(nodes.describe_name("Pooling"))
    assert text.startswith("Pooling (x)\n")
    assert "NDL: Pooling(input, max, kernelShape, stride=, autoPadding=)" in text
    assert "BrainScript: Pooling (input, poolKind, kernelDims, stride = 1" in text
    assert re.search(r"pool +max or average +required: what a window gives", text)
    assert re.search(r"lowerPad +dims +default 0: dimPadLower", text)
    text = "\n".join(nodes.describe_name("DenseLayer"))
    assert text.startswith("DenseLayer {outDim, bias = true, activation = x => x")
    with pytest.raises(UnknownOperatorError, match=r"'Tims' \(did you mean Times, DiagTimes\?\)"):
        nodes.describe_name("Tims")


def test_the_list() -> None:
    lines = list(nodes.list_kinds())
    assert sum(line.startswith("  ") for line in lines) == len(operations())
    assert max(map(len, lines)) <= 98


def test_functions_of_the_library() -> None:
    found = library_functions()
    assert len(found) > 200
    assert not [name for name in found if re.search(r"(^|\.)_", name)]
    assert found["BS.Sequences.First"].usage == "BS.Sequences.First (x)"
    assert found["Splice"].usage == "Splice = CNTK2.Splice"
    assert found["Input"].usage.endswith(' or (rows, columns, tag = "feature")')
    assert found["Times"].usage.startswith("Times (x, y, outputRank = 1, inferInputRankToMap = -1")
    assert found["RowSlice"].operation == "Slice" and not found["ElementDivide"].operation
    assert found["StabilizerLayer"].doc.startswith("A learned positive factor beta")
