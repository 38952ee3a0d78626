"""Learning rates and minibatch sizes found by trial, before an epoch begins.

Each trial trains on a part of an epoch and goes back to where it began. Source: CNTK's
`SGDLib/SGD.cpp`; minibatch sizes: Seide, Fu, Droppo, Li and Yu, "On parallelizability of stochastic
gradient descent for speech DNNs", ICASSP 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .epoch import EpochResult, EpochRunner
from .report import Total, general, totals_text

_GOLDEN = 0.618
_FACTOR = np.sqrt(np.float32(2))  # in float32, as sizes are


@dataclass
class Trials:
    """Training on trial.

    Attributes:
        runner: runs epochs.
        snapshot: saves parameters and states, and returns a function that restores them.
    """

    runner: EpochRunner
    snapshot: Callable[[], Callable[[], None]]

    def samples(self, epoch: int) -> int:
        """Samples of a trial."""
        options = self.runner.options
        samples = options.adjust.samples[epoch]
        return samples if options.epoch_size is None else min(samples, options.epoch_size)

    def run(self, epoch: int, rate: float, size: int, prefix: str) -> Total:
        """Train on trial; returns the criterion."""
        back = self.snapshot()
        result: EpochResult = self.runner.run(
            epoch, rate, size, prefix=f"  {prefix}", samples=self.samples(epoch)
        )
        names = [node.name for node in [self.runner.criterion, *self.runner.evaluations]]
        line = totals_text([result.criterion, *result.evaluations], names)
        self.runner.say(
            f" Finished Mini-Epoch[{epoch + 1}]: {line}learningRatePerSample = {general(rate)};"
            f" minibatchSize = {size}\n"
        )
        back()
        return result.criterion


def search_rate(trials: Trials, epoch: int, largest: float, previous: float) -> float:
    """The largest learning rate per sample, in steps of the golden section, that lowers the
    criterion; in the first epochs the best around it.

    Args:
        largest: of the rates of some epochs before; 0 or less where there are none.
        previous: the criterion of the epoch before; inf where there is none.
    """
    options = trials.runner.options
    size = options.minibatch_size[epoch]
    rate = 1.0 / 8.0 / _GOLDEN / math.sqrt(size)
    if largest > 0:
        rate = largest / _GOLDEN / _GOLDEN
    base = trials.run(epoch, 0.0, size, "BaseAdaptiveLearnRateSearch:").average
    before = base if math.isinf(previous) else previous
    share = 0.3
    if options.epoch_size is not None:
        share = math.sqrt(trials.samples(epoch) / options.epoch_size)
    base = max(share * before + (1 - share) * base, base)
    while True:
        rate *= _GOLDEN
        average = trials.run(epoch, rate, size, "AdaptiveLearnRateSearch:").average
        worse = math.isnan(average) or average > base
        if not worse or (not math.isnan(average) and rate <= options.min_rate * 0.3):
            break
    if epoch < options.adjust.fine_epochs:
        rate = _between(trials, epoch, 0.01 / size, rate, average)
    trials.runner.say(
        f" SearchForBestLearnRate Epoch[{epoch + 1}]: Best learningRatePerSample = "
        f"{general(rate, 10)}, baseCriterion={general(base, 10)}\n"
    )
    return rate


def _between(trials: Trials, epoch: int, left: float, right: float, right_value: float) -> float:
    """The better end of a range of rates that closes in on the smaller criterion."""
    size = trials.runner.options.minibatch_size[epoch]
    left_value = trials.run(epoch, left, size, "DetailBaseAdaptiveLearnRateSearch:").average
    while right > left * 1.2:
        if right_value > left_value:
            right *= _GOLDEN
            prefix = "DetailRightAdaptiveLearnRateSearch:"
            right_value = trials.run(epoch, right, size, prefix).average
        else:
            left /= _GOLDEN
            prefix = "DetailLeftAdaptiveLearnRateSearch:"
            left_value = trials.run(epoch, left, size, prefix).average
    return left if left_value < right_value else right


def choose_minibatch(trials: Trials, epoch: int, rate: float, change: float, previous: int) -> int:
    """The minibatch size of an epoch.

    Args:
        rate: learning rate per sample.
        change: how much the rate has changed since the first epoch, as a factor.
        previous: the size chosen for the epoch before; 0 where there is none.
    """
    runner = trials.runner
    options = trials.runner.options
    least = options.minibatch_size[epoch]
    if change < 1:  # a smaller rate allows for larger minibatches
        least = int(least / math.sqrt(change))
    if epoch < 2 and previous:
        runner.say(
            f" Before Epoch[2], previous minibatchSize {previous} is considered invalid -> "
            "resetting.\n"
        )
        previous = 0
    every = options.adjust.minibatch_every
    if previous and epoch + 1 > every and (epoch + 1) % every:
        runner.say(
            " AdaptiveMinibatchSearch: Search for a better minibatchSize in epoch "
            f"{epoch + 1} skipped, keeping minibatchSize of {previous}\n"
        )
        return previous
    most = options.adjust.minibatch_most
    if previous:
        least = max(least, previous // 2)
        most = min(most, previous * 2)
    return most if least > most else _search_minibatch(trials, epoch, rate, least, most)


def _search_minibatch(trials: Trials, epoch: int, rate: float, least: int, most: int) -> int:
    runner = trials.runner
    trace = runner.options.trace_level > 0
    margin = runner.options.adjust.minibatch_margin
    head = f" AdaptiveMinibatchSearch Epoch[{epoch + 1}]:"
    span = f"{_rounded(least)}..{_rounded(most)}"
    runner.say(f"{head} Evaluating minibatchSizes {span}\n")
    size = np.float32(least)
    good = 0
    good_value = 0.0
    base = math.nan
    while size <= most:
        trial = _rounded(float(size))
        if trace:
            runner.say(f"{head} Evaluating trial minibatchSize={trial} (search range: {span})...\n")
        first = not good
        prefix = "BaseAdaptiveMinibatchSearch:" if first else "AdaptiveMinibatchSearch:"
        value = trials.run(epoch, rate, trial, prefix).average
        if first:
            base = value
            if trace:
                runner.say(f"{head} Computed baseCriterion {base:.8f} for minibatchSize={trial}\n")
        elif not math.isnan(value) and value > base * (1 + margin / 100):
            break
        good, good_value = trial, value
        size *= _FACTOR
        if trace and not first and size <= most:
            runner.say(
                f"{head} Keep searching... epochCriterion = {value:.8f} vs. baseCriterion = "
                f"{base:.8f}\n"
            )
    if trace:
        runner.say(
            f"{head} Search successful. New minibatchSize is {good}. epochCriterion = "
            f"{good_value:.8f} vs baseCriterion = {base:.8f}\n"
        )
    return good


def _rounded(size: float) -> int:
    """A multiple of 64, at least that."""
    return max(64 * int((float(size) + 32) / 64), 64)
