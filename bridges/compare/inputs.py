"""What both models are fed: values that are drawn or read from files, as each of them takes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, VariableError, nearest
from ...framework.base.sequence import Sequences
from ...framework.base.untrusted.opener import read_text
from ...framework.base.untrusted.values import plain
from ...framework.files.array_files import read_array, read_arrays
from ...kaldi.tables.kinds import guess_kind
from ...kaldi.tables.kinds import kind_of as table_kind
from ...kaldi.tables.specifiers import ReadSpecifier, is_specifier
from ...kaldi.tables.streams import Files
from ...kaldi.tables.tables import first_kind, read_table
from ..recognize.recognizing import kind_of
from .layers import Feed, Form, InputSpec

Given = Any
"""Values by input, one for the only input, or paths of files with them."""

_RANKS = ("nnet3", "torch", "cntk", "operators", "onnx")
"""Forms by how much their inputs tell: frames and their context, sequences, or shapes alone."""
_MATRICES = {"array": "array", "general_matrix": "matrix"}
"""Kinds of Kaldi's values that are numbers -> what they are read as."""


def feeds_of(
    first: Form, other: Form, given: Given, rows: int, seed: int
) -> tuple[Feed, Feed, str]:
    """The same inputs for both models, and a line that describes them.

    Args:
        given: None: they are drawn. rows: of what is drawn.

    Raises:
        VariableError: the models take other inputs, or there is no such input.
        ShapeError: a value does not fit.
        FormatError: a file holds no numbers.
    """
    both = [form.inputs() for form in (first, other)]
    at = min(
        (0, 1), key=lambda at: (not _has_context(both[at]), _RANKS.index((first, other)[at].kind))
    )
    mine = both[at]
    theirs = both[1 - at]
    fixed = {spec.name: spec.shape for spec in theirs}
    values = {each.name: _drawn(_sized(each, fixed.get(each.name)), rows, seed) for each in mine}
    pairs = _paired(mine, theirs, values)
    if pairs is None:
        needs = [
            f"{f.title} takes {_input_text(specs)}"
            for f, specs in zip((first, other), both, strict=True)
        ]
        raise VariableError(f"{', '.join(needs)}: the same inputs are wanted")
    taken = {to.name for _, to in pairs}
    own = [spec for spec in theirs if spec.name not in taken]  # labels, say, of one alone
    values |= {spec.name: _drawn(spec, rows, seed) for spec in own}
    summary = f"random inputs, {rows} row{'s' * (rows != 1)}, seed {seed}"
    if given is not None:
        everything = [*mine, *own]
        values = _checked(given, everything, {to.name: spec.name for spec, to in pairs})
        summary = "inputs that were given"
        missing = [spec.name for spec in everything if spec.name not in values]
        if missing:
            raise VariableError(f"no value of {', '.join(map(repr, missing))} is given")
    feeds: list[dict[str, Any]] = [{}, {}]
    feeds[at] = {spec.name: _cast(values[spec.name], spec) for spec in mine}
    feeds[1 - at] = {to.name: _cast(_fitted(values[spec.name], spec, to), to) for spec, to in pairs}
    feeds[1 - at] |= {spec.name: _cast(values[spec.name], spec) for spec in own}
    return feeds[0], feeds[1], summary


def _has_context(specs: Sequence[InputSpec]) -> bool:
    return any(sum(spec.context) for spec in specs)


# -- drawing


def _sized(spec: InputSpec, other: tuple[int, ...] | None) -> InputSpec:
    """An input with the sizes that only the other model fixes."""
    if other is None or len(other) != len(spec.shape):
        return spec
    pairs = zip(spec.shape, other, strict=True)
    return replace(spec, shape=tuple(mine if mine >= 0 else theirs for mine, theirs in pairs))


