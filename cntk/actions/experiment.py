"""A file of the redesigned language: its actions, run in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from ...framework.base.communicator import Communicator
from ...framework.base.errors import FormatError
from ..base.write import write_text
from ..brainscript.experiment import (
    EditAction,
    Experiment,
    LaterAction,
    TrainAction,
    load_experiment,
)
from ..brainscript.redesign.sections import INPUT_FILES
from ..config.commands import banner
from ..config.device import device_of
from ..parallel.start import launched, log_of_rank, ranks_of
from ..sgd.options import SgdOptions
from .checks.config import warnings_of_training
from .common import Run, precision_of
from .run import log_file
from .settings import done_text, warnings_to
from .train import train


def run_experiment(
    arguments: Sequence[str], run: Run | None = None, *, communicator: Communicator | None = None
) -> None:
    """Run the trainings and edits of `configFile=file.bs name=value ...`. The log goes to standard
    error, or to the file `stderr` of the top level; `run` says otherwise. `communicator` is as in
    `run_commands`.

    Raises:
        OpscopeError: something is wrong in the file, or an action fails.
    """
    lines: list[str] = []
    experiment = load_experiment(arguments, lines.append)
    with ExitStack() as stack:
        if run is None:
            here = stack.enter_context(launched(communicator))
            ranks = ranks_of(
                experiment.settings.get("parallelTrain"),
                here,
                lambda text: FormatError(f"{' '.join(arguments)}: {text}"),
            )
            run = Run(communicator=ranks)
            path = log_of_rank(experiment.settings.get("stderr", ""), ranks, False)
            if path:
                run.say = stack.enter_context(log_file(path))
        stack.enter_context(warnings_to(run.say))
        for text in lines:
            run.say(f"WARNING: {text}\n")
        _run(experiment, run)
        done = experiment.settings.get("doneFile", "")
        if done and run.is_main:
            write_text(done, done_text())


def _prepare(action: TrainAction, run: Run) -> None:
    """Read the settings of a training, tell those without effect, and look for its files."""
    SgdOptions.of(action.config.section("SGD"))
    precision_of(action.config)
    device_of(action.config)
    action.network.validate()
    for warning in warnings_of_training(action):
        run.say(f"WARNING: {warning}\n")
    _check_files(action)


def _check_files(action: TrainAction) -> None:
    reader = action.config.section("reader")
    parts = [reader.section(name) for name in reader if reader.is_section(name)]
    for part in [reader, *parts]:
        for name in INPUT_FILES:
            if part.has_value(name) and not os.path.exists(part.string(name)):
                raise part[name].error(f"there is no file {part.string(name)!r}")


def _run(experiment: Experiment, run: Run) -> None:
    for listed in experiment.actions:  # all of them before the first one runs for hours
        if isinstance(listed, TrainAction):
            _prepare(listed, run)
    for listed in experiment.actions:
        action = listed
        if isinstance(action, LaterAction):
            action = action.action()
            if isinstance(action, TrainAction):
                _prepare(action, run)
        edits = isinstance(action, EditAction)
        run.say(banner(action.name, "edit" if edits else "train"))
        if isinstance(action, TrainAction):
            train(run, action.config, action.network)
        elif run.is_main:
            action.run()
        if run.communicator is not None:
            run.communicator.barrier()
    run.say("COMPLETED.\n")
