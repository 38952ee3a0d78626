"""Checks of CNTK's files without data: all that is wrong with one, with places and suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...framework.base.errors import FormatError, one_list
from ...framework.base.untrusted.opener import open_file, path_text
from ...framework.base.untrusted.values import stem_of
from ..actions.checks.config import check_config, check_experiment
from ..actions.checks.report import ERROR, WARNING, Report
from ..actions.checks.scripts import check_brainscript, check_mel, check_ndl
from ..brainscript.experiment import is_redesigned, load_experiment
from ..config.files import read_source
from ..models.open_model import format_of, open_model


@one_list()
def check_file(path: str | Path, parse_only: bool = False, extra: Sequence[str] = ()) -> Report:
    """Check a config, an NDL, MEL or BrainScript file, or a model.

    The text is parsed. Without `parse_only` a config is read as a run reads it, up to the first
    minibatch: options, networks, the files that are named, streams and inputs. Nothing is written.
    `extra` holds further `name=value` of a config's command line.
    """
    report = Report()
    path = Path(path_text(path))
    check = _CHECKS.get(path.suffix.lower())
    if check is None:
        check = _check_model if _is_binary(path) else check_config
    with report.collected():
        check(path, parse_only, extra, report)
    return report


def _is_binary(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return format_of(file.read(1 << 16)) is not None
    except (OSError, FormatError):
        return False


def _check_brainscript(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    if not is_redesigned(read_source(path)):
        check_brainscript(path, report, parse_only)
    elif not parse_only:
        warn = partial(report.add, WARNING)
        check_experiment(load_experiment([f"configFile={path}", *extra], warn), report)


def _check_model(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    report.networks[stem_of(path)] = open_model(path, validate=not parse_only).network


_CHECKS = {
    ".ndl": check_ndl,
    ".mel": check_mel,
    ".bs": _check_brainscript,
}

__all__ = ["ERROR", "WARNING", "Report", "check_file"]
