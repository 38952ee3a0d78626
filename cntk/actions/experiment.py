"""A file of the redesigned language: its actions, run in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..brainscript.experiment import EditAction, Experiment, LaterAction, load_experiment
from ..config.commands import banner
from .common import Run, write_text
from .run import log_file
from .settings import done_text, warnings_to
from .train import train


def run_experiment(arguments: Sequence[str], run: Run | None = None) -> None:
    """Run the trainings and edits of `configFile=file.bs name=value ...`. The log goes to standard
    error, or to the file `stderr` of the top level; `run` says otherwise.

    Raises:
        OpscopeError: something is wrong in the file, or an action fails.
    """
    told: list[str] = []
    experiment = load_experiment(arguments, told.append)
    with ExitStack() as stack:
        path = experiment.settings.get("stderr", "")
        if run is None:
            run = Run(say=stack.enter_context(log_file(path))) if path else Run()
        stack.enter_context(warnings_to(run.say))
        for text in told:
            run.say(f"WARNING: {text}\n")
        _run(experiment, run)
        done = experiment.settings.get("doneFile", "")
        if done:
            write_text(done, done_text())


def _run(experiment: Experiment, run: Run) -> None:
    for listed in experiment.actions:
        action = listed.action() if isinstance(listed, LaterAction) else listed
        edits = isinstance(action, EditAction)
        run.say(banner(action.name, "edit" if edits else "train"))
        if isinstance(action, EditAction):
            action.run()
        else:
            action.network.validate()
            train(run, action.config, action.network)
    run.say("COMPLETED.\n")
