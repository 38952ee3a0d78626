"""The check of a whole config, and the warnings with which a run begins."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path

from ....framework.base.errors import OpscopeError
from ...base.text import MOST_ERRORS
from ...brainscript.experiment import EditAction, Experiment, TrainAction
from ...config.commands import ABSENT, Command, command_of
from ...config.files import parse_command_line
from ...config.parameters import ConfigParameters
from ...config.unread import unread_parameters
from ..common import precision_of
from ..settings import TopOptions, refuse_obsolete, warnings_to
from .actions import CHECKS, train
from .checker import Checker
from .report import WARNING, Report
from .scripts import parse_sections


def check_config(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    """Check a config: its texts and, unless `parse_only`, what its commands read.

    Args:
        path: of the file.
        parse_only: whether to read the text alone.
        extra: further `name=value` of the command line.
        report: takes what is wrong.
    """
    config = parse_command_line([f"configFile={path}", *extra])
    parse_sections(config, report)
    if parse_only:
        return
    with _folder(config), warnings_to(lambda text: report.add(WARNING, _plain(text))):
        checker = Checker(report)
        check_commands(checker, config)
        for warning in unread_parameters(config):
            report.add_error(warning, WARNING)


def _plain(line: str) -> str:
    """A warning without what a log puts around it."""
    return line.removeprefix("WARNING: ").rstrip("\n")


@contextmanager
def _folder(config: ConfigParameters) -> Iterator[None]:
    """The folder in which the run would be: `currentDirectory`, if the config names one."""
    folder = config.string("currentDirectory", "")
    if not folder or not os.path.isdir(folder):
        yield
        return
    config.folders = [other.absolute() for other in config.folders]
    with chdir(folder):
        yield


def check_commands(checker: Checker, config: ConfigParameters) -> None:
    """Check the top level of a config and all its commands, in the order in which they run."""
    report = checker.report
    checker.read(config, lambda: TopOptions.of(config))
    checker.read(config, lambda: precision_of(config))
    listed: list[Command] = []
    names = checker.read(config, lambda: config.array("command", "train")) or ()
    wrong = 0
    for name in {str(name): name for name in names}.values():
        with report.collected():
            listed.append(command_of(config, name))
            continue
        wrong += 1
        if wrong > MOST_ERRORS:
            break
        config.record.leave(f"{config.path}:{name}")
        if config.is_section(str(name)):
            with report.collected():  # its variables, which may be wrong, are not replaced
                text = config.raw(str(name))
                _expect(checker, ConfigParameters(text, f"{config.path}:{name}", config))
    with report.collected():
        refuse_obsolete(config, listed)
    for command in listed:
        for action in dict.fromkeys(command.actions):
            _check(checker, command, action)


def _check(checker: Checker, command: Command, action: str) -> None:
    check = CHECKS.get(action)
    if check is None:  # of another package, or left out
        parameters = command.parameters
        parameters.record.leave(parameters.path)
        if action in ABSENT:
            message = f"the action {action!r} is not there: {ABSENT[action]}"
            checker.report.add_error(parameters["action"].error(message))
        return
    with checker.report.collected():
        check(checker, command.parameters, command.name)
        return
    with (
        checker.report.collected()
    ):  # that its model is missing is not reported again for those after it
        _expect(checker, command.parameters)


def _expect(checker: Checker, section: ConfigParameters) -> None:
    for name in ("modelPath", "outputModelPath", "newModelPath"):
        if path := section.string(name, ""):
            checker.models.expect(path)


def check_experiment(experiment: Experiment, report: Report) -> None:
    """Check the actions of a file of the redesigned language."""
    checker = Checker(report)
    for action in experiment.actions:
        if isinstance(action, TrainAction):
            with report.collected():
                action.network.validate()
                report.networks[action.name] = action.network
                train(checker, action.config, action.name, action.network)
            for warning in unread_parameters(action.config):
                report.add_error(warning, WARNING)
            continue
        if not isinstance(action, EditAction):
            continue  # its model is not there before an action has run
        for _, network, path in action.steps:
            with report.collected():
                network.validate()
                report.networks[action.name] = network
                checker.models.store(path, network)


def warnings_of(config: ConfigParameters) -> list[OpscopeError]:
    """What a run tells before its first command: names that nothing reads, settings without effect.

    Networks are not built; errors are left to the run.
    """
    fresh = ConfigParameters(config.text, config.path)
    fresh.folders = config.folders
    checker = Checker(Report(), build=False)
    check_commands(checker, fresh)
    return unread_parameters(fresh)


def warnings_of_training(action: TrainAction) -> list[OpscopeError]:
    """The same of a training of the redesigned language."""
    fresh = ConfigParameters(action.config.text, action.config.path)
    train(Checker(Report(), build=False), fresh, action.name, action.network)
    return unread_parameters(fresh)
