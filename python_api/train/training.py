"""`train`: the loop over epochs and minibatches, with everything around it.

history = train(b, Minibatches(arrays, 32), epochs=20, scope=scope, loss=cost,
                evaluate=Minibatches(held_out, 256, shuffle=False), metrics=["accuracy"],
                log_csv="run.csv", plot="run.png", checkpoint="run", resume=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from ...framework.base.context import Hook, OpContext
from ...framework.base.dtypes import is_whole
from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope, default_scope
from ...framework.parallel.launched import restarted_since
from ...framework.training.history import History
from ..builder.calls import checked
from ..ranks.agreement import Ranks, find_communicator
from ..ranks.pipeline import ONE_F_ONE_B, SCHEDULES
from .callbacks import Callbacks
from .data import Data, check_data
from .early_stop import EarlyStop
from .metrics import as_metrics
from .options import Options
from .trainer import Trainer


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
    communicator: Any = None,
    shard: bool = True,
    sync_batch_norm: bool = False,
    zero: int = 0,
    accumulate: int = 1,
    pipeline: str = ONE_F_ONE_B,
    memory: int | str | None = None,
) -> History:
    """Train a net that holds its optimizer's operators.

    Parameters and states without a value are initialized first. Ctrl-C lets the minibatch under way
    finish, writes the checkpoint and returns; a second Ctrl-C ends at once. A resumed training
    continues bit for bit if the data are the same (on a GPU, where an operator draws random
    numbers, from the ends of epochs only).

    Args:
        net: a NetBuilder, a Net, a NetDesc, or what `load(path, train=True)` gives.
        data: minibatches, each a mapping of input names to arrays. Either something that can be
            iterated over once an epoch (a list, a `Minibatches`), or a function of the epoch's
            number from 0, so that an order can depend on it and a resumed training repeats it.
        epochs: number of epochs in all, those before a resume among them.
        scope: holds parameters and states; None: the scope of a loaded net, or the process's
            default scope.
        evaluate: held-out data in the same form, run forward in test phase after each epoch.
        loss: the variable (handle or name) that is minimized: a single number.
        metrics: what to report beside the loss. Variables (handles or names), averaged over
            minibatches by rows; functions of arrays, whose parameters are named after the
            variables that they read, or a `Measure`; a `Metric`. Or a mapping from columns of the
            history to variables and functions.
        log_csv: file with a line for each epoch, rewritten after each.
        plot: PNG of the curves, drawn at the end; needs the extra `plot`.
        checkpoint: prefix of the checkpoint's name, see `framework/files/checkpoint.py`.
        checkpoint_every: epochs from one checkpoint to the next; the last epoch always writes one.
        checkpoint_batches: also every so many minibatches; 0: only between epochs.
        resume: True continues from the checkpoint; without one, a new training starts. So does
            False where `opscope launch --restarts` has started the ranks again. The net must be
            the same. "weights" continues with a net that was changed: another rate, a longer
            schedule, another optimizer or head. Parameters and states that fit are taken over from
            the checkpoint (see `resuming.py`), and `history.resumed` lists them; with `progress`,
            so does stderr. Epochs and the history continue; an interrupted epoch starts again, and
            an early stop watches from here. Where nothing was changed, "weights" is True.
        early_stop: an `EarlyStop`, or a tuple of its fields (patience, metric, mode).
        progress: a bar with the time left, if stderr is a terminal, and a line for each epoch.
        seed: of initial values, dropout and the like; used where no `context` is given.
        callbacks: functions, called after each epoch, and `Callback` objects, after each minibatch
            and epoch. They get a `TrainingState`, and may stop the training.
        hooks: see `Hook`; they watch the training runs.
        context: device, random state and further hooks.
        communicator: the ranks that train together: "mpi" for all processes of an MPI program, or a
            `Communicator`. None: the communicator of `context`, under `opscope launch` "mpi", else
            this process alone. Parameters begin as rank 0 has them; it alone evaluates, measures
            and writes files. Callbacks run on all ranks. See docs/scale_out.md.
        shard: every rank is given the same minibatches and trains on its part of the rows, so that
            a script means the same on any number of ranks. False: each is given its own.
        sync_batch_norm: normalize by the batches of all ranks, not by each rank's own.
        zero: what ranks share out to save memory, with the results of 0, where each holds all of
            it: 1 the states of optimizers, 2 gradients as well, 3 parameters as well. With 3 all
            ranks evaluate, so that each needs the held-out data; until the training ends, the
            scope holds a rank's parts (`NAME@SHARD`) in place of whole values.
        accumulate: minibatches before each update: they train as one minibatch of all their rows.
            What is left at the end of an epoch also makes an update.
        pipeline: of a net that says its stages (`NetBuilder.stage`), on several ranks: the order in
            which a rank runs its stage for the `accumulate` minibatches of an update. "1f1b": one
            forward, one backward; "gpipe": all forward, all backward; "off": every rank has all
            stages.
        memory: the most that a step may take on its device, with parameters, states and inputs: a
            number of bytes, `"8GB"`, `"512MiB"`, or `"80%"` of what the device has. Activations are
            then computed again for the gradients, as many as are needed, and on a GPU wait in the
            host's memory where that is not enough. The results are the same. See
            docs/training.md.

    Returns:
        The history, with the rows of before a resume.

    Raises:
        NotFiniteError: the loss, or a number in the data, is NaN or infinite; the last checkpoint
            stays as it is. Bad numbers in the data are found before they reach a parameter.
        VariableError: unknown names; minibatches that feed other variables than those before.
        AttributeTypeError: something among `metrics` or `callbacks` that is neither.
        FormatError: the checkpoint is damaged or of another net; nothing of it fits.
        SaveError: a file cannot be written.
        RanksError: the ranks differ in net, data or arguments, or another one has failed.
        RunError: no choice keeps a step within `memory`; the message says how much would.
        OpscopeError: no optimizer in the net, no data, arguments that contradict each other.
    """
    if context is not None and not isinstance(context, OpContext):
        raise OpscopeError(f"train: context is an opscope.OpContext, not {context!r}")
    ranks = Ranks(find_communicator(communicator, context), shard, zero, accumulate, pipeline)
    try:
        for what, flag in (("shard", shard), ("sync_batch_norm", sync_batch_norm)):
            if not isinstance(flag, bool):
                raise OpscopeError(f"train: {what} is True or False, not {flag!r}")
        if not is_whole(zero) or not 0 <= zero <= 3:
            raise OpscopeError(f"train: zero is 0, 1, 2 or 3, not {zero!r}")
        # A checkpoint of an earlier run, which this one would have replaced, is none of it.
        since = restarted_since() if resume is False and checkpoint is not None else 0.0
        if since:
            resume = True
        if not is_whole(accumulate) or accumulate < 1:
            raise OpscopeError(f"train: accumulate wants a number from 1 on, not {accumulate!r}")
        if checkpoint_batches and is_whole(checkpoint_batches) and checkpoint_batches % accumulate:
            raise OpscopeError(
                f"train: checkpoint_batches={checkpoint_batches} is no multiple of"
                f" accumulate={accumulate}: a checkpoint is written between updates"
            )
        if pipeline not in SCHEDULES:
            known = ", ".join(map(repr, SCHEDULES))
            raise OpscopeError(f"train: pipeline is one of {known}, not {pipeline!r}")
        if not isinstance(hooks, Iterable) or not all(isinstance(hook, Hook) for hook in hooks):
            raise OpscopeError(f"train: hooks is a list of Hook objects, not {hooks!r}")
        options = Options(
            epochs,
            checkpoint,
            checkpoint_every,
            checkpoint_batches,
            resume,
            log_csv,
            plot,
            ranks.leads,
            since,
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
        if not (scope is None or isinstance(scope, Scope)):
            raise OpscopeError(f"train: scope is an opscope.Scope, not {scope!r}")
        base = context or OpContext(seed=seed)
        if scope is None:
            held = getattr(net, "scope", None)
            scope = held if isinstance(held, Scope) else default_scope()
        trainer = Trainer(net, scope, str(loss), as_metrics(metrics), base)
        trainer.use(evaluate, early_stop, hooks, options, Callbacks(callbacks))
        trainer.join(ranks, sync_batch_norm, data)
        trainer.limit_memory(memory)
        return trainer.train(data, progress and ranks.leads)
    except BaseException as error:
        ranks.communicator.fail(error)  # else the others would wait for this one
        raise


__all__ = ["EarlyStop", "History", "train"]
