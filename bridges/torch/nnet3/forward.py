"""`TorchWalk`: a network as operators in which components are calls of PyTorch's layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....framework.ir.desc import make_op
from ....nnet3.graph.loops import Loop, Term
from ....nnet3.graph.topology import Topology
from ...nnet3_rows.components import WRITTEN, component_net
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.loops import GeneralLoop
from ...nnet3_rows.net import RowsNet, Value
from ...nnet3_rows.plan import Plan, needed_by
from ...nnet3_rows.reading import Rows
from ...nnet3_rows.reads import NotExportedError
from ...nnet3_rows.recurrence import LayerRows
from ...nnet3_rows.walk import AT_SEVERAL_TIMES, RowsWalk
from ..folder import NotInTorchError
from ..formatting import WIDTH
from ..naming import Names
from ..op_list.emission import Lines, Module, Values, nested, read_lines, write_operators
from ..op_list.tables import all_tables as all_tables
from .affine import affine_input, window_of
from .layer import Layer, number_text
from .layers import affine_layer, any_layer, source_layer, why_not
from .loops import Outside, TorchStep
from .sources import NAMES, with_what_they_use
from .time_height import kernel_of, time_height_layer


class TorchWalk(RowsWalk):
    """Writes the nodes that some outputs need, as PyTorch trains them.

    Args:
        plan: the rows of the network's nodes, in test mode.
        outputs: names of output nodes.

    Attributes:
        arguments: of the function.
        layers: by the component's name. attributes: the module's attribute of each of these.
        helpers: names of functions and classes that the text uses.
        notes: what the module does not do as the network does.
        results: the variables of the outputs.

    Raises:
        NotExportedError, NotInTorchError: parts have no form in PyTorch.
    """

    def __init__(self, plan: Plan, outputs: Sequence[str]) -> None:
        net = RowsNet()
        source = net.given("input", -1, -1, plan.topology.nodes[plan.topology.number("input")].dim)
        super().__init__(plan, net, source)
        self.unit = plan.unit
        self.outputs = list(outputs)
        self.arguments = ["input"]
        self.layers: dict[str, Layer] = {}
        self.attributes: dict[str, str] = {}
        self.helpers: set[str] = set()
        self.notes: list[str] = []
        self._members = Names()
        ivector = plan.topology.index.get("ivector", -1)
        if ivector in plan.grids:
            self.arguments.append(net.given("ivector", -1, plan.topology.nodes[ivector].dim))
        self.write(self.arguments[-1] if ivector in plan.grids else "")
        self.results = {name: net.variable(name) for name in outputs}
        for name, variable in self.results.items():
            x = {"x": net.name(self.output(name))}
            net.put(make_op("transpose", x, {"out": variable}, {"perm": [0, 2, 1]}))

    def set(self, number: int, value: Value, older: int = 0) -> None:
        super().set(number, self.net.plain(value), older)

    # Layers

    def member(self, node: Any, layer: Layer) -> str:
        """The module of a component node; it is made where the component has none yet."""
        name = node.component_name
        self.helpers.update(layer.helper.split())
        if layer.note:
            self.notes.append(f"{node.name}: {layer.note}")
        if not layer.make:
            return ""
        if name not in self.attributes:
            self.attributes[name] = self._members.unique(name)
            self.layers[name] = layer
        elif self.layers[name].make != layer.make:
            raise NotInTorchError(
                f"'{node.name}': other nodes use component '{name}' in other steps"
            )
        return f"self.{self.attributes[name]}"

    def chain(self, node: Any) -> list[tuple[Any, Layer, str]]:
        """The components that a node applies one after the other, their layers and these' text."""
        c = node.component
        layer = any_layer(node.component)
        module = self.member(node, layer)
        if c.type != "CompositeComponent":
            return [(c, layer, module)]
        return [
            (part, any_layer(part), f"{module}[{place}]") for place, part in enumerate(c.components)
        ]

    def applied(self, layer: Layer, module: str, x: Value, dim: int, name: str) -> Value:
        """A layer applied to a value."""
        call = layer.call.replace("{m}", module)
        if call == "{x}":
            return x
        variable = self.net("rows.layer", [self.net.name(x)], name=name, call=call, columns=dim)
        return Value(variable, dim, x.still)

    # What components become

    def narrowed(self, name: str) -> str:
        call = "{x}.to(input.dtype)"  # of a module that computes in float64, too
        columns = self.net.specs[name][0][1]
        return self.net("rows.layer", [name], name=f"{name}.narrow", call=call, columns=columns)

    def source(self, number: int, component: Any) -> Value:
        node, grid = self.topology.nodes[number], self.plan.grids[number]
        layer = source_layer(component)
        count = {"step": grid.step, "more": grid.last - grid.first + grid.step}
        ones = self.constant(np.ones(node.dim), "ones").name
        end = self.reader.end()
        spread = self.net("rows.spread", ones, self.reader.source, end, name="ones", **count)
        x = Value(spread, node.dim)
        return self.applied(layer, self.member(node, layer), x, node.dim, node.name)

    def affine(self, number: int, component: Any, grid: Grid) -> Value:
        node = self.topology.nodes[number]
        window = window_of(self, number, grid)
        if window is None:
            x = affine_input(self, number, grid)
            layer = affine_layer(component, 1)
        else:
            x = window[0]
            layer = affine_layer(component, *window[1])
        return self.applied(layer, self.member(node, layer), x, node.dim, node.name)

    def convolution(self, number: int, component: Any, rows: Rows, grid: Grid) -> Value:
        node = self.topology.nodes[number]
        have = rows.grid
        kernel = kernel_of(component, have.step)
        x = self.reader.window(rows, grid, kernel.times[0], kernel.times[-1])
        stride = grid.step // have.step if grid.moving or grid.rows(0) > 1 else 1
        layer = time_height_layer(component, kernel, stride)
        return self.applied(layer, self.member(node, layer), x, node.dim, node.name)

    def row_by_row(self, number: int, component: Any, grid: Grid) -> Value:
        net = self.net
        node = self.topology.nodes[number]
        parts = self.parts(number - 1, grid)
        for part, layer, module in self.chain(node):
            if part.type in WRITTEN:
                written = component_net(part, node.name, 3)
                pieces = net.split(parts, list(written.inputs.values()), node.name)
                parts = [net.plain(net.written(written, pieces, component=module))]
            else:
                x = net.join(parts, node.name)
                parts = [self.applied(layer, module, x, part.output_dim, node.name)]
        return parts[0]

    def loop(self, loop: Loop) -> None:
        """Set the rows of the members that others read.

        Raises:
            NotExportedError: a loop reads itself at several offsets, or begins in another way.
        """
        if isinstance(loop, GeneralLoop):
            name = self.topology.nodes[loop.members[0]].name
            raise NotExportedError(
                f"the loop of '{name}' is no recurrent layer: a loop reads itself at several"
                " offsets, or its first steps are not like others; to-onnx takes it"
            )
        layer = LayerRows(self, loop)
        step = TorchStep(self, loop)
        numbers = self.plan.read_elsewhere(loop)
        values: list[Value] = []
        for name, read in step.taken.items():
            if isinstance(read, Outside):
                parts = [self._sum(layer, terms) for terms in read.parts]
                x = layer.moving(self.net.join(parts, read.name))
                dim = step.ops.inputs[name]
                call = f"{read.module}.inputs({{x}})"
                variable = self.net(
                    "rows.layer", [self.net.name(x)], name=name, call=call, columns=dim
                )
                values.append(Value(variable, dim))
            else:
                assert isinstance(read, Term)
                values.append(layer.moving(layer.outside(read)))
        given = dict(zip(step.taken, layer.sequences(values), strict=True))
        outputs = {step.members[number]: f"{step.name(number)}.steps" for number in numbers}
        sequences, _ = layer.recurrent(step, step.ops.ops, step.ops.arrays, given, outputs, {})
        rows = layer.rows(sequences, [step.name(number) for number in numbers])
        for number, value in zip(numbers, rows, strict=True):
            self.set(number, value)

    def _sum(self, layer: LayerRows, terms: Sequence[Any]) -> Value:
        """Terms that read outside alone, for all times."""
        total: Value | None = None
        for term in terms:
            value = layer.outside(term).times(term.scale)
            total = value if total is None else self.net.add(total, value, layer.title)
        assert total is not None
        return total

    # The text

    def lines(self) -> list[str]:
        """The lines of the function."""
        net = self.net
        module = Module(names=Names("self", "torch", "nn", "F", "Path", *NAMES))
        values = Values(module, net.specs)
        for name in self.arguments:
            values.names[name] = module.names.unique(name)
        for name, array in net.arrays.items():
            if name in net.parameters:
                component, attribute = net.parameters[name]
                values.names[name] = f"{component}.{attribute}"
            else:
                values.names[name] = _constant(array)
        write_operators(values, net.ops)
        if module.refused:
            raise NotInTorchError("; ".join(module.refused))
        texts = {name: values.text(variable) for name, variable in self.results.items()}
        text = next(iter(texts.values()))
        if len(texts) > 1:
            text = f"{{{', '.join(f'{name!r}: {text}' for name, text in texts.items())}}}"
        values.lines.append(Lines(("return",), [f"return {text}"]))
        nodes = {values.names.get(rows.value.name) for rows in self.rows.values()}
        inner = {name for lines in values.lines for name in lines.targets} - nodes
        values.lines = nested(values.lines, inner - {"return"}, WIDTH)
        self.helpers = with_what_they_use(self.helpers | module.helpers)
        return read_lines(values, ["return"])


