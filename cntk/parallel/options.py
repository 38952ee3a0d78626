"""The section `ParallelTrain` of an SGD section.

Source: CNTK's `SGDLib/SGD.cpp` (SGDParams).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ..config.parameters import ConfigParameters
from ..config.value import ArgVector

NONE, GRADIENTS, AVERAGING, BLOCKS = "none", "gradients", "averaging", "block momentum"
ASYNCHRONOUS = "asynchronous"
_METHODS = {
    "": NONE,
    "none": NONE,
    "dataparallelsgd": GRADIENTS,
    "modelaveragingsgd": AVERAGING,
    "blockmomentumsgd": BLOCKS,
    "dataparallelasgd": ASYNCHRONOUS,
}
_SECTIONS = {
    GRADIENTS: "DataParallelSGD",
    AVERAGING: "ModelAveragingSGD",
    BLOCKS: "BlockMomentumSGD",
    ASYNCHRONOUS: "DataParallelASGD",
}
_RAMPS = ("none", "linearly", "staircase")
_OWN_SAMPLES = {AVERAGING: 40000, BLOCKS: 120000}
_OLD_NAMES = {AVERAGING: ("syncFrequencyInFrames", "syncPeriod"), BLOCKS: ("syncPeriod",)}


@dataclass(frozen=True)
class ParallelOptions:
    """How ranks train together.

    Attributes:
        method: "none"; "gradients": the gradients of each minibatch are summed; "averaging": ranks
            train apart and average their parameters after each block of samples; "block momentum":
            the same, with momentum from block to block; "asynchronous": ranks train apart and add
            their changes to shared parameters, each in its own time.
        first_epoch: from which on, counted from 0; before, all ranks train on all data.
        distributed: whether readers give each rank its own part of the data; None: all but
            legacy ones.
        stats_every: exchanges between two lines about the time they take; 0: no lines.
        bits: of a gradient's element on its way, by epoch.
        zero_threshold: whether 1 bit tells the sign; if not, on which side of the mean.
        buffered: whether the sums of a minibatch are used one minibatch later.
        block: samples of all ranks in a block. of_rank: of one rank, where that is what was given.
        reset_momentum: of the learner, after each block.
        nesterov: whether a block begins ahead by the momentum of blocks.
        block_rate: learning rate of blocks.
        time_constant: of the momentum of blocks, in samples; None: by `block_momentum`.
        block_momentum: None: 1 - 1 / ranks.
        period: samples of a rank after which it brings its change, by epoch.
        pipelined: whether a rank continues while its change is on the way, with what the exchange
            before gave.
        ramp: how the share of a change that is brought grows at the start of the training: "none":
            it is 1; "linearly", "staircase". ramp_start: with which share. ramp_length: changes
            until it is 1, or of a stair.
    """

    method: str = NONE
    first_epoch: int = 0
    distributed: bool | None = None
    stats_every: int = 0
    bits: ArgVector[int] = field(default_factory=lambda: ArgVector([64]))
    zero_threshold: bool = True
    buffered: bool = False
    block: int | None = None
    of_rank: int = 0
    reset_momentum: bool = True
    nesterov: bool = True
    block_rate: float = 1.0
    time_constant: float | None = None
    block_momentum: float | None = None
    period: ArgVector[int] = field(default_factory=lambda: ArgVector([256]))
    pipelined: bool = False
    ramp: str = "none"
    ramp_start: float = 0.1
    ramp_length: int = 256

    @classmethod
    def of(cls, sgd: ConfigParameters) -> ParallelOptions:
        """The settings of the section in an SGD section; the defaults where there is none.

        Raises:
            FormatError: a value is wrong, or two contradict.
        """
        if not sgd.has("ParallelTrain"):  # parallelTrain = true of the top level is something else
            return cls()
        section = sgd.section("ParallelTrain")
        method = _method(section)
        first = section.int("parallelizationStartEpoch", 1) - 1
        if first < 0:
            raise section["parallelizationStartEpoch"].error(
                "parallelizationStartEpoch must be greater or equal to 1"
            )
        shares = None
        if section.has("distributedMBReading"):
            shares = section.bool("distributedMBReading", False)
        whole = 64 if sgd.string("precision", "float").lower() == "double" else 32
        options = cls(
            method,
            first,
            shares,
            section.int("syncPerfStats", 0),
            ArgVector([whole]),
        )
        name = _SECTIONS.get(method)
        for other, its in _SECTIONS.items():
            section.only_if(method == other, f"parallelizationMethod is {name or NONE}", its)
        if name is None or not section.has(name):
            return options._with_block(None, method)
        part = section.section(name)
        if method == GRADIENTS:
            return options._with_gradients(part, whole)
        if method == ASYNCHRONOUS:
            return options._with_server(part)
        options = options._with_block(part, method)
        return options._with_momentum(part) if method == BLOCKS else options

    def _with_gradients(self, part: ConfigParameters, whole: int) -> ParallelOptions:
        bits = part.array("gradientBits", str(whole)).ints()
        for number in bits:
            if not 1 <= number <= whole or number & (number - 1):
                raise part["gradientBits"].error(
                    "gradientBits values must be in the range [1, 32] when using precision=float"
                    " and in range [1, 64] when using precision=double, and powers of two"
                )
        return replace(
            self,
            bits=bits,
            zero_threshold=part.bool("useZeroThresholdFor1BitQuantization", True),
            buffered=part.bool("useBufferedAsyncGradientAggregation", False),
        )

    def _with_server(self, part: ConfigParameters) -> ParallelOptions:
        period = part.array("syncPeriod", "256").ints()
        if min(period, default=0) < 1:
            raise part["syncPeriod"].error("a rank trains on at least one sample between exchanges")
        ramp = self._with_ramp(part)
        pipelined = part.bool("UsePipeline", False)
        if part.bool("SimModelAverage", False):
            # All ranks exchange at the same time, and go on from their mean.
            return replace(self, method=AVERAGING, of_rank=period[0])
        return replace(ramp, period=period, pipelined=pipelined)

    def _with_ramp(self, part: ConfigParameters) -> ParallelOptions:
        if not part.has("AdjustLearningRateAtBeginning"):
            return self
        ramp = part.section("AdjustLearningRateAtBeginning")
        kind = ramp.string("adjustType", "staircase").lower()
        if kind not in _RAMPS:
            raise ramp["adjustType"].error(
                "Invalid Type. Valid values are (None | Linearly | Staircase)"
            )
        length = ramp.int("adjustPerMinibatches", 256)
        if length < 1:
            raise ramp["adjustPerMinibatches"].error("adjustPerMinibatches is at least 1")
        start = ramp.float("adjustCoefficient", 0.1)
        return replace(self, ramp=kind, ramp_start=start, ramp_length=length)

    def _with_block(self, part: ConfigParameters | None, method: str) -> ParallelOptions:
        if method not in _OWN_SAMPLES:
            return self
        names = ("blockSize", "blockSizePerWorker", *_OLD_NAMES[method])
        given = [name for name in names if part is not None and part.has(name)]
        if len(given) > 1:
            assert part is not None
            raise part[given[1]].error(f"{given[0]} and {given[1]} say the same: give one of them")
        if part is None or not given:
            return replace(self, of_rank=_OWN_SAMPLES[method])
        size = part.size(given[0])
        if size < 1:
            raise part[given[0]].error("a block has at least one sample")
        if given[0] == "blockSize":
            return replace(self, block=size)
        return replace(self, of_rank=size)

    def _with_momentum(self, part: ConfigParameters) -> ParallelOptions:
        constant = momentum = None
        if part.has("blockMomentumAsTimeConstant"):
            constant = part.float("blockMomentumAsTimeConstant")
            if not 0 <= constant < math.inf:
                raise part["blockMomentumAsTimeConstant"].error("it is a number from 0 on")
        if part.has("blockMomentumPerSync"):
            if constant is not None:
                raise part["blockMomentumPerSync"].error(
                    "It is only allowed to set either blockMomentumPerSync or"
                    " blockMomentumAsTimeConstant, not both of them"
                )
            momentum = part.float("blockMomentumPerSync")
            if not 0 <= momentum < 1:
                raise part["blockMomentumPerSync"].error("it is a number from 0 on, below 1")
        return replace(
            self,
            reset_momentum=part.bool("resetSGDMomentum", True),
            nesterov=part.bool("useNesterovMomentum", True),
            block_rate=part.float("blockLearningRate", 1.0),
            time_constant=constant,
            block_momentum=momentum,
        )

    def block_of(self, ranks: int) -> int:
        """Samples of all ranks in a block."""
        return self.of_rank * ranks if self.block is None else self.block

    def share_of_change(self, number: int) -> float:
        """The part of a change that is brought; `number`: of the exchange, from 1."""
        if self.ramp == "none":
            return 1.0
        if self.ramp == "linearly":
            share = self.ramp_start + (1 - self.ramp_start) / self.ramp_length * number
        else:
            share = self.ramp_start * (number // self.ramp_length + 1)
        return min(1.0, max(0.0, share))

    def momentum_of(self, ranks: int) -> float:
        """The momentum from block to block.

        A time constant is the number of samples after which 1 / e of a block's change is left.
        """
        if self.time_constant is not None:
            constant = self.time_constant
            return math.exp(-self.block_of(ranks) / constant) if constant else 0.0
        return 1 - 1 / ranks if self.block_momentum is None else self.block_momentum


def _method(section: ConfigParameters) -> str:
    name = section.string("parallelizationMethod", "none")
    if name.lower() not in _METHODS:
        raise section["parallelizationMethod"].error(
            f"Invalid Parallelization Method {name!r}. Valid values are (none | DataParallelSGD |"
            " ModelAveragingSGD | BlockMomentumSGD | DataParallelASGD)"
        )
    return _METHODS[name.lower()]
