"""Random components, and their test mode, in which they are deterministic."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .base import Component, KeepsDim, Properties, key, optional
from .elementwise import check_block
from .fields import BOOL, FLAG, FLOAT, INT, Field
from .summary import flag, number

_P = Properties
_RANDOM = _P.RANDOM | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE | _P.USES_MEMO


def _proportion(component: Component, name: str) -> None:
    value = getattr(component, name)
    component.demand(0 <= value <= 1, f"{name.replace('_', '-')}={value} is not between 0 and 1")


class RandomComponent(Component):
    """A component whose output is random unless `test_mode` is set."""

    abstract = True
    test_mode: bool


class DropoutComponent(KeepsDim, RandomComponent):
    """Zeroes elements (or whole rows, `dropout_per_frame`) with probability
    `dropout_proportion` and scales the others up."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field("<DropoutPerFrame>", BOOL, "dropout_per_frame", default=False),
        Field("<TestMode>", BOOL, "test_mode", default=False),
    )
    keys = (
        key("dim", int),
        key("dropout-proportion", float),
        *optional(bool, dropout_per_frame=False, test_mode=False),
    )
    flags = (
        _P.BACKPROP_IN_PLACE
        | _P.SIMPLE
        | _P.BACKPROP_NEEDS_INPUT
        | _P.BACKPROP_NEEDS_OUTPUT
        | _P.RANDOM
    )

    def check(self) -> None:
        super().check()
        _proportion(self, "dropout_proportion")

    def info(self) -> str:
        return (
            f"{self.type}, dim={self.dim}, dropout-proportion={number(self.dropout_proportion)}"
            f", dropout-per-frame={flag(self.dropout_per_frame)}"
        )


class DropoutMaskComponent(RandomComponent):
    """A dropout mask without any input: zeros and ones, or uniform if `continuous`."""

    fields = (
        Field("<OutputDim>", INT, "output_dim"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field("<TestMode>", BOOL, "test_mode", default=False),
        Field("<Continuous>", FLAG, "continuous", default=False),
    )
    keys = (
        key("output-dim", int),
        *optional(float, dropout_proportion=0.5),
        *optional(bool, continuous=False, test_mode=False),
    )
    flags = _P.RANDOM

    @property
    def input_dim(self) -> int:
        return self.output_dim

    def info(self) -> str:
        text = f"{self.type}, output-dim={self.output_dim}"
        text += f", dropout-proportion={number(self.dropout_proportion)}"
        return text + (", continuous=true" if self.continuous else "")


class GeneralDropoutComponent(KeepsDim, RandomComponent):
    """Dropout with one mask for each sequence, or for each `time_period` frames of it; masks have
    `block_dim` columns and repeat; or SpecAugment's masks over columns."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<BlockDim>", INT, "block_dim"),
        Field("<TimePeriod>", INT, "time_period"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field(
            "<SpecAugmentMaxProportion>",
            FLOAT,
            "specaugment_max_proportion",
            default=0.0,
            when=lambda c: c.specaugment_max_proportion != 0,
        ),
        Field(
            "<SpecAugmentMaxRegions>",
            INT,
            "specaugment_max_regions",
            default=1,
            when=lambda c: c.specaugment_max_proportion != 0 and c.specaugment_max_regions != 1,
        ),
        Field("<TestMode>", FLAG, "test_mode", default=False),
        Field("<Continuous>", FLAG, "continuous", default=False),
    )
    keys = (
        key("dim", int),
        key("block-dim", int, None),
        *optional(int, time_period=0, specaugment_max_regions=1),
        *optional(float, dropout_proportion=0.5, specaugment_max_proportion=0.0),
        *optional(bool, continuous=False, test_mode=False),
    )

    @property
    def properties(self) -> Properties:
        blocks = self.block_dim != self.dim
        return _RANDOM | (_P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS if blocks else _P(0))

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.block_dim = o.dim if o.block_dim is None else o.block_dim

    def check(self) -> None:
        check_block(self.dim, self.block_dim)
        _proportion(self, "specaugment_max_proportion")
        if self.specaugment_max_proportion != 0:
            self.demand(not self.continuous, "continuous= does not go with SpecAugment")
            self.demand(self.specaugment_max_regions >= 1, "specaugment-max-regions is below 1")

    def info(self) -> str:
        text = (
            f"{self.type}, dim={self.dim}, block-dim={self.block_dim}"
            f", dropout-proportion={number(self.dropout_proportion)}"
        )
        if self.continuous:
            text += ", continuous=true"
        if self.specaugment_max_proportion != 0:
            text += f", specaugment-max-proportion={number(self.specaugment_max_proportion)}"
            text += f", specaugment-max-regions={self.specaugment_max_regions}"
        return text + (f", time-period={self.time_period}" if self.time_period > 0 else "")


class SpecAugmentTimeMaskComponent(KeepsDim, RandomComponent):
    """Zeroes stretches of up to `time_mask_max_frames` rows, `zeroed_proportion` of all."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<ZeroedProportion>", FLOAT, "zeroed_proportion"),
        Field("<TimeMaskMaxFrames>", INT, "time_mask_max_frames"),
        Field("<TestMode>", FLAG, "test_mode", default=False),
    )
    keys = (
        key("dim", int),
        *optional(float, zeroed_proportion=0.25),
        *optional(int, time_mask_max_frames=10),
    )
    flags = _RANDOM

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.test_mode = False

    def check(self) -> None:
        super().check()
        _proportion(self, "zeroed_proportion")
        self.demand(self.time_mask_max_frames > 1, "time-mask-max-frames must be above 1")

    def info(self) -> str:
        return (
            f"{self.type}, dim={self.dim}, zeroed-proportion={number(self.zeroed_proportion)}"
            f", time-mask-max-frames={self.time_mask_max_frames}"
        )
