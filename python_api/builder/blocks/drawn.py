"""Numbers drawn at random, as many as another variable has."""

from __future__ import annotations

from ....framework.base.errors import ShapeError
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var, as_var


@builder_method
def randn_like(
    builder: NetBuilder,
    x: Var | str,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    name: str = "",
) -> Var:
    """Numbers from a normal distribution, in the shape and dtype of x.

    `gaussian_random(x, shape=[-1, 8])` draws rows of 8, as many as x has.

    Args:
        x: any shape; its values are not read.
        mean, std: of the distribution.
        seed: 0: the run's random state; else the seed of a new generator in each run.

    Raises:
        ShapeError: the rank of x is not known.
    """
    rank = _rank(builder, x)
    dtype = as_var(builder, x).dtype or builder.dtype
    options = {"mean": mean, "std": std, "seed": seed, "name": name}
    return builder.gaussian_random(x, shape=[-1] * rank, dtype=dtype, **options)


@builder_method
def rand_like(
    builder: NetBuilder,
    x: Var | str,
    *,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
    name: str = "",
) -> Var:
    """Numbers drawn evenly from [low, high), in the shape and dtype of x; see `randn_like`."""
    rank = _rank(builder, x)
    dtype = as_var(builder, x).dtype or builder.dtype
    options = {"low": low, "high": high, "seed": seed, "name": name}
    return builder.uniform_random(x, shape=[-1] * rank, dtype=dtype, **options)


@builder_method
def bernoulli(builder: NetBuilder, p: Var | str, *, seed: int = 0, name: str = "") -> Var:
    """1 with probability p, else 0, in the shape and dtype of p, element by element.

    No gradient flows to p. `bernoulli_random(x, shape=[-1, 8], p=0.1)` has one p for all.

    Args:
        p: probabilities, any shape. seed: see `randn_like`.
    """
    p = builder.stop_gradient(p)
    below = builder.less(rand_like(builder, p, seed=seed), p)
    return builder.cast(below, dtype=p.dtype or builder.dtype, name=name)


def _rank(builder: NetBuilder, x: Var | str) -> int:
    shape = as_var(builder, x).shape
    if shape is None:
        raise ShapeError(f"the rank of {str(x)!r} is not known; declare its shape")
    return len(shape)
