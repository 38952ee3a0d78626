"""Components with a constant output, which may be trained."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import reducing
from .base.component import Properties, UpdatableComponent
from .base.dependence import NOTHING, Reads
from .base.fields import BOOL, INT, VECTOR, Field
from .base.initial import normal
from .base.keys import key, optional, required
from .base.lowering import OUT, OUT_DERIV, Recipe, X
from .base.preconditioning import FisherEstimate, precondition_sum
from .base.summary import flag, parameter_stats

_P = Properties


class _Constant(UpdatableComponent):
    """Base of components with a constant output: `output` [out]."""

    output: np.ndarray
    is_updatable_: bool
    use_natural_gradient: bool

    trained = ("output",)

    @property
    def output_dim(self) -> int:
        return self.output.size

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.output = normal(rng, o.output_dim, o.output_stddev, o.output_mean)
        self.is_updatable_ = o.is_updatable
        self.use_natural_gradient = o.use_natural_gradient

    @property
    def properties(self) -> Properties:
        return self.flags | (_P.UPDATABLE if self.is_updatable_ else _P(0))

    def _info(self, dims: str) -> str:
        return (
            f"{super().info()}, {self.type}, {dims}"
            f", is-updatable={flag(self.is_updatable_)}"
            f", use-natural-gradient={flag(self.use_natural_gradient)}"
            f"{parameter_stats('output', self.output, mean=True)}"
        )

    def precondition(self, recipe: Recipe) -> None:
        if self.is_updatable and self.use_natural_gradient:
            # Kaldi leaves the preconditioner as it is made: rank 40, an update with each batch.
            estimate = FisherEstimate(recipe, "output", 40, 1)
            precondition_sum(recipe, estimate, OUT_DERIV, len(self.output), "output")


_OUTPUT = (
    Field("<Output>", VECTOR, "output"),
    Field("<IsUpdatable>", BOOL, "is_updatable_"),
    Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
)
_OUTPUT_KEYS = (
    *optional(bool, is_updatable=True, use_natural_gradient=True),
    *optional(float, output_mean=0.0, output_stddev=0.0),
)


class ConstantFunctionComponent(_Constant):
    """A constant output of `output` [out] for each input row, whatever that holds."""

    own_fields = (Field("<InputDim>", INT, "input_dim"), *_OUTPUT)
    own_keys = (*required(int, "input-dim", "output-dim"), *_OUTPUT_KEYS)
    flags = _P.SIMPLE | _P.BACKPROP_ADDS

    @property
    def properties(self) -> Properties:
        same = self.input_dim == self.output_dim
        return super().properties | (_P.PROPAGATE_IN_PLACE if same else _P(0))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.input_dim = o.input_dim
        super().set_up(o, rng)

    def info(self) -> str:
        return self._info(f"input-dim={self.input_dim}, output-dim={self.output_dim}")

    def lower(self, recipe: Recipe) -> None:
        y = recipe.parameter("output", self.output, bool(self.is_updatable))
        recipe.op("nnet3.constant_rows", OUT, x=X, y=y)


class ConstantComponent(_Constant):
    """A constant output of `output` [out] that needs no input rows."""

    own_fields = _OUTPUT
    own_keys = (key("output-dim", int), *_OUTPUT_KEYS)

    @property
    def input_dim(self) -> int:
        return self.output.size

    def info(self) -> str:
        return self._info(f"output-dim={self.output_dim}")

    def reads(self) -> Reads:
        return NOTHING

    def lower(self, recipe: Recipe) -> None:
        y = recipe.parameter("output", self.output, bool(self.is_updatable))
        recipe.op("expand", OUT, attrs={"shape": [recipe.rows, len(self.output)]}, x=y)


constant_rows = operator(
    "nnet3.constant_rows",
    doc="The vector y [D] in every row: out [N, D], with as many rows as x [N, K].",
    inputs=[
        Slot("x", "[N, K]", shape_only=True, not_in_gradient=True),
        Slot("y", "[D]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    source="Kaldi: nnet3/nnet-simple-component.cc",
)


@constant_rows.shape_rule
def constant_rows_shape(s: ShapeArgs) -> None:
    s.set("out", ((s.rank("x", 2)[0], s.rank("y", 1)[0]), s.floats("y")))


@constant_rows.kernel
def constant_rows_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["out"], k["y"])


@constant_rows.backward("y")
def constant_rows_grad_kernel(k: KernelArgs) -> Call:
    return in_order(reducing(k.xp, k["out_grad"], k["y_grad"]))
