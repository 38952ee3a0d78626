"""Parameters by name: from files into a net that need not be the one they were saved with.

report = load_parameters("base.pb", b, scope, strict=False)
print(report)  # what was loaded, what has another shape, what is missing, what is left over
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..base.backend import to_place
from ..base.dtypes import is_float
from ..base.errors import FormatError, VariableError, format_shape, nearest
from ..base.files.atomic import PathLike
from ..base.scope import Scope, check_scope, default_scope
from ..base.sizes.shape import fits
from ..base.untrusted.opener import no_such_file
from ..ir.desc import OPTIMIZE, PARAMETER, NetDesc
from ..ir.op_list import OpList, VarDecl
from ..runtime.initialize import persistent_vars
from .checkpoint import SUFFIX, checkpoint_path, read_checkpoint
from .saved import NET_SUFFIX, TENSOR_SUFFIX, HasOpList, load_parts, op_list_of, paths_of
from .tensor_file import TensorFile

Renaming = Mapping[str, str | None] | Callable[[str], str | None]
"""From a name in the file to one in the net; None leaves the array out."""

_SHOWN = 8  # names of a kind that a report writes out


@dataclass(frozen=True)
class LoadReport:
    """What `load_parameters` has done; `print(report)` tells it in a few lines.

    Attributes:
        path: the file.
        loaded: names in the net that have got their values.
        renamed: name in the net -> name in the file, where these differ.
        converted: name -> (dtype in the file, dtype in the net), where these differ.
        differing: name -> (dtype and shape in the file, those in the net); such arrays are not
            loaded.
        missing: names of the net that the file lacks.
        unexpected: names of the file that the net lacks.
    """

    path: str
    loaded: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    converted: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    differing: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the names and shapes of the file and the net are the same."""
        return not (self.differing or self.missing or self.unexpected)

    def __str__(self) -> str:
        wanted = len(self.loaded) + len(self.differing) + len(self.missing)
        lines = [f"{self.path}: loaded {len(self.loaded)} of {wanted} variables"]
        shown = {
            "loaded": self.loaded,
            "under another name": [f"{name} from {old}" for name, old in self.renamed.items()],
            "converted": [f"{n} from {old} to {new}" for n, (old, new) in self.converted.items()],
            "other shape": [
                f"{name} is {theirs} there and {ours} here"
                for name, (theirs, ours) in self.differing.items()
            ],
            "missing there": self.missing,
            "left over there": self.unexpected,
        }
        lines += [f"  {title}: {listed(names)}" for title, names in shown.items() if names]
        return "\n".join(lines)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """The first of several names, and how many more there are."""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def load_parameters(
    path: PathLike,
    net: HasOpList | OpList | NetDesc,
    scope: Scope | None = None,
    *,
    strict: bool = True,
    prefix: str = "",
    rename: Renaming | None = None,
) -> LoadReport:
    """Load the parameters of a net by their names, from a file that may be of another net.

    Parameters and the states that forward operators use (running means, say) are loaded; states of
    optimizers are not: `opscope.train(..., resume=...)` continues with these. For a net with
    another head, give `strict=False`, and look at the report.

    Args:
        path: a saved net (`base` or `base.pb`), a `.safetensors` file, of another program too, or a
            `.checkpoint` of `opscope.train`.
        net: a NetBuilder, a Net or a NetDesc.
        scope: takes the values; None: the process's default scope. What is not loaded stays as it
            is there, or is initialized by the first run.
        strict: whether it is an error that names are missing or left over, or shapes differ.
            Otherwise at least one variable must match.
        prefix: take only arrays whose names in the file begin so, and take this off their names.
        rename: name in the file (without `prefix`) -> name in the net, None to leave it out: a
            mapping, for the names that change, or a function of any name.

    Returns:
        What matched and what did not.

    Raises:
        FormatError: no such file, damaged, or, with the whole report, what `strict` says. The scope
            is unchanged then.
        VariableError: `rename` has names that the file lacks, or gives two arrays one name.
    """
    op_list = op_list_of(net)
    check_scope(scope, "load_parameters(path, net, scope)")
    wanted = {var.name: var for var in persistent_vars(op_list) if var.name in learned(op_list)}
    if not isinstance(path, (str, os.PathLike)):
        raise FormatError(f"load_parameters wants the name of a file first, not {path!r}")
    name_of, arrays = _stored(os.fspath(path))
    sources = _sources(arrays, prefix, rename, name_of)
    values: dict[str, np.ndarray] = {}
    converted, differing = {}, {}
    for name in wanted.keys() & sources.keys():
        var = wanted[name]
        array = arrays[sources[name]]
        if not can_take(var, array):
            differing[name] = spec_text(array.shape, array.dtype), spec_text(var.shape, var.dtype)
            continue
        values[name] = converted_to(var, array)
        if values[name].dtype != array.dtype:
            converted[name] = str(array.dtype), str(var.dtype)
    report = LoadReport(
        name_of,
        tuple(name for name in wanted if name in values),
        {name: sources[name] for name in wanted if name in values and sources[name] != name},
        {name: converted[name] for name in wanted if name in converted},
        {name: differing[name] for name in wanted if name in differing},
        tuple(name for name in wanted if name not in sources),
        tuple(old for name, old in sources.items() if name not in wanted),
    )
    if strict and not report.is_complete:
        raise FormatError(f"{report}\nstrict=False loads what fits")
    if wanted and not report.loaded:
        raise FormatError(f"{report}\nno name of the net is there with its shape")
    # Two names may take one array of the file: then neither variable owns it.
    alone = len({id(array) for array in values.values()}) == len(values)
    place_values(values, default_scope() if scope is None else scope, own=alone)
    return report


