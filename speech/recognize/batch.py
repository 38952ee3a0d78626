"""Recordings one by one, or shared out among processes, and where their results go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, TypeVar

import click

from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import make_folder_of, write_atomically
from ...framework.base.machine.workers import shared_out
from .model import Model

Item = TypeVar("Item")
_Row = tuple[str, str | None, tuple[str, str]]
"""Name of a recording, where its result goes, and what `Batch.results` gives."""
Work = Callable[[Item, Any], str]
"""The result of a recording. It goes to other processes, so it must be picklable."""


class Batch(Generic[Item]):
    """Recordings that the same is done with.

    Args:
        model: path of the folder. items: recordings. work: what is done with each.
        names: of the recordings, for messages. dither, reproducible: see `Model`.
        opens: gives the model of the path, with these two.
    """

    def __init__(
        self,
        model: str,
        items: Sequence[Item],
        work: Work[Item],
        names: Sequence[str],
        dither: float | None = None,
        reproducible: bool = False,
        opens: Callable[..., Any] = Model,
    ) -> None:
        self._items = items
        self._work = work
        self._names = names
        self._model = opens, model, dither, reproducible

    def write(
        self,
        jobs: int,
        targets: Sequence[str | None],
        doing: str,
        heading: Callable[[str], str] | None = None,
    ) -> int:
        """Print or write the result of each, with what is wrong on standard error.

        Args:
            jobs: processes. targets: see `targets_of`. doing: label of the progress bar.
            heading: line before what is printed of a recording.

        Returns:
            How many failed.
        """
        failed = 0
        results = zip(self._names, targets, self.results(jobs), strict=True)
        with self._shown(results, doing) as rows:
            for name, target, (text, wrong) in rows:
                if wrong:
                    failed += 1
                    click.echo(wrong if name in wrong else f"{name}: {wrong}", err=True)
                elif target is None:
                    if heading is not None:
                        click.echo(heading(name))
                    click.echo(text, nl=False)
                else:
                    make_folder_of(target)
                    write_atomically(target, text.encode("utf-8", "surrogateescape"))
        return failed

    def _shown(self, rows: Iterable[_Row], doing: str) -> AbstractContextManager[Iterable[_Row]]:
        """The rows with progress on standard error, where that is a terminal."""
        if not sys.stderr.isatty():
            return nullcontext(rows)
        return click.progressbar(rows, length=len(self._items), file=sys.stderr, label=doing)

    def results(self, jobs: int) -> Iterator[tuple[str, str]]:
        """The result of each recording, or "" and what is wrong, in their order."""
        return shared_out(partial(_opened, self._work, *self._model), self._items, jobs)


def targets_of(names: Sequence[str], ending: str, folder: str | None) -> list[str | None]:
    """Where the result of each recording goes; None: to standard output.

    Raises:
        click.UsageError: two of them would go to one file.
    """
    if folder is None:
        return [None for _ in names]
    source_of: dict[str, str] = {}
    for path in names:
        stem = os.path.splitext(os.path.basename(path))[0]
        target = os.path.join(folder, stem + ending)
        if target in source_of:
            raise click.UsageError(f"{source_of[target]} and {path} would both go to {target}")
        source_of[target] = path
    return list(source_of)


def _opened(
    work: Work[Item],
    opens: Callable[..., Any],
    path: str,
    dither: float | None,
    reproducible: bool,
) -> Callable[[Item], tuple[str, str]]:
    """What is done with a recording, with the model read."""
    return partial(_run, work, opens(path, dither=dither, reproducible=reproducible))


def _run(work: Work[Item], model: Any, item: Item) -> tuple[str, str]:
    """The result of a recording, or nothing and what is wrong."""
    try:
        return work(item, model), ""
    except (OpscopeError, OSError) as error:
        return "", str(error)
