"""A file of the redesigned language: its actions, run in order."""

from __future__ import annotations

from collections.abc import Sequence

from ..brainscript.experiment import EditAction, load_experiment
from ..config.commands import banner
from .common import Run
from .train import train


def run_experiment(arguments: Sequence[str], run: Run | None = None) -> None:
    """Run the trainings and edits of `configFile=file.bs name=value ...`.

    Raises:
        OpscopeError: something is wrong in the file, or an action fails.
    """
    run = run or Run()
    for action in load_experiment(arguments).actions:
        edits = isinstance(action, EditAction)
        run.say(banner(action.name, "edit" if edits else "train"))
        if isinstance(action, EditAction):
            action.run()
        else:
            action.network.validate()
            train(run, action.config, action.network)
    run.say("COMPLETED.\n")
