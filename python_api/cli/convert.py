"""The command `opscope convert`."""

from __future__ import annotations

import re

import click

_CONTEXT = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<left>\d{1,6})(?::(?P<right>\d{1,6}))?\Z")


def _frames(text: str) -> tuple[str, tuple[int, int]]:
    """Input and frames of `[NAME=]LEFT:RIGHT`, or of `[NAME=]N` for a window of N frames."""
    match = _CONTEXT.match(text)
    if match is None:
        raise click.UsageError(f"--context {text}: want [NAME=]LEFT:RIGHT or an odd number")
    left, right = int(match["left"]), match["right"]
    if right is None:
        if left % 2 == 0:
            raise click.UsageError(f"--context {text}: a window has an odd number of frames")
        left = left // 2
        right = left
    return match["name"] or "", (left, int(right))


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", type=click.Path(dir_okay=False))
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NODE",
    help="A node of CNTK's that becomes an output; the first is called output. Several times.",
)
@click.option(
    "--context",
    "windows",
    multiple=True,
    metavar="[NAME=]LEFT:RIGHT",
    help="Frames around each that an input of CNTK's holds side by side, as contextWindow says.",
)
@click.option(
    "--transition-model",
    type=click.Path(exists=True, dir_okay=False),
    help="A file that begins with a transition model, for a target .mdl.",
)
@click.option("--text", is_flag=True, help="Write nnet3 as text.")
def convert(
    source: str,
    target: str,
    outputs: tuple[str, ...],
    windows: tuple[str, ...],
    transition_model: str | None,
    text: bool,
) -> None:
    """Convert a feed-forward network from CNTK to Kaldi's nnet3 (TARGET .raw or .mdl), or from
    nnet3 to CNTK (TARGET .dnn, .cmf or .model). What cannot be converted is named."""
    from ..convert.files import convert_file

    context = dict(_frames(window) for window in windows)
    for line in convert_file(source, target, outputs, context, transition_model, not text):
        click.echo(line)
