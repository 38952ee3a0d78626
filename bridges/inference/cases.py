"""Inputs that what is written is checked with, and what is computed from them here."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.ir.op_list import VarDecl
from ...framework.ir.operation import Operator
from ...framework.runtime.predict import Predictor
from .form import ExportError, Inference

Values = Mapping[str, np.ndarray]
"""Arrays by the name of an input or output."""
Case = tuple[Values, Values]
"""Inputs, and the outputs that were computed here from them."""

_SIZES = ((1, 1), (3, 7), (2, 12))
"""Rows N and steps T of random inputs."""
_OTHERS = (5, 8, 16, 32, 64, 224)
"""Sizes of other unknown dimensions, tried until the net runs."""
_PASSED_ON = {
    "assign", "cast", "concat", "expand", "flatten", "gather", "reshape", "slice", "squeeze",
    "stop_gradient", "tile", "transpose", "unsqueeze", "split", "sequence_reverse",
}  # fmt: skip


class NetRun(Protocol):
    """A net in inference form that runs here.

    Attributes:
        inference: it. arrays: its parameters and states.
        one_hot: inputs whose rows are words: one element is 1.
    """

    @property
    def inference(self) -> Inference: ...

    @property
    def arrays(self) -> Mapping[str, np.ndarray]: ...

    @property
    def one_hot(self) -> Collection[str]: ...

    def __call__(self, inputs: Values) -> dict[str, np.ndarray]:
        """The outputs of one sequence, or of one batch of rows.

        Raises:
            OpscopeError: inputs that the net cannot take.
        """
        ...


class OwnRun:
    """A net of operators in inference form that runs here; see `NetRun`."""

    def __init__(self, inference: Inference, arrays: Mapping[str, np.ndarray]) -> None:
        self.inference = inference
        self.arrays = arrays
        self.one_hot: Collection[str] = ()
        self.scope = Scope()
        for name, array in arrays.items():
            self.scope.var(name).set(np.asarray(array))
        self._predictor = Predictor(inference.whole)
        self._inputs = {var.name: var for var in inference.inputs}

    def __call__(self, inputs: Values) -> dict[str, np.ndarray]:
        """See `NetRun`."""
        fed: dict[str, Any] = {}
        for name, array in inputs.items():
            levels = self._inputs[name].sequence_levels
            fed[name] = Sequences.from_list([array]) if levels else array
        with np.errstate(all="ignore"):
            outputs = self._predictor.predict(self.scope, fed, self.inference.outputs, None)
        return {
            name: value.data if isinstance(value, Sequences) else np.asarray(value)
            for name, value in outputs.items()
        }


def random_cases(run: NetRun, seed: int = 0, use: str = "ONNX") -> list[Case]:
    """Random inputs of several sizes, with the outputs of our own executor.

    Raises:
        ExportError: the net runs on none of the sizes that were tried.
    """
    inference = run.inference
    limits = id_limits(inference.operators, {n: s for n, (s, _) in inference.specs.items()})
    sequences = any(var.sequence_levels for var in inference.inputs)
    rng = np.random.default_rng(seed)
    cases: list[Case] = []
    why: OpscopeError | None = None
    tried = (
        _OTHERS
        if any(min((var.shape or ())[1:], default=0) < 0 for var in inference.inputs)
        else (1,)
    )
    apart = sorted(set(inference.steps.values()))
    for rows, steps in _SIZES:
        for other, gap in itertools.product(tried, (3, 0) if len(apart) > 1 else (0,)):
            inputs: dict[str, np.ndarray] = {}
            for var in inference.inputs:
                first = 1 if sequences else rows
                if var.sequence_levels:  # of different lengths, if the net allows that
                    first = steps + gap * apart.index(inference.steps[var.name])
                inputs[var.name] = _random(rng, var, first, other, limits.get(var.name, 2))
                if var.name in run.one_hot:
                    inputs[var.name] = _words(inputs[var.name])
            try:
                cases.append((inputs, run(inputs)))
                break
            except OpscopeError as error:
                why = error
    if not cases:
        raise ExportError(
            f"{use}: the net runs on no random input, so that nothing can be checked; give some"
            f" that it runs on: {why}"
        )
    return cases


def real_cases(run: NetRun, given: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Inputs of the user, with the outputs of our own executor.

    Raises:
        ExportError: a name or dtype that the net does not have, or the net refuses the arrays.
    """
    wanted = {var.name: var for var in run.inference.inputs}
    cases: list[Case] = []
    for arrays in given:
        for name in sorted(set(arrays) ^ set(wanted), key=wanted.__contains__):
            what = "is missing" if name in wanted else "is no input of the net"
            names = ", ".join(map(repr, wanted))
            raise ExportError(f"ONNX: the inputs to check with: {name!r} {what} (it has {names})")
        inputs: dict[str, np.ndarray] = {}
        for name, var in wanted.items():
            array = np.asarray(arrays[name])
            inputs[name] = array if var.dtype is None else array.astype(var.dtype, copy=False)
        try:
            cases.append((inputs, run(inputs)))
        except OpscopeError as error:
            raise ExportError(f"ONNX: the inputs to check with: {error}") from error
    return cases


def _random(
    rng: np.random.Generator, var: VarDecl, rows: int, other: int, limit: int
) -> np.ndarray:
    assert var.shape is not None and var.dtype is not None
    shape = [
        size if size >= 0 else (rows if axis == 0 else other) for axis, size in enumerate(var.shape)
    ]
    if var.dtype.kind in "iu":
        return rng.integers(0, max(limit, 1), shape).astype(var.dtype)
    if var.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.normal(size=shape).astype(var.dtype)


def _words(values: np.ndarray) -> np.ndarray:
    """Rows with a 1 where these have their largest element."""
    flat = values.reshape(len(values), -1)
    words = np.zeros_like(flat)
    words[np.arange(len(flat)), flat.argmax(axis=1)] = 1
    return words.reshape(values.shape)


def id_limits(
    operators: Iterable[Operator], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """For variables that hold numbers of rows or classes: how many of these there are."""
    limits: dict[str, int] = {}
    for op in reversed(list(operators)):
        count = 0
        if op.type == "embedding":
            count = shapes.get(op.inputs["w"][0], (0,))[0]
        elif op.type == "one_hot":
            count = int(op.attrs["depth"])
        elif op.type in ("gather", "take_along_axis", "put_along_axis"):
            shape = shapes.get(op.inputs["x"][0], ())
            count = shape[op.attrs["axis"]] if shape else 0
        if count > 0:
            name = op.inputs["ids"][0]
            limits[name] = min(count, limits.get(name, count))
        if op.type in _PASSED_ON:
            own = [limits[name] for name in op.output_vars() if name in limits]
            for name in op.inputs["x"]:
                if own:
                    limits[name] = min(*own, limits.get(name, own[0]))
    return limits
