"""One epoch: minibatches, updates, and the lines that report its progress.

Source: CNTK's `SGDLib/SGD.cpp` (TrainOneEpoch).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import RunError
from ...framework.ir.desc import make_var
from ...framework.ir.names import grad_name, rows_name
from ...framework.ir.op_list import OpList
from ...framework.runtime.plain_net import PlainNet
from ..lower.emitter import INPUT, PARAMETER, dims
from ..network.nodes.node import Node
from ..parallel.asynchronous import Asynchronous
from ..parallel.blocks import Blocks
from ..parallel.gathered import take_main_statistics
from ..parallel.gradients import GradientExchange, Learning
from ..parallel.ranks import Ranks, Sums
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
    sub_minibatch,
    sub_minibatch_count,
    sub_minibatches,
    with_accumulated,
)
from .options import SgdOptions
from .report import Say, Total, Totals, number_text, percent_digits, to_stderr, totals_text
from .updates import Updates

Prepare = Callable[[Minibatch], None]
_Values: TypeAlias = list[tuple[float, int]]


@dataclass(frozen=True)
class EpochResult:
    """Criteria of an epoch, summed."""

    criterion: Total
    evaluations: list[Total]
    minibatches: int


@dataclass(frozen=True)
class _Step:
    """What all minibatches of an epoch share.

    Attributes:
        nodes: whose values are reported. parts: in which a minibatch is computed.
        context: of the runs. learns: whether parameters are updated, or only measured.
        rate: per sample. momentum: of one sample.
        accumulate: whether a node's value covers the whole epoch so far.
        common: context of updates that all ranks do in the same way.
    """

    nodes: list[Node]
    parts: int
    context: OpContext
    learns: bool
    rate: float
    momentum: float
    accumulate: list[bool]
    common: OpContext


def _nothing(step: _Step) -> _Values:
    return [(0.0, 0)] * len(step.nodes)


@dataclass
class EpochRunner:
    """Runs epochs of training.

    Attributes:
        net, options, reader: the network, the settings, and the data.
        criterion, evaluations: nodes that are shown; the first is minimized.
        updates: of the parameters.
        prepare: called with each minibatch before it is used.
        say: takes the lines of the log.
        progress: called with how far the training is.
        computed_size: samples of an epoch, as far as known, for the progress in percent.
        ranks: that train together; None: this one alone.
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
    ranks: Ranks | None = None
    _update_net: PlainNet | None = field(default=None, init=False)
    _exchange: GradientExchange | None = field(default=None, init=False)
    _before: Sums | None = field(default=None, init=False)
    _shared: Asynchronous | None = field(default=None, init=False)

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
        options = self.options
        nodes = [self.criterion, *self.evaluations]
        learns = rate > 0.01 * options.min_rate
        count = sub_minibatch_count(
            size, options.sub_minibatches, options.samples_in_memory, self.reader.parallel
        )
        ranks = self.ranks
        together = ranks is not None and ranks.trains_together(epoch)
        sums = ranks is not None and ranks.sums_gradients(epoch)
        divided = ranks is not None and ranks.divide(self.reader, together)
        context = OpContext(
            train=True,
            seed=epoch if ranks is None else ranks.seed_number(epoch),
            communicator=None if ranks is None else ranks.communicator,
        )
        common = OpContext(train=True, seed=epoch, communicator=context.communicator)
        momentum = options.momentum(epoch, self.reader.parallel)
        if options.trace_level > 0:
            how = ranks.describe(epoch, divided) if ranks is not None else ""
            how += f", with {count} subminibatch" if count > 1 else ""
            self.say(f"\nStarting minibatch loop{how}.\n")
        progress = _Progress(
            self, epoch, size, prefix, np.dtype(np.float64) if sums else self.net.dtype
        )
        reset_accumulators(self.net)
        apart = self._apart(epoch)
        if sums:
            self._begin_sums(nodes, learns, epoch)
        self.reader.use_network(self._first_output)
        coming = minibatches(self.reader, size, epoch, options.epoch_size)
        step = _Step(nodes, count, context, learns, rate, momentum, progress.accumulate, common)
        if not sums and self.reader.parallel == 1:  # sequences of others go on in the next one
            # Made while a thread reads the first minibatch.
            self._bound_net(nodes, learns, count == 1, carried=False)
        used = 0
        carried = False
        while samples is None or used <= samples:
            minibatch = next(coming, None)
            if minibatch is None and not sums:
                break
            own = minibatch or None
            if own is not None and together and ranks is not None and not divided:
                own = sub_minibatch(own, ranks.rank, ranks.count) or None
            if own is not None:
                if self.prepare is not None:
                    self.prepare(own)
                carried = carried or goes_on(own)
            if sums:
                result = self._together(own, step, minibatch is not None, carried)
                if result is None:
                    break
                progress.add([result.values])
                used += result.samples
            elif own is not None:
                values, true = self._alone(own, step, carried)
                progress.add(values)
                used += true
                if apart is not None:
                    apart.step(self._columns(own))
        if apart is not None and ranks is not None:
            apart.finish()
            progress.add_up(ranks)
        if together and ranks is not None:
            take_main_statistics(ranks.communicator, self.net)
            progress.join_accumulators(ranks)
        if not used and not together and (samples is None or samples > 0):
            raise RunError(
                f"epoch {epoch + 1}: the reader gave no samples of the criterion"
                f" {self.criterion.name!r} in {progress.run} minibatches"
            )
        return progress.result()

    def _first_output(self, minibatch: Minibatch) -> np.ndarray:
        """See `DataReader.use_network`."""
        outputs = self.net.network.groups["output"]
        if not outputs:
            raise RunError("the reader asks for the network's output, but it has no output node")
        data = self.net.forward(minibatch, outputs[:1], train=True)[outputs[0].name].data
        return data.reshape(len(data), -1)

    def _alone(self, minibatch: Minibatch, step: _Step, carried: bool) -> tuple[list[_Values], int]:
        """Train on a minibatch: sums and samples of the nodes, part by part; samples of all."""
        bound = self._bound_net(step.nodes, step.learns, step.parts == 1, carried)
        true = samples_of(self.net.network, minibatch)
        self._control(step, self._columns(minibatch))
        if step.parts > 1:
            return self._in_parts(bound, minibatch, step), true
        bound.run(minibatch, step.context)
        return [list(measured(bound, step.nodes, true))], true

    def _together(
        self, minibatch: Minibatch | None, step: _Step, reading: bool, carried: bool
    ) -> Sums | None:
        """Train on the minibatch of all ranks, of which this one has a part or nothing; None where
        all have come to the end. With `useBufferedAsyncGradientAggregation` the sums, and what is
        printed, belong to the minibatch before."""
        ranks, exchange = self.ranks, self._exchange
        assert ranks is not None and exchange is not None
        values = _nothing(step)
        samples = 0
        columns = 0
        sums: dict[str, list[np.ndarray]] = {}
        if minibatch is not None:
            bound = self._bound_net(step.nodes, step.learns, False, carried)
            samples = samples_of(self.net.network, minibatch)
            columns = self._columns(minibatch)
            parts = self._compute_parts(bound, minibatch, step, sums)
            values = [
                (of_node[-1][0], 1)
                if accumulates
                else (sum(value for value, _ in of_node), sum(n for _, n in of_node))
                for accumulates, of_node in zip(
                    step.accumulate, zip(*parts, strict=True), strict=True
                )
            ]
        coming = ranks.add_up(reading, samples, columns, values)
        coming.values[:] = [
            (value / max(n, 1) if accumulates else value, n)
            for accumulates, (value, n) in zip(step.accumulate, coming.values, strict=True)
        ]
        now = coming
        if ranks.options.buffered:
            now = self._before
            self._before = coming
            if now is not None and not now.reading and not now.samples:
                return None
            if now is not None and now.samples and step.learns:
                self._control(step, now.columns)
                exchange.update(step.common)  # with the sums of the minibatch before
            if coming.samples and step.learns:
                exchange.feed(self._dense(sums))
                exchange.send(step.context)
            return now if now is not None else replace(coming, samples=0, values=_nothing(step))
        if not now.reading and not now.samples:
            return None
        if now.samples and step.learns:
            exchange.feed(self._dense(sums))
            self._control(step, now.columns)
            exchange.update(step.common)
        return now

    def _begin_sums(self, nodes: list[Node], learns: bool, epoch: int) -> None:
        """Make the net that sums gradients, and begin an epoch of it."""
        assert self.ranks is not None
        options = self.ranks.options
        self._before = None
        bits = options.bits[epoch]
        if self._exchange is not None and self._exchange.bits == bits:
            self._exchange.begin_epoch()
            return
        gradients = self._bound_net(nodes, True, False, False).gradients
        self._exchange = GradientExchange(
            self.net.scope,
            [
                Learning(node.name, dims(node), gradients[node.name])
                for node in self.updates.parameters
                if node.name in gradients
            ],
            self.net.dtype,
            self.updates.extend,
            bits=bits,
            zero=options.zero_threshold,
            buffered=options.buffered,
            stats_every=options.stats_every,
            say=self.say,
        )

    def _dense(self, sums: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
        """The gradients of a minibatch; rows of sparse ones become whole arrays."""
        assert self._exchange is not None
        values = {}
        for one in self._exchange.learning:
            arrays = sums.get(one.gradient)
            rows = sums.get(rows_name(one.gradient))
            if arrays is None:
                continue
            value = arrays[0]
            if rows is not None:
                value = np.zeros(one.shape, self.net.dtype)
                places, given = np.concatenate(rows), np.concatenate(arrays)
                np.add.at(value, places[places >= 0], given[places >= 0])
            values[one.gradient] = value
        return values

    def _apart(self, epoch: int) -> Blocks | Asynchronous | None:
        """What brings ranks together that train apart in an epoch; None: they do not."""
        if self.ranks is None:
            return None
        updates = self.updates
        shapes = {node.name: dims(node) for node in updates.parameters}
        if self.ranks.is_asynchronous(epoch):
            if self._shared is None:  # it counts the exchanges of all epochs
                self._shared = Asynchronous(self.ranks, self.net.scope, shapes, self.net.dtype)
            self._shared.begin_epoch(self.ranks.options.period[epoch])
            return self._shared
        if not self.ranks.averages(epoch):
            return None
        return Blocks(
            self.ranks,
            self.net.scope,
            shapes,
            self.net.dtype,
            lambda: updates.reset(self.net.scope),
            self.say,
        )

    def _control(self, step: _Step, columns: int) -> None:
        """Tell the updates rate, momentum and columns of a minibatch."""
        self.updates.control(self.net.scope, step.rate, step.momentum**columns, columns)

    def _columns(self, minibatch: Minibatch) -> int:
        """The N of learners: columns, or where the criterion has an axis its samples."""
        if self.criterion.axis is not None:
            return samples_of(self.net.network, minibatch)
        return columns_of(self.net.network, minibatch)

    def _bound_net(self, nodes: list[Node], learns: bool, whole: bool, carried: bool) -> BoundNet:
        target = self.criterion if learns else None
        if learns and whole:
            extend = self.updates.extend
            key = self.updates
            return self.net.bound_net(nodes, target, extend=extend, key=key, carried=carried)
        return self.net.bound_net(nodes, target, carried=carried)

    # -- minibatches in parts ------------------------------------------------------------------

    def _in_parts(self, bound: BoundNet, minibatch: Minibatch, step: _Step) -> list[_Values]:
        """Run the parts of a minibatch, then update once with the sums of their gradients."""
        sums: dict[str, list[np.ndarray]] = {}
        values = self._compute_parts(bound, minibatch, step, sums)
        if step.learns:
            for name, arrays in sums.items():
                whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
                self.net.scope.var(name).set(whole)
            self._updates_alone(sums).run(self.net.scope, step.context)
        return values

    def _compute_parts(
        self,
        bound: BoundNet,
        minibatch: Minibatch,
        step: _Step,
        sums: dict[str, list[np.ndarray]],
    ) -> list[_Values]:
        """Run the parts of a minibatch and add up their gradients in `sums`."""
        values = []
        for part in sub_minibatches(minibatch, step.parts):
            bound.run(part, step.context)
            samples = samples_of(self.net.network, part)
            values.append(list(measured(bound, step.nodes, samples)))
            for grad in bound.gradients.values() if step.learns else ():
                self._collect(sums, grad)
        return values

    def _collect(self, sums: dict[str, list[np.ndarray]], grad: str) -> None:
        """Add a gradient to the sums, or append the rows of a sparse one."""
        scope = self.net.scope
        rows = rows_name(grad)
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
            self._update_net = PlainNet(self.updates.extend(net), check=False)
        return self._update_net


class _Progress:
    """Sums of an epoch, and a line of the log now and then."""

    def __init__(
        self, runner: EpochRunner, epoch: int, size: int, prefix: str, dtype: np.dtype
    ) -> None:
        self.runner = runner
        self.epoch = epoch
        self.size = size
        self.prefix = prefix
        nodes = [runner.criterion, *runner.evaluations]
        self.names = [node.name for node in nodes]
        self.accumulate = [accumulating(node) for node in nodes]
        self.totals = Totals(len(nodes), dtype)
        self.added_up: list[Total] = []
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
        runner = self.runner
        options = self.runner.options
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
        self.shown = now
        self.shown_at = self.run
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

    def add_up(self, ranks: Ranks) -> None:
        """Add the sums of all ranks at the end of an epoch that they trained apart."""
        own = self.totals.totals()
        self.added_up = [Total(*pair) for pair in ranks.add_up(False, 0, 0, own).values]

    def join_accumulators(self, ranks: Ranks) -> None:
        """Let nodes that gather over an epoch have gathered over all ranks."""
        if any(self.accumulate):
            runner = self.runner
            totals = self.added_up or self.totals.totals()
            nodes = [runner.criterion, *runner.evaluations]
            self.added_up = with_accumulated(ranks.communicator, runner.net, nodes, totals)

    def result(self) -> EpochResult:
        criterion, *evaluations = self.added_up or self.totals.totals()
        return EpochResult(criterion, evaluations, self.run)
