"""Conversions of data: tables of matrices, and labels."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping

import numpy as np

from ...cntk.readers.base.htk_files import HtkFile, read_script, write_htk
from ...cntk.readers.htk.mlf import FRAME, HEADER, read_mlf, read_states
from ...framework.base.errors import FormatError, OpscopeError, RunError
from ...framework.base.files.atomic import atomic_file, make_folder_of, write_atomically
from ...framework.base.untrusted.opener import open_file
from ...framework.base.untrusted.values import plain
from ...framework.files.array_files import read_array, read_arrays
from ...framework.files.tensor_file import TensorFile, write_tensors
from ...kaldi.files.compressed import CompressedMatrix
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.programs.listing import entries, read_value
from .report import Job

_LIST = "list.scp"
_SINGLE = {"value", "array", "htk features"}
"""Kinds that hold one value, without a key: it is called as the file is."""
_COMPRESSED = re.compile(rb"\S \0BCM[23]? ")
_HEAD = 1 << 16
_HTK_ENDING = ".fea"


def _items(job: Job) -> Iterator[tuple[str, np.ndarray]]:
    """Keys and arrays of a source.

    Raises:
        FormatError: it is damaged, or holds something else than numbers.
    """
    path = job.report.source
    stem = os.path.splitext(os.path.basename(path))[0]
    if job.kind == "value":
        yield stem, _array(job, stem, read_value(path))
    elif job.kind == "array":
        yield stem, read_array(path)
    elif job.kind == "arrays":
        yield from read_arrays(path).items()
    elif job.kind == "safetensors":
        file = TensorFile(path)
        if file.metadata:
            job.lose(f"metadata: {', '.join(list(file.metadata)[:8])}")
        yield from ((name, file.read(name)) for name in file)
    elif job.kind == "htk features":
        yield stem, _htk(job, path)
    elif job.kind == "htk list":
        for entry in read_script(path):
            last = entry.last if entry.last is not None and entry.last >= 0 else None
            yield entry.name, _htk(job, entry.path, max(entry.first or 0, 0), last)
    else:
        is_script = job.kind == "script file"
        if not is_script and _is_compressed(path):
            job.lose("compression: matrices are float32")
        for key, value in entries(f"{'scp' if is_script else 'ark'}:{path}"):
            yield key, _array(job, key, value)


def _array(job: Job, key: str, value: object) -> np.ndarray:
    if isinstance(value, CompressedMatrix):
        value = value.decompress()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        return value
    if isinstance(value, (int, float)):
        return np.asarray(value)
    raise FormatError(
        f"{job.report.source}: {plain(key)}: no array of numbers but {type(value).__name__};"
        " tables of matrices and vectors are converted"
    )


def _is_compressed(path: str) -> bool:
    """Whether the first entries of an archive are compressed matrices."""
    with open_file(path) as file:
        return _COMPRESSED.search(file.read(_HEAD)) is not None


def _htk(job: Job, path: str, first: int = 0, last: int | None = None) -> np.ndarray:
    file = HtkFile.open(path)
    job.lose(f"kind {file.kind} and period of {file.period / 1e4:g} ms of HTK's frames")
    return file.read(first, last)


def _unique(job: Job) -> dict[str, np.ndarray]:
    by_key: dict[str, np.ndarray] = {}
    for key, array in _items(job):
        if key in by_key:
            raise FormatError(f"{job.report.source}: the key {plain(key)} is there twice")
        by_key[key] = array
    if not by_key:
        raise FormatError(f"{job.report.source}: holds nothing")
    return by_key


def _report(job: Job, arrays: Mapping[str, np.ndarray]) -> None:
    numbers = sum(array.size for array in arrays.values())
    job.report.facts.append(f"{len(arrays):,} arrays, {numbers:,} numbers")


def _as_written(
    job: Job, written: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> None:
    """Compare what was written with what was read."""
    job.report.error = job.report.error or 0.0
    job.report.note = "all numbers compared"
    try:
        for key, array in wanted.items():
            job.compare(key, written[key], array)
    except RunError:
        with contextlib.suppress(OSError):
            os.unlink(job.target)
        raise


def to_archive(job: Job) -> None:
    """An archive of Kaldi's: matrices, vectors, or vectors of integers."""
    arrays = _unique(job)
    kind, converted = _for_kaldi(job, arrays)
    form = "ark,t" if job.options.text else "ark"
    _report(job, converted)
    with TableWriter(f"{form}:{job.target}", kind) as writer:
        for key, array in converted.items():
            writer.write(key, array)
    written = {key: np.asarray(value) for key, value in read_table(f"ark:{job.target}", kind)}
    _as_written(job, written, converted)


