"""`nnet3.compile`: one object with every stage on the way to a computation."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from ...framework.base.errors import FormatError, OpscopeError, check_kind
from ...framework.base.files.atomic import PathLike
from ...framework.base.python.cached import cached_property
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.ir.op_list import OpList
from ..compiler.compiler import Compiler
from ..compiler.computation import Computation
from ..compiler.memory_use import memory_use
from ..compiler.steps import NnetSteps
from ..graph.graph import Graph, NotComputableError
from ..graph.request import ComputationRequest
from ..lower.commands import lower_computation
from ..lower.spans import lower_with_spans
from ..network.for_inference import Model, for_inference, nnet_of, wants_test_mode
from ..network.nnet import Nnet
from ..network.short_request import parse_request
from ..optimize import OptimizeOptions, compile_optimized
from ..run.computer import NnetComputer
from .cindexes import Cindexes, Computable, Exploration
from .order import Epochs, Phases, Steps
from .settings import CompileOptions
from .sizes import Memory, Sizes, shown_bytes

Request: TypeAlias = ComputationRequest | PathLike
"""A request, a line with ranges, or the path of a file."""


def compile(  # noqa: A001  # nnet3.compile, as re.compile
    nnet: Model,
    request: Request,
    *,
    optimize: bool | OptimizeOptions = True,
    test_mode: bool | None = None,
    shortcut: bool = True,
) -> CompiledRequest:
    """What the compiler makes of a request, stage by stage; each is made when it is asked for.

    Args:
        nnet: a network, an acoustic model, or the path of a file; it is not changed.
        request: a ComputationRequest; a line such as `n=0:3 input=-3:20 output=0:17`, see
            `parse_request`; or the path of a file with a request, in Kaldi's form (binary or text)
            or as `ComputationRequest.parse` reads it. A string with `=` is a line.
        optimize, test_mode, shortcut: as `compile_request` takes them. With None a network that has
            no test mode, as batch normalization has no statistics yet, is compiled as it is;
            then `op_list` and `computer` are refused.

    Example:
        compiled = compile("final.mdl", "input=-3:20 output=0:17")
        print(compiled)                       # a summary, then the commands
        print(compiled.steps)                 # in words, with ranges
        print(compiled.plain.to_kaldi())      # as Kaldi prints it

    Raises:
        FormatError: a file or a line cannot be read (the line's character is named, and names that
            are near), or `test_mode` is True and the network has none.
        OpscopeError: the model or the request is something else.
    """
    network = nnet_of(nnet)
    wanted = read_request(network, request)
    check_kind(optimize, bool | OptimizeOptions, "optimize")
    check_kind(test_mode, bool | None, "test_mode")
    check_kind(shortcut, bool, "shortcut")
    mode = wants_test_mode(wanted) if test_mode is None else test_mode
    refused = None
    try:
        network = for_inference(network, mode, collapse=False)
    except FormatError as error:
        if test_mode is not None:
            raise
        mode = False
        refused = error
    options = CompileOptions(OptimizeOptions.chosen(optimize), mode, shortcut)
    return CompiledRequest(network, wanted, options, refused)


def read_request(nnet: Nnet, request: Request) -> ComputationRequest:
    """The request that is given, in a line, or in a file; see `compile`.

    Raises:
        FormatError, OpscopeError: as there.
    """
    if isinstance(request, ComputationRequest):
        return request
    if isinstance(request, str) and ("=" in request or not request.strip()):
        return parse_request(nnet, request)
    if not isinstance(request, str | os.PathLike):
        raise OpscopeError(
            "a request is wanted: a ComputationRequest, a line such as 'input=-3:20 output=0:17',"
            f" or the path of a file; you gave {type(request).__name__}"
        )
    try:
        return ComputationRequest.read(request)
    except FormatError as error:
        if isinstance(request, str) and not os.path.exists(request):
            hint = "; a request in one line is written as 'input=-3:20 output=0:17'"
            raise FormatError(f"{error}{hint}") from None
        raise


class CompiledRequest:
    """A request for a network, compiled: every stage, made when it is asked for.

    `str` of a stage is text for people, rows with ranges; its `to_kaldi()` is Kaldi's notation.

    Args:
        nnet: the network, its components in the mode in which they are to compute.
        request: what is computed.
        options: how it is compiled.
        refused: why it cannot run; None: it can.

    Raises (all parts but `request`, `options`, `epochs` and `computable`):
        NotComputableError: an output needs rows that the request does not give; `computable` shows
            which.
        FormatError, ShapeError: the request does not fit the network.
    """

    def __init__(
        self,
        nnet: Nnet,
        request: ComputationRequest,
        options: CompileOptions,
        refused: FormatError | None = None,
    ) -> None:
        self._refused = refused
        self.nnet = nnet
        self.request = request
        self.options = options
        self._topology = nnet.topology()

    @cached_property
    def _exploration(self) -> Exploration:
        return Exploration(self._topology, self.request)

    def _needed(self) -> Exploration:
        """The exploration, where all outputs can be computed."""
        if not self._exploration.all_computable:
            Graph(self._topology, self.request)  # its error says what is missing
        return self._exploration

    @cached_property
    def _graph(self) -> Graph:
        return Graph(self._topology, self.request)

    @cached_property
    def computable(self) -> Computable:
        """All rows that were looked at, and which of them can be computed."""
        return Computable(self._exploration)

    @cached_property
    def cindexes(self) -> Cindexes:
        """The rows of all nodes that the outputs need, and what each reads."""
        return Cindexes(self._needed())

    @cached_property
    def epochs(self) -> Epochs:
        """The nodes in the order in which they can be computed."""
        return Epochs(self._topology)

    @cached_property
    def phases(self) -> Phases:
        """Sets of rows that become computable together."""
        return Phases(self._needed())

    @cached_property
    def steps(self) -> Steps:
        """The rows of one node that are computed at once, in order."""
        return Steps(NnetSteps(self._graph))

    @cached_property
    @gc_disabled()
    def plain(self) -> Computation:
        """The commands as compiled, before the passes."""
        return Compiler(self._topology, self.request).compile().explicit()

    @cached_property
    @gc_disabled()
    def optimized(self) -> Computation:
        """The commands after the passes; the commands of `plain` if none runs."""
        if self.options.passes is None:
            return self.plain
        return compile_optimized(
            self._topology, self.request, self.options.passes, self.options.shortcut
        )

    @cached_property
    def sizes(self) -> Sizes:
        """The matrices of the optimized computation."""
        return Sizes(self.optimized)

    @cached_property
    def memory(self) -> Memory:
        """How much memory both computations take, and when each matrix has its own."""
        return Memory(self.plain, self.optimized)

    @gc_disabled()
    def op_list(self) -> OpList:
        """The op list that runs, as `compile_request` gives it.

        Raises:
            FormatError: batch normalization is to have test mode, and has no statistics.
        """
        self._check_runs()
        return lower_computation(self.optimized)

    def _check_runs(self) -> None:
        if self._refused is not None:
            raise self._refused

    def computer(self, say: Callable[[str], None] | None = None) -> NnetComputer:
        """A computer for the optimized computation.

        Args:
            say: takes a line for every command that is run, with what it writes, as Kaldi's
                programs log them with `--computation.debug`; see `CommandTrace`. None: they run at
                full speed.

        Raises:
            FormatError: as `op_list`.
        """
        self._check_runs()
        if say is None:
            return NnetComputer(self.op_list(), self.nnet)
        net, spans = lower_with_spans(self.optimized)
        return NnetComputer(net, self.nnet, spans=spans, say=say)

    def summary(self) -> str:
        """A line each for request, network, cindexes and both computations."""
        nnet, request = self.nnet, self.request
        lines = [
            f"request    {request}",
            f"network    {len(nnet.nodes)} nodes, {len(nnet.components)} components,"
            f" {nnet.num_parameters:,} parameters"
            f"{self._mode()}",
        ]
        try:
            graph, steps = self._graph, self.steps
        except NotComputableError as error:
            return "\n".join([*lines, f"outputs    {error}"])
        segments = [group.segments[0] for group in graph.groups]
        nodes = len({node for part in segments for node in (*part.input_keys, *part.rows)})
        lines += [
            f"cindexes   {graph.num_cindexes:,} of {nodes} nodes",
            f"order      {len(self.epochs)} epochs, {len(steps)} steps",
        ]
        for word, computation in (("plain", self.plain), ("optimized", self.optimized)):
            use = memory_use(computation)
            commands, matrices = len(computation.commands), len(use.matrices)
            lines.append(
                f"{word:<9}  {commands:,} commands, {matrices:,} matrices,"
                f" {shown_bytes(use.peak)} at most"
            )
        return "\n".join(lines)

    def _mode(self) -> str:
        if self._refused is not None:
            return "; no test mode: batch normalization without statistics"
        return "; test mode" if self.options.test_mode else ""

    def __str__(self) -> str:
        """The summary, then the optimized computation in words."""
        try:
            commands = f"\n\n{self.optimized}"
        except NotComputableError:  # which the summary reports
            commands = ""
        return f"{self.summary()}{commands}".rstrip("\n")

    def to_kaldi(self) -> str:
        """What Kaldi's programs log with `--verbose=4`: the request and both computations."""
        return (
            f"Computation request is  {self.request.to_kaldi()}\n"
            f"Generated computation is: {self.plain.to_kaldi()}\n"
            f"Optimized computation is: {self.optimized.to_kaldi()}\n"
        )

    def __repr__(self) -> str:
        return f"<CompiledRequest {self.request}>"
