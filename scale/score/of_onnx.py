"""Models of ONNX as scorers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from ...bridges.onnx.files.reading import read_model
from ...bridges.onnx.importing.model import OnnxModel
from ...framework.base.errors import OpscopeError, ShapeError
from .options import ScoreOptions
from .scorer import Keyed, only_one


def data_files(path: str) -> list[str]:
    """The files beside a model in which arrays of its main graph lie.

    Raises:
        FormatError: it is no model.
    """
    model = read_model(path)
    places = {
        entry.value
        for tensor in model.model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [os.path.join(model.folder, place) for place in sorted(places)]


class OnnxScorer:
    """See `Scorer`; each utterance is computed alone, as rows or as a batch of one sequence."""

    def __init__(self, model: OnnxModel, options: ScoreOptions) -> None:
        self._model = model
        path = model.path
        inputs = {info.name: info for info in self._model.inputs}
        self._input = only_one(list(inputs), options.input, "input", path)
        if len(inputs) > 1:
            others = ", ".join(sorted(inputs.keys() - {self._input}))
            raise OpscopeError(f"{path}: the model needs also {others}")
        names = [info.name for info in self._model.outputs]
        self._output = only_one(names, options.output, "output", path)
        shape = inputs[self._input].shape
        if shape is None or len(shape) not in (2, 3):
            shapes = "any shape" if shape is None else f"the shape {list(shape)}"
            raise ShapeError(
                f"{path}: the input {self._input!r} has {shapes}; utterances are matrices, [rows,"
                " columns] or [1, rows, columns]"
            )
        self._batched = len(shape) == 3
        self.input_dim = shape[-1] if isinstance(shape[-1], int) else -1
        self.rows_together = 1
        self.skipped: list[tuple[str, str]] = []

    def score(self, group: Sequence[Keyed]) -> Iterable[Keyed]:
        """See `Scorer`."""
        for key, matrix in group:
            fed = matrix[None] if self._batched else matrix
            value = self._model.run({self._input: fed}, [self._output])[self._output]
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
                raise ShapeError(f"{key}: {self._output!r} holds no floating-point numbers")
            if self._batched and value.ndim in (2, 3) and len(value) == 1:
                value = value[0]
            if value.ndim not in (1, 2):
                raise ShapeError(
                    f"{key}: {self._output!r} is {list(value.shape)}; scores are a matrix, or a"
                    " vector"
                )
            yield key, value
