"""The value of `--cmd`: which scheduler, and what it gets for each job."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable

from ...framework.base.errors import RunError, nearest
from ...framework.base.options.option_fields import option_fields
from .job import JobRunner, Resources
from .kubernetes import KubernetesRunner
from .local import LocalRunner
from .schedulers import SgeRunner, SlurmRunner


def _ray(resources: Resources) -> JobRunner:
    from .ray_jobs import RayRunner  # Ray is an extra

    return RayRunner(resources)


def _dask(resources: Resources) -> JobRunner:
    from .dask_jobs import DaskRunner  # Dask is an extra

    return DaskRunner(resources)


_RUNNERS: dict[str, Callable[[Resources], JobRunner]] = {
    "local": LocalRunner,
    "run.pl": LocalRunner,
    "slurm": SlurmRunner,
    "slurm.pl": SlurmRunner,
    "sge": SgeRunner,
    "queue.pl": SgeRunner,
    "kubernetes": KubernetesRunner,
    "dask": _dask,
    "ray": _ray,
}


def parse_resources(words: list[str], option: str = "--cmd") -> Resources:
    """The options of Kaldi's job scripts among `words`, and the rest.

    Raises:
        RunError: an option has no value, or one that is no number.
    """
    fields: dict[str, str | int | tuple[str, ...]] = {}
    rest: list[str] = []
    known = {f"--{each.name}": each for each in option_fields(Resources)}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in known:
            rest.append(word)
            continue
        if not equals:
            if not words:
                raise RunError(f"{option}: {name} has no value")
            value = words.pop(0)
        kind = known[name].kind
        if kind is int and not value.isdigit():
            raise RunError(f"{option}: {name} {value}: want a number")
        fields[known[name].field] = kind(value)
    return dataclasses.replace(Resources(rest=tuple(rest)), **fields)


def make_runner(command: str, option: str = "--cmd") -> JobRunner:
    """The runner that the value of `--cmd` asks for, as `slurm.pl --mem 4G -p shared`.

    The first word is `local`, `slurm`, `sge`, `kubernetes`, `dask`, `ray`, or the name of a job
    script of Kaldi's, with or without a folder: what that script does is done here.

    Args:
        command: the value. option: whose it is, for messages.

    Raises:
        RunError: there is no such scheduler, an option cannot be understood, or what the scheduler
            needs is not installed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RunError(f"{option}={command}: {error}") from None
    name = os.path.basename(words[0]) if words else ""
    if name not in _RUNNERS:
        raise RunError(f"{option}={command}: no job runner {name!r}{nearest(name, _RUNNERS)}")
    return _RUNNERS[name](parse_resources(words[1:], option))