def _for_kaldi(job: Job, arrays: Mapping[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
    """The kind of a table that holds some arrays, and these as it holds them."""
    ranks = {array.ndim for array in arrays.values()}
    if len(ranks) != 1 or ranks - {1, 2}:
        shapes = "; ".join(f"{plain(k)} {list(a.shape)}" for k, a in list(arrays.items())[:4])
        raise FormatError(
            f"{job.target}: an archive holds matrices or vectors, all of one kind; these are"
            f" {shapes}"
        )
    (rank,) = ranks
    kinds = {array.dtype.kind for array in arrays.values()}
    if rank == 1 and kinds <= {"i", "u"}:
        wide = {
            key: a
            for key, a in arrays.items()
            if a.size and np.abs(a.astype(object)).max() >= 1 << 31
        }
        if wide:
            raise FormatError(f"{job.target}: {plain(next(iter(wide)))}: integers beyond 32 bits")
        return "int_vector", {key: a.astype(np.int32) for key, a in arrays.items()}
    if all(array.dtype == np.float64 for array in arrays.values()):
        return ("matrix", "vector")[rank == 1], dict(arrays)
    changed = sorted({str(a.dtype) for a in arrays.values()} - {"float32"})
    if changed:
        job.lose(f"the dtype {', '.join(changed)}: numbers are float32")
    return ("matrix", "vector")[rank == 1], {k: _single(job, k, a) for k, a in arrays.items()}


def _single(job: Job, key: str, array: np.ndarray) -> np.ndarray:
    """An array as float32, if its numbers allow that."""
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    job.compare(key, single, array)
    return single


def to_npz(job: Job) -> None:
    """Arrays of NumPy by key."""
    arrays = _unique(job)
    for key in arrays:
        plain_name = key.isprintable() and not key.startswith(".") and not set("/\\") & set(key)
        if not plain_name or key == "file":
            raise FormatError(f"{job.target}: {plain(key)} cannot be the name of an array in .npz")
    _report(job, arrays)
    with atomic_file(job.target) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    _as_written(job, read_arrays(job.target), arrays)


def to_npy(job: Job) -> None:
    """One array of NumPy."""
    arrays = _unique(job)
    if len(arrays) != 1:
        raise FormatError(
            f"{job.target}: {job.report.source} holds {len(arrays)} arrays, .npy one; .npz or"
            " .safetensors hold several"
        )
    ((key, array),) = arrays.items()
    if job.kind not in _SINGLE:
        job.lose(f"the key {plain(key)}")
    _report(job, arrays)
    held = io.BytesIO()
    np.save(held, array, allow_pickle=False)
    write_atomically(job.target, held.getvalue())
    _as_written(job, {key: read_array(job.target)}, arrays)


def to_safetensors(job: Job) -> None:
    """A safetensors file."""
    arrays = _unique(job)
    for key in arrays:
        if not key.isprintable():
            raise FormatError(f"{job.target}: {plain(key)} cannot be the name of a tensor")
    _report(job, arrays)
    with atomic_file(job.target) as file:
        write_tensors(file, arrays, {})
    held = TensorFile(job.target)
    _as_written(job, {key: held.read(key) for key in arrays}, arrays)


def to_htk(job: Job) -> None:
    """One parameter file of HTK's."""
    arrays = _unique(job)
    if len(arrays) != 1:
        raise FormatError(
            f"{job.target}: {job.report.source} holds {len(arrays)} utterances, a parameter file"
            " one; --to htk-folder writes several with a list of them"
        )
    ((key, array),) = arrays.items()
    frames = _frames(job, key, array)
    _report(job, arrays)
    write_htk(job.target, frames)
    _as_written(job, {key: HtkFile.open(job.target).read()}, {key: frames})


def to_htk_folder(job: Job) -> None:
    """Parameter files of HTK's, and a list of them."""
    arrays = _unique(job)
    frames = {key: _frames(job, key, array) for key, array in arrays.items()}
    folder = job.target.rstrip("/" + os.sep)
    lines: list[str] = []
    for key, array in frames.items():
        unfit = not key.isprintable() or any(map(str.isspace, key)) or set("=[]") & set(key)
        if unfit or os.path.basename(key) != key or key in (".", ".."):
            raise FormatError(f"{job.target}: {plain(key)} cannot be the name of a file in a list")
        lines.append(f"{key}={folder}/{key}{_HTK_ENDING}[0,{len(array) - 1}]")
    make_folder_of(os.path.join(folder, _LIST))
    for key, array in frames.items():
        write_htk(os.path.join(folder, key + _HTK_ENDING), array)
    write_atomically(os.path.join(folder, _LIST), ("\n".join(lines) + "\n").encode())
    _report(job, frames)
    written = {
        e.name: HtkFile.open(e.path).read() for e in read_script(os.path.join(folder, _LIST))
    }
    _as_written(job, written, frames)


def _frames(job: Job, key: str, array: np.ndarray) -> np.ndarray:
    if array.ndim != 2 or not len(array):
        raise FormatError(f"{job.target}: {plain(key)} is {list(array.shape)}, no frames")
    if array.dtype != np.float32:
        job.lose(f"the dtype {array.dtype}: numbers are float32")
    return _single(job, key, array)


# -- labels


def mlf_to_archive(job: Job) -> None:
    """Alignments: the state of each frame, by utterance."""
    numbers = None
    if job.options.states is not None:
        numbers = {name: at for at, name in enumerate(read_states(job.options.states))}
    try:
        states_of = read_mlf(job.report.source, numbers)
    except FormatError as error:
        hint = "" if numbers else "; where labels have names alone, --states numbers these"
        raise FormatError(f"{error}{hint}") from None
    if not states_of:
        raise FormatError(f"{job.report.source}: holds no utterances")
    job.lose("names of states, scores and phones" if numbers else "names of states")
    frames = sum(map(len, states_of.values()))
    job.report.facts.append(f"{len(states_of):,} utterances, {frames:,} frames")
    form = "ark,t" if job.options.text else "ark"
    with TableWriter(f"{form}:{job.target}", "int_vector") as writer:
        for key, states in states_of.items():
            writer.write(key, states)
    written = {
        key: np.asarray(value) for key, value in read_table(f"ark:{job.target}", "int_vector")
    }
    _as_written(job, written, states_of)


def archive_to_mlf(job: Job) -> None:
    """A master label file of alignments."""
    if job.options.states is None:
        raise OpscopeError(f"{job.target}: --states wants a file with the names of the states")
    names = read_states(job.options.states)
    arrays = _unique(job)
    lines = [HEADER]
    for key, states in arrays.items():
        if states.ndim != 1 or states.dtype.kind not in "iu" or not states.size:
            raise FormatError(
                f"{job.report.source}: {plain(key)}: no alignment, a vector of integers"
            )
        if '"' in key or int(states.min()) < 0 or int(states.max()) >= len(names):
            raise FormatError(
                f"{job.report.source}: {plain(key)}: states {states.min()} to {states.max()};"
                f" {job.options.states} names {len(names)}"
            )
        begin = np.flatnonzero(np.diff(states, prepend=states[0] - 1))
        ends = np.append(begin[1:], len(states))
        lines.append(f'"{key}.lab"')
        unit = int(FRAME)
        lines += [
            f"{a * unit} {b * unit} {names[states[a]]}" for a, b in zip(begin, ends, strict=True)
        ]
        lines.append(".")
    write_atomically(job.target, ("\n".join(lines) + "\n").encode())
    job.report.facts.append(
        f"{len(arrays):,} utterances, {sum(map(len, arrays.values())):,} frames"
    )
    numbers = {name: at for at, name in enumerate(names)}
    _as_written(job, read_mlf(job.target, numbers), arrays)
