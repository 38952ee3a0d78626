"""`train`: the loop over epochs and minibatches, with everything around it.

history = train(b, Minibatches(arrays, 32), epochs=20, scope=scope, loss=cost,
                evaluate=Minibatches(held_out, 256, shuffle=False), metrics=["accuracy"],
                log_csv="run.csv", plot="run.png", checkpoint="run", resume=True)
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.atomic import PathLike, check_writable
from ...framework.base.context import Hook, OpContext
from ...framework.base.dtypes import is_float, is_whole
from ...framework.base.errors import (
    FormatError,
    NotFiniteError,
    OpscopeError,
)
from ...framework.base.scope import Scope, default_scope
from ...framework.base.untrusted.values import member
from ...framework.files.checkpoint import (
    Checkpoint,
    checkpoint_path,
    net_difference,
    read_checkpoint,
    write_checkpoint,
)
from ...framework.files.saved import op_list_of, persistent_values
from ...framework.ir.desc import OPTIMIZE
from ...framework.runtime.feeding import Feeder, not_finite
from ...framework.runtime.initialize import initialize
from ...framework.runtime.net import Net
from ...framework.runtime.plain_net import PlainNet
from ..builder.calls import checked
from ..builder.gradients import settle_rates
from ..builder.net_builder import NetBuilder
from .callbacks import Callbacks, TrainingState
from .data import Data, batches_of, check_data, check_reiterable, length_of
from .early_stop import EarlyStop
from .history import EVAL_PREFIX, History
from .measuring import Measurements, check_loss
from .metrics import Metric, as_metrics
from .progress import CtrlC, Progress
from .resuming import put_values, rows_of, take_over

WEIGHTS = "weights"
"""Value of `resume`: go on with a net that was changed."""


@checked
def train(
    net: Any,
    data: Data,
    *,
    epochs: int,
    scope: Scope | None = None,
    evaluate: Data | None = None,
    loss: Any = "loss",
    metrics: Any = (),
    log_csv: PathLike | None = None,
    plot: PathLike | None = None,
    checkpoint: PathLike | None = None,
    checkpoint_every: int = 1,
    checkpoint_batches: int = 0,
    resume: bool | str = False,
    early_stop: EarlyStop | tuple[Any, ...] | None = None,
    progress: bool = True,
    seed: int | None = None,
    callbacks: Any = (),
    hooks: Sequence[Hook] = (),
    context: OpContext | None = None,
) -> History:
    """Train a net that holds its optimizer's operators.

    Parameters and states without a value are initialised first. Ctrl-C lets the minibatch under way
    finish, writes the checkpoint and returns; a second Ctrl-C ends at once. A resumed training goes
    on bit for bit where the data are the same (on a GPU, where an operator draws random numbers,
    from the ends of epochs only).

    Args:
        net: a NetBuilder, a Net, a NetDesc, or what `load(path, train=True)` gives.
        data: minibatches, each a mapping of input names to arrays. Either something that can be
            iterated over once an epoch (a list, a `Minibatches`), or a function of the epoch's
            number from 0, so that an order can depend on it and a resumed training repeats it.
        epochs: number of epochs in all, those before a resume among them.
        scope: holds parameters and states; None: that of a loaded net, or the process's default
            scope.
        evaluate: held-out data in the same form, run forward in test phase after each epoch.
        loss: the variable (handle or name) that is minimised: a single number.
        metrics: what to report beside the loss. Variables (handles or names), averaged over
            minibatches by rows; functions of arrays, whose parameters are named after the
            variables that they read, or a `Measure`; a `Metric`. Or a mapping from columns of the
            history to variables and functions.
        log_csv: file with a line for each epoch, rewritten after each.
        plot: PNG of the curves, drawn at the end; needs the extra `plot`.
        checkpoint: prefix of the checkpoint's name, see `framework/files/checkpoint.py`.
        checkpoint_every: epochs from one checkpoint to the next; the last epoch always writes one.
        checkpoint_batches: also every so many minibatches; 0: only between epochs.
        resume: True goes on from the checkpoint; without one, the training starts afresh. The net
            must be the same. "weights" goes on with a net that was changed: another rate, a longer
            schedule, another optimizer or head. Parameters and states that fit are taken over from
            the checkpoint (see `resuming.py`), and a report tells which: `history.resumed`, and
            with `progress` on stderr. Epochs and the history go on; an epoch that was interrupted
            begins anew, and an early stop watches from here. Where nothing was changed, "weights"
            is True.
        early_stop: an `EarlyStop`, or a tuple of its fields (patience, metric, mode).
        progress: a bar with the time left, if stderr is a terminal, and a line for each epoch.
        seed: of initial values, dropout and the like; used where no `context` is given.
        callbacks: functions, called after each epoch, and `Callback` objects, after each minibatch
            and epoch. They get a `TrainingState`, and may stop the training.
        hooks: see `Hook`; they watch the training runs.
        context: device, random state and further hooks.

    Returns:
        The history, with the rows of before a resume.

    Raises:
        NotFiniteError: the loss, or a number in the data, is NaN or infinite; the last checkpoint
            stays as it is. Bad numbers in the data are found before they reach a parameter.
        VariableError: unknown names; minibatches that feed other variables than those before.
        AttributeTypeError: something among `metrics` or `callbacks` that is neither.
        FormatError: the checkpoint is damaged or of another net; nothing of it fits.
        SaveError: a file cannot be written.
        OpscopeError: no optimizer in the net, no data, arguments that contradict each other.
    """
    if not isinstance(hooks, Iterable) or not all(isinstance(hook, Hook) for hook in hooks):
        raise OpscopeError(f"train: hooks is a list of Hook objects, not {hooks!r}")
    options = _Options(
        epochs, checkpoint, checkpoint_every, checkpoint_batches, resume, log_csv, plot
    )
    check_data(data, "data")
    if evaluate is not None:
        check_data(evaluate, "evaluate")
    if isinstance(early_stop, tuple) and len(early_stop) <= len(dataclasses.fields(EarlyStop)):
        early_stop = EarlyStop(*early_stop)
    if not (early_stop is None or isinstance(early_stop, EarlyStop)):
        raise OpscopeError(
            f"train: early_stop is an EarlyStop(patience=5) or None, not {early_stop!r}"
        )
    for what, given, kind in (("scope", scope, Scope), ("context", context, OpContext)):
        if not (given is None or isinstance(given, kind)):
            raise OpscopeError(f"train: {what} is an opscope.{kind.__name__}, not {given!r}")
    base = context or OpContext(seed=seed)
    if scope is None:
        held = getattr(net, "scope", None)
        scope = held if isinstance(held, Scope) else default_scope()
    trainer = _Trainer(net, scope, str(loss), as_metrics(metrics), base)
    trainer.use(evaluate, early_stop, hooks, options, Callbacks(callbacks))
    return trainer.train(data, progress)


@dataclasses.dataclass(frozen=True)
class _Options:
    """Arguments of `train` that need no net to be checked."""

    epochs: int
    checkpoint: PathLike | None
    checkpoint_every: int
    checkpoint_batches: int
    resume: bool | str
    log_csv: PathLike | None
    plot: PathLike | None

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("checkpoint_every", 1), ("checkpoint_batches", 0)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise OpscopeError(f"train: {name} wants a number from {least} on, not {value!r}")
        if self.resume not in (False, True, WEIGHTS):
            raise OpscopeError(
                f"train: resume is True, False or {WEIGHTS!r}, not {self.resume!r}; the file is"
                " named by checkpoint=PREFIX"
            )
        if self.resume and self.checkpoint is None:
            raise OpscopeError(
                f"train: resume={self.resume!r} needs checkpoint=PREFIX to go on from"
            )
        for name in ("checkpoint", "log_csv", "plot"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, (str, os.PathLike))) or value == "":
                raise OpscopeError(f"train: {name} is the name of a file, not {value!r}")
        if self.checkpoint is not None:
            check_writable(checkpoint_path(self.checkpoint))
        if self.log_csv is not None:
            check_writable(self.log_csv)
        if self.plot is not None:
            from .plot import require_matplotlib

            require_matplotlib()
            check_writable(self.plot)


class _Interrupted(Exception):
    """Ctrl-C was seen between two minibatches."""


class _Trainer:
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
        self.finished = False
        self.best: dict[str, np.ndarray] = {}
        self.best_value: float | None = None
        self.seconds = 0.0

    def use(
        self,
        evaluate: Data | None,
        early_stop: EarlyStop | None,
        hooks: Sequence[Hook],
        options: _Options,
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

    # -- the loop ------------------------------------------------------------------------------

    def train(self, data: Data, progress: bool) -> History:
        options = self.options
        resumed: Collection[str] = ()
        if options.resume and options.checkpoint is not None:
            path = checkpoint_path(options.checkpoint)
            if os.path.exists(path):
                resumed = self._resume(path)
        if progress and self.history.resumed is not None:
            print(self.history.resumed, file=sys.stderr)
        if self.builder is None:
            initialize(self.op_list, self.scope, self.base)
        else:
            if resumed:
                settle_rates(self.builder, self.scope, resumed)
            self.builder.initialize(self.scope, self.base, share=bool(resumed))
        feeder = Feeder(self.net.op_list, self.scope, complete=True)
        check_reiterable(data, options.epochs)
        with Progress(progress, options.epochs, self.epoch) as bar, CtrlC() as ctrl_c:
            try:
                while self.epoch < options.epochs and not self.finished and not self.at.stopping:
                    self._one_epoch(data, feeder, bar, ctrl_c)
            except _Interrupted:
                self.history.interrupted = True
                self._write_checkpoint()
        if self.best and not self.history.interrupted:
            self._restore_best()
        if options.plot is not None and self.history.rows:
            self.history.plot(options.plot)
        return self.history

    def _one_epoch(self, data: Data, feeder: Feeder, bar: Progress, ctrl_c: CtrlC) -> None:
        started = time.perf_counter()
        context = self._train_context()
        before = self.seconds
        bar.start_epoch(self.epoch, length_of(data), self.batch)
        if not self.batch:
            self.measured.reset()
        self.at.epoch, self.at.step, self.at.row = self.epoch + 1, self.batch, {}
        every = self.options.checkpoint_batches
        batches = itertools.islice(batches_of(data, self.epoch), self.batch, None)
        for batch in batches:
            values = self._one_batch(batch, feeder, context)
            self.seconds = before + time.perf_counter() - started
            bar.step(self.measured)
            self.at.step, self.at.values = self.batch, values
            self.callbacks.on_step(self.at)
            if ctrl_c.pressed or self.at.stopping:
                raise _Interrupted
            if every and self.batch % every == 0:
                self._write_checkpoint()
        if not self.batch:
            raise OpscopeError(f"the data hold no minibatch in epoch {self.epoch + 1}")
        row = {"epoch": self.epoch + 1, **self.measured.row()}
        if self.evaluate_data is not None:
            numbers = self._evaluate(self.evaluate_data, feeder, ctrl_c)
            row |= {EVAL_PREFIX + name: value for name, value in numbers.items()}
        row["seconds"] = round(before + time.perf_counter() - started, 6)
        self._end_epoch(row, bar)
        if ctrl_c.pressed and not self.finished and self.epoch < self.options.epochs:
            raise _Interrupted

    def _one_batch(
        self, batch: Mapping[Any, Any], feeder: Feeder, context: OpContext
    ) -> dict[str, np.ndarray]:
        rows = feeder(batch, self._position)
        context.renew()
        self.net.run(self.scope, context)
        values = self.measured.values(self.scope)
        loss = self.measured.loss_of(values)
        if not np.isfinite(loss):
            raise NotFiniteError(self._why_not_finite(loss))
        self.measured.update(values, rows)
        self.batch += 1
        return values

    def _end_epoch(self, row: dict[str, float], bar: Progress) -> None:
        self.history.rows.append(row)
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0
        self._watch_early_stop(row)
        bar.end_epoch(row)
        self.at.row = row
        self.callbacks.on_epoch(self.at)
        options = self.options
        last = self.finished or self.at.stopping or self.epoch == options.epochs
        if last or self.epoch % options.checkpoint_every == 0:
            self._write_checkpoint()
        if options.log_csv is not None:
            self.history.to_csv(options.log_csv)

    def _evaluate(self, data: Data, feeder: Feeder, ctrl_c: CtrlC) -> dict[str, float]:
        """What is measured on the held-out data: forward only, in test phase."""
        context = OpContext(
            self.base.device,
            train=False,
            seed=0,
            live_out=self.measured.fetch,
            stream=self.base.stream,
        )
        measured, minibatches = self.measured.fresh(), 0
        end = self.net.last_forward_op + 1
        for batch in batches_of(data, self.epoch):
            rows = feeder(batch, lambda: f"{self._position()}, evaluation", held_out=True)
            self.net.run(self.scope, context, 0, end)
            measured.update(measured.values(self.scope), rows)
            minibatches += 1
            if ctrl_c.pressed:
                raise _Interrupted
        if not minibatches:
            raise OpscopeError("the held-out data hold no minibatch")
        self.history.metrics |= {EVAL_PREFIX + m.name: m for m in measured.metrics}
        return measured.row()

    def _train_context(self) -> OpContext:
        """The context of training runs."""
        context = self.base.derive(train=True, live_out=self.measured.fetch)
        context.hooks = self.hooks
        return context

    def _position(self) -> str:
        return f"epoch {self.epoch + 1}, minibatch {self.batch + 1}"

    def _why_not_finite(self, value: float) -> str:
        held = persistent_values(self.op_list, self.scope)
        bad = [name for name, array in held.items() if is_float(array.dtype) and not_finite(array)]
        why = f"{self._position()}: the loss {self.loss!r} is {value}"
        if bad:
            why += f"; no longer finite: {', '.join(bad[:5])}{', ...' if len(bad) > 5 else ''}"
        path = self.options.checkpoint and checkpoint_path(self.options.checkpoint)
        if path and os.path.exists(path):
            why += f"; the last good checkpoint is {path}"
        return why

    # -- the best epoch ------------------------------------------------------------------------

    def _watch_early_stop(self, row: Mapping[str, float]) -> None:
        stop = self.early_stop
        if stop is None:
            return
        if stop.is_better(row[stop.metric], self.best_value):
            self.best_value = row[stop.metric]
            self.history.best_epoch = self.epoch
            values = persistent_values(self.op_list, self.scope)
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
        state = {
            "epoch": self.epoch,
            "batch": self.batch,
            "finished": self.finished,
            "seconds": self.seconds,
            "metrics": (self.measured if self.batch else self.measured.fresh()).state(),
            "random": self.base.random_state(),
            "rows": self.history.rows,
            "best_epoch": self.history.best_epoch,
            "best_value": self.best_value,
        }
        write_checkpoint(self.options.checkpoint, self.op_list, self.scope, state, self.best)

    def _resume(self, path: str) -> Collection[str]:
        """Go on from a checkpoint; returns the variables whose values it brought."""
        found = read_checkpoint(path)
        difference = net_difference(found.op_list, self.op_list)
        if difference and self.options.resume == WEIGHTS:
            return self._take_over(found, path)
        if difference:
            raise FormatError(
                f"{path}: is of another net: {difference}; resume={WEIGHTS!r} takes over what fits"
                " both and tells what does not"
            )
        try:
            state = found.state
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
                return self._take_over(found, path)
            raise OpscopeError(
                f"{path}: does not hold what this training reports ({error!r}); were loss or"
                " metrics changed?"
            ) from None
        self.base.set_random_state(random)
        self.epoch, self.batch = epoch, batch
        self.history.stopped_early = self.finished
        self.best = found.best if self.early_stop is not None else {}
        for name, array in found.values.items():
            (self.scope.find(name) or self.scope.var(name)).set(array)
        return found.values

    def _take_over(self, found: Checkpoint, path: str) -> Collection[str]:
        """Go on from the checkpoint of another net; see `resuming.py`."""
        values, report = take_over(found, self.op_list, path)
        if not report.parameters:
            raise FormatError(f"{report}\nno parameter of this net is there with its shape")
        if report.epochs >= self.options.epochs:
            raise OpscopeError(
                f"{path}: {report.epochs} epochs are over there, and epochs={self.options.epochs}"
                " counts them: give more"
            )
        self.base.set_random_state(member(found.state, "random", dict, path))
        self.measured.reset()
        self.epoch, self.batch, self.seconds = report.epochs, 0, 0.0
        self.finished, self.best, self.best_value = False, {}, None
        self.history.rows, self.history.best_epoch = rows_of(found.state, path), 0
        self.history.resumed = report
        put_values(values, report, self.scope)
        return values


__all__ = ["EarlyStop", "History", "train"]
