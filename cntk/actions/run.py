"""Commands of a config, one after the other.

Source: CNTK's `CNTK/CNTK.cpp` (DoCommands).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ...framework.base.communicator import Communicator
from ...framework.base.errors import FormatError, OpscopeError, SaveError
from ...framework.base.files.atomic import make_folder_of
from ...framework.base.options.plugins import call_plugin
from ...framework.base.untrusted.opener import open_output
from ..base.text import reason
from ..base.write import write_text
from ..config.commands import ABSENT, PLUGINS, Command, banner, commands
from ..config.parameters import ConfigParameters
from ..parallel.start import launched, log_of_rank, ranks_of
from ..run.runtime import CntkNet
from ..sgd.report import Say
from . import evaluate, models, outputs, plot, statistics, train, words
from .common import Run, naming_values, precision_of, refuse_overwriting
from .settings import (
    TopOptions,
    cpu_threads,
    done_text,
    epochs_of,
    job_progress,
    refuse_obsolete,
    stamped,
    warnings_to,
)

Action = Callable[[Run, ConfigParameters], object]

ACTIONS: dict[str, Action] = {
    "train": train.train,
    "trainRNN": train.train,
    "adapt": train.adapt,
    "test": evaluate.evaluate,
    "eval": evaluate.evaluate,
    "cv": evaluate.cross_validate,
    "write": outputs.write,
    "edit": models.edit,
    "dumpNodes": models.dump_nodes,
    "dumpNode": models.dump_nodes,
    "dumpnode": models.dump_nodes,
    "SVD": models.decompose,
    "convertdbn": models.convert_dbn,
    "exportdbn": models.export_dbn,
    "plot": plot.plot,
    "topo": plot.plot,
    "bnstat": statistics.batch_norm_statistics,
    "createLabelMap": words.create_label_map,
    "writeWordAndClass": words.write_word_and_class,
}
"""What each action does."""

_ON_ALL_RANKS = frozenset({"train", "trainRNN", "adapt", "test", "eval", "cv", "bnstat"})
"""The actions whose work several ranks share; the main rank does the others."""


def add_action(name: str, function: Action) -> None:
    """Let `action = name` of a config call a function. A package does the same by an entry point of
    the group `opscope.actions`.

    Raises:
        OpscopeError: there is such an action.
    """
    PLUGINS.add(name, function)


@contextmanager
def log_file(path: str) -> Iterator[Say]:
    """A file that takes the lines of the log, written line by line; an error is its last line.

    Raises:
        SaveError: it cannot be written.
    """

    def save_error(error: OSError | ValueError) -> SaveError:
        return SaveError(f"{path}: cannot be written: {reason(error)}")

    def write(text: str) -> None:
        try:
            file.write(text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise save_error(error) from None

    make_folder_of(path)
    try:
        file = open_output(path, buffering=0)
    except (OSError, ValueError) as error:
        raise save_error(error) from None
    with file:
        try:
            yield write
        except OpscopeError as error:
            with suppress(SaveError):
                write(f"\nEXCEPTION occurred: {error}\n")
            raise


def run_commands(
    config: ConfigParameters, run: Run | None = None, *, communicator: Communicator | None = None
) -> None:
    """Run the commands of a config in order, in the folder `currentDirectory` if it names one. The
    log goes to standard error, or to the file `stderr` of the config; `run` says otherwise. The
    file `doneFile` is written at the end.

    Without `run` the processes that a launcher of MPI has started are ranks which train together;
    `communicator` stands for them where they have come together already.

    Raises:
        OpscopeError: a command fails; what it was to write stays as it was.
    """
    with ExitStack() as stack:
        options = TopOptions.of(config)
        if run is None:
            here = stack.enter_context(launched(communicator))
            ranks = ranks_of(
                options.parallel, here, lambda text: config["parallelTrain"].error(text)
            )
            log = log_of_rank(options.log, ranks, options.stamps)
            refuse_overwriting(config, [log] if log else [], ("stderr",))
            run = Run(communicator=ranks)
            if log:
                run.say = stack.enter_context(log_file(log))
        if options.folder:
            config.folders = [folder.absolute() for folder in config.folders]
            stack.enter_context(chdir(options.folder))
        if options.stamps:
            run = replace(run, say=stamped(run.say))
        stack.enter_context(warnings_to(run.say))
        stack.enter_context(naming_values(config))
        _run(config, options, run)


def _run(config: ConfigParameters, options: TopOptions, run: Run) -> None:
    from .checks.config import warnings_of  # which needs the actions of this room

    listed = commands(config)
    precision = precision_of(config)
    refuse_obsolete(config, listed)
    if options.trace_level > 0:
        run.say("\nConfiguration After Processing and Variable Resolution:\n\n")
        run.say(config.dump())
        run.say(f"Commands: {' '.join(command.name for command in listed)}\n")
        run.say(f'precision = "{precision}"\n')
    for warning in warnings_of(config):
        run.say(f"WARNING: {str(warning)}\n")
    run.progress = job_progress(listed, run.say) if options.progress and run.is_main else None
    with cpu_threads(options.threads, run.say):
        for command in listed:
            for action in command.actions:
                run.say(banner(command.name, action))
                if run.is_main or action in _ON_ALL_RANKS:
                    _act(run, command, action)
                if run.communicator is not None:
                    run.communicator.barrier()
                run.say("\n")
                if command.parameters.int("traceLevel", 0) > 0:
                    run.say(f'Action "{action}" complete.\n\n')
    if options.done and run.is_main:
        write_text(Path(options.done), done_text())
    run.say("__COMPLETED__\n" if options.stamps else "COMPLETED.\n")


def _act(run: Run, command: Command, action: str) -> None:
    if action in ABSENT:
        raise FormatError(f"{command.name}: the action {action!r} is not there: {ABSENT[action]}")
    function = ACTIONS.get(action)
    progress = run.progress if action in ("train", "trainRNN") else None
    if progress is not None:
        run.say(f"CNTKCommandTrainBegin: {command.name}\n")
    if function is not None:
        net = function(run, command.parameters)
        if isinstance(net, CntkNet):  # its arrays would wait for the collector of circles
            net.scope.dissolve()
    else:
        _act_elsewhere(run, command, action)
    if progress is not None:
        run.say(f"CNTKCommandTrainEnd: {command.name}\n")
        progress.before += epochs_of(command)


def _act_elsewhere(run: Run, command: Command, action: str) -> None:
    """An action of another package, or of the program."""
    function = PLUGINS.find(action)
    assert function is not None  # `commands` has looked for it
    call_plugin(f"{command.name}: the action {action!r}", function, run, command.parameters)
