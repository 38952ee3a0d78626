"""The SGD section of a config.

Source: CNTK's `SGDLib/SGD.cpp` (SGDParams).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.options.option_fields import option
from ..base.text import located
from ..config.parameters import ConfigParameters
from ..config.value import ArgVector
from ..network.kinds.criteria import SEQUENCE_OPTIONS
from ..operators.updates.learning import GRADIENT_UPDATES
from ..parallel.options import ParallelOptions
from ..run.tracing import names_of
from .plugged import plugged_attributes

# Attribute -> parameter and default.
_ATTRIBUTES = {
    "fs_adagrad": {
        "variance_time_constant": ("varianceTimeConstant", 720000.0),
        "target_denominator": ("fsAdagradTargetAvDenom", 1.0),
    },
    "rms_prop": {
        "gamma": ("rms_gamma", 0.99),
        "increase": ("rms_wgt_inc", 1.2),
        "decrease": ("rms_wgt_dec", 0.75),
        "largest": ("rms_wgt_max", 10.0),
        "smallest": ("rms_wgt_min", 0.1),
    },
}
_SEARCHES = {
    "false": "none",
    "none": "none",
    "searchbeforeepoch": "before",
    "beforeepoch": "before",
    "before": "before",
    "adjustafterepoch": "after",
    "afterepoch": "after",
    "after": "after",
}
_MOMENTA = ("momentumPerSample", "momentumPerMB", "momentumAsTimeConstant")
_SAMPLES_OF_SEARCH = 500  # minibatches
_LARGEST_RATE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class AutoAdjust:
    """How learning rate and minibatch size follow the criterion: the section `AutoAdjust`.

    Attributes:
        rate: "none"; "before": the rate is searched before each epoch; "after": it is adjusted
            after each epoch.
        decrease_below, increase_above: relative improvement of the criterion below which the rate
            decreases by `decrease_factor`, above which it increases by `increase_factor`.
        continue_reduce: from the first decrease on decrease after each epoch; stop at the second
            time that the criterion improves too little.
        interval: epochs between two adjustments.
        load_best: go back to the last model if the criterion got worse.
        use_validation, use_evaluation: whether the criterion on the validation data decides (if
            there are any), and the evaluation node instead of the training criterion.
        previous_rates, fine_epochs: of the search: how many rates of epochs before it starts from;
            in how many epochs it continues after the first rate that does.
        samples: in a trial, by epoch.
        minibatch: whether to look for larger minibatches.
        minibatch_every, minibatch_most: in which epochs, and up to which size.
        minibatch_margin: percent that the criterion may get worse.
    """

    rate: str = "none"
    decrease_below: float = option(0.0, name="reduceLearnRateIfImproveLessThan")
    increase_above: float = option(math.inf, name="increaseLearnRateIfImproveMoreThan")
    decrease_factor: float = 0.618
    increase_factor: float = 1.382
    continue_reduce: bool = option(False, name="continueReduce")
    interval: int = 1
    load_best: bool = option(True, name="loadBestModel")
    use_validation: bool = option(True, name="UseCVSetControlLRIfCVExists")
    use_evaluation: bool = option(False, name="UseEvalCriterionControlLR")
    previous_rates: int = 5
    fine_epochs: int = option(1, name="numBestSearchEpoch")
    samples: ArgVector[int] = field(default_factory=lambda: ArgVector([256 * _SAMPLES_OF_SEARCH]))
    minibatch: bool = option(False, name="autoAdjustMinibatch")
    minibatch_every: int = 1
    minibatch_most: int = option(1048576, name="minibatchSizeTuningMax")
    minibatch_margin: int = option(1, name="minibatchSearchCriterionErrorMargin")


@dataclass(frozen=True)
class SgdOptions:
    """The settings of an SGD section. Arrays have a value for each epoch; the last one also holds
    for all later epochs.

    Attributes:
        epochs: how many.
        minibatch_size: in samples (of all parallel sequences together).
        epoch_size: in samples; None: all there are.
        rates, rates_per: learning rates, for minibatches of these sizes.
        momenta, momenta_per: momentum, for minibatches of these sizes.
        learner: type of the operator that updates parameters, without "cntk."; or the name of a
            learner that is plugged in.
        learner_attrs: its attributes.
        noise: standard deviation of noise on parameters after an update; 0 = none.
        clip, clip_norm: largest gradient of a sample, inf = any; of its norm, not of its elements.
        l1, l2: weights of penalties.
        l1_l2_of_batch_norm: whether they apply to scale and bias of batch normalization.
        dropout: rates. norm_time, norm_blend: time constants of batch normalization, in samples.
        sequence: attributes of the sequence criterion.
        min_rate: below it (per sample) training ends.
        adjust: see `AutoAdjust`.
        sub_minibatches, samples_in_memory: parts in which a minibatch is computed, or how large
            they may be.
        truncated: whether sizes refer to truncated sequences (older readers).
        precompute_all: statistics from all data, not from one epoch.
        check_gradients, check_digits: compare gradients with differences, how exactly.
        show_every, show_first: minibatches between two lines of the log, and how many at the start
            of an epoch are shown one by one.
        keep_checkpoints: of all epochs.
        adaptation: weight of a reference model's output in the labels; 0 = none.
        criterion, evaluation: names of nodes, "" = from the network's groups.
        trace_level: 0 = no lines about minibatches.
        traced: nodes whose values are shown, and how; see `cntk/run/tracing.py`.
        parallel: how ranks train together.
    """

    epochs: int
    minibatch_size: ArgVector[int]
    epoch_size: int | None = None
    rates: ArgVector[float] = field(default_factory=lambda: ArgVector([]))
    rates_per: ArgVector[int] = field(default_factory=lambda: ArgVector([1]))
    momenta: ArgVector[float] = field(default_factory=lambda: ArgVector([0.9]))
    momenta_per: ArgVector[int] = field(default_factory=lambda: ArgVector([256]))
    learner: str = "momentum_sgd"
    learner_attrs: dict[str, Any] = field(default_factory=dict)
    noise: float = option(0.0, name="gaussianNoiseInjectStd")
    clip: float = option(math.inf, name="clippingThresholdPerSample")
    clip_norm: bool = False
    l1: float = option(0.0, name="L1RegWeight")
    l2: float = option(0.0, name="L2RegWeight")
    l1_l2_of_batch_norm: bool = True
    dropout: ArgVector[float] = field(default_factory=lambda: ArgVector([0.0]))
    norm_time: ArgVector[float] = field(default_factory=lambda: ArgVector([0.0]))
    norm_blend: ArgVector[float] = field(default_factory=lambda: ArgVector([0.0]))
    sequence: dict[str, float] = field(default_factory=dict)
    min_rate: float = option(1e-9, name="minLearningRatePerSample")
    adjust: AutoAdjust = AutoAdjust()
    sub_minibatches: int = 1
    samples_in_memory: int | None = None
    truncated: bool = option(False, name="truncated")
    precompute_all: bool = option(True, name="UseAllDataForPreComputedNode")
    check_gradients: bool = False
    check_digits: float = 6.0
    show_every: int = option(10, name="numMBsToShowResult")
    show_first: int = option(0, name="firstMBsToShowResult")
    keep_checkpoints: bool = option(False, name="keepCheckPointFiles")
    adaptation: float = 0.0
    criterion: str = option("", name="trainCriterionNodeName")
    evaluation: str = option("", name="evalCriterionNodeName")
    trace_level: int = option(0, name="traceLevel")
    traced: dict[str, str] = field(default_factory=dict)
    parallel: ParallelOptions = ParallelOptions()

    @classmethod
    def of(cls, section: ConfigParameters) -> SgdOptions:
        """The settings of an SGD section.

        Raises:
            FormatError: something is missing, wrong, or contradicts.
        """
        sizes = section.array("minibatchSize", "256").ints()
        epoch_size = section.int("epochSize", 0) or None
        for size in sizes:
            if size <= 0:
                raise section["minibatchSize"].error("a minibatch has at least one sample")
            if epoch_size is not None and epoch_size < size:
                raise section["epochSize"].error("epoch size must be larger than mbsize.")
        rates, rates_per = _rates(section, sizes)
        momenta, momenta_per = _momenta(section, sizes)
        learner, attrs = _learner(section)
        adjust = _adjust(section, sizes)
        if adjust.rate == "none" and not len(rates):
            section.complain(
                located(
                    FormatError,
                    "If autoLearnRateSearchType is false you must specify the "
                    "learningRatesPerSample or learningRatesPerMB parameter.",
                    section.text.locate(),
                )
            )
        check = section.bool("gradientcheck", False)
        section.only_if(check, "gradientcheck is false", "sigFigs")
        if check and section.string("precision", "float").lower() != "double":
            raise section["gradientcheck"].error(
                "Gradient check needs to use precision = 'double'."
            )
        kl = section.string("adaptationRegType", "None").lower()
        if kl not in ("", "none", "kl", "klreg"):
            raise section["adaptationRegType"].error(
                "Invalid Adaptation Regularization Type. Valid values are (none | kl)"
            )
        section.only_if(kl.startswith("kl"), "adaptationRegType is none", "adaptationRegWeight")
        weight = section.float("adaptationRegWeight", 0.0) if kl.startswith("kl") else 0.0
        if not 0 <= weight <= 1:
            raise section["adaptationRegWeight"].error("adaptationRegWeight must be in [0 1]")
        epochs = section.int("maxEpochs")
        if epochs < 0:
            raise section["maxEpochs"].error("there cannot be less than no epochs")
        most = section.size("maxSamplesInRAM", 2**64 - 1)
        return cls(
            **section.options(cls),
            epochs=epochs,
            minibatch_size=sizes,
            epoch_size=epoch_size,
            rates=rates,
            rates_per=rates_per,
            momenta=momenta,
            momenta_per=momenta_per,
            learner=learner,
            learner_attrs=attrs,
            clip_norm=not section.bool("gradientClippingWithTruncation", True),
            l1_l2_of_batch_norm=not section.bool("disableRegInBatchNormalization", False),
            dropout=_within(section, "dropoutRate"),
            norm_time=section.array("batchNormalizationTimeConstant", "0").floats(),
            norm_blend=section.array("batchNormalizationBlendTimeConstant", "0").floats(),
            sequence={
                name: getattr(section, spec.type)(name, spec.default)
                for name, spec in SEQUENCE_OPTIONS.items()
            },
            adjust=adjust,
            sub_minibatches=max(section.int("numSubminibatches", 1), 1),
            samples_in_memory=None if most >= 2**63 else most,
            check_gradients=check,
            check_digits=section.float("sigFigs", 6.0) if check else 6.0,
            adaptation=weight,
            traced=names_of(section),
            parallel=ParallelOptions.of(section),
        )

    def rate(self, epoch: int, parallel: int = 1) -> float:
        """Learning rate per sample of an epoch; `parallel`: sequences side by side, where sizes are
        lengths (`truncated`)."""
        size = self.effective(self.rates_per[epoch], parallel)
        return float(np.float32(self.rates[epoch]) / np.float32(size))

    def momentum(self, epoch: int, parallel: int = 1) -> float:
        """Momentum of one sample."""
        size = self.effective(self.momenta_per[epoch], parallel)
        return float(np.float32(self.momenta[epoch])) ** (1.0 / size)

    def effective(self, size: int, parallel: int) -> int:
        """Samples in a minibatch, where `size` may be its length."""
        return size * max(parallel, 1) if self.truncated and size > 1 else size


def _given(section: ConfigParameters, name: str) -> ArgVector[float]:
    return section.array(name, "").floats()


def _rates(
    section: ConfigParameters, sizes: ArgVector[int]
) -> tuple[ArgVector[float], ArgVector[int]]:
    of_sample = _given(section, "learningRatesPerSample")
    of_minibatch = _given(section, "learningRatesPerMB")
    if len(of_sample) and len(of_minibatch):
        raise section["learningRatesPerMB"].error(
            "You specified both learningRatesPerSample and learningRatesPerMB. Please comment out "
            "one of them."
        )
    for name, values in (("PerSample", of_sample), ("PerMB", of_minibatch)):
        if any(not 0 <= value <= _LARGEST_RATE for value in values):
            raise section[f"learningRates{name}"].error(
                "a learning rate is a finite number, not below 0"
            )
    return (of_minibatch, sizes) if len(of_minibatch) else (of_sample, ArgVector([1]))


def _momenta(
    section: ConfigParameters, sizes: ArgVector[int]
) -> tuple[ArgVector[float], ArgVector[int]]:
    given = {name: _given(section, name) for name in _MOMENTA}
    named = [name for name in _MOMENTA if len(given[name])]
    if len(named) > 1:
        raise section[named[-1]].error(
            "You specified more than one of momentumPerSample, momentumPerMB, and "
            "momentumAsTimeConstant. Please only specify one."
        )
    name = named[0] if named else "momentumPerMB"
    values = list(given[name]) or [0.9]
    if name == "momentumAsTimeConstant":
        values = [math.exp(-1 / constant) if constant else 0.0 for constant in values]
    if any(not 0 <= value < 1 for value in values):
        raise section[name].error("Momentum parameter must be in [0, 1).")
    return ArgVector(values), sizes if name == "momentumPerMB" else ArgVector([1])


def _within(section: ConfigParameters, name: str) -> ArgVector[float]:
    values = section.array(name, "0").floats()
    if any(not 0 <= value < 1 for value in values):
        raise section[name].error(f"{name} must be >= 0 and < 1.")
    return values


def _learner(section: ConfigParameters) -> tuple[str, dict[str, Any]]:
    name = section.string("gradUpdateType", "None").lower()
    own = GRADIENT_UPDATES.get(name)
    plugged = {} if own else plugged_attributes(section, name)
    learner = own or name
    if own and section.bool("useAdagrad", False):
        learner = "adagrad"
    for other, attributes in _ATTRIBUTES.items():
        names = [parameter for parameter, _ in attributes.values()]
        section.only_if(learner == other, f"the learner is {learner}", *names)
    scaled = learner in ("adagrad", "rms_prop")
    section.only_if(scaled, f"the learner is {learner}", "normWithAveMultiplier")
    section.only_if(learner == "momentum_sgd", f"the learner is {learner}", "useNAG")
    if learner == "momentum_sgd" and section.bool("useNAG", False):
        return "nesterov", {}
    attrs = plugged | {
        attribute: section.float(parameter, default)
        for attribute, (parameter, default) in _ATTRIBUTES.get(learner, {}).items()
    }
    if scaled:
        attrs["average"] = section.bool("normWithAveMultiplier", True)
    return learner, attrs


def _adjust(section: ConfigParameters, sizes: ArgVector[int]) -> AutoAdjust:
    given = "AutoAdjust" in section
    part = section.section("AutoAdjust") if given else section.empty("AutoAdjust")
    name = part.string("autoAdjustLR", "None").lower()
    if name not in _SEARCHES:
        raise part["autoAdjustLR"].error(
            "Invalid learning rate search type. Valid values are (none | searchBeforeEpoch | "
            "adjustAfterEpoch)"
        )
    decrease = part.float("learnRateDecreaseFactor", 0.618)
    increase = part.float("learnRateIncreaseFactor", 1.382)
    if decrease > 1 or increase < 1:
        raise located(
            FormatError,
            "learnRateIncreaseFactor must be >= 1 and learnRateDecreaseFactor must be <= 1.",
            part.text.locate(),
        )
    by_count = "numMiniBatch4LRSearch" in part
    part.only_if(not by_count, "numMiniBatch4LRSearch says how many", "numSamples4Search")
    if by_count:
        counts = part.array("numMiniBatch4LRSearch").ints()
        samples = ArgVector([count * sizes[i] for i, count in enumerate(counts)])
    elif "numSamples4Search" in part:
        samples = part.array("numSamples4Search").ints()
    else:
        samples = ArgVector([size * _SAMPLES_OF_SEARCH for size in sizes])
    return AutoAdjust(
        **part.options(AutoAdjust),
        rate=_SEARCHES[name],
        decrease_factor=decrease,
        increase_factor=increase,
        interval=max(part.int("learnRateAdjustInterval", 1), 1),
        previous_rates=max(part.int("numPrevLearnRates", 5), 1),
        samples=samples,
        minibatch_every=max(part.int("minibatchSizeTuningFrequency", 1), 1),
    )
