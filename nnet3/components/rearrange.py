"""Components without parameters that pass on, move, sum, clip or multiply columns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..files.kaldi_io import Reader
from .base import Component, KeepsDim, Properties, key, optional, required
from .fields import BOOL, DOUBLE, FLOAT, INT, INTS, VECTOR, Field, Kind
from .summary import flag, number

_P = Properties
_DIMS = (Field("<InputDim>", INT, "input_dim"), Field("<OutputDim>", INT, "output_dim"))
_DIM_KEYS = required(int, "input-dim", "output-dim")


class NoOpComponent(KeepsDim, Component):
    """y = x; the derivative is multiplied by `backprop_scale`."""

    fields = (
        Field("<Dim>", INT, "dim"),
        # Early versions were nonlinear components, with statistics that nobody reads.
        Field("<ValueAvg>", VECTOR, old=True),
        Field("<DerivAvg>", VECTOR, old=True),
        Field("<Count>", DOUBLE, old=True),
        Field("<OderivRms>", VECTOR, old=True),
        Field("<OderivCount>", DOUBLE, old=True),
        Field("<NumDimsSelfRepaired>", DOUBLE, old=True),
        Field("<NumDimsProcessed>", DOUBLE, old=True),
        Field("<BackpropScale>", FLOAT, "backprop_scale", default=1.0),
    )
    keys = (key("dim", int), *optional(float, backprop_scale=1.0))
    flags = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE

    def info(self) -> str:
        text = f"{self.type}, dim={self.dim}"
        if self.backprop_scale != 1:
            text += f", backprop-scale={number(self.backprop_scale)}"
        return text


class PnormComponent(Component):
    """The Euclidean norm of each group of input-dim / output-dim neighbouring columns."""

    fields = _DIMS
    keys = _DIM_KEYS
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_NEEDS_OUTPUT

    def check(self) -> None:
        check_divides(self)


def check_divides(component: Component) -> None:
    """Refuse an output dimension that does not divide the input dimension."""
    dim_in, dim_out = component.input_dim, component.output_dim
    component.demand(
        dim_in > 0 and dim_out > 0 and dim_in % dim_out == 0,
        f"output-dim={dim_out} does not divide input-dim={dim_in}",
    )


class ElementwiseProductComponent(Component):
    """The product of the input-dim / output-dim blocks of columns, element by element."""

    fields = _DIMS
    keys = _DIM_KEYS
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT

    def check(self) -> None:
        check_divides(self)
        self.demand(self.input_dim > self.output_dim, "at least two blocks are wanted")


class SumBlockComponent(Component):
    """The sum of the input-dim / output-dim blocks of columns, times `scale`."""

    fields = (*_DIMS, Field("<Scale>", FLOAT, "scale"))
    keys = (*_DIM_KEYS, *optional(float, scale=1.0))
    flags = _P.SIMPLE | _P.PROPAGATE_ADDS | _P.BACKPROP_ADDS

    def check(self) -> None:
        check_divides(self)

    def info(self) -> str:
        return f"{super().info()}, scale={number(self.scale)}"


class SumGroupComponent(Component):
    """The sums of groups of neighbouring columns; `sizes`: columns of each group."""

    fields = (Field("<Sizes>", INTS, "sizes"),)
    keys = (key("sizes", "ints", None), *optional(int, input_dim=None, output_dim=None))
    flags = _P.SIMPLE

    @property
    def input_dim(self) -> int:
        return sum(self.sizes)

    @property
    def output_dim(self) -> int:
        return len(self.sizes)

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        dims = o.input_dim, o.output_dim
        if o.sizes is not None:
            self.demand(dims == (None, None), "input-dim= and output-dim= do not go with sizes=")
            self.sizes = o.sizes
        else:
            self.demand(None not in dims, "wants sizes=, or input-dim= and output-dim=")
            self.demand(
                o.output_dim > 0 and o.input_dim > 0 and o.input_dim % o.output_dim == 0,
                f"output-dim={o.output_dim} does not divide input-dim={o.input_dim}",
            )
            self.sizes = [o.input_dim // o.output_dim] * o.output_dim

    def check(self) -> None:
        self.demand(bool(self.sizes) and min(self.sizes) > 0, "sizes must be positive")

    def read_close(self, reader: Reader) -> None:
        # Kaldi also takes an opening token at the end, which early versions wrote.
        self.closing = reader.expect_token(f"</{self.type}>", f"<{self.type}>")


def _read_map(reader: Reader) -> list[int]:
    """A column map; early versions wrote it as a vector of floats, and the last one wrongly."""
    if reader.binary and reader.peek() == "F":
        values = np.floor(reader.read_vector(np.float32) + 0.5).astype(int).tolist()
        return [*values[:-1], len(values) - 1]
    return reader.read_int_vector().tolist()


class PermuteComponent(KeepsDim, Component):
    """Output column i is input column `column_map[i]`."""

    fields = (Field("<ColumnMap>", Kind("ints", _read_map, INTS.write), "column_map"),)
    keys = (key("column-map", "columns"),)
    flags = _P.SIMPLE

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return len(self.column_map)

    def check(self) -> None:
        super().check()
        self.demand(
            sorted(self.column_map) == list(range(self.dim)),
            f"column-map is no permutation of 0 .. {self.dim - 1}",
        )

    def info(self) -> str:
        shown = "".join(f"{i} " for i in self.column_map[:5])
        more = "... " if self.dim > 5 else ""
        return f"{self.type}, dim={self.dim} , column-map=[ {shown}{more}]"


class ClipGradientComponent(KeepsDim, Component):
    """y = x; the derivative is clipped, by value or by the norm of each row."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<ClippingThreshold>", FLOAT, "clipping_threshold"),
        Field("<NormBasedClipping>", BOOL, "norm_based_clipping"),
        Field(
            "<SelfRepairClippedProportionThreshold>",
            FLOAT,
            "self_repair_clipped_proportion_threshold",
            default=1.0,
        ),
        Field("<SelfRepairTarget>", FLOAT, "self_repair_target", default=0.0),
        Field("<SelfRepairScale>", FLOAT, "self_repair_scale", default=0.0),
        Field("<NumElementsClipped>", INT, "num_clipped"),
        Field("<NumElementsProcessed>", INT, "count"),
        Field("<NumSelfRepaired>", INT, "num_self_repaired", default=0),
        Field("<NumBackpropped>", INT, "num_backpropped", default=0),
    )
    keys = (
        key("dim", int),
        key("norm-based-clipping", bool, False),
        *optional(
            float,
            clipping_threshold=15.0,
            self_repair_clipped_proportion_threshold=0.01,
            self_repair_target=0.0,
            self_repair_scale=1.0,
        ),
    )
    flags = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE | _P.BACKPROP_NEEDS_INPUT

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget how much was clipped."""
        self.num_clipped = self.count = self.num_self_repaired = self.num_backpropped = 0

    def check(self) -> None:
        super().check()
        for name in (
            "clipping_threshold",
            "self_repair_clipped_proportion_threshold",
            "self_repair_target",
            "self_repair_scale",
        ):
            option = name.replace("_", "-")
            self.demand(getattr(self, name) >= 0, f"{option} must not be negative")

    def info(self) -> str:
        proportion = np.float32(self.num_clipped) / np.float32(self.count) if self.count > 0 else 0
        text = (
            f"{self.type}, dim={self.dim}, norm-based-clipping={flag(self.norm_based_clipping)}"
            f", clipping-threshold={number(self.clipping_threshold)}"
            f", clipped-proportion={number(proportion)}"
        )
        if self.self_repair_scale != 0:
            threshold = self.self_repair_clipped_proportion_threshold
            text += (
                f", self-repair-clipped-proportion-threshold={number(threshold)}"
                f", self-repair-target={number(self.self_repair_target)}"
                f", self-repair-scale={number(self.self_repair_scale)}"
            )
        return text


class DistributeComponent(Component):
    """Spreads the input-dim / output-dim blocks of a row over that many rows (x of the index)."""

    fields = _DIMS
    keys = _DIM_KEYS

    def check(self) -> None:
        check_divides(self)
