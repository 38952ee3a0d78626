"""The command line `opscope`. Its commands are loaded when they are called: starting is quick."""

from __future__ import annotations

import gc
import sys
from typing import Any

import click

from ... import __version__
from ...framework.base.errors import OpscopeError, nearest, one_list
from ...framework.base.python.lazy_names import lasting_module
from ...nnet3.programs import OWN, PROGRAMS
from ...speech.programs import PROGRAMS as SPEECH_PROGRAMS
from . import standard_streams

# command -> the module that holds its function, one line of help
_COMMANDS = {
    "show": (".look", "Print a net, one line an operator, or draw it."),
    "summary": (".look", "Print a net's shapes, parameters and memory as a table."),
    "open": ("...bridges.open.command", "Print what files are, by their content."),
    "view": ("...bridges.view.command", "Write a page to look at a net in a browser."),
    "profile": ("...bridges.profile.command", "Show where the time of a net goes."),
    "compare": ("...bridges.compare.command", "Show where two models part ways, by layer."),
    "edit": ("...bridges.edit.command", "Change a network: rename, cut, freeze, new outputs."),
    "verify": (".look", "Check a net and list all that is wrong with it."),
    "ops": (".ops", "List layers and operators by topic, or tell all about one."),
    "version": (".look", "Versions of opscope and of what it runs on."),
    "run": (".run", "Run a saved net on arrays from files."),
    "score": (".score", "Score a corpus with a model, in shards that run as jobs."),
    "train": (".train", "Train a saved net on arrays from files."),
    "plan-scale": (".plan_scale", "Estimate what a training step would take on many ranks."),
    "launch": (".launch", "Run a script or command as several ranks that train together."),
    **{name: (f"...nnet3.programs.{module}", text) for name, (module, text) in PROGRAMS.items()},
    **{
        name: (f"...speech.programs.{module}", text)
        for name, (module, text) in SPEECH_PROGRAMS.items()
    },
    "align": ("...speech.alignment.command", "Print when words of a known text were spoken."),
    "transcribe": ("...speech.recognize.command", "Print what is said in recordings."),
    "serve": ("...speech.serving.command", "Recognize speech for clients over WebSocket and HTTP."),
    "train-recognizer": (
        "...speech.training.command",
        "Train a recognizer on recordings with texts.",
    ),
    "make-lang": ("...speech.lexicon.command", "Make Kaldi's lang folder of a lexicon."),
    "guess-pronunciations": (
        "...speech.new_words.guess_command",
        "Print pronunciations of new words, as a lexicon has them.",
    ),
    "adapt": ("...speech.new_words.adapt_command", "Add words to the folder of a Vosk model."),
    "make-lm": ("...speech.language_model.command", "Make an n-gram model of a text."),
    "perplexity": (
        "...speech.language_model.command",
        "Print how well an n-gram model fits a text.",
    ),
    "make-graph": ("...speech.graph_making.command", "Make a decoding graph of words and texts."),
    "wer": ("...speech.scoring.command", "Count word errors; a page shows them in context."),
    "convert": (".convert", "Convert models and data from one format to another."),
    "quantize": (".convert", "Write a model with products of 8-bit integers; a table of errors."),
    "to-onnx": (".convert", "Write a net as ONNX, once its outputs have been compared."),
    "to-torch": ("...bridges.torch.command", "Write an nnet3 or CNTK network as a PyTorch module."),
    "from-torch": ("...bridges.torch.command", "Put weights trained in PyTorch into a model file."),
    "cntk": (".cntk", "Read CNTK's configs and scripts, and check and lay them out."),
    "nnet3": (".nnet3_recipe", "Train an nnet3 network in one command; list component types."),
    "links": (".links", "Make executables with the names of Kaldi's programs."),
}

_GROUPS = {
    "Look at nets and files": "open show summary view profile compare verify ops version",
    "Run, train and change nets": "run train score edit launch plan-scale",
    "Recognize speech": "transcribe serve align wer train-recognizer make-lang guess-pronunciations"
    " adapt make-lm perplexity make-graph",
    "Convert": "convert quantize to-onnx to-torch from-torch",
    "Kaldi and CNTK": "nnet3 cntk links",
}
"""The commands of the list that `--help` prints, by its headings; all others are programs."""

