"""Feature transforms of Kaldi's nnet1: what `featureTransform` of Kaldi2Reader names.

A file is `<Nnet>`, components, `</Nnet>`; a component is its type, its dimensions of output and
input, its data, and maybe `<!EndOfComponent>`. Source: Kaldi's `nnet/nnet-component.cc`,
`nnet-various.h`, `nnet-affine-transform.h`, `nnet-linear-transform.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Reader
from ....kaldi.tables.streams import open_reader

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class FeatureTransform:
    """Components that are applied to the frames of an utterance, one after the other.

    Attributes:
        path: of the file.
        dim: numbers of a frame before.
        components: from frames [n, numbers] to frames [n, numbers], float32.
    """

    path: str
    dim: int
    components: list[Function]

    @classmethod
    def read(cls, path: str) -> FeatureTransform:
        """Read a file, in text or binary.

        Raises:
            FormatError: it is damaged, has a component that is not known, or dimensions that do
                not fit together.
        """
        reader = open_reader(path)
        components: list[Function] = []
        first = last = 0
        if reader.peek_token() == "<Nnet>":
            reader.read_token()
        while not reader.at_end() and reader.peek_token() != "</Nnet>":
            start = reader.offset
            kind = reader.read_token()
            output, given = reader.read_int32(), reader.read_int32()
            if kind not in _READ:
                known = ", ".join(_READ)
                raise reader.error(f"a component {kind} is none of {known}", start)
            if components and given != last:
                raise reader.error(
                    f"{kind} takes frames of {given}, but the component before gives {last}", start
                )
            components.append(_READ[kind](reader, output, given))
            if reader.peek_token() == "<!EndOfComponent>":
                reader.read_token()
            first = first or given
            last = output
        if not components:
            raise reader.error("there is no component")
        return cls(path, first, components)

    def apply(self, frames: np.ndarray) -> np.ndarray:
        """The frames after all components.

        Raises:
            FormatError: they are of another size than the first component takes.
        """
        if frames.shape[1] != self.dim:
            raise FormatError(
                f"{self.path}: it takes frames of {self.dim} numbers, not of {frames.shape[1]}"
            )
        for component in self.components:
            frames = component(frames)
        return frames


def _options(reader: Reader) -> None:
    """Pass over learning rates and the like in front of the data."""
    while reader.peek_token() in ("<LearnRateCoef>", "<BiasLearnRateCoef>", "<MaxNorm>"):
        reader.read_token()
        reader.read_float()


def _check(reader: Reader, fits: bool, start: int, what: str) -> None:
    if not fits:
        raise reader.error(f"{what} does not fit the dimensions of the component", start)


def _splice(reader: Reader, output: int, given: int) -> Function:
    start = reader.offset
    offsets = reader.read_int_vector()
    _check(reader, len(offsets) * given == output, start, f"a window of {len(offsets)} frames")

    def apply(frames: np.ndarray) -> np.ndarray:
        places = np.arange(len(frames))[:, None] + offsets
        return frames[np.clip(places, 0, len(frames) - 1)].reshape(len(frames), -1)

    return apply


def _copy(reader: Reader, output: int, given: int) -> Function:
    start = reader.offset
    places = reader.read_int_vector() - 1
    fits = len(places) == output and output > 0 and 0 <= places.min() <= places.max() < given
    _check(reader, fits, start, f"a list of {len(places)} numbers")
    return lambda frames: frames[:, places]


def _vector(reader: Reader, dim: int) -> np.ndarray:
    start = reader.offset
    vector = reader.read_vector(np.float32)
    _check(reader, len(vector) == dim, start, f"a vector of {len(vector)}")
    return vector


def _shift(reader: Reader, output: int, given: int) -> Function:
    _options(reader)
    vector = _vector(reader, output)
    return lambda frames: frames + vector


def _scale(reader: Reader, output: int, given: int) -> Function:
    _options(reader)
    vector = _vector(reader, output)
    return lambda frames: frames * vector


def _linear(reader: Reader, output: int, given: int) -> Function:
    _options(reader)
    start = reader.offset
    matrix = reader.read_matrix(np.float32)
    what = f"a matrix of {len(matrix)} rows"
    _check(reader, matrix.shape == (output, given), start, what)
    return lambda frames: frames @ matrix.T


def _affine(reader: Reader, output: int, given: int) -> Function:
    product = _linear(reader, output, given)
    vector = _vector(reader, output)
    return lambda frames: product(frames) + vector


_READ: dict[str, Callable[[Reader, int, int], Function]] = {
    "<Splice>": _splice,
    "<Copy>": _copy,
    "<AddShift>": _shift,
    "<Rescale>": _scale,
    "<LinearTransform>": _linear,
    "<AffineTransform>": _affine,
    "<Sigmoid>": lambda reader, output, given: lambda frames: 1 / (1 + np.exp(-frames)),
    "<Tanh>": lambda reader, output, given: np.tanh,
}
