"""The minibatches of an epoch of any reader, checked, with layouts where the reader gives none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....framework.base.errors import RunError, ShapeError, nearest
from ....framework.base.options.plugins import call_plugin, owner_of
from ....framework.base.sequence import bincount
from .data import Deserializer, Samples, Stream
from .layout import Layout, packed
from .pack import Minibatch
from .reader import DataReader

_PACKAGE = __name__.partition("cntk.")[0]


def minibatches(
    reader: DataReader, size: int, epoch: int = 0, epoch_size: int | None = None
) -> Iterator[Minibatch]:
    """Begin an epoch of a reader, of whichever package, and give its minibatches.

    A stream without a layout shares the layout of a stream whose sequences have the same lengths;
    else its sequences are packed side by side.

    Args:
        reader: of the data.
        size: of a minibatch, in samples.
        epoch: counted from 0.
        epoch_size: in samples; None: one sweep over the data.

    Raises:
        OpscopeError: one that the reader raises.
        RunError: the size is not above 0; the reader fails otherwise, or gives something else than
            minibatches of its streams; the message names its class, the minibatch and the stream.
        ShapeError: the arrays of a stream do not fit each other, its dimension or its layout.
    """
    if size < 1:
        raise RunError(f"minibatchSize is {size}: a minibatch has one sample at least")
    owner = owner_of("reader", reader)
    streams = streams_of(owner, reader)
    call_plugin(owner, reader.start_minibatch_loop, size, epoch, epoch_size)
    return _each(owner, reader, streams, epoch)


def streams_of(owner: str, reader: DataReader | Deserializer) -> dict[str, Stream]:
    """The streams of a reader or deserializer, by name.

    Raises:
        RunError: it has no list of them.
    """
    streams = call_plugin(owner, getattr, reader, "streams", None)
    if not isinstance(streams, Sequence) or not all(isinstance(s, Stream) for s in streams):
        raise RunError(f"{owner} has no list of Stream objects as its `streams`: {streams!r:.80}")
    return {stream.name: stream for stream in streams}


def _each(
    owner: str, reader: DataReader, streams: Mapping[str, Stream], epoch: int
) -> Iterator[Minibatch]:
    number = 0
    own = type(reader).__module__.startswith(_PACKAGE)  # whose tests check what it gives
    while (minibatch := call_plugin(owner, reader.get_minibatch)) is not None:
        number += 1
        where = f"{owner}: minibatch {number} of epoch {epoch + 1}"
        if not isinstance(minibatch, Minibatch):
            raise RunError(f"{where} is a {type(minibatch).__name__}, not a Minibatch or None")
        reader.last = minibatch if own else _checked(where, minibatch, streams)
        yield reader.last


def _checked(where: str, minibatch: Minibatch, streams: Mapping[str, Stream]) -> Minibatch:
    for what, given in (("streams", minibatch.streams), ("layouts", minibatch.layouts)):
        if not isinstance(given, Mapping):
            raise RunError(f"{where}: its {what} are a {type(given).__name__}, not a dict by name")
        for name in given:
            if name not in streams:
                raise RunError(f"{where} has {what} called {name!r}{nearest(name, streams)}")
    for name in streams:
        if name not in minibatch.streams:
            raise RunError(f"{where}: the stream {name!r} is missing")
    for name, samples in minibatch.streams.items():
        check_samples(f"{where}: the stream {name!r}", samples, streams[name])
    for name, layout in minibatch.layouts.items():
        _check_layout(f"{where}: the layout of {name!r}", layout, minibatch.streams[name].lengths)
    if not any(len(samples.lengths) for samples in minibatch.streams.values()):
        raise RunError(f"{where} is empty: where an epoch ends, get_minibatch gives None")
    if minibatch.streams.keys() <= minibatch.layouts.keys():
        return minibatch
    return replace(minibatch, layouts=_derived(minibatch))


def _derived(minibatch: Minibatch) -> dict[str, Layout]:
    """The layouts of all streams."""
    layouts = dict(minibatch.layouts)
    for name in minibatch.streams.keys() - layouts.keys():
        lengths = minibatch.streams[name].lengths
        alike = (
            layout
            for other, layout in layouts.items()
            if np.array_equal(minibatch.streams[other].lengths, lengths)
        )
        layout = next(alike, None)
        layouts[name] = packed(lengths) if layout is None else layout
    return layouts


def check_samples(where: str, samples: Samples, stream: Stream) -> None:
    """That the arrays of a stream fit each other and its dimension.

    Raises:
        RunError, ShapeError: they do not; `where` is put before the message.
    """
    if not isinstance(samples, Samples):
        raise RunError(f"{where} is a {type(samples).__name__}, not a Samples")
    if not isinstance(samples.values, np.ndarray) or samples.values.dtype.kind not in "fiub":
        raise RunError(f"{where}: its values are {_kind(samples.values)}, not an array of numbers")
    values = samples.values
    if samples.first is None:
        rows = len(values) if values.ndim else 0
        if values.ndim != 2 or values.shape[1] != stream.dim:
            raise ShapeError(
                f"{where}: its values are of the shape {values.shape}, not (samples, {stream.dim})"
            )
    else:
        if values.ndim != 1:
            raise ShapeError(
                f"{where}: its values are of the shape {values.shape}, not (elements,)"
            )
        _check_bounds(f"{where}: first", samples.first, len(values), "elements")
        rows = len(samples.first) - 1
        _check_indices(f"{where}: indices", samples.indices, len(values), stream.dim)
    _check_bounds(f"{where}: begin", samples.begin, rows, "samples")


def _kind(array: object) -> str:
    if isinstance(array, np.ndarray):
        return f"an array of {array.dtype}"
    return f"a {type(array).__name__}"


def _check_whole(where: str, array: object) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim != 1:
        raise RunError(f"{where} is {_kind(array)}, not an array of whole numbers in a row")
    return array


def _check_bounds(where: str, array: object, count: int, what: str) -> None:
    """That an array cuts `count` rows into pieces."""
    bounds = _check_whole(where, array)
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != count or (bounds[1:] < bounds[:-1]).any():
        shown = " ".join(map(str, bounds[:4])) + (" ..." if len(bounds) > 5 else "")
        last = f" {bounds[-1]}" if len(bounds) > 4 else ""
        raise ShapeError(f"{where} is [{shown}{last}]; it goes up from 0 to the {count} {what}")


def _check_indices(where: str, array: object, count: int, dim: int) -> None:
    indices = _check_whole(where, array)
    if len(indices) != count:
        raise ShapeError(f"{where}: there are {len(indices)} for {count} values")
    if count and not 0 <= (wrong := _outside(indices, dim)) < dim:
        raise ShapeError(f"{where}: {wrong} is not below the dimension {dim}")


def _outside(numbers: np.ndarray, count: int) -> int:
    """A number that is not in 0 ... count - 1, or the largest of all."""
    low = int(numbers.min())
    return low if low < 0 else int(numbers.max())


def _check_layout(where: str, layout: Layout, lengths: np.ndarray) -> None:
    if not isinstance(layout, Layout):
        raise RunError(f"{where} is a {type(layout).__name__}, not a Layout")
    parts = [_check_whole(f"{where}: {n}", getattr(layout, n)) for n in ("slot", "begin", "end")]
    slot, begin, end = parts
    if any(len(part) != len(lengths) for part in parts):
        counts = ", ".join(str(len(part)) for part in parts)
        raise ShapeError(
            f"{where}: slot, begin, end are of {counts} sequences, the samples of {len(lengths)}"
        )
    if not len(slot):
        return
    if not 0 <= (wrong := _outside(slot, layout.parallel)) < layout.parallel:
        raise ShapeError(f"{where}: there is no slot {wrong} of {layout.parallel}")
    here = np.minimum(end, layout.steps) - np.maximum(begin, 0)
    if (here != lengths).any():
        number = int(np.flatnonzero(here != lengths)[0])
        raise ShapeError(
            f"{where}: sequence {number} takes {here[number]} of the {layout.steps} steps, it has"
            f" {lengths[number]} samples"
        )
    if layout.samples > 1 and bincount(layout.column).max() > 1:
        column = int(bincount(layout.column).argmax())
        raise ShapeError(
            f"{where}: two sequences share step {column // layout.parallel} of slot"
            f" {column % layout.parallel}"
        )
