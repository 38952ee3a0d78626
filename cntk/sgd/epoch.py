"""One epoch: minibatches, updates, and the lines that tell how it goes.

Source: CNTK's `SGDLib/SGD.cpp` (TrainOneEpoch).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import RunError
from ...framework.ir.desc import make_var
from ...framework.ir.names import grad_name, rows_name
from ...framework.ir.op_list import OpList
from ...framework.runtime.plain_net import PlainNet
from ..lower.emitter import INPUT, PARAMETER, dims
from ..network.nodes.node import Node
from ..readers.base.minibatches import minibatches
from ..readers.base.pack import Minibatch
from ..readers.base.reader import DataReader
from ..run.runtime import BoundNet, CntkNet, goes_on
from .job import JobProgress
from .measure import (
    accumulating,
    columns_of,
    measured,
    reset_accumulators,
    samples_of,
    sub_minibatch_count,
    sub_minibatches,
)
from .options import SgdOptions
from .report import Say, Total, Totals, number_text, percent_digits, to_stderr, totals_text
from .updates import CONTROL, Updates

Prepare = Callable[[Minibatch], None]


@dataclass(frozen=True)
class EpochResult:
    """Criteria of an epoch, summed."""

    criterion: Total
    evaluations: list[Total]
    minibatches: int


@dataclass
class EpochRunner:
    """Runs epochs of training.

    Attributes:
        net, options, reader: the network, the settings, and the data.
        criterion, evaluations: nodes that are shown; the first is minimised.
        updates: of the parameters.
        prepare: called with each minibatch before it is used.
        say: takes the lines of the log.
        progress: called with how far the training is.
        computed_size: samples of an epoch, as far as known, for the progress in percent.
    """

    net: CntkNet
    options: SgdOptions
    reader: DataReader
    criterion: Node
    evaluations: list[Node]
    updates: Updates
    prepare: Prepare | None = None
    say: Say = to_stderr
    progress: JobProgress | None = None
    computed_size: int | None = None
    _update_net: PlainNet | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.computed_size = self.options.epoch_size

    def run(
        self,
        epoch: int,
        rate: float,
        size: int,
        *,
        prefix: str = "",
        samples: int | None = None,
    ) -> EpochResult:
        """Train for one epoch.

        Args:
            epoch: counted from 0.
            rate: learning rate per sample; at most a hundredth of the smallest rate: nothing is
                learned, only measured.
            size: of a minibatch.
            prefix: in front of progress lines.
            samples: stop once this many have been used; None: a whole epoch.

        Raises:
            RunError: the criterion is not a number, or the reader gives no samples.
        """
        options, network = self.options, self.net.network
        nodes = [self.criterion, *self.evaluations]
        learns = rate > 0.01 * options.min_rate
        count = sub_minibatch_count(
            size, options.sub_minibatches, options.samples_in_memory, self.reader.parallel
        )
        context = OpContext(train=True, seed=epoch)
        momentum = options.momentum(epoch, self.reader.parallel)
        if options.trace_level > 0:
            with_parts = f", with {count} subminibatch" if count > 1 else ""
            self.say(f"\nStarting minibatch loop{with_parts}.\n")
        progress = _Progress(self, epoch, size, prefix)
        reset_accumulators(self.net)
        coming = minibatches(self.reader, size, epoch, options.epoch_size)
        used, carried = 0, False
        while samples is None or used <= samples:
            minibatch = next(coming, None)
            if minibatch is None:
                break
            if self.prepare is not None:
                self.prepare(minibatch)
            carried = carried or goes_on(minibatch)
            bound = self._bound_net(nodes, learns, count == 1, carried)
            true = samples_of(network, minibatch)
            columns = self._columns(minibatch)
            control = np.array([rate, momentum**columns, columns], np.float64)
            self.net.scope.var(CONTROL).set(control)
            if count == 1:
                bound.run(minibatch, context)
                progress.add([measured(bound, nodes, true)])
            else:
                progress.add(self._in_parts(bound, nodes, minibatch, count, context, learns))
            used += true
        if not used and (samples is None or samples > 0):
            raise RunError(
                f"epoch {epoch + 1}: the reader gave no samples of the criterion"
                f" {self.criterion.name!r} in {progress.run} minibatches"
            )
        return progress.result()

    def _columns(self, minibatch: Minibatch) -> int:
        """The N of learners: columns, or where the criterion has an axis its samples."""
        if self.criterion.axis is not None:
            return samples_of(self.net.network, minibatch)
        return columns_of(self.net.network, minibatch)

    def _bound_net(self, nodes: list[Node], learns: bool, whole: bool, carried: bool) -> BoundNet:
        target = self.criterion if learns else None
        if learns and whole:
            extend, key = self.updates.extend, self.updates
            return self.net.bound_net(nodes, target, extend=extend, key=key, carried=carried)
        return self.net.bound_net(nodes, target, carried=carried)

    # -- minibatches in parts ------------------------------------------------------------------

    def _in_parts(
        self,
        bound: BoundNet,
        nodes: list[Node],
        minibatch: Minibatch,
        count: int,
        context: OpContext,
        learns: bool,
    ) -> list:
        """Run the parts of a minibatch, then update once with the sums of their gradients."""
        found = []
        sums: dict[str, list[np.ndarray]] = {}
        for part in sub_minibatches(minibatch, count):
            bound.run(part, context)
            found.append(list(measured(bound, nodes, samples_of(self.net.network, part))))
            for grad in bound.gradients.values() if learns else ():
                self._collect(sums, grad)
        if learns:
            for name, arrays in sums.items():
                whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
                self.net.scope.var(name).set(whole)
            self._updates_alone(sums).run(self.net.scope, context)
        return found

    def _collect(self, sums: dict[str, list[np.ndarray]], grad: str) -> None:
        """Add a gradient to the sums, or append the rows of a sparse one."""
        scope, rows = self.net.scope, rows_name(grad)
        value = scope.numpy(grad).copy()
        if scope.find(rows) is not None:
            sums.setdefault(rows, []).append(scope.numpy(rows).copy())
            sums.setdefault(grad, []).append(value)
        elif grad in sums:
            sums[grad][0] += value
        else:
            sums[grad] = [value]

    def _updates_alone(self, sums: dict[str, list[np.ndarray]]) -> PlainNet:
        """The updates as a net of their own, which reads gradients."""
        if self._update_net is None:
            net = OpList()
            for node in self.updates.parameters:
                grad = grad_name(node.name)
                if grad not in sums:
                    continue
                rows = rows_name(grad)
                dtype = self.updates.dtype
                net.vars.append(make_var(node.name, dims(node), dtype, PARAMETER))
                shape = (-1, *dims(node)[1:]) if rows in sums else dims(node)
                net.vars.append(make_var(grad, shape, dtype, INPUT))
                if rows in sums:
                    net.vars.append(make_var(rows, (-1,), sums[rows][0].dtype, INPUT))
            self._update_net = PlainNet(self.updates.extend(net))
        return self._update_net


class _Progress:
    """Sums of an epoch, and a line of the log now and then."""

    def __init__(self, runner: EpochRunner, epoch: int, size: int, prefix: str) -> None:
        self.runner, self.epoch, self.size, self.prefix = runner, epoch, size, prefix
        nodes = [runner.criterion, *runner.evaluations]
        self.names = [node.name for node in nodes]
        self.accumulate = [accumulating(node) for node in nodes]
        self.totals = Totals(len(nodes), runner.net.dtype)
        self.shown = self.totals.totals()
        self.run = self.shown_at = 0
        self.clock = time.perf_counter()

    def add(self, parts: list) -> None:
        """Add the values of one minibatch."""
        options = self.runner.options
        for part in parts:
            self.totals.add(part, self.accumulate)
        self.run += 1
        every = options.show_every
        if self.run <= options.show_first or (every > 0 and self.run % every == 0):
            self._show()

    def _show(self) -> None:
        runner, options = self.runner, self.runner.options
        now = self.totals.totals()
        new = [
            total if accumulate else total.since(old)
            for total, old, accumulate in zip(now, self.shown, self.accumulate, strict=True)
        ]
        step = self.run - self.shown_at
        percent = self._percent(step, new[0].samples)
        if runner.progress is not None:
            share = self.run * self.size / (runner.computed_size or math.inf)
            runner.progress.minibatch(self.epoch, share, new[0].average)
        if options.trace_level > 0:
            seconds = time.perf_counter() - self.clock
            speed = new[0].samples / seconds if seconds else 0.0
            runner.say(
                f"{self.prefix} Epoch[{self.epoch + 1:2d} of {options.epochs}]"
                f"-Minibatch[{self.shown_at + 1:4d}-{self.run:4d}{percent}]: "
                f"{totals_text(new, self.names)}time = {number_text(seconds, 0, 4)}s; "
                f"samplesPerSecond = {speed:.1f}\n"
            )
        if math.isnan(now[0].value):
            raise RunError("The training criterion is not a number (NAN).")
        self.shown, self.shown_at = now, self.run
        self.clock = time.perf_counter()

    def _percent(self, step: int, samples: int) -> str:
        runner = self.runner
        if self.epoch == 0 and runner.options.epoch_size is None:
            runner.computed_size = self.run * samples // step
            return ""
        if not runner.computed_size:
            return ""
        minibatches = runner.computed_size / self.size
        digits = percent_digits(minibatches, step)
        return f", {100 * self.run / minibatches:2.{digits}f}%"

    def result(self) -> EpochResult:
        criterion, *evaluations = self.totals.totals()
        return EpochResult(criterion, evaluations, self.run)
