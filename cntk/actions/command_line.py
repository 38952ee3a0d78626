"""A command line of CNTK: the old language or the redesigned one, whichever its file is in."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.errors import FormatError
from ..brainscript import experiment
from ..config.files import find_file, parse_command_line, read_source
from ..parallel.start import launched
from .common import Run
from .experiment import run_experiment
from .run import run_commands


def run_config(*arguments: str, run: Run | None = None) -> None:
    """Run a config as `opscope cntk ARGUMENTS` does.

    Args:
        arguments: words of CNTK's command line: `configFile=FILE`, then any `name=value`, which
            change the config: `run_config("configFile=a.cntk", "Train=[SGD=[maxEpochs=3]]")`.
        run: takes the log, say; by default it goes to standard error, or to the file that `stderr`
            of the config names.

    Raises:
        OpscopeError: the config is wrong, or a command fails; with the place.
    """
    with launched(None if run is None else run.communicator) as ranks:
        _check_named(arguments)
        if is_redesigned(arguments):
            run_experiment(arguments, run, communicator=ranks)
        else:
            run_commands(parse_command_line(arguments), run, communicator=ranks)


def _check_named(arguments: Sequence[str]) -> None:
    """Refuse a command line that names no config, and no commands of its own.

    Raises:
        FormatError: there is neither.
    """
    names = {word.partition("=")[0].strip().lower() for word in arguments if "=" in word}
    if names & {"configfile", "command", "train"}:
        return
    file = next((word for word in arguments if "=" not in word), "FILE")
    raise FormatError(f"the command line names no config: configFile={file} is missing")


def is_redesigned(arguments: Sequence[str]) -> bool:
    """Whether the config file of a command line is one of the redesigned language."""
    files = [word[11:] for word in arguments if word.lower().startswith("configfile=")]
    bare_script = len(files) == 1 and files[0].endswith(".bs")
    return bare_script and experiment.is_redesigned(read_source(find_file(files[0])))
