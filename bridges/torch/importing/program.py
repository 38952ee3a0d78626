"""`from_torch`: an exported PyTorch program that runs here."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError, ShapeError
from ...onnx.importing import kinds as onnx_kinds
from ...onnx.importing.imported import ImportedModel
from ...onnx.importing.whole import Given, Variants
from . import kinds
from .blocks import casts, inlined
from .calls import COMPLEX, known_form
from .refusals import REFUSED
from .translate import WHERE, Program, Reader, name_of, needs_functions, source_of, unknown

for _kinds in (onnx_kinds, kinds):  # tables: each module adds its rules
    for _module in pkgutil.iter_modules(_kinds.__path__):
        importlib.import_module(f"{_kinds.__name__}.{_module.name}")

_MOST_SHOWN = 50


class TorchProgram(ImportedModel):
    """An exported program.

    Its parameters and buffers have the names of the state dict. `run` computes for inputs of any
    shapes that the program takes; `op_list` and `save` give one net.

    Attributes:
        path: what errors call it.
        inputs, outputs: names, dtypes and shapes; sizes that may vary have the names of the export.
        changed: buffer that runs change -> the output, which they do not return, of its new value.
        shared: name in the state dict -> name of the parameter that it shares.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program.model, program.trained, program.states)
        self._program = program
        self.shared = dict(program.names)
        self.changed = dict(program.changed)

    def run(self, feed: Mapping[str, Any], fetch: Sequence[str] | None = None) -> dict[str, Any]:
        """See `ImportedModel.run`; buffers that the program changes are changed."""
        if not self.changed:
            return super().run(feed, fetch)
        new = self.changed.values()
        wanted = [info.name for info in self.outputs if info.name not in new]
        results = super().run(feed, [*(wanted if fetch is None else fetch), *new])
        for buffer, name in self.changed.items():
            self.scope.get(buffer).set(results.pop(name))
        return results

    def __repr__(self) -> str:
        nodes = len(self._model.graph.nodes)
        shown = ", ".join(info.name for info in self.inputs)
        return f"<TorchProgram: {nodes} nodes, inputs {shown}>"

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        """Copies of the buffers of floats and of the parameters that are not trained, by name."""
        engine = self._engine
        return {name: engine.current(name).copy() for name in sorted(engine.states)}

    def _variants(self, given: Given) -> list[Variants]:
        program = self._program
        sizes: dict[Any, tuple[int, int]] = {}
        for name, value in given.items():
            dims = program.dims.get(name, ())
            if not isinstance(value, np.ndarray):
                self._bind(name, dims, tuple(value), sizes)
        symbols = {
            symbol
            for dims in program.dims.values()
            for dim in dims
            if not isinstance(dim, int)
            for symbol in dim.free_symbols
        }
        for number, symbol in enumerate(sorted(symbols, key=str)):
            if symbol not in sizes:
                sizes[symbol] = _two_sizes(number, *program.ranges.get(symbol, (2, np.inf)))
        first, second = (
            {
                name: tuple(
                    dim if isinstance(dim, int) else int(dim.subs(_chosen(sizes, k)))
                    for dim in dims
                )
                for name, dims in program.dims.items()
            }
            for k in range(2)
        )
        for info in self.inputs:
            first.setdefault(info.name, ())
            second.setdefault(info.name, ())
        return [(first, second)]

    def _bind(
        self,
        name: str,
        dims: tuple[Any, ...],
        given: tuple[int | str | None, ...],
        sizes: dict[Any, tuple[int, int]],
    ) -> None:
        """Sizes that a given shape settles."""
        shown = ", ".join(str(dim) for dim in dims)
        if len(given) != len(dims):
            raise ShapeError(f"{WHERE}: input {name!r} is [{shown}], not {list(given)}")
        for dim, size in zip(dims, given, strict=True):
            if isinstance(dim, int):
                if size != dim:
                    raise ShapeError(f"{WHERE}: input {name!r} is [{shown}], not {list(given)}")
            elif isinstance(size, int) and size >= 0:
                if dim not in dim.free_symbols:
                    raise ShapeError(f"{WHERE}: input {name!r}: give the sizes in {dim} elsewhere")
                least, most = self._program.ranges.get(dim, (0, np.inf))
                if not least <= size <= most:
                    raise ShapeError(
                        f"{WHERE}: input {name!r}: {dim} is {size}, not in the range"
                        f" {least} to {most} that was exported"
                    )
                if sizes.get(dim, (size, size)) != (size, size):
                    raise ShapeError(f"{WHERE}: {dim} is {size} and {sizes[dim][0]}")
                sizes[dim] = size, size


