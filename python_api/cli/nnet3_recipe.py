"""`opscope nnet3`: a whole training in one command; the words of nnet3's language."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from ...nnet3.programs.base.options import chosen_place
from ..recipe.nnet3 import Nnet3Recipe
from ..recipe.nnet3_options import RecipeOptions
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


def _options(command: Any) -> Any:
    for field in reversed(dataclasses.fields(RecipeOptions)):
        required = field.default is dataclasses.MISSING
        kind = {"int": int, "float": float, "bool": bool}.get(str(field.type), str)
        extra: dict[str, Any] = {"required": True} if required else {"default": field.default}
        if kind is bool:
            extra["is_flag"] = True
        else:
            extra |= {"type": kind, "show_default": not required and field.default != ""}
        name = "--" + field.name.replace("_", "-")
        command = click.option(name, field.name, help=_HELP[field.name], **extra)(command)
    return command


@click.group()
def nnet3() -> None:
    """Train nnet3 networks without Kaldi's scripts; look up component types."""


for _command in (components, xconfig_layers, edits):
    nnet3.add_command(_command)


@nnet3.command()
@_options
@click.option("--use-gpu", default="no", show_default=True, help="yes, no or optional.")
def train(use_gpu: str, **options: Any) -> None:
    """Train the network of an xconfig from features and targets.

    The folder --dir gets examples, a model for each epoch, final.raw, history.csv and history.png.
    Called again after it was cut off, the same command goes on where it stopped.
    """
    shown = sys.stderr.isatty()
    place = chosen_place(use_gpu)
    Nnet3Recipe(
        RecipeOptions(**options), place, lambda line: click.echo(line, err=True), shown
    ).run()
