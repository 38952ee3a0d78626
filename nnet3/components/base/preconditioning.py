"""Natural gradient in recipes: the building blocks of `Component.precondition`.

Kaldi preconditions inside a component's backprop, in one of three ways:

- a product of two matrices, W's gradient = (output derivative)' input: the rows of both factors;
- a sum over rows, the gradient of a vector: the rows that are summed;
- the gradient itself, where all rows share one small matrix: its rows, or rows and columns.

Each way is a few operators here; the result is scaled so that the norms stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .keys import Computed, optional
from .lowered_op import LoweredOp
from .lowering import FROZEN, OUT_DERIV, PARAMETER, Recipe, X, deriv_of

NATURAL_GRADIENT_KEYS = (
    *optional(float, num_samples_history=2000.0, alpha=4.0),
    *optional(
        int,
        rank_in=Computed("min(20, (input-dim + 1) / 2)", -1),
        rank_out=Computed("min(80, (output-dim + 1) / 2)", -1),
        update_period=4,
    ),
)


class FisherEstimate:
    """The settings of one preconditioner of a component, and its variables in a recipe."""

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        rank: int,
        period: int,
        alpha: float = 4.0,
        samples: float = 2000.0,
        batches: float = 0.0,
    ) -> None:
        self.recipe = recipe
        self.name = name
        self.rank = int(rank)
        self.attrs = {
            "update_period": int(period),
            "alpha": float(alpha),
            "samples_history": float(samples),
            "batches_history": float(batches),
        }

    def apply(self, source: str, cols: int, summed: bool = False) -> tuple[str, tuple[str, ...]]:
        """The preconditioned rows of `source`, which has `cols` columns, and their scale.

        `summed`: they are not samples, but each a sum over samples, as in a gradient.
        """
        rank = min(self.rank, cols - 1)
        if rank < 1:  # there is only one direction
            return source, ()
        recipe = self.recipe
        first = {
            "w": np.zeros((rank, cols), np.float32),
            "d": np.zeros(rank, np.float32),
            "rho": np.zeros(1, np.float32),
            "count": np.zeros(1, np.int64),
        }
        state = {slot: recipe.saved(f"{self.name}_{slot}", a) for slot, a in first.items()}
        out, scale = recipe.temp(), recipe.temp()
        recipe.natural.append(
            LoweredOp.of(
                "nnet3.precondition",
                {"x": source, "frozen": FROZEN} | state,
                {"out": out, "scale": scale} | {f"{s}_out": var for s, var in state.items()},
                self.attrs | ({"summed": True} if summed else {}),
            )
        )
        return out, (scale,)


def add_natural(
    recipe: Recipe,
    op_type: str,
    inputs: Mapping[str, str | Sequence[str]],
    outputs: Mapping[str, str],
    attrs: Any = None,
) -> None:
    """Append an operator of natural gradient; slots without a variable are left out."""
    present = {slot: names for slot, names in inputs.items() if names}
    recipe.natural.append(LoweredOp.of(op_type, present, outputs, attrs))


def parameter_deriv(recipe: Recipe, name: str) -> str:
    """The variable of a parameter's gradient."""
    return deriv_of(PARAMETER + recipe.path + name)


def precondition_product(
    recipe: Recipe,
    before: FisherEstimate,
    after: FisherEstimate,
    shape: tuple[int, int],
    names: tuple[str, str | None],
    splice: Any = None,
) -> None:
    """W's gradient [M, K] from the spliced input [N, K] and the output derivative [N, M]."""
    weight, bias = names
    units, width = shape
    source = X
    if bias or splice:
        source = recipe.temp()
        attrs = {"ones": bool(bias)} | (splice or {})
        add_natural(recipe, "nnet3.splice_rows", {"x": X}, {"out": source}, attrs)
    x, scale_in = before.apply(source, width + bool(bias))
    grad, scale_out = after.apply(OUT_DERIV, units)
    outputs = {"w_grad": parameter_deriv(recipe, weight)}
    if bias:
        outputs["b_grad"] = parameter_deriv(recipe, bias)
    scales = scale_in + scale_out
    add_natural(recipe, "nnet3.scaled_product", {"x": x, "grad": grad, "scale": scales}, outputs)


def precondition_sum(
    recipe: Recipe, estimate: FisherEstimate, source: str, width: int, name: str
) -> None:
    """A vector's gradient [D]: the sum over rows and blocks of `source` [N, B*D], `width` = D."""
    folded = recipe.temp()
    add_natural(recipe, "reshape", {"x": source}, {"out": folded}, {"shape": [-1, width]})
    rows, scale = estimate.apply(folded, width)
    outputs = {"b_grad": parameter_deriv(recipe, name)}
    add_natural(recipe, "nnet3.scaled_product", {"grad": rows, "scale": scale}, outputs)


def own_gradients(recipe: Recipe, *names: str) -> tuple[str, ...]:
    """The plain gradients of some parameters as separate variables, which may be changed."""
    recipe.plain |= {recipe.path + name: recipe.temp() for name in names}
    return tuple(recipe.plain[recipe.path + name] for name in names)


def joined_gradients(recipe: Recipe) -> str:
    """The plain gradients of linear parameters and bias side by side: [M, K+1]."""
    w, b = own_gradients(recipe, "linear_params", "bias_params")
    column, joined = recipe.temp(), recipe.temp()
    add_natural(recipe, "reshape", {"x": b}, {"out": column}, {"shape": [-1, 1]})
    add_natural(recipe, "concat", {"x": (w, column)}, {"out": joined}, {"axis": 1})
    return joined


def split_gradients(recipe: Recipe, joined: str, scale: tuple[str, ...]) -> None:
    """The gradients of linear parameters and bias from the result of `joined_gradients`."""
    outputs = {
        "w_grad": parameter_deriv(recipe, "linear_params"),
        "b_grad": parameter_deriv(recipe, "bias_params"),
    }
    add_natural(recipe, "nnet3.scaled_parts", {"x": joined, "scale": scale}, outputs)