def _constant(array: np.ndarray) -> str:
    """A small array as text."""
    if not array.shape:
        return number_text(float(array))
    if array.dtype.kind == "f" and (array == array.flat[0]).all():
        return f"input.new_full({array.shape}, {number_text(float(array.flat[0]))})"
    dtype = ", dtype=input.dtype" if array.dtype.kind == "f" else ""
    return f"torch.tensor({array.tolist()}{dtype}, device=input.device)"


def written_forward(
    topology: Topology,
    context: tuple[int, int],
    outputs: Sequence[str],
    unit: int,
    whole: bool = False,
) -> TorchWalk:
    """The forward function of a network.

    Args:
        topology: of the network in test mode.
        context: of the network, left and right.
        outputs: names of output nodes.
        unit: frames for one row of output.
        whole: the outputs are one row for all frames, and nothing is repeated at the ends.

    Raises:
        NotInTorchError: rows of the network have no form in PyTorch.
    """
    exact = False
    try:
        while True:  # again where it turns out that the exact end matters
            plan = Plan(topology, unit, *context, whole, exact_end=exact)
            plan.make([topology.number(name) for name in outputs])
            if topology.index.get("input") not in plan.grids:
                raise NotInTorchError("no output depends on 'input'")
            written = TorchWalk(plan, outputs)
            if plan.exact_end == exact:
                return written
            exact = plan.exact_end
    except NotExportedError as error:
        raise NotInTorchError(f"the network has no form in PyTorch: {error}") from None


def refuse_unknown(topology: Topology, outputs: Sequence[str]) -> None:
    """Refuse inputs and components that have no form in PyTorch.

    Raises:
        NotInTorchError: there are some; all are named.
    """
    problems: list[str] = []
    for number in sorted(needed_by(topology, [topology.number(name) for name in outputs])):
        node = topology.nodes[number]
        if node.kind == "input" and node.name not in ("input", "ivector"):
            problems.append(f"input '{node.name}': only 'input' and 'ivector' are known")
        elif node.kind == "component" and node.component.type not in AT_SEVERAL_TIMES:
            if reason := why_not(node.component):
                problems.append(f"'{node.name}': {reason}")
    if problems:
        raise NotInTorchError("the network has no form in PyTorch: " + "; ".join(problems))
