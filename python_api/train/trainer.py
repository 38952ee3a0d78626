"""The loop over epochs and minibatches: the state of one call of `train`."""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.backend import describe_device
from ...framework.base.context import Hook, OpContext
from ...framework.base.dtypes import is_float
from ...framework.base.errors import (
    FormatError,
    NotFiniteError,
    OpscopeError,
    RanksError,
)
from ...framework.base.files.atomic import check_same, mark_of
from ...framework.base.scope import Scope
from ...framework.base.untrusted.values import member
from ...framework.files.checkpoint import (
    Checkpoint,
    checkpoint_path,
    net_difference,
    read_checkpoint,
    write_checkpoint,
)
from ...framework.files.saved import op_list_of, persistent_values
from ...framework.ir.desc import OPTIMIZE, PARAMETER, STATE
from ...framework.parallel.launched import note_memory
from ...framework.passes.ranks.all_reduce import first_update
from ...framework.runtime.feeding import Feeder, not_finite
from ...framework.runtime.footprint import run_bytes
from ...framework.runtime.initialize import initialize, persistent_vars
from ...framework.runtime.net import Net
from ...framework.runtime.plain_net import PlainNet
from ...framework.training.ctrl_c import CtrlC
from ...framework.training.history import EVAL_PREFIX, History, RankMemory
from ...framework.training.metric import Metric
from ...framework.training.resuming import put_values, rows_of, take_over
from ..builder.gradients import settle_rates
from ..builder.net_builder import NetBuilder
from ..ranks.agreement import Ranks
from .callbacks import Callbacks, TrainingState
from .data import Data, batches_of, check_reiterable, length_of
from .early_stop import EarlyStop
from .measuring import Measurements, check_loss
from .options import WEIGHTS, Options
from .progress import Progress

if TYPE_CHECKING:
    from .kept_small import KeptSmall

_TRY = (
    "training diverges where steps are too long: try a smaller learning rate, a schedule that warms"
    " up, add_optimization(..., clip_norm=1.0), or inputs scaled to about 1"
)
_NOTHING_FITS = (
    "no parameter of this net is there with its shape: give the checkpoint of this net, or another"
    " name, for a new checkpoint"
)


class _Interrupted(Exception):
    """Ctrl-C was seen between two minibatches."""


