"""What every form of a model gives to a comparison: its inputs, and the values of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Feed = Mapping[str, Any]
"""Values by input: arrays, or `Sequences`."""

RUNTIMES = ("opscope", "plain", "bf16", "onnxruntime", "onnx-reference", "torch")
"""What runs a model: opscope; opscope with nothing fused, optimized or reused, and without kernel
libraries; opscope with large products of factors in bfloat16; ONNX Runtime; onnx's reference
evaluator; PyTorch."""


@dataclass(frozen=True)
class Wanted:
    """How a model is to be run.

    Attributes:
        runtime: one of `RUNTIMES`; "": the model's own.
        dtype: the name of the dtype that takes float32's place; "": the model's own.
        run_code: whether Python source that lies beside a model may be executed.
        network: the command of a config of CNTK's whose network is meant.
    """

    runtime: str = ""
    dtype: str = ""
    run_code: bool = False
    network: str = ""


@dataclass(frozen=True)
class InputSpec:
    """An input of a model.

    Attributes:
        name: of the input. shape: with -1 where it may vary. dtype: of what is fed.
        levels: of sequences that it carries.
        one_hot: its rows are words: one element is 1.
        context: frames before and after the frames of `shape` that the model looks at.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    levels: int = 0
    one_hot: bool = False
    context: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Layer:
    """A layer that was computed.

    Attributes:
        name: of the node or variable. kind: its type, in the words of its form.
        value: what it gives.
        reads: the names of the layers that it reads.
        output: whether it is an output of the model.
    """

    name: str
    kind: str
    value: np.ndarray
    reads: tuple[str, ...] = ()
    output: bool = False


@dataclass
class Computed:
    """The layers of a model by name, in the order in which they are computed.

    Attributes:
        notes: what else is to be said of the run, a line each.
    """

    layers: dict[str, Layer]
    notes: list[str] = field(default_factory=list)


class Form(Protocol):
    """A model that runs.

    Attributes:
        title: what people call it. kind: of its layers: layers of one kind have the same layout.
        dtype: in which it computes.
    """

    title: str
    kind: str
    dtype: np.dtype

    def inputs(self) -> list[InputSpec]:
        """What it is fed.

        Raises:
            VariableError: the shape or dtype of an input is not known.
        """
        ...

    def compute(self, feed: Feed) -> Computed:
        """The values of all layers.

        Raises:
            OpscopeError: it does not run on these inputs.
        """
        ...


def plain_number(value: Any) -> bool:
    """Whether a value is an array of numbers, which can be compared."""
    return isinstance(value, np.ndarray) and value.dtype != object and value.dtype.kind in "fiubV"
