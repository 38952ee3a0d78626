"""Loss scaling: the gradients of a loss times a factor, which half precision can hold.

The backward pass begins with the factor in place of 1. After it comes one operator that looks
whether all gradients are finite, and one that adapts the factor; the optimizer pass undoes the
factor before clipping and updates, and leaves everything as it was where a gradient is not finite.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...base.errors import AttributeTypeError
from ...ir.desc import OPTIMIZE, STATE, caller_location, make_op, make_var
from ...ir.names import CHECK_OP, FINITE, LOSS_SCALE, LOSS_SCALE_STEPS, RESCALE_OP, UNSCALE
from ...ir.op_list import OpNode, VarDecl

# As in torch.amp.GradScaler; a factor that is too large costs a skipped step for each halving.
_INITIAL = 65536.0


@dataclass(frozen=True)
class LossScale:
    """The factor of a loss whose gradients are computed in half precision.

    Attributes:
        initial: the factor that training begins with.
        dynamic: whether it is adapted; steps whose gradients are not finite are then skipped.
        growth_interval: steps with finite gradients after which it is raised.
        growth_factor: what it is then multiplied by.
        backoff_factor: what it is multiplied by after a step that was skipped.
    """

    initial: float = _INITIAL
    dynamic: bool = True
    growth_interval: int = 2000
    growth_factor: float = 2.0
    backoff_factor: float = 0.5

    def __post_init__(self) -> None:
        number = isinstance(self.initial, (int, float)) and not isinstance(self.initial, bool)
        if not number or not 0 < self.initial < float("inf"):
            raise AttributeTypeError(
                f"loss scale: it must be above 0, not {self.initial!r}; LossScale() begins at"
                f" {_INITIAL:g} and is dynamic"
            )


def as_loss_scale(value: LossScale | str | float | None) -> LossScale | None:
    """A `LossScale` of what a caller gives: "dynamic", a number that stays, or None.

    Raises:
        AttributeTypeError: something else.
    """
    if value is None or isinstance(value, LossScale):
        return value
    if value == "dynamic":
        return LossScale()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return LossScale(float(value), dynamic=False)
    raise AttributeTypeError(f'loss_scale wants a number, "dynamic" or a LossScale, not {value!r}')


def scale_vars(scale: LossScale) -> list[VarDecl]:
    """The states of loss scaling: the factor and, where it is adapted, the steps since a change."""
    numbers = [(LOSS_SCALE, "float32", scale.initial)]
    if scale.dynamic:
        numbers.append((LOSS_SCALE_STEPS, "int64", 0.0))
    source = caller_location()
    variables = []
    for name, dtype, value in numbers:
        attrs = {"shape": [], "dtype": make_var(name, (), dtype).dtype, "value": float(value)}
        fill = make_op("fill_constant", {}, {"out": name}, attrs)
        variables.append(make_var(name, (), dtype, STATE, initializer=fill, source=source))
    return variables


def scale_ops(scale: LossScale, gradients: Iterable[str]) -> list[OpNode]:
    """Operators after the backward pass: the check of all gradients, and the next factor."""
    source = caller_location()
    checked = {"factor": UNSCALE}
    inputs = {"x": list(gradients), "scale": LOSS_SCALE}
    if not scale.dynamic:
        return [make_op(CHECK_OP, inputs, checked, role=OPTIMIZE, source=source)]
    checked["finite"] = FINITE
    reads = {"scale": LOSS_SCALE, "steps": LOSS_SCALE_STEPS, "finite": FINITE}
    writes = {"scale_out": LOSS_SCALE, "steps_out": LOSS_SCALE_STEPS}
    attrs = {
        "growth_factor": scale.growth_factor,
        "backoff_factor": scale.backoff_factor,
        "growth_interval": scale.growth_interval,
    }
    return [
        make_op(CHECK_OP, inputs, checked, role=OPTIMIZE, source=source),
        make_op(RESCALE_OP, reads, writes, attrs, role=OPTIMIZE, source=source),
    ]
