"""Training over epochs: schedules, learning-rate control, checkpoints, validation.

Source: CNTK's `SGDLib/SGD.cpp` (TrainOrAdaptModel).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...framework.base.errors import FormatError, RunError
from ..models.checkpoint import Checkpoint, RateControl
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..parallel.ranks import Ranks
from ..parallel.saved import gather_states, own_states, saved_changes, take_changes
from ..readers.base.pack import Minibatch
from ..readers.base.reader import DataReader
from ..run.runtime import CntkNet
from ..run.tracing import trace
from .criteria import criteria_of
from .epoch import EpochResult, EpochRunner, Prepare
from .evaluate import Evaluator
from .files import ModelFiles
from .gradient_check import GradientCheck
from .job import JobProgress
from .options import AutoAdjust, SgdOptions
from .precompute import precompute
from .report import Say, general, to_stderr, totals_text
from .schedules import Schedules, set_attribute
from .search import Trials, choose_minibatch, search_rate
from .updates import Updates, learning_parameters, without_penalty

_SMALLEST_RATE = 1e-12


@dataclass
class Control:
    """The state that continues from epoch to epoch.

    Attributes:
        rate: learning rate per sample.
        previous: criterion at the last adjustment of the rate.
        average: criterion since then, averaged.
        left_out: epochs before a restart, which the average does not hold.
        reduced: whether the rate has begun to fall (`continueReduce`).
        factor: by which a search changed the rate.
        rates: of the epochs before.
        samples: seen so far.
        minibatch: size of the last epoch's minibatches.
    """

    rate: float
    minibatch: int
    previous: float = math.inf
    average: float = math.inf
    left_out: int = 0
    reduced: bool = False
    factor: float = 1.0
    rates: list[float] = field(default_factory=list)
    samples: int = 0

    def saved(self, adjust: AutoAdjust, done: int) -> RateControl | None:
        """The state for a restart after `done` epochs, besides rate and criterion."""
        inside = adjust.rate == "after" and done % adjust.interval
        average = self.average if inside else math.inf
        rates = tuple(self.rates) if adjust.rate == "before" else ()
        if not (inside or rates or self.reduced):
            return None
        return RateControl(average, self.reduced, rates)

    def take(self, saved: RateControl) -> None:
        """Go on from there."""
        self.reduced = saved.reduced
        if not math.isinf(saved.average):
            self.average = saved.average
            self.left_out = 0
        if len(saved.rates) == len(self.rates):
            self.rates = list(saved.rates)


class Trainer:
    """Trains a network.

    Args:
        net: to train.
        options: the SGD section.
        reader, validation: the data.
        files: where models and checkpoints go.
        start: epochs that are done already, by `ModelFiles.start`; -1 for a new network.
        prepare: called with each minibatch before it is used.
        say: takes the lines of the log.
        progress: called with how far the training is.
        ranks: that train together; None: this one alone.

    Raises:
        VariableError: there is no training criterion, or it is no number.
    """

    def __init__(
        self,
        net: CntkNet,
        options: SgdOptions,
        reader: DataReader,
        validation: DataReader | None,
        files: ModelFiles,
        *,
        start: int = -1,
        prepare: Prepare | None = None,
        say: Say = to_stderr,
        progress: JobProgress | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks
        self.net = net
        self.options = options
        self.files = files
        self.say = say
        self.reader = reader
        self.validation = validation
        self.loaded = start >= 0
        self.start = max(start, 0)
        trace(net, options.traced, say)
        criterion, evaluations = self._nodes()
        parameters = learning_parameters(net.network, criterion)
        plain = frozenset() if options.l1_l2_of_batch_norm else without_penalty(net.network)
        self.updates = Updates(options, parameters, net.dtype, plain)
        self.updates.reset(net.scope)
        self.runner = EpochRunner(
            net,
            options,
            reader,
            criterion,
            evaluations,
            self.updates,
            self._prepare(prepare, criterion, parameters),
            say,
            progress,
            ranks=ranks,
        )
        self.schedules = Schedules(net, criterion, options, say)

    def _nodes(self) -> tuple[Node, list[Node]]:
        criteria, evaluations = criteria_of(self.net.network, self.options)
        self.say("\n")
        self._list("Training criterion:   ", "Training criteria:\n", criteria)
        if evaluations:
            self._list("Evaluation criterion: ", "\nEvaluation criteria:\n", evaluations)
        return criteria[0], evaluations

    def _list(self, one: str, several: str, nodes: list[Node]) -> None:
        lines = [f"{node.name} = {node.operation}" for node in nodes]
        if len(lines) == 1:
            self.say(f"{one}{lines[0]}\n")
        else:
            self.say(several + "".join(f"\t{line}\n" for line in lines))

    def _prepare(
        self, given: Prepare | None, criterion: Node, parameters: list[Node]
    ) -> Prepare | None:
        if not self.options.check_gradients:
            return given
        digits = self.options.check_digits
        check = GradientCheck(self.net, criterion, parameters, digits, self.say)

        def both(minibatch: Minibatch) -> None:
            if given is not None:
                given(minibatch)
            check(minibatch)

        return both

    # -- the whole training --------------------------------------------------------------------

    def train(self) -> None:
        """Train from the first epoch that is not done to the last.

        Raises:
            RunError: a criterion is not a number.
            FormatError: a checkpoint does not fit, or the data are wrong.
            SaveError: a model or checkpoint cannot be written.
        """
        try:
            self._train()
        finally:
            self.files.wait()

    def _train(self) -> None:
        options, files = self.options, self.files
        self._announce()
        size = options.minibatch_size[0]
        epoch_size = None if options.precompute_all else options.epoch_size
        trace = options.trace_level
        if precompute(self.net, self.reader, size, epoch_size, self.say, trace) or not self.loaded:
            files.save(self.net, files.model(self.start))
        control = self._first_control()
        epoch = self.start
        loss = 0.0
        while epoch < options.epochs:
            began = time.perf_counter()
            self._wait()
            self.schedules.set(epoch, None if self.ranks is None else self.ranks.seed_number(epoch))
            self._choose_rate(control, epoch)
            if control.rate < options.min_rate:
                self._stop_at(control.rate, epoch)
                break
            size = self._choose_size(control, epoch)
            self._say_start(control.rate, epoch, size)
            result = self.runner.run(epoch, control.rate, size)
            control.samples += result.criterion.samples
            loss = result.criterion.average
            self._say_end(control, epoch, result, time.perf_counter() - began)
            value = self._control_value(epoch, result)
            rolled = self._adjust(control, epoch, value)
            if rolled is None:
                break
            epoch = self._save(control, epoch, size, rolled) + 1
            if control.rate < _SMALLEST_RATE:
                self.say(
                    f"learnRate per sample is reduced to {general(control.rate)} which is below "
                    "1e-12. stop training.\n"
                )
        if self.runner.progress is not None:
            self.runner.progress.trained(options.epochs, loss)
        self._wait()

    def _wait(self) -> None:
        """Wait for the other ranks: the main one may still be writing a model."""
        if self.ranks is not None:
            self.files.wait()
            self.ranks.barrier()

    def _announce(self) -> None:
        learning = self.updates.parameters
        count = sum(rules.size(node.shape) for node in learning)
        self.say(f"\nTraining {count} parameters in {len(learning)} ")
        if self.options.trace_level == 0:
            self.say("parameter tensors.\n\n")
            return
        needing = [
            node for node in self.net.network.below([self.runner.criterion]) if node.needs_gradient
        ]
        self.say(
            f"out of {len(learning)} parameter tensors and {len(needing)} nodes with gradient:\n\n"
        )
        for node in learning:
            self.say(f"\tNode '{node.name}' ({node.operation} operation)")
            self.say(f" : [{rules.text(node.shape)}]\n")
        self.say("\n")

    def _first_control(self) -> Control:
        options, epoch = self.options, self.start
        size = options.minibatch_size[epoch]
        interval = options.adjust.interval
        control = Control(0.5 / size, size, left_out=epoch % interval)
        control.rates = [-1.0] * options.adjust.previous_rates
        loaded = False
        if epoch > 0:
            state = self.files.read_state(epoch)
            if state is None:
                self.say(
                    "Warning: Checkpoint file is missing. Parameter-learning state (such as "
                    "momentum) will be reset.\n"
                )
                control.previous = 0.0
            else:
                self._take(control, state)
                control.rates[epoch % len(control.rates)] = control.rate
                if state.control is not None:
                    control.take(state.control)
                loaded = True
        if options.adjust.rate == "after" and not loaded and len(options.rates) <= epoch:
            raise FormatError(
                'When using "AdjustAfterEpoch", there must either exist a checkpoint file, or an '
                "explicit learning rate must be specified in config for the starting epoch."
            )
        return control

    def _take(self, control: Control, state: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.updates.load(self.net.scope, own_states(state, self.ranks))
        take_changes(self.net.scope, self.updates.parameters, state.blocks)
        control.samples = state.samples
        control.rate = state.rate
        control.previous = state.criterion
        control.minibatch = state.minibatch or control.minibatch

    # -- before an epoch -----------------------------------------------------------------------

    def _choose_rate(self, control: Control, epoch: int) -> None:
        options = self.options
        if options.adjust.rate == "none" or epoch < len(options.rates):
            control.rate = options.rate(epoch, self.reader.parallel)
        elif options.adjust.rate == "before":
            old = control.rate
            largest = max(control.rates)
            control.rate = search_rate(self._trials(), epoch, largest, control.previous)
            control.factor = control.rate / old
            control.rates[epoch % len(control.rates)] = control.rate

    def _choose_size(self, control: Control, epoch: int) -> int:
        options = self.options
        if not options.adjust.minibatch or epoch < len(options.minibatch_size):
            return options.minibatch_size[epoch]
        change = control.factor
        if len(options.rates):
            slots = self.reader.parallel
            change *= options.rate(epoch, slots) / options.rate(0, slots)
        size = choose_minibatch(self._trials(), epoch, control.rate, change, control.minibatch)
        if options.trace_level < 1 and size != control.minibatch:
            self.say(f"Minibatch size adapted to {size}.\n")
        control.minibatch = size
        return size

    def _stop_at(self, rate: float, epoch: int) -> None:
        self.say(
            f"Learn Rate Per Sample for Epoch[{epoch + 1}] = {general(rate)} is less than "
            f"minLearningRatePerSample {general(self.options.min_rate)}. Training complete.\n"
        )
        if self.options.adjust.rate != "none":
            self.files.save(self.net, self.files.path)

    def _say_start(self, rate: float, epoch: int, size: int) -> None:
        if self.options.trace_level <= 0:
            return
        momentum = self.options.momentum(epoch, self.reader.parallel)
        constant = -1 / math.log(momentum) if 0 < momentum < 1 else 0.0
        samples = self.options.effective(size, self.reader.parallel)
        self.say(
            f"\nStarting Epoch {epoch + 1}: learning rate per sample = {rate:f}  effective "
            f"momentum = {momentum**samples:f}  momentum as time constant = {constant:.1f} "
            "samples\n"
        )

    # -- after an epoch ------------------------------------------------------------------------

    def _say_end(self, control: Control, epoch: int, result: EpochResult, seconds: float) -> None:
        names = [node.name for node in [self.runner.criterion, *self.runner.evaluations]]
        line = totals_text([result.criterion, *result.evaluations], names)
        self.say(
            f"Finished Epoch[{epoch + 1:2d} of {self.options.epochs}]: [Training] {line}"
            f"totalSamplesSeen = {control.samples}; learningRatePerSample = "
            f"{general(control.rate)}; epochTime={general(seconds, 6)}s\n"
        )

    def _control_value(self, epoch: int, result: EpochResult) -> float:
        """The criterion that learning rates follow; validation, if there are data for it."""
        adjust = self.options.adjust
        runner = self.runner
        value = result.criterion.average
        if adjust.use_evaluation and result.evaluations:
            value = result.evaluations[0].average
        if self.validation is None:
            return value
        nodes = [runner.criterion, *runner.evaluations]
        evaluator = Evaluator(self.net, say=self.say, ranks=self.ranks)
        totals = evaluator.evaluate(self.validation, nodes, self.options.minibatch_size[epoch])
        line = "; ".join(total.text(node.name) for total, node in zip(totals, nodes, strict=True))
        self.say(f"Finished Epoch[{epoch + 1:2d} of {self.options.epochs}]: [Validate] {line}\n")
        if not adjust.use_validation:
            return value
        return totals[1 if adjust.use_evaluation and len(totals) > 1 else 0].average

    def _adjust(self, control: Control, epoch: int, value: float) -> bool | None:
        """Change the learning rate; True where the last model was loaded again, None where training
        is over."""
        options = self.options
        adjust = self.options.adjust
        since = epoch % adjust.interval + 1
        if math.isinf(control.average):
            control.average = value
        else:
            before = since - 1 - control.left_out
            control.average = (before * control.average + value) / (since - control.left_out)
        rolled = False
        last = since == adjust.interval
        if adjust.rate == "after" and len(options.rates) <= epoch and last:
            rolled = self._roll_back(control, epoch)
            if self._change_rate(control):
                self.files.save(self.net, self.files.path)
                self.say("Finished training and saved final model\n\n")
                return None
        elif math.isnan(control.average):
            raise RunError("The training criterion is not a number (NAN).")
        if not rolled and last:
            control.previous = control.average
            control.left_out = 0
        return rolled

    def _roll_back(self, control: Control, epoch: int) -> bool:
        """Load the last model again if the criterion got worse."""
        worse = math.isnan(control.average) or (
            control.previous < control.average and not math.isinf(control.previous)
        )
        done = epoch + 1 - self.options.adjust.interval
        if not worse or not self.options.adjust.load_best:
            return False
        self.say(
            "Loading (rolling back to) previous model with best training-criterion value: "
            f"{self.files.model(done)}.\n"
        )
        self._wait()
        self.files.load(self.net, done)
        state = self.files.read_state(done)
        if state is None:
            raise FormatError(f"{self.files.checkpoint(done)}: the checkpoint is missing")
        self._take(control, state)
        # The main rank writes the reduced rate to the same file: not before all have read it.
        self._wait()
        return True

    def _change_rate(self, control: Control) -> bool:
        """Decrease or increase the rate; True where training is to stop."""
        adjust = self.options.adjust
        known = not math.isinf(control.previous)
        gain = control.previous - control.average if known else 0.0
        little = math.isnan(control.average) or (
            known and gain <= adjust.decrease_below * control.previous
        )
        if adjust.continue_reduce and little:
            if control.reduced:
                return True
            control.reduced = True
        if little or (adjust.continue_reduce and control.reduced):
            control.rate *= adjust.decrease_factor
            self.say(f"learnRatePerSample reduced to {general(control.rate)}\n")
        elif (
            known and not adjust.continue_reduce and gain > adjust.increase_above * control.previous
        ):
            control.rate *= adjust.increase_factor
            self.say(f"learnRatePerSample increased to {general(control.rate)}\n")
        return False

    def _save(self, control: Control, epoch: int, size: int, rolled: bool) -> int:
        """Write checkpoint and model; returns the last epoch that counts."""
        files = self.files
        adjust = self.options.adjust
        done = epoch + 1
        state = Checkpoint(control.samples, control.rate, control.previous, size)
        self.updates.save(self.net.scope, state)
        state.blocks = saved_changes(self.net.scope, self.updates.parameters)
        gather_states(state, self.ranks, epoch)
        if rolled:
            for number in range(1, adjust.interval):
                self.say(
                    "SGD: removing model and checkpoint files for epoch "
                    f"{done - number} after rollback to epoch {done - adjust.interval}\n"
                )
                files.remove(files.model(done - number), files.checkpoint(done - number))
            done -= adjust.interval
            state.control = control.saved(adjust, done)
            self.say(f"SGD: revoke back to and update checkpoint file for epoch {done}\n")
            files.write_state(state, done)
            return done - 1
        state.control = control.saved(adjust, done)
        if self.options.trace_level > 0:
            self.say(f"SGD: Saving checkpoint model '{files.model(done)}'\n")
        files.save_epoch(self.net, state, done)
        if not self.options.keep_checkpoints:
            self._remove_old(epoch)
        return epoch

    def _remove_old(self, epoch: int) -> None:
        """Remove the checkpoints that nothing goes back to."""
        files = self.files
        adjust = self.options.adjust
        since = epoch % adjust.interval + 1
        if adjust.rate != "after" or not adjust.load_best:
            files.remove(files.checkpoint(epoch))
            return
        if since != 1:
            files.remove(files.checkpoint(epoch))
        if since == adjust.interval:
            files.remove(files.checkpoint(epoch + 1 - adjust.interval))

    def _trials(self) -> Trials:
        """Trials of this training; kept, they would hold it, its network and its arrays in a circle
        that outlives the command."""
        return Trials(self.runner, self._snapshot)

    def _snapshot(self) -> Callable[[], None]:
        """Remember parameters, states, and how far the generators of nodes are."""
        scope = self.net.scope
        state = Checkpoint(0, 0.0, 0.0, None)
        self.updates.save(scope, state)
        learning = self.updates.parameters
        state.blocks = saved_changes(scope, learning)
        nodes = self.net.network.nodes.values()
        names = [node.name for node in nodes if node.is_parameter]
        names += [f"{node.name}@DRAWN" for node in nodes]
        values = {name: scope.numpy(name).copy() for name in names if scope.find(name) is not None}
        self.net.store()  # the samples that statistics have seen
        norms = [node for node in nodes if node.operation == "BatchNormalization"]
        seen = {node: node.attributes["samplesSeen"] for node in norms}

        def back() -> None:
            self.updates.load(scope, state)
            take_changes(scope, learning, state.blocks)
            for name, value in values.items():
                scope.var(name).set(value)
            for node, count in seen.items():
                set_attribute(self.net, node, "samplesSeen", count)

        return back
