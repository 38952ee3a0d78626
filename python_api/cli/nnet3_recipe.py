"""`opscope nnet3`: a whole training in one command; the words of nnet3's language."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from typing import Any

import click

from ...nnet3.programs.base.options import chosen_place
from ...nnet3.programs.base.program import print_line
from ..recipe.nnet3 import Nnet3Recipe
from ..recipe.nnet3_options import RecipeOptions
from ..recipe.parallel import ParallelRecipe
from ..recipe.parallel_options import ParallelOptions
from ..recipe.train_job import program_of, read_job
from .nnet3_language import components, edits, xconfig_layers

_HELP = {
    "feats": "Rspecifier of features, e.g. ark:feats.ark.",
    "targets": "Rspecifier of targets: class ids, posteriors or matrices.",
    "network": "An xconfig, a config, or a raw network.",
    "dir": "Folder of the experiment.",
    "ivectors": "Rspecifier of iVectors, as matrices.",
    "online_ivector_period": "Frames between two iVectors.",
    "num_frames": "Frames of targets in an example: the principal number, then others.",
    "chunk_left_context": "Frames of left context besides what the network needs.",
    "chunk_right_context": "Frames of right context besides what the network needs.",
    "frame_subsampling_factor": "Input frames for one frame of targets.",
    "valid_utterances": "Utterances to hold out.",
    "epochs": "Passes over the data.",
    "minibatch": "Examples in a minibatch, as --minibatch-size of nnet3-merge-egs.",
    "initial_lr": "Learning rate at the start.",
    "final_lr": "Learning rate at the end.",
    "momentum": "Share of the last change that goes on.",
    "max_param_change": "Largest change in one minibatch.",
    "l2_regularize_factor": "Factor of the components' L2 regularization.",
    "backstitch_training_scale": "Scale of backstitch; 0 = none.",
    "backstitch_training_interval": "Backstitch with one of so many minibatches.",
    "dropout_schedule": "Dropout proportions, e.g. 0,0.2@0.5,0.",
    "average_last": "Epochs whose models may be averaged at the end.",
    "checkpoint_minutes": "Time between checkpoints.",
    "seed": "Of all that is random.",
    "skip_nan": "Pass over utterances with NaN, in place of refusing.",
}


_BY_JOBS_HELP = {
    "cmd": "Where jobs run: run.pl, slurm.pl, queue.pl, kubernetes or dask, with options.",
    "jobs_initial": "Jobs of an iteration at the start.",
    "jobs_final": "Jobs of an iteration at the end.",
    "jobs_step": "Above this, their number is a multiple of it.",
    "samples_per_iter": "About how many examples an archive gets.",
    "single_frames": "Train on one frame of each example, another one in each pass.",
    "egs_dir": "Examples that are there, as Kaldi's get_egs.sh makes them.",
    "den_fst": "Train with LF-MMI on chain examples in --egs-dir: the denominator FST.",
    "chain_l2_regularize": "LF-MMI: L2 regularization of the output.",
    "xent_regularize": "LF-MMI: scale of the cross-entropy of 'output-xent'.",
    "leaky_hmm_coefficient": "LF-MMI: flow from each HMM state to all others.",
    "apply_deriv_weights": "LF-MMI: use the weights of derivatives in the examples.",
    "shuffle_buffer_size": "Examples in memory while an archive is shuffled; 0 = all.",
    "proportional_shrink": "Scale parameters by 1 - this times the learning rate.",
    "shrink_value": "Scale of parameters where nonlinearities are saturated.",
    "shrink_saturation_threshold": "How saturated they must be for that.",
    "deriv_truncate_margin": "Frames around a chunk to which derivatives go back; -1 = all.",
    "max_models_combine": "Models that are combined at the end.",
    "max_objective_evaluations": "How often their mean is judged.",
    "preserve_model_interval": "Keep the model of every so many-th iteration.",
    "job_minutes": "How long a job may take from its submission on; 0 = for ever.",
    "job_tries": "How often a job is run before the training gives up.",
}
_NOT_NEEDED = ("feats", "targets")
"""With --egs-dir."""


def _options(command: Any) -> Any:
    fields = [*dataclasses.fields(RecipeOptions), *dataclasses.fields(ParallelOptions)]
    texts = _HELP | _BY_JOBS_HELP
    for field in reversed(fields):
        required = field.default is dataclasses.MISSING
        kind = {"int": int, "float": float, "bool": bool}.get(str(field.type), str)
        extra: dict[str, Any] = {"required": True} if required else {"default": field.default}
        if field.name in _NOT_NEEDED:
            extra = {"default": ""}
        if kind is bool and not field.default:
            extra["is_flag"] = True
        else:
            extra |= {"type": kind, "show_default": not required and field.default != ""}
        name = "--" + field.name.replace("_", "-")
        command = click.option(name, field.name, help=texts[field.name], **extra)(command)
    return command


@click.group()
def nnet3() -> None:
    """Train nnet3 networks without Kaldi's scripts; look up component types."""


for _command in (components, xconfig_layers, edits):
    nnet3.add_command(_command)


@nnet3.command()
@_options
@click.option("--use-gpu", default="no", show_default=True, help="yes, no, optional or wait.")
def train(use_gpu: str, **options: Any) -> None:
    """Train the network of an xconfig from features and targets.

    The folder --dir gets examples, a model for each epoch, final.raw, history.csv and history.png.
    Called again after it was cut off, the same command goes on where it stopped.

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
    found = read_job(path)
    found.run(partial(print_line, program_of(found), "LOG"))