_DRIVEN_BY_FILES = frozenset(
    "open show summary view profile compare verify run edit"
    " convert quantize to-onnx to-torch from-torch".split()
)
"""The commands held to the limit `cpu`. All others work for as long as their user's data want."""

_WORDS = f"{__name__}.words"
"""The words of the command line, but its roots, in the context's `meta`."""
_LONG = 5  # lines of an error that are not put into one


def commands() -> list[str]:
    """The names of all commands."""
    return list(_COMMANDS)


def kaldi_programs() -> list[str]:
    """The commands that stand for programs of Kaldi."""
    return [*(name for name in PROGRAMS if name not in OWN), *SPEECH_PROGRAMS]


class _Commands(click.Group):
    """Finds commands by the table above; turns the package's errors into one line."""

    owns_process = False
    """Whether the process is a command's alone, so that what it loads may be frozen."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = lasting_module(_COMMANDS[name][0], __package__)
        if self.owns_process:  # they are not searched at all
            gc.freeze()
        return getattr(module, name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = {heading: names.split() for heading, names in _GROUPS.items()}
        listed = {name for names in groups.values() for name in names}
        groups["Kaldi's programs, with Kaldi's options"] = [
            name for name in _COMMANDS if name not in listed
        ]
        for heading, names in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name, _COMMANDS[name][1]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `--root` may stand after the command, too, as options of Kaldi's programs do.
        roots, words = _split_roots(args)
        parsed = super().parse_args(ctx, [*roots, *words])
        ctx.meta[_WORDS] = words
        return parsed

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS:
            ctx.fail(f"no command {args[0]!r}{nearest(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        standard_streams.open_closed()
        standard_streams.prepare()
        code: Any = 0
        try:
            with one_list():  # all messages of a command
                super().main(*args, **extra)
        except SystemExit as done:
            code = done.code
        except OSError as error:
            if "--debug" in sys.argv[:2]:
                raise
            code = standard_streams.report(error)
        sys.exit(standard_streams.finish(code))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OpscopeError, KeyboardInterrupt) as error:
            if getattr(error, "told", False):
                ctx.exit(1)
            if ctx.params.get("debug") or isinstance(error, KeyboardInterrupt):
                raise
            # nnet3-compile tells also why, row by row, outputs are not computable
            lines = (getattr(error, "explanation", "") or str(error)).splitlines()
            between = "; " if len(lines) < _LONG else "\n  "
            click.echo(f"error: {between.join(lines)}", err=True)
            ctx.exit(1)


def _split_roots(words: list[str]) -> tuple[list[str], list[str]]:
    """The options `--root=DIR` and `--root DIR` of a command line, and its other words."""
    end = words.index("--") if "--" in words else len(words)
    roots: list[str] = []
    others: list[str] = []
    before = ""
    for word in words[:end]:
        if before == "--root":
            roots.append(f"--root={word}")
        elif word.startswith("--root="):
            roots.append(word)
        elif word != "--root":
            others.append(word)
        before = "" if before == "--root" else word
    if before == "--root":
        raise click.UsageError("Option '--root' requires an argument.")
    return roots, others + words[end:]


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="opscope", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Threads of everything that computes; by default as many as there are free cores.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    help="Folder that all files which other files name must lie in; may be repeated, and stand"
    " after the command.",
)
def main(debug: bool, threads: int | None, roots: tuple[str, ...]) -> None:
    """Networks as lists of operators: look at them, check, run and train them."""
    from ...framework.base.untrusted.roots import confined_command

    ctx = click.get_current_context()
    ctx.with_resource(confined_command(roots, ctx.meta[_WORDS]))
    command = ctx.invoked_subcommand or ""
    if command in _DRIVEN_BY_FILES:
        from .cpu_budget import cpu_budget

        ctx.with_resource(cpu_budget(command))
    if threads is not None:
        from ...framework.base.cpu.threads import set_threads

        set_threads(threads)