class Trainer:
    """The state of one call of `train`: its position in the data and what it has measured."""

    def __init__(
        self, net: Any, scope: Scope, loss: str, metrics: list[Metric], base: OpContext
    ) -> None:
        self.op_list = op_list_of(net)
        built = getattr(net, "net", net)
        runs = built if isinstance(built, Net) else Net.create(self.op_list)
        if runs.predicts:
            raise OpscopeError(
                f"net {self.op_list.name!r} was loaded to predict; load(path, train=True) gives a"
                " net to train"
            )
        self.builder = net if isinstance(net, NetBuilder) else None
        self.scope = scope
        self.loss = loss
        check_loss(self.op_list, loss)
        self.measured = Measurements(loss, metrics, (var.name for var in self.op_list.vars))
        updates = any(op.role == OPTIMIZE for op in self.op_list.ops)
        if not updates or not isinstance(runs, PlainNet):
            raise OpscopeError(
                f"net {self.op_list.name!r} holds no optimizer: add_optimization(...) before train"
            )
        self.net = runs
        self.base = base
        self.history = History()
        self.epoch = self.batch = 0
        self._mark: tuple[int, int, int, int] | None = (
            None  # of the checkpoint, as this training knows it
        )
        self.finished = self.warned = False
        self.best: dict[str, np.ndarray] = {}
        self.best_value: float | None = None
        self.seconds = 0.0
        self.states: list[Any] = []  # random states of the ranks that wrote the checkpoint
        self.given: dict[str, np.ndarray] = {}  # states of a checkpoint that ranks share out

    def use(
        self,
        evaluate: Data | None,
        early_stop: EarlyStop | None,
        hooks: Sequence[Hook],
        options: Options,
        callbacks: Callbacks,
    ) -> None:
        self.evaluate_data = evaluate
        self.hooks = [*self.base.hooks, *hooks]
        self.options = options
        self.callbacks = callbacks
        self.at = TrainingState(self.net, self.scope, self.history, options.epochs)
        self.history.metrics = {metric.name: metric for metric in self.measured.metrics}
        columns = list(self.measured.columns)
        if evaluate is not None:
            columns += [EVAL_PREFIX + column for column in columns]
        if early_stop is not None:
            early_stop = early_stop.watching(columns, self.loss, evaluate is not None)
        self.early_stop = early_stop

    def join(self, ranks: Ranks, sync_batch_norm: bool, data: Data) -> None:
        """Take part in what several ranks train together."""
        self.ranks = ranks
        self._kept_small: KeptSmall | None = None
        self._waiting = 0  # minibatches whose gradients no update has used
        if ranks.alone and ranks.accumulate == 1:
            return
        options = self.options
        number = length_of(data)
        steps = None if number is None else number * options.epochs
        settings = {
            "device": describe_device(self.scope.place),
            "epochs": options.epochs,
            "loss": self.loss,
            "metrics": self.measured.columns,
            "evaluate": self.evaluate_data is not None,
            "early_stop": self.early_stop,
            "checkpoint": options.checkpoint is not None,
            "checkpoint_every": options.checkpoint_every,
            "checkpoint_batches": options.checkpoint_batches,
            "resume": options.resume,
        }
        self.net = ranks.prepare(self.op_list, sync_batch_norm, steps, settings)
        self.at.net = self.net
        self.at.rank = self.history.rank = ranks.rank
        if ranks.accumulate > 1:
            self._first_update = first_update(self.net.op_list)

    def limit_memory(self, given: int | str | None) -> None:
        """Keep steps within a budget; comes after `join`."""
        if given is not None and self.ranks.pipeline is not None:
            raise OpscopeError(
                f"train: memory={given!r} is for ranks that have all stages of the net: say"
                " pipeline='off', or leave memory out"
            )
        if given is not None:
            from .kept_small import KeptSmall  # few trainings want it

            place = self.base.device or self.scope.place
            self._kept_small = KeptSmall(self.op_list, self.ranks, given, place)
            self._run_from_now(self._kept_small.net)

    def _run_from_now(self, net: PlainNet) -> None:
        self.net = self.at.net = net
        if self.ranks.accumulate > 1:
            self._first_update = first_update(net.op_list)

    # -- the loop ------------------------------------------------------------------------------

    def train(self, data: Data, progress: bool) -> History:
        options = self.options
        resumed: Collection[str] = ()
        if options.checkpoint is not None:
            self._mark = mark_of(checkpoint_path(options.checkpoint))
        if options.resume and options.checkpoint is not None and self.ranks.leads:
            path = checkpoint_path(options.checkpoint)
            if os.path.exists(path) and os.path.getmtime(path) >= options.since:
                resumed = self._resume(path)
        if progress and self.history.resumed is not None:
            print(self.history.resumed, file=sys.stderr)
        self._share_position()
        self.ranks.hold_back(self.scope)
        if self.builder is None:
            initialize(self.op_list, self.scope, self.base)
        else:
            if resumed:
                settle_rates(self.builder, self.scope, resumed)
            self.builder.initialize(self.scope, self.base, share=bool(resumed))
        owner = None if self.builder is None else self.builder.owner
        self.ranks.share_values(self.op_list, self.scope, self.base, owner, self.given)
        self.given = {}
        if self.ranks.accumulate > 1 or self.ranks.pipeline is not None:
            initialize(self.net.op_list, self.scope, self.base)  # the sums of gradients
        self.ranks.share_random(self.base, self.states)
        empty = not self.ranks.alone
        feeder = Feeder(self.net.op_list, self.scope, complete=True, empty=empty)
        check_reiterable(data, options.epochs)
        shown = Progress(progress, options.epochs, self.epoch)
        with shown as bar, CtrlC(self.ranks.leads) as ctrl_c:
            try:
                while self.epoch < options.epochs and not self.finished and not self.at.stopping:
                    self._one_epoch(data, feeder, bar, ctrl_c)
            except _Interrupted:
                self.history.interrupted = True
                self._write_checkpoint()
            except BaseException:
                self._forget_own()
                self.ranks.forget(self.scope)
                raise
        self.history.memory = [RankMemory(*one) for one in self.ranks.of_all(self._memory())]
        if self.ranks.leads:
            note_memory([vars(one) for one in self.history.memory])
        self.history.pipeline = self.ranks.pipeline_run()
        if progress and self.history.pipeline is not None:
            print(self.history.pipeline, file=sys.stderr)
        self.ranks.join_values(self.scope)
        self._forget_own()
        if self.best and not self.history.interrupted:
            self._restore_best()
        self.ranks.share_whole(self.op_list, self.scope)
        if options.plot is not None and self.history.rows and self.ranks.leads:
            self.history.plot(options.plot)
        if not self.ranks.alone:
            self.ranks.communicator.barrier()
        return self.history

    def _forget_own(self) -> None:
        """Erase what this training alone has put into the scope: sums of gradients that another
        one would go on adding to, and shards."""
        users = {var.name for var in self.op_list.vars}
        for var in persistent_vars(self.net.op_list):
            if var.name not in users:
                self.scope.erase(var.name)

    def _share_position(self) -> None:
        """Let all ranks begin where the first one does."""
        shared = self.ranks.of_first(
            [
                self.epoch,
                self.batch,
                self.seconds,
                self.finished,
                self.best_value,
                self.history.best_epoch,
                self.history.rows,
                self.states,
            ]
        )
        if not self.ranks.leads:
            self.epoch, self.batch, self.seconds, self.finished, self.best_value = shared[:5]
            self.history.best_epoch, self.history.rows, self.states = shared[5:]
            self.history.stopped_early = self.finished

    def _one_epoch(self, data: Data, feeder: Feeder, bar: Progress, ctrl_c: CtrlC) -> None:
        started = time.perf_counter()
        context = self._train_context()
        before = self.seconds
        bar.start_epoch(self.epoch, length_of(data), self.batch)
        if not self.batch:
            self.measured.reset()
        self.at.epoch = self.epoch + 1
        self.at.step = self.batch
        self.at.row = {}
        every = self.options.checkpoint_batches
        batches = itertools.islice(batches_of(data, self.epoch), self.batch, None)
        # A checkpoint holds no sums of gradients, so that a training ends between updates only.
        stopping = lambda: (ctrl_c.pressed or self.at.stopping) and not self._waiting  # noqa: E731
        for group in self.ranks.parts(batches, self._position, stopping):
            if group is None:
                raise _Interrupted
            for values in self._run_group(group, feeder, context):
                self.batch += 1
                self.seconds = before + time.perf_counter() - started
                bar.step(self.measured)
                self.at.step = self.batch
                self.at.values = values
                self.callbacks.on_step(self.at)
                if every and self.batch % every == 0:
                    self._write_checkpoint()
        if not self.batch:
            raise OpscopeError(f"the data hold no minibatch in epoch {self.epoch + 1}")
        if self._waiting:
            self._update(context)
        row = self._measured_row(feeder, ctrl_c, started - before)
        if not row:
            raise _Interrupted
        self._end_epoch(row, bar)
        pressed = any(self.ranks.of_all(ctrl_c.pressed))
        if pressed and not self.finished and self.epoch < self.options.epochs:
            raise _Interrupted

    def _measured_row(self, feeder: Feeder, ctrl_c: CtrlC, began: float) -> dict[str, float]:
        """The history's row of the epoch; empty after a Ctrl-C. The first rank measures for all.

        Args:
            began: when the epoch did, on the clock of `perf_counter`.
        """
        row: dict[str, float] = {}
        numbers: dict[str, float] = {}
        if self.evaluate_data is not None and (self.ranks.leads or self.ranks.all_evaluate):
            try:
                numbers = self._evaluate(self.evaluate_data, feeder, ctrl_c)
            except _Interrupted:
                return self.ranks.of_first({})
        if self.ranks.leads:
            row = {"epoch": self.epoch + 1, **self.measured.row()}
            row |= {EVAL_PREFIX + name: value for name, value in numbers.items()}
            row["seconds"] = round(time.perf_counter() - began, 6)
        return self.ranks.of_first(row)

    def _run_group(
        self, group: Sequence[Mapping[Any, Any]], feeder: Feeder, context: OpContext
    ) -> Iterator[dict[str, np.ndarray]]:
        """Train on minibatches that are run together; what is measured of each in turn."""
        pipeline = self.ranks.pipeline
        if pipeline is not None:
            fetch = self.measured.fetch
            results = pipeline.run(group, self.scope, context, fetch, self._position)
            for values, _ in results:
                self._check_loss(values)
            pipeline.update(self.scope, context)
        else:
            (batch,) = group
            rows = feeder(batch, self._position)
            if self._kept_small is not None:
                where = self._position()
                self._run_from_now(self._kept_small.for_batch(self.scope, context, where))
            context.renew()
            if self.ranks.accumulate == 1:
                self.net.run(self.scope, context)
            else:
                self.net.run(self.scope, context, 0, self._first_update)
                self._waiting += 1
            values = self.measured.values(self.scope)
            results = [self.ranks.joined(values, rows, self.scope)]
            self._check_loss(results[0][0])
            if self._waiting and self._waiting == self.ranks.accumulate:
                self._update(context)
        for values, rows in results:
            if self.ranks.leads:
                self.measured.update(values, rows)
            yield values

    def _check_loss(self, values: Mapping[str, np.ndarray]) -> None:
        loss = self.measured.loss_of(values)
        if not np.isfinite(loss):
            why = self._why_not_finite(loss)
            raise NotFiniteError(why) if self.ranks.leads else RanksError(why, on_all=True)

    def _update(self, context: OpContext) -> None:
        """Update parameters by the gradients that have been added up."""
        updates = context.derive(train=True, live_out=None)
        updates.communicator = context.communicator
        self.net.run(self.scope, updates, self._first_update)
        self._waiting = 0

    def _end_epoch(self, row: dict[str, float], bar: Progress) -> None:
        self.history.rows.append(row)
        self.epoch = self.epoch + 1
        self.batch = 0
        self.seconds = 0.0
        self._watch_early_stop(row)
        bar.end_epoch(row)
        self.at.row = row
        self.callbacks.on_epoch(self.at)
        self.at.stopping = any(self.ranks.of_all(self.at.stopping))
        options = self.options
        last = self.finished or self.at.stopping or self.epoch == options.epochs
        if self.ranks.leads:
            self._warn_of_divergence(row, last)
        if last or self.epoch % options.checkpoint_every == 0:
            self._write_checkpoint()
        if options.log_csv is not None and self.ranks.leads:
            self.history.to_csv(options.log_csv)

    def _evaluate(self, data: Data, feeder: Feeder, ctrl_c: CtrlC) -> dict[str, float]:
        """What is measured on the held-out data: forward only, in test phase."""
        context = OpContext(
            self.base.device,
            train=False,
            seed=0,
            live_out=self.measured.fetch,
            stream=self.base.stream,
            communicator=self.ranks.communicator if self.ranks.all_evaluate else None,
        )
        measured = self.measured.fresh()
        minibatches = 0
        net = self.net if self._kept_small is None else self._kept_small.plain
        end = net.last_forward_op + 1
        where = lambda: f"{self._position()}, evaluation"  # noqa: E731
        batches = batches_of(data, self.epoch)
        for group in self.ranks.parts(batches, where, lambda: ctrl_c.pressed, whole=True):
            if group is None:
                raise _Interrupted
            if self.ranks.pipeline is not None:
                fetch = measured.fetch
                found = self.ranks.pipeline.run(group, self.scope, context, fetch, where)
            else:
                (batch,) = group
                rows = feeder(batch, where, held_out=True)
                if self._kept_small is not None:
                    self._kept_small.check(self.scope, context, where())
                net.run(self.scope, context, 0, end)
                found = [(measured.values(self.scope), rows)]
            for values, rows in found:
                measured.update(values, rows)
                minibatches += 1
        if not minibatches:
            raise OpscopeError("the held-out data hold no minibatch")
        if not self.ranks.leads:
            return {}
        self.history.metrics |= {EVAL_PREFIX + m.name: m for m in measured.metrics}
        return measured.row()

    def _train_context(self) -> OpContext:
        """The context of training runs."""
        live_out = [*self.measured.fetch, *self.ranks.fetch]
        context = self.base.derive(train=True, live_out=live_out)
        context.hooks = self.hooks
        if not self.ranks.alone:
            context.communicator = self.ranks.communicator
        return context

    def _position(self) -> str:
        return f"epoch {self.epoch + 1}, minibatch {self.batch + 1}"

    def _why_not_finite(self, value: float) -> str:
        why = f"{self._position()}: the loss {self.loss!r} is {value}{self._no_longer_finite()}"
        path = self.options.checkpoint and checkpoint_path(self.options.checkpoint)
        if path and os.path.exists(path):
            why += f"; the last good checkpoint is {path}"
        return f"{why}; {_TRY}"

    def _no_longer_finite(self) -> str:
        """The parameters and states that hold NaN or infinity, for messages."""
        held = persistent_values(self.net.op_list, self.scope)
        bad = [name for name, array in held.items() if is_float(array.dtype) and not_finite(array)]
        some = f"{', '.join(bad[:5])}{', ...' if len(bad) > 5 else ''}"
        return f"; no longer finite: {some}" if bad else ""

    def _warn_of_divergence(self, row: Mapping[str, float], last: bool) -> None:
        """Warn, once, of what no further minibatch finds: a bad last update or held-out loss."""
        if self.warned:
            return
        held_out = row.get(EVAL_PREFIX + self.loss, 0.0)
        why = "" if np.isfinite(held_out) else f"; {EVAL_PREFIX}{self.loss} is {held_out}"
        why += self._no_longer_finite() if last or why else ""
        if why:
            self.warned = True
            warnings.warn(f"after epoch {self.epoch}{why}; {_TRY}", RuntimeWarning, stacklevel=2)

    # -- the best epoch ------------------------------------------------------------------------

    def _watch_early_stop(self, row: Mapping[str, float]) -> None:
        stop = self.early_stop
        if stop is None:
            return
        if stop.is_better(row[stop.metric], self.best_value):
            self.best_value = row[stop.metric]
            self.history.best_epoch = self.epoch
            values = self.ranks.whole_values(self.op_list, self.scope)
            self.best = {name: np.array(array) for name, array in values.items()}
        elif self.epoch - self.history.best_epoch >= stop.patience:
            self.finished = self.history.stopped_early = True

    def _restore_best(self) -> None:
        for name, array in self.best.items():
            variable = self.scope.get(name)
            owner = variable.origin
            variable.set(array)
            variable.origin = owner

    # -- checkpoints ---------------------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        if self.options.checkpoint is None:
            return
        random = self.ranks.of_all(self.base.random_state())
        values = self.ranks.whole_values(self.op_list, self.scope)
        if not self.ranks.leads:
            return
        state = {
            "epoch": self.epoch,
            "batch": self.batch,
            "finished": self.finished,
            "seconds": self.seconds,
            "metrics": (self.measured if self.batch else self.measured.fresh()).state(),
            "random": random[0],
            "random_of_ranks": random[1:],
            "rows": self.history.rows,
            "best_epoch": self.history.best_epoch,
            "best_value": self.best_value,
        }
        path = checkpoint_path(self.options.checkpoint)
        check_same(path, self._mark)
        write_checkpoint(path, self.op_list, values, state, self.best)
        self._mark = mark_of(path)

    def _resume(self, path: str) -> Collection[str]:
        """Go on from a checkpoint; returns the variables whose values it brought."""
        checkpoint = read_checkpoint(path)
        difference = net_difference(checkpoint.op_list, self.op_list)
        if difference and self.options.resume == WEIGHTS:
            return self._take_over(checkpoint, path)
        if difference:
            raise FormatError(
                f"{path}: is of another net: {difference}; resume={WEIGHTS!r} takes over what fits"
                " both and reports what does not; another checkpoint= begins a new training"
            )
        try:
            state = checkpoint.state
            if "metrics" in state:
                self.measured.restore(state["metrics"])
            else:
                self.measured.restore_sums(state["averages"])
            epoch, batch = (member(state, name, int, path) for name in ("epoch", "batch"))
            self.seconds = member(state, "seconds", float, path)
            self.history.rows = rows_of(state, path)
            if self.early_stop is not None:
                self.history.best_epoch = member(state, "best_epoch", int, path)
                self.best_value = state["best_value"]
                self.finished = member(state, "finished", bool, path)
            random = state["random"]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if self.options.resume == WEIGHTS:
                return self._take_over(checkpoint, path)
            raise OpscopeError(
                f"{path}: does not hold what this training reports ({error!r}); were loss or"
                " metrics changed?"
            ) from None
        others = checkpoint.state.get("random_of_ranks")  # older checkpoints lack it
        self.base.set_random_state(random)
        self.states = [random, *others] if isinstance(others, list) else []
        self.epoch = epoch
        self.batch = batch
        self.history.stopped_early = self.finished
        self.best = checkpoint.best if self.early_stop is not None else {}
        for name, array in self._kept_aside(checkpoint.values).items():
            (self.scope.find(name) or self.scope.var(name)).set(array)
        return checkpoint.values

    def _kept_aside(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Values of a checkpoint for the scope; states that ranks share out wait in `given`."""
        self.given = {name: array for name, array in values.items() if self.ranks.takes(name)}
        return {name: array for name, array in values.items() if name not in self.given}

    def _memory(self) -> tuple[int, int, int]:
        """Bytes of parameters and of states on this rank, and of a step."""
        kept = {PARAMETER: 0, STATE: 0}
        for var in persistent_vars(self.net.op_list):
            variable = self.scope.find(var.name)
            if variable is not None and variable.inner is not None:
                kept[var.kind] += variable.inner.nbytes
        run = max(map(run_bytes, self.scope.frames()), default=0)
        if self.ranks.pipeline is not None:
            run += self.ranks.pipeline.run_bytes()
        return kept[PARAMETER], kept[STATE], run

    def _take_over(self, checkpoint: Checkpoint, path: str) -> Collection[str]:
        """Go on from the checkpoint of another net; see `resuming.py`."""
        values, report = take_over(checkpoint, self.op_list, path)
        if not report.parameters:
            raise FormatError(f"{report}\n{_NOTHING_FITS}")
        if report.epochs >= self.options.epochs:
            raise OpscopeError(
                f"{path}: {report.epochs} epochs are over there, and epochs={self.options.epochs}"
                " counts them: give more"
            )
        self.base.set_random_state(member(checkpoint.state, "random", dict, path))
        self.measured.reset()
        self.epoch = report.epochs
        self.batch = 0
        self.seconds = 0.0
        self.finished = False
        self.best = {}
        self.best_value = None
        self.history.rows = rows_of(checkpoint.state, path)
        self.history.best_epoch = 0
        self.history.resumed = report
        put_values(self._kept_aside(values), report, self.scope)
        return values
