"""`opscope nnet3`: a whole training in one command; the words of nnet3's language."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from typing import Any

import click

from ...framework.base.options.field_options import field_options
from ...nnet3.programs.base.options import chosen_place
from ...nnet3.programs.base.program import print_line
from ...scale.recipe.nnet3 import Nnet3Recipe
from ...scale.recipe.nnet3_options import RecipeOptions
from ...scale.recipe.parallel import ParallelRecipe
from ...scale.recipe.parallel_options import ParallelOptions
from ...scale.recipe.train_job import program_of, read_job
from .nnet3_language import components, edits, xconfig_layers

_NOT_NEEDED = ("feats", "targets")
"""With --egs-dir."""


@click.group()
def nnet3() -> None:
    """Train nnet3 networks without Kaldi's scripts; look up component types."""


for _command in (components, xconfig_layers, edits):
    nnet3.add_command(_command)


@nnet3.command()
@field_options(RecipeOptions, ParallelOptions, optional=_NOT_NEEDED)
@click.option("--use-gpu", default="no", show_default=True, help="yes, no, optional or wait.")
def train(use_gpu: str, **options: Any) -> None:
    """Train the network of an xconfig from features and targets.

    The folder --dir gets examples, a model for each epoch, final.raw, history.csv and history.png.
    After an interruption, the same command resumes where it stopped.

    With --cmd, or more than one job, training is cut into iterations of parallel jobs, as Kaldi's
    scripts do it, and each iteration gives a model.
    """
    names = {field.name for field in dataclasses.fields(ParallelOptions)}
    parallel = ParallelOptions(**{name: options.pop(name) for name in names})
    missing = [name for name in _NOT_NEEDED if not options[name] and not parallel.egs_dir]
    if missing:
        raise click.UsageError(f"Missing option '--{missing[0]}'.")
    chosen = RecipeOptions(**options)
    place = chosen_place(use_gpu)
    if parallel.by_jobs:
        ParallelRecipe(chosen, parallel, use_gpu, _echo).run()
    else:
        Nnet3Recipe(chosen, place, _echo, sys.stderr.isatty()).run()


def _echo(line: str) -> None:
    click.echo(line, err=True)


@nnet3.command(hidden=True)
@click.argument("path")
def job(path: str) -> None:
    """Run one job of a training by jobs."""
    loaded = read_job(path)
    loaded.run(partial(print_line, program_of(loaded), "LOG"))