def _chosen(sizes: Mapping[Any, tuple[int, int]], which: int) -> dict[Any, int]:
    return {symbol: pair[which] for symbol, pair in sizes.items()}


def _two_sizes(number: int, least: int, most: float) -> tuple[int, int]:
    """Two sizes of a range, unlike other symbols' sizes."""
    first = max(least, 2) + 3 + 2 * number
    second = first + 3 + 5 * number
    if second > most:
        first = int(max(least, 1))
        second = int(most)
    return first, second


def from_torch(program: Any) -> TorchProgram:
    """Take a program of `torch.export` in, to run and to train here.

    Operators are read as they were exported; those without a rule here are decomposed by PyTorch
    into its core operators, and so is what changes tensors in place.

    Args:
        program: a `torch.export.ExportedProgram`. A path is refused: `torch.export.load` reads
            files, and runs what is pickled in some.

    Raises:
        FormatError: operators or other parts are not supported: all of these are named at once,
            with the node and the line of the model.
        OpscopeError: it is no such program.
    """
    if isinstance(program, (str, os.PathLike)):
        raise OpscopeError(
            "from_torch takes an ExportedProgram, not a file: read it by torch.export.load, if you"
            " trust it, since that may run code from the file"
        )
    if not all(hasattr(program, each) for each in ("graph", "graph_signature", "state_dict")):
        kind = type(program).__name__
        hint = ": export it first, by torch.export.export(module, inputs)"
        is_module = hasattr(program, "forward")
        raise OpscopeError(f"{kind} is no ExportedProgram{hint if is_module else ''}")
    program = inlined(program)
    if needs_functions(program) or casts(program):
        program = _rewritten(program, {})
    missing = unknown(program)
    if missing:
        program = _decomposed(program)
        missing = unknown(program)
    if missing:
        raise FormatError(f"{WHERE}: not supported:\n  {_listed(missing)}")
    return TorchProgram(Reader(program).read())


def _decomposed(program: Any) -> Any:
    """The program with what has no rule here in terms of what has, where PyTorch knows how."""
    return _rewritten(program, dict(_decompositions())) if "torch" in sys.modules else program


def _rewritten(program: Any, table: dict[Any, Any]) -> Any:
    """The program without operators that change tensors, and without those in the table.

    Raises:
        FormatError: PyTorch fails to do so, as it does for some that change a part of a tensor.
    """
    try:
        return program.run_decompositions(table)
    except Exception as error:  # of PyTorch's own, of any kind
        said = str(error).strip().partition("\n")[0]
        kind = type(error).__name__
        raise FormatError(
            f"{WHERE}: run_decompositions of PyTorch fails for it: {kind}: {said}"
        ) from error


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """How PyTorch says what has no rule here in other operators."""
    torch = sys.modules["torch"]
    table = {**torch._decomp.decomposition_table, **torch.export.default_decompositions()}
    return {target: rule for target, rule in table.items() if not _is_known(target)}


def _is_known(target: Any) -> bool:
    if not hasattr(target, "_schema"):  # it calls graphs
        return True
    name = target._schema.name.split("::")[-1]
    return any(known_form(domain, name) for domain in (target.namespace, COMPLEX))


def _listed(nodes: list[Any]) -> str:
    lines = []
    for node in nodes:
        full = name_of(node)[2] if node.op == "call_function" else f"{node.op} {node.target}"
        place = source_of(node)
        why = REFUSED.get(name_of(node)[1], "")
        parts = [f"node {node.name!r}", *filter(None, (place, why))]
        lines.append(f"{full}: {', '.join(parts)}")
    more = [f"and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return "\n  ".join(lines[:_MOST_SHOWN] + more)
