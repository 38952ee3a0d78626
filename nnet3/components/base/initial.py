"""Components before training: parameters and the settings that config lines leave open.

Parameters are drawn at random, or read from files that config lines name.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import AttributeTypeError
from ....framework.base.untrusted.values import check_fill
from ....kaldi.files.kaldi_io import Reader

_PIECE = 1 << 20  # numbers that are drawn as doubles at once


def generator_of(rng: np.random.Generator | int | None) -> np.random.Generator:
    """A generator, or the generator of a seed; None: of a seed that differs each time.

    Raises:
        AttributeTypeError: it is something else.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        message = f"rng: want a generator of NumPy, a seed or None, not {rng!r}: {error}"
        raise AttributeTypeError(message[:500]) from error


def normal(
    rng: np.random.Generator, shape: int | tuple[int, ...], stddev: float = 1.0, mean: float = 0.0
) -> np.ndarray:
    """Normally distributed parameters, float32.

    Raises:
        ValueError: a size that is not positive, or a negative deviation.
        FormatError: more numbers than the limit `fill` allows.
    """
    stddev = abs(stddev) if stddev == 0 else stddev  # NumPy refuses -0.0
    sizes = (shape,) if isinstance(shape, int) else shape
    if min(sizes) <= 0:
        raise ValueError(f"dimensions must be positive, not {' x '.join(map(str, sizes))}")
    if not stddev >= 0:
        raise ValueError("a standard deviation must not be negative")
    check_fill(sizes, np.dtype(np.float32).itemsize, "random parameters")
    drawn = np.empty(sizes, np.float32)
    flat = drawn.reshape(-1)
    for begin in range(0, flat.size, _PIECE):
        part = flat[begin : begin + _PIECE]
        part[:] = rng.normal(mean, stddev, part.size)
    return drawn


def default_ranks(o: SimpleNamespace, dim_in: int, dim_out: int, most_in: int = 20) -> None:
    """Ranks of the natural gradient that a config line leaves open, from the dimensions."""
    if o.rank_in < 0:
        o.rank_in = min(most_in, (dim_in + 1) // 2)
    if o.rank_out < 0:
        o.rank_out = min(80, (dim_out + 1) // 2)


def refuse_beside(name: str, o: SimpleNamespace, *others: str) -> None:
    """Refuse keys of a config line that the file under `name` makes useless."""
    for other in others:
        if getattr(o, other, None) is not None:
            raise ValueError(f"{other.replace('_', '-')}= does not go with {name}=")


def read_matrix_file(path: str) -> np.ndarray:
    """The float32 matrix in a file that a config line names."""
    return Reader(path).read_matrix(np.float32)


def read_vector_file(path: str) -> np.ndarray:
    """The float32 vector in a file that a config line names."""
    return Reader(path).read_vector(np.float32)


def split_bias(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Linear parameters and bias from a matrix whose last column is the bias."""
    if matrix.shape[1] < 2:
        raise ValueError(f"a matrix with a last column for the bias is wanted, not {matrix.shape}")
    return matrix[:, :-1].copy(), matrix[:, -1].copy()
