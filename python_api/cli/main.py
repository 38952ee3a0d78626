"""The command line `opscope`. Its commands are loaded when they are called: starting is quick."""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import click

from ...framework.base.errors import OpscopeError

# command -> module of this package that holds it, function, one line of help
_COMMANDS = {
    "show": (".look", "Print a net, one line an operator, or draw it."),
    "verify": (".look", "Check a net and list all that is wrong with it."),
    "ops": (".look", "List the operators, or tell all about one."),
    "version": (".look", "Versions of opscope and of what it runs on."),
    "run": (".run", "Run a saved net on arrays from files."),
    "train": (".train", "Train a saved net on arrays from files."),
    "nnet3-init": ("...nnet3.programs.models", "Make an nnet3 network from a config file."),
    "nnet3-copy": ("...nnet3.programs.models", "Copy an nnet3 network, changed by options."),
    "nnet3-info": ("...nnet3.programs.models", "Print what an nnet3 network is made of."),
    "nnet3-am-copy": (
        "...nnet3.programs.models",
        "Copy an nnet3 acoustic model, changed by options.",
    ),
    "nnet3-am-info": ("...nnet3.programs.models", "Print what an nnet3 acoustic model is made of."),
    "nnet3-compute": (
        "...nnet3.programs.compute",
        "Compute the output of an nnet3 network for features.",
    ),
    "nnet3-xvector-compute": (
        "...nnet3.programs.compute",
        "Compute one vector for each utterance.",
    ),
    "nnet3-compute-from-egs": ("...nnet3.programs.compute", "Compute the output for each example."),
    "nnet3-compile": ("...nnet3.programs.compile", "Print what a network computes for a request."),
    "nnet3-xconfig-to-config": ("...nnet3.programs.xconfig", "Turn an xconfig into config files."),
    "nnet3-get-egs": ("...nnet3.programs.get_egs", "Make examples from features and posteriors."),
    "nnet3-get-egs-dense-targets": (
        "...nnet3.programs.get_egs",
        "Make examples from features and matrices.",
    ),
    "nnet3-xvector-get-egs": ("...nnet3.programs.get_egs", "Make examples for x-vectors."),
    "nnet3-copy-egs": ("...nnet3.programs.egs", "Copy examples; choose frames, cut context."),
    "nnet3-merge-egs": ("...nnet3.programs.egs", "Merge examples into minibatches."),
    "nnet3-shuffle-egs": ("...nnet3.programs.egs", "Copy examples in random order."),
    "nnet3-subset-egs": ("...nnet3.programs.egs", "Draw examples at random."),
    "nnet3-egs-augment-image": ("...nnet3.programs.egs", "Change images in examples at random."),
    "nnet3-train": ("...nnet3.programs.train", "Train an nnet3 network on examples."),
    "nnet3-compute-prob": ("...nnet3.programs.train", "Objective and accuracy on examples."),
    "nnet3-chain-train": ("...nnet3.programs.chain", "Train an nnet3 network with LF-MMI."),
    "nnet3-chain-compute-prob": ("...nnet3.programs.chain", "LF-MMI objective on examples."),
    "nnet3-chain-combine": (
        "...nnet3.programs.chain",
        "Average the networks that do best with LF-MMI.",
    ),
    "nnet3-chain-get-egs": ("...nnet3.programs.chain_egs", "Make chain examples."),
    "nnet3-chain-e2e-get-egs": (
        "...nnet3.programs.chain_egs",
        "Make chain examples of whole utterances.",
    ),
    "nnet3-chain-normalize-egs": ("...nnet3.programs.chain_egs", "Add weights to chain examples."),
    "nnet3-chain-copy-egs": (
        "...nnet3.programs.chain_egs",
        "Copy chain examples; shift, cut context.",
    ),
    "nnet3-chain-merge-egs": (
        "...nnet3.programs.chain_egs",
        "Merge chain examples into minibatches.",
    ),
    "nnet3-chain-shuffle-egs": (
        "...nnet3.programs.chain_egs",
        "Copy chain examples in random order.",
    ),
    "nnet3-chain-subset-egs": ("...nnet3.programs.chain_egs", "Draw chain examples at random."),
    "nnet3-average": ("...nnet3.programs.train", "Average nnet3 networks."),
    "nnet3-combine": ("...nnet3.programs.train", "Average the networks that do best on examples."),
    "nnet3-show-progress": ("...nnet3.programs.train", "How a network changed."),
    "nnet3-acc-lda-stats": ("...nnet3.programs.lda", "Statistics for LDA of a network's output."),
    "nnet3-chain-acc-lda-stats": ("...nnet3.programs.lda", "The same, of chain examples."),
    "sum-lda-accs": ("...nnet3.programs.lda", "Add statistics for LDA."),
    "nnet-get-feature-transform": (
        "...nnet3.programs.lda",
        "An input transform from such statistics.",
    ),
    "nnet3-am-init": (
        "...nnet3.programs.acoustic_models",
        "Make an acoustic model of a raw network.",
    ),
    "nnet3-am-adjust-priors": (
        "...nnet3.programs.acoustic_models",
        "Set the priors of an acoustic model.",
    ),
    "nnet3-am-train-transitions": (
        "...nnet3.programs.acoustic_models",
        "Transition probabilities of alignments.",
    ),
    "copy-transition-model": (
        "...nnet3.programs.acoustic_models",
        "Copy a model's transition model.",
    ),
    "matrix-sum": ("...nnet3.programs.sums", "Add matrices."),
    "matrix-sum-rows": ("...nnet3.programs.sums", "Add up the rows of matrices."),
    "vector-sum": ("...nnet3.programs.sums", "Add vectors."),
    "convert": (".convert", "Convert feed-forward networks between CNTK and nnet3."),
    "cntk": (".cntk", "Read CNTK's configs and scripts, and check and lay them out."),
    "nnet3": (".nnet3_recipe", "Train an nnet3 network from features in one command."),
    "links": (".links", "Make executables with the names of Kaldi's programs."),
}

_LONG = 5  # lines of an error that are not put into one
_OWN = frozenset({"nnet3-compile", "nnet3-xconfig-to-config"})
_OTHERS = frozenset(
    {"copy-transition-model", "matrix-sum", "matrix-sum-rows", "sum-lda-accs", "vector-sum"}
)  # programs of Kaldi with other names


def kaldi_programs() -> list[str]:
    """The commands that stand for programs of Kaldi."""
    names = (n for n in _COMMANDS if n.startswith(("nnet3-", "nnet-")) or n in _OTHERS)
    return [name for name in names if name not in _OWN]


class _Commands(click.Group):
    """Finds commands by the table above; turns the package's errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[name][0], __package__)
        return getattr(module, name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from ...framework.base.errors import nearest

        if args and args[0] not in _COMMANDS:
            ctx.fail(f"no command {args[0]!r}{nearest(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OpscopeError as error:
            if ctx.params.get("debug"):
                raise
            lines = str(error).splitlines()
            between = "; " if len(lines) < _LONG else "\n  "
            click.echo(f"error: {between.join(lines)}", err=True)
            ctx.exit(1)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def main(debug: bool) -> None:
    """Networks as lists of operators: look at them, check, run and train them."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # keys and names may be any bytes