def learned(net: OpList) -> set[str]:
    """The names of parameters and states of a net, without states that only its optimizers use."""
    # A state that forward operators use too (a running mean) belongs to the net, whoever updates
    # it.
    elsewhere, updates = (
        {
            name
            for op in net.ops
            if (op.role == OPTIMIZE) is is_update
            for name in (*op.input_names(), *op.output_names())
        }
        for is_update in (False, True)
    )
    own = updates - elsewhere
    kept = (v.name for v in persistent_vars(net) if v.kind == PARAMETER or v.name not in own)
    return set(kept)


def can_take(var: VarDecl, array: np.ndarray) -> bool:
    """Whether a variable can hold an array, if necessary in another floating dtype."""
    if var.shape is not None and not fits(array.shape, var.shape):
        return False
    if var.dtype is None or var.dtype == array.dtype:
        return True
    floats = all(is_float(dtype) for dtype in (var.dtype, array.dtype))
    # Whole numbers are not converted: ids or counters in another dtype are another net's.
    return floats and np.can_cast(array.dtype, var.dtype, "same_kind")


def converted_to(var: VarDecl, array: np.ndarray) -> np.ndarray:
    """The array in the dtype of the variable."""
    return array if var.dtype is None else array.astype(var.dtype, copy=False)


def place_values(values: Mapping[str, np.ndarray], scope: Scope, *, own: bool = False) -> None:
    """Give variables, where a run in this scope finds them, their values: all of them or none.

    Args:
        own: as in `Variable.bind`.
    """
    placed = {name: to_place(array, scope.place) for name, array in values.items()}
    for name, array in placed.items():
        variable = scope.find(name) or scope.var(name)
        variable.bind(array, own=own)
        variable.origin = None  # what comes from a file has no owner: every builder may use it


def spec_text(shape: tuple[int, ...] | None, dtype: np.dtype | None) -> str:
    """`float32[3, 4]`"""
    return f"{dtype or ''}{format_shape(shape)}"


def _stored(path: str) -> tuple[str, dict[str, np.ndarray]]:
    """The file that a path means, and its arrays without the states of optimizers."""
    net_path, tensor_path = paths_of(path)
    if path.endswith(SUFFIX):
        return _from_checkpoint(path)
    if os.path.exists(net_path) and not os.path.isdir(net_path):
        op_list, values = load_parts(net_path)
        kept = learned(op_list)
        return net_path, {name: array for name, array in values.items() if name in kept}
    if path.endswith(TENSOR_SUFFIX) or os.path.exists(tensor_path):
        file = TensorFile(tensor_path)
        return tensor_path, {name: file.read(name) for name in file}
    if os.path.exists(checkpoint_path(path)):
        return _from_checkpoint(checkpoint_path(path))
    if os.path.exists(path) and not os.path.isdir(path):
        raise FormatError(
            f"{path}: parameters are read from {NET_SUFFIX}, {TENSOR_SUFFIX} and {SUFFIX} files"
        )
    looked = f"; looked for {net_path}, {tensor_path} and {checkpoint_path(path)}"
    raise no_such_file(path, looked)


def _from_checkpoint(path: str) -> tuple[str, dict[str, np.ndarray]]:
    checkpoint = read_checkpoint(path)
    kept = learned(checkpoint.op_list)
    return path, {name: array for name, array in checkpoint.values.items() if name in kept}


def _sources(
    stored: Mapping[str, np.ndarray], prefix: str, rename: Renaming | None, path: str
) -> dict[str, str]:
    """Name in the net -> name in the file."""
    begun = {name.removeprefix(prefix): name for name in stored if name.startswith(prefix)}
    if prefix and not begun:
        raise FormatError(f"{path}: no array begins with {prefix!r}; there are {listed([*stored])}")
    if isinstance(rename, Mapping):
        for name in rename:
            if name not in begun:
                raise VariableError(
                    f"rename: {path} holds no {prefix + name!r}{nearest(name, begun)}"
                )
        names: Mapping[str, str | None] = {name: rename.get(name, name) for name in begun}
    else:
        names = {name: name if rename is None else rename(name) for name in begun}
    sources: dict[str, str] = {}
    for name, target in names.items():
        if target is None:
            continue
        # Without this the later array would win silently, by the order in the file.
        if target in sources:
            raise VariableError(
                f"rename: {sources[target]!r} and {begun[name]!r} of {path} would both be"
                f" {target!r}"
            )
        sources[target] = begun[name]
    return sources


__all__ = ["LoadReport", "load_parameters"]
