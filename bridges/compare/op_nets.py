"""Nets of operators: variables are layers. In any dtype; fused or plain."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.dtypes import HALVES, SINGLE, to_dtype
from ...framework.base.errors import VariableError
from ...framework.base.options.settings import Options, options
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.ir.desc import FORWARD, INPUT, PARAMETER, STATE
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpList
from ...framework.ir.results import net_results
from ...framework.passes.precision.to_dtype import ToFloat64, ToHalf
from ...framework.runtime.predict import Predictor
from .layers import Computed, Feed, InputSpec, Layer, Wanted

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {
        **dict.fromkeys(("fuse", "reuse", "inplace", "channels_last", "tails"), False),
        "recurrent": "steps",
        "libraries": "xp",
    },
    "bf16": {"libraries": "bf16,packed,direct,native,mkl,blas"},
}


def options_of(runtime: str) -> AbstractContextManager[Options]:
    """A block in which nets run as a runtime of ours does."""
    return options(**_OPTIONS.get(runtime, {}))


def converted(net: OpList, dtype: np.dtype) -> OpList:
    """A net with this dtype in place of float32.

    Raises:
        OpscopeError: an operator does not take it.
    """
    if dtype == SINGLE:
        return net
    if dtype in HALVES:
        return ToHalf(dtype).apply(net)
    return ToFloat64().apply(net)


def plain_value(value: Any) -> np.ndarray:
    """The array of a variable's value, on the host."""
    return np.array(to_host(value.data if isinstance(value, Sequences) else value))


class OpNet:
    """A net of operators with its parameters; see `Form`."""

    kind = "operators"

    def __init__(
        self, net: OpList, arrays: Mapping[str, np.ndarray], title: str, wanted: Wanted
    ) -> None:
        self.title = title
        self._runtime = wanted.runtime
        forward = net.copy()
        forward.ops = [op for op in net.ops if op.role == FORWARD]
        self.dtype = to_dtype(wanted.dtype) if wanted.dtype else SINGLE
        self._net = converted(forward, self.dtype)
        if not wanted.dtype:
            floats = {np.dtype(v.dtype) for v in net.vars if v.dtype is not None}
            floats = {dtype for dtype in floats if dtype.kind == "f" or dtype in HALVES}
            self.dtype = max(floats, key=lambda each: each.itemsize, default=SINGLE)
        self._held = {var.name for var in net.vars if var.kind in (PARAMETER, STATE)}
        self._read = {name for op in forward.ops for name in op.input_names()}
        self._results = set(net_results(self._net))
        declared = {var.name: var for var in self._net.vars}
        self._scope = Scope()
        for name in sorted(self._held & self._read):
            if name not in arrays:
                raise VariableError(f"{title}: no value of {name!r}, so it does not run")
            array = np.array(arrays[name])
            if array.dtype == SINGLE and declared[name].dtype is not None:
                array = array.astype(declared[name].dtype)
            self._scope.var(name).set(array)

    def inputs(self) -> list[InputSpec]:
        """See `Form`."""
        specs = []
        for var in self._net.vars:
            if var.kind == INPUT and var.name in self._read:
                if var.shape is None or var.dtype is None:
                    raise VariableError(f"{self.title}: input {var.name!r} has no shape or dtype")
                spec = tuple(var.shape), np.dtype(var.dtype), var.sequence_levels
                specs.append(InputSpec(var.name, *spec))
        return specs

    def compute(self, feed: Feed) -> Computed:
        """See `Form`."""
        kinds: dict[str, tuple[str, tuple[str, ...]]] = {}
        for op in self._net.ops:
            for name in op.outputs.get("out", op.output_names()[:1]):
                if name != EMPTY and name not in self._held:
                    kinds[name] = op.type, tuple(op.input_names())
        with options_of(self._runtime):
            values = Predictor(self._net).predict(self._scope, feed, list(kinds), None)
        layers = {
            name: Layer(name, kind, plain_value(values[name]), reads, name in self._results)
            for name, (kind, reads) in kinds.items()
        }
        return Computed(layers)