def _drawn(spec: InputSpec, rows: int, seed: int) -> np.ndarray:
    """Normal numbers that depend on the name and the seed; words; zeros where whole numbers are
    wanted, which every table of embeddings has."""
    name = np.frombuffer(spec.name.encode("utf-8", "surrogateescape"), np.uint8).tolist()
    rng = np.random.default_rng([seed, *name])
    free = [at for at, size in enumerate(spec.shape) if size < 0]
    sizes = [
        rows if size < 0 and at == free[0] else max(size, 1) for at, size in enumerate(spec.shape)
    ]
    if len(free) > 1 and not spec.levels:  # sequences, then frames
        sizes[free[0]] = 1
        sizes[free[1]] = rows
    if spec.one_hot:
        words = rng.integers(0, sizes[-1], sizes[0])
        return np.eye(sizes[-1])[words].reshape(sizes)
    return rng.standard_normal(sizes) if _is_float(spec.dtype) else np.zeros(sizes, spec.dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fV"


# -- files


def _named(given: Given, specs: Sequence[InputSpec]) -> dict[str, Any]:
    """Values by name; a value without a name is for the only input, or for `input`."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if isinstance(given, (str, os.PathLike)) and os.fspath(given).endswith(".npz"):
        return dict(read_arrays(os.fspath(given)))
    names = [spec.name for spec in specs]
    if len(names) == 1 or "input" in names:
        return {names[0] if len(names) == 1 else "input": given}
    raise VariableError(f"say which input is given: there are {', '.join(map(repr, names))}")


def _checked(
    given: Given, specs: Sequence[InputSpec], other_names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    known = {spec.name: spec for spec in specs}
    arrays = {}
    for name, value in _named(given, specs).items():
        mine = name if name in known else other_names.get(name, "")
        if not mine:
            raise VariableError(
                f"there is no input {name!r}{nearest(name, known)}; there are {', '.join(known)}"
            )
        is_file = isinstance(value, (str, os.PathLike))
        array = read_numbers(os.fspath(value)) if is_file else np.asarray(value)
        if array.dtype.kind not in "fiubV":
            raise ShapeError(f"input {mine!r}: {array.dtype} are no numbers")
        spec = known[mine]
        fitted = _fit(array, InputSpec(mine, array.shape, array.dtype), spec)
        if fitted is None:
            raise ShapeError(
                f"input {mine!r} is {_shape(spec.shape)}; given was {list(array.shape)}"
            )
        arrays[mine] = fitted
    return arrays


def read_numbers(path: str) -> np.ndarray:
    """An array from a file: `.npy`, `.npz:NAME`, a table or value of Kaldi's, or lines of numbers.

    Of a table of Kaldi's the first entry is taken, or the entry of the key after a colon:
    `feats.ark:utterance`, `scp:feats.scp:utterance`.

    Raises:
        FormatError: it cannot be read, or has no such entry.
    """
    name, colon, key = path.rpartition(":")
    if path.endswith(".npy") or (colon and name.endswith(".npz")):
        return read_array(path)
    if path.endswith(".npz"):
        arrays = read_arrays(path)
        if len(arrays) != 1:
            raise FormatError(f"{path}: holds {len(arrays)} arrays; say which: {path}:NAME")
        return arrays[next(iter(arrays))]
    if not (colon and (is_specifier(name) or (not os.path.exists(path) and os.path.exists(name)))):
        name = path
        key = ""
    if is_specifier(name):
        return _entry(name, key)
    kind = kind_of(name)
    if kind in ("archive", "script file"):
        return _entry(f"{'scp' if kind == 'script file' else 'ark'}:{name}", key)
    if kind == "value":
        return _value(name)
    try:
        return np.array(
            [line.split() for line in read_text(name).splitlines() if line.strip()], float
        )
    except ValueError:
        raise FormatError(
            f"{name}: no array: neither NumPy's, nor Kaldi's, nor lines of numbers"
        ) from None


def _value(name: str) -> np.ndarray:
    reader = Files().reader(name)
    kind = guess_kind(reader)
    if kind.name not in _MATRICES:
        raise FormatError(f"{name}: {kind.name}, no matrix or vector")
    value = table_kind(_MATRICES[kind.name]).read_value(reader)
    if not reader.at_end():
        raise reader.error("something stands after the value")
    return np.asarray(value)


def _entry(rspecifier: str, key: str) -> np.ndarray:
    kind = first_kind(ReadSpecifier.parse(rspecifier))
    if kind is None or kind.name not in _MATRICES:
        raise FormatError(f"{rspecifier}: no table of matrices or vectors")
    names = []
    for name, value in read_table(rspecifier, _MATRICES[kind.name]):
        if not key or name == key:
            return np.asarray(value)
        names.append(name)
    raise FormatError(f"{rspecifier}: no entry {key!r}{nearest(key, names)}")


# -- from one model to the other


def _paired(
    mine: Sequence[InputSpec], theirs: Sequence[InputSpec], values: Mapping[str, np.ndarray]
) -> list[tuple[InputSpec, InputSpec]] | None:
    """Inputs by name, the others in order as they fit; one model may have more than the other.
    None where both have some without a partner, or one does not fit."""
    rest = {spec.name: spec for spec in theirs}
    pairs = []
    left = []
    for spec in mine:
        if spec.name in rest:
            pairs.append((spec, rest.pop(spec.name)))
        else:
            left.append(spec)
    alone = 0
    for spec in left:
        name = next((n for n, to in rest.items() if _fits(values[spec.name], spec, to)), None)
        if name is None:
            alone += 1
        else:
            pairs.append((spec, rest.pop(name)))
    fit = all(_fits(values[spec.name], spec, to) for spec, to in pairs)
    is_none = not pairs and (mine or theirs)
    return None if (alone and rest) or is_none or not fit else pairs


def _fits(array: np.ndarray, spec: InputSpec, to: InputSpec) -> bool:
    return _is_float(spec.dtype) == _is_float(to.dtype) and _fit(array, spec, to) is not None


def _fitted(array: np.ndarray, spec: InputSpec, to: InputSpec) -> np.ndarray:
    fitted = _fit(array, spec, to)
    if fitted is None:
        raise ShapeError(
            f"input {to.name!r} is {_shape(to.shape)}; what is fed is {list(array.shape)}"
        )
    return fitted


def _fit(array: np.ndarray, spec: InputSpec, to: InputSpec) -> np.ndarray | None:
    """A value as another model takes it: with or without an axis of one sequence before, its
    elements in one axis, or each frame with its neighbors; None where it does not fit."""
    if _agrees(array.shape, to.shape):
        return array
    if _agrees((1, *array.shape), to.shape):
        return array[None]
    if array.ndim and len(array) == 1 and _agrees(array.shape[1:], to.shape):
        return array[0]
    frames = sum(spec.context) + 1
    one = array[0] if array.ndim == 3 and len(array) == 1 else array
    if one.ndim == 2 and frames > 1 and _agrees((len(one), one.shape[1] * frames), to.shape):
        left, right = spec.context
        at = np.arange(len(one))[:, None] + np.arange(-left, right + 1)
        return one[np.clip(at, 0, len(one) - 1)].reshape(len(one), -1)
    if array.ndim > 1 and len(to.shape) > 1:
        flat = len(array), *(size for size in to.shape[1:])
        if min(flat) > 0 and int(np.prod(flat)) == array.size and _agrees(flat, to.shape):
            return array.reshape(flat)
    return None


def _agrees(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(to < 0 or size == to for size, to in pairs)


def _cast(array: np.ndarray, spec: InputSpec) -> Any:
    array = np.ascontiguousarray(array.astype(spec.dtype))
    if not spec.levels:
        return array
    offsets = [np.array([0, 1])] * (spec.levels - 1) + [np.array([0, len(array)])]
    return Sequences(array, tuple(offsets))


def _input_text(specs: Sequence[InputSpec]) -> str:
    inputs = (f"{plain(spec.name)} {spec.dtype}{_shape(spec.shape)}" for spec in specs)
    return ", ".join(inputs) or "nothing"


def _shape(shape: Sequence[int]) -> str:
    return str(list(shape))
