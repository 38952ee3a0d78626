"""Saved nets as scorers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.sequence import Sequences, offsets_of
from ...framework.files.saved import Loaded
from ...framework.ir.desc import FORWARD, INPUT
from ...framework.passes.prune import prune
from .options import ScoreOptions
from .scorer import Keyed, only_one


class NetScorer:
    """See `Scorer`; rows of all utterances, or sequences where the input declares them."""

    def __init__(self, net: Loaded, path: str, options: ScoreOptions) -> None:
        self._net = net
        self._output = [options.output] if options.output else None
        desc = self._net.net.op_list
        if options.output:
            if options.output not in {var.name for var in desc.vars}:
                only_one([var.name for var in desc.vars], options.output, "output", path)
            desc = prune(desc, [options.output])
        read = {name for op in desc.ops if op.role == FORWARD for name in op.input_names()}
        inputs = {var.name: var for var in desc.vars if var.kind == INPUT and var.name in read}
        self._input = only_one(list(inputs), options.input, "input", path)
        var = inputs[self._input]
        self._sequences = var.sequence_levels > 0
        shape = var.shape
        if shape is not None and len(shape) != 2:
            problem = f"the input {self._input!r} has rows of shape {list(shape[1:])}"
            raise ShapeError(f"{path}: {problem}; utterances are matrices, [rows, columns]")
        self.input_dim = shape[1] if shape is not None else -1
        self.rows_together = options.rows_per_batch
        self.skipped: list[tuple[str, str]] = []

    def score(self, group: Sequence[Keyed]) -> Iterable[Keyed]:
        """See `Scorer`."""
        keys, matrices = zip(*group, strict=True)
        offsets = np.asarray(offsets_of([len(matrix) for matrix in matrices]), np.int64)
        data = np.concatenate(matrices)
        fed: Any = Sequences(data, (offsets,)) if self._sequences else data
        outputs = self._net.predict({self._input: fed}, self._output, batch_size=None)
        if len(outputs) != 1:
            raise OpscopeError(f"outputs are {', '.join(outputs)}; choose one with --output")
        name, value = next(iter(outputs.items()))
        if isinstance(value, Sequences):
            offsets = np.asarray(value.levels[0])
            value = value.data
        if value.dtype.kind != "f":
            raise ShapeError(f"{name!r} holds {value.dtype}; scores are floating-point numbers")
        if len(offsets) == len(keys) + 1 and offsets[-1] == len(value):
            parts = np.split(value.reshape(len(value), -1), offsets[1:-1])
        elif self._sequences and len(value) == len(keys):
            parts = list(value.reshape(len(value), -1))  # a vector for each utterance
        else:
            raise ShapeError(
                f"{name!r} is {list(value.shape)}: no row for each of the {len(data)} rows, nor for"
                f" each of the {len(keys)} utterances that begin with {keys[0]}"
            )
        yield from zip(keys, parts, strict=True)
