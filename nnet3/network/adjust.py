"""Changes to a whole network: learning rates, scale, test mode, converted components.

Source: `SetLearningRate`, `ScaleNnet`, `SetBatchnormTestMode`, `SetDropoutTestMode` and
`ConvertRepeatedToBlockAffine` in Kaldi's `nnet3/nnet-utils.cc`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np

from ...framework.base.errors import ShapeError
from ..components import Component, UpdatableComponent
from ..components.batch_norm import BatchNormComponent
from ..components.composite import CompositeComponent
from ..components.dropout import RandomComponent
from ..components.products.block_affine import BlockAffineComponent, RepeatedAffineComponent
from .nnet import Nnet

# Sums over training data; they scale with the parameters, so that averages of models are right.
STATISTICS: Final = (
    "value_sum",
    "deriv_sum",
    "oderiv_sumsq",
    "count",
    "oderiv_count",
    "num_dims_self_repaired",
    "num_dims_processed",
    "self_repair_total",
    "stats_sum",
    "stats_sumsq",
    "entropy_stats",
    "posterior_stats",
    "stats_count",
    "num_clipped",
    "num_zeroed",
    "count_zeroing_boundaries",
)


def set_learning_rate(nnet: Nnet, rate: float) -> None:
    """Set the learning rate of all updatable components; each multiplies it by its own factor."""
    for component in nnet.components.values():
        if component.is_updatable and isinstance(component, UpdatableComponent):
            component.set_learning_rate(rate)


def scale(nnet: Nnet, factor: float) -> None:
    """Multiply all parameters, and all statistics, by a factor. 0 also clears NaN and infinity."""
    if factor == 1:
        return
    for component in _all_components(nnet):
        names = component.trained if component.is_updatable else ()
        for name in (*names, *STATISTICS):
            if name in vars(component):
                setattr(component, name, _scaled(getattr(component, name), factor))


def add(nnet: Nnet, other: Nnet, factor: float) -> None:
    """Add `factor` times the parameters and statistics of another network of the same structure.

    Raises:
        ShapeError: the structures differ.
    """
    pairs = zip(_all_components(nnet), _all_components(other), strict=False)
    if len(nnet.components) != len(other.components):
        raise ShapeError(
            f"networks of {len(nnet.components)} and {len(other.components)} components"
        )
    for component, source in pairs:
        if component.type != source.type or component.num_parameters != source.num_parameters:
            raise ShapeError(
                f"{component.type} with {component.num_parameters} parameters and {source.type}"
                f" with {source.num_parameters} cannot be added"
            )
        names = component.trained if component.is_updatable else ()
        for name in (*names, *STATISTICS):
            if name in vars(source):
                both = getattr(component, name), _scaled(getattr(source, name), factor)
                setattr(component, name, _sum(*both))


def _sum(value: Any, other: Any) -> Any:
    if isinstance(value, np.ndarray) and value.size != np.size(other):  # statistics of one alone
        return other if not value.size else value
    return value + other


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, np.ndarray):
        return np.zeros_like(value) if factor == 0 else value * value.dtype.type(factor)
    product = float(np.float32(factor)) * value
    return int(product) if isinstance(value, int) else product


def _all_components(nnet: Nnet) -> Iterator[Component]:
    """All components, with the parts of composite ones in place of these."""
    for component in nnet.components.values():
        if isinstance(component, CompositeComponent):
            yield from component.components
        else:
            yield component


def set_batchnorm_test_mode(nnet: Nnet, on: bool, but: Collection[str] = ()) -> None:
    """Let batch normalization use its statistics (on), or the batch's (off).

    Args:
        but: components that take the other mode.
    """
    for name, component in nnet.components.items():
        if isinstance(component, BatchNormComponent):
            component.test_mode = on != (name in but)


def without_statistics(nnet: Nnet) -> list[str]:
    """The batch-norm components that have not seen any data, and so cannot be in test mode."""
    return [
        name
        for name, component in nnet.components.items()
        if isinstance(component, BatchNormComponent) and not component.count
    ]


def set_dropout_test_mode(nnet: Nnet, on: bool) -> None:
    """Let components with random output stop (on), or go on (off), being random."""
    for component in nnet.components.values():
        if isinstance(component, RandomComponent):
            component.test_mode = on


def convert_repeated_to_block(nnet: Nnet) -> int:
    """Turn components with one affine transform for all blocks of columns into
    BlockAffineComponents, which have one for each; returns how many."""
    count = 0
    for name, component in nnet.components.items():
        if isinstance(component, RepeatedAffineComponent):
            nnet.components[name] = _as_block(component)
            count += 1
        elif isinstance(component, CompositeComponent):
            for i, part in enumerate(component.components):
                if isinstance(part, RepeatedAffineComponent):
                    component.components[i] = _as_block(part)
                    count += 1
    return count


def _as_block(repeated: RepeatedAffineComponent) -> BlockAffineComponent:
    block = BlockAffineComponent()
    block.copy_configs(repeated)
    block.num_blocks = repeated.num_repeats
    block.linear_params = np.tile(repeated.linear_params, (block.num_blocks, 1))
    block.bias_params = np.tile(repeated.bias_params, block.num_blocks)
    return block
