"""A decoder as an ONNX file, with its cache outside; scores are how often tokens were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.python_api.generate.generation import Generator

V = 4
"""How many tokens there are."""


def counting(path: Path, bias: Any = (), mask: bool = False) -> Generator:
    """The decoder, written to a path and read again.

    Args:
        bias: dimensions of an input that scores are multiplied by; None leaves the rank open, ():
            there is none. mask: whether it has a mask.
    """
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    constants = {"eye": np.eye(V, dtype=np.float32), "axis": [2], "one": [1], "last": [1 << 40]}
    constants |= {"rows_of_tokens": np.array(2), "outer": [1, 3]}
    masked = [
        ("Cast", ["attention_mask"], ["numbers"], {"to": types.FLOAT}),
        ("Unsqueeze", ["numbers", "outer"], ["column"], {}),
        ("Mul", ["present.key", "column"], ["seen"], {}),
    ]
    scored = [("Mul", ["counts", "bias"], ["logits"], {})]
    if bias == ():
        scored = [("Identity", ["counts"], ["logits"], {})]
    elif bias is not None and len(bias) == 1:  # of each sequence
        constants["inner"] = [1, 2]
        scored = [
            ("Unsqueeze", ["bias", "inner"], ["scale"], {}),
            ("Mul", ["counts", "scale"], ["logits"], {}),
        ]
    nodes = [
        ("Gather", ["eye", "input_ids"], ["rows"], {}),
        ("Unsqueeze", ["rows", "one"], ["new"], {}),
        ("Concat", ["past.key", "new"], ["present.key"], {"axis": 2}),
        *(masked if mask else [("Identity", ["present.key"], ["seen"], {})]),
        ("Shape", ["input_ids"], ["steps"], {"start": 1}),
        ("Neg", ["steps"], ["begin"], {}),
        ("CumSum", ["seen", "rows_of_tokens"], ["sums"], {}),
        ("Slice", ["sums", "begin", "last", "axis"], ["own"], {}),
        ("Squeeze", ["own", "one"], ["counts"], {}),
        *scored,
    ]
    given = {
        "input_ids": (types.INT64, ["N", "T"]),
        "past.key": (types.FLOAT, ["N", 1, "P", V]),
        **({} if bias == () else {"bias": (types.FLOAT, bias)}),
        **({"attention_mask": (types.INT64, ["N", "P+T"])} if mask else {}),
    }
    results = {"logits": ["N", "T", V], "present.key": ["N", 1, "Q", V]}
    graph = helper.make_graph(
        [helper.make_node(kind, reads, writes, **attrs) for kind, reads, writes, attrs in nodes],
        "counting",
        [helper.make_tensor_value_info(name, *one) for name, one in given.items()],
        [helper.make_tensor_value_info(name, types.FLOAT, dims) for name, dims in results.items()],
        [onnx.numpy_helper.from_array(np.array(value), n) for n, value in constants.items()],
    )
    # ONNX's checker refuses inputs of open rank; ONNX Runtime takes them.
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return Generator(opscope.from_onnx(path), ids="input_ids", scores="logits")
