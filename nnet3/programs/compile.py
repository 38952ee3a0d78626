"""`opscope nnet3-compile`: the computation of a network for a request, stage by stage."""

from __future__ import annotations

import os
from typing import Any

import click

from ..graph.request import ComputationRequest
from ..network.for_inference import for_inference, for_request
from ..network.nnet import Nnet
from ..network.short_request import parse_request
from ..network.simple_request import simple_request
from .listing import read_request

_STAGES = ("request", "steps", "kaldi", "commands")
_PARTS = (
    *("summary", "request", "options", "epochs", "computable", "cindexes", "phases", "steps"),
    *("plain", "optimized", "sizes", "memory"),
)


@click.command()
@click.argument("model")
@click.argument("request", required=False)
@click.option("--frames", type=int, help="Without REQUEST: output frames of a sequence.")
@click.option("--sequences", type=int, default=1, help="Without REQUEST: how many sequences.")
@click.option("--subsampling", type=int, default=1, help="Input frames for one output frame.")
@click.option("--extra-left-context", type=int, default=0, help="Input frames besides the needed.")
@click.option("--extra-right-context", type=int, default=0, help="The same after the output.")
@click.option("--backward", is_flag=True, help="Without REQUEST: derivatives of model and inputs.")
@click.option("--prepare-for-test", is_flag=True, help="Test mode, and components are joined.")
@click.option(
    "--test-mode/--no-test-mode",
    default=None,
    help="Test mode of batch norm and dropout, or the model's own. By default operators have test"
    " mode where there are no derivatives; all else has the model's own.",
)
@click.option("--optimize/--no-optimize", default=True, help="Run the passes over the commands.")
@click.option("--request", "stage", flag_value="request", help="Print the request.")
@click.option("--steps", "stage", flag_value="steps", help="Print epochs, counts of rows, steps.")
@click.option("--kaldi", "stage", flag_value="kaldi", help="Print the commands as Kaldi does.")
@click.option("--commands", "stage", flag_value="commands", help="The commands as a net.")
@click.option(
    "--part",
    type=click.Choice(_PARTS),
    help="Print a stage in words, rows with ranges; with --kaldi in Kaldi's notation.",
)
@click.option("--out", metavar="FILE.pb", help="Save the net instead of printing it.")
def nnet3_compile(
    model: str,
    request: str | None,
    stage: str | None,
    part: str | None,
    out: str | None,
    **options: Any,
) -> None:
    """Compile the network in MODEL for a request and print the list of operators that runs.

    REQUEST is a line with the frames of each input and output, for one sequence or several,

    \b
        "input=-1:20 output=0:19"
        "n=0:3 input=-1:20 output=0:18:3 deriv"

    or a text file (- for stdin) that lists the rows (n,t,x) of each input and output

    \b
        input input has_deriv=0 0,-1,0 0,0,0 0,1,0
        output output has_deriv=0 0,0,0
        need_model_derivative=0 store_component_stats=0

    or a file of Kaldi. In its place --frames, --sequences and the rest ask for whole sequences. A
    net saved with --out has its parameters beside it; `opscope run` runs it. With --commands only
    the list is saved.
    """
    if (request is None) == (options["frames"] is None):
        raise click.UsageError("give a REQUEST or --frames, one of them")
    if part is not None and stage not in (None, "kaldi"):
        raise click.UsageError(f"--part and --{stage} exclude each other")
    if out is not None and (stage in _STAGES[:-1] or part is not None):
        raise click.UsageError(f"--out saves a net, and --{part and 'part' or stage} gives text")
    nnet = Nnet.read(model)
    wanted = _request(nnet, request) if request is not None else _simple(nnet, options)
    if part is not None:
        _print_part(nnet, wanted, part, stage == "kaldi", options)
        return
    if options["prepare_for_test"]:
        nnet = for_inference(nnet)
    elif stage not in _STAGES or options["test_mode"] is not None:
        nnet = for_request(nnet, wanted, options["test_mode"])
    if stage == "request":
        click.echo(wanted.to_text(), nl=False)
    elif stage == "steps":
        from ..compiler.steps import NnetSteps
        from ..graph.graph import Graph

        click.echo(NnetSteps(Graph(nnet.topology(), wanted)).to_text(), nl=False)
    else:
        _compile(nnet, wanted, stage, options["optimize"], out)


def _compile(
    nnet: Nnet, request: ComputationRequest, stage: str | None, optimize: bool, out: str | None
) -> None:
    """Print the commands or the operators, or save them."""
    from ..inference.pipeline import compile_computation
    from ..lower.commands import lower_computation
    from ..optimize import optimize as run_passes

    computation = compile_computation(nnet, request)
    if optimize:
        computation = run_passes(computation)
    if stage == "kaldi":
        click.echo(computation.to_kaldi(), nl=False)
        return
    if stage == "commands":
        from ..lower.command_dialect import to_desc

        desc = to_desc(computation)
    else:
        desc = lower_computation(computation)
    if out is None:
        from ...framework.ir.printer import net_text

        click.echo(net_text(desc), nl=False)
        return
    if stage == "commands":
        from ...framework.base.files.atomic import write_atomically
        from ...framework.ir.messages import serialize_net

        write_atomically(out, serialize_net(desc))
        return
    from ..inference.saved import save_compiled

    save_compiled(desc, nnet, out)


def _print_part(
    nnet: Nnet, request: ComputationRequest, part: str, kaldi: bool, options: dict[str, Any]
) -> None:
    """Print a part of `nnet3.compile`."""
    from ..inspect.compiled import compile as compile_parts

    if options["prepare_for_test"]:
        nnet = for_inference(nnet)
    compiled = compile_parts(
        nnet, request, optimize=options["optimize"], test_mode=bool(options["test_mode"])
    )
    if part == "summary":
        click.echo(compiled.to_kaldi() if kaldi else compiled.summary())
        return
    stage = getattr(compiled, part)
    click.echo((stage.to_kaldi() if kaldi else str(stage)).rstrip("\n"))


def _request(nnet: Nnet, request: str) -> ComputationRequest:
    """The request in a line, or in a file; a file whose name has `=` is a file."""
    if "=" in request and not os.path.exists(request):
        return parse_request(nnet, request)
    return read_request(request)


def _simple(nnet: Nnet, options: dict[str, Any]) -> ComputationRequest:
    return simple_request(
        nnet,
        options["frames"],
        options["sequences"],
        subsampling=options["subsampling"],
        left_context=options["extra_left_context"],
        right_context=options["extra_right_context"],
        derivatives=options["backward"],
    )
