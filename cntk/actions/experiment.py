"""A file of the redesigned language: its actions, run in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..base.write import write_text
from ..brainscript.experiment import EditAction, Experiment, load_experiment
from ..config.commands import banner
from .checks.config import warnings_of_training
from .common import Run
from .run import log_file
from .settings import done_text, warnings_to
from .train import train


def run_experiment(arguments: Sequence[str], run: Run | None = None) -> None:
    """Run the trainings and edits of `configFile=file.bs name=value ...`. The log goes to standard
    error, or to the file `stderr` of the top level; `run` says otherwise.

    Raises:
        OpscopeError: something is wrong in the file, or an action fails.
    """
    experiment = load_experiment(arguments)
    with ExitStack() as stack:
        path = experiment.settings.get("stderr", "")
        if run is None:
            run = Run(say=stack.enter_context(log_file(path))) if path else Run()
        stack.enter_context(warnings_to(run.say))
        _run(experiment, run)
        done = experiment.settings.get("doneFile", "")
        if done:
            write_text(done, done_text())


def _run(experiment: Experiment, run: Run) -> None:
    for action in experiment.actions:
        edits = isinstance(action, EditAction)
        run.say(banner(action.name, "edit" if edits else "train"))
        if isinstance(action, EditAction):
            action.run()
        else:
            action.network.validate()
            for warning in warnings_of_training(action):
                run.say(f"WARNING: {warning}\n")
            train(run, action.config, action.network)
    run.say("COMPLETED.\n")
