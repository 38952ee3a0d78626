"""Recurrent nets in NetBuilder: the operators of one step are written inside a `with` block.

    with b.recurrent("rnn") as step:
        x = step.input(words)                     # words: sequences [rows, K]; x: one row of each
        h = step.memory(100)                      # the state of the step before, at first zeros
        new = b.fc([x, h], size=100, activation="tanh")
        step.update(h, new)
        states = step.output(new)                 # sequences [rows, 100], for use after the block
        last = step.final(h)                      # [sequences, 100], likewise

Inside the block the builder's operators and layers go to the step net. Variables of the outer net
may be read there: each step sees the same value. Where an outer variable holds as many sequences as
the inputs do, such as the memory of an attention, each sequence sees its own. Parameters made
inside belong to the outer net. Blocks may be nested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import ShapeError, VariableError, format_shape
from ...framework.ir.desc import (
    INPUT,
    PARAMETER,
    RECURRENT,
    STATE,
    caller_location,
    make_op,
    make_var,
)
from ...framework.ir.names import steps_name
from ...framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl, VarDecl
from ...framework.ir.registry import lookup
from ...framework.loops.recurrent.net import recurrent_op
from ...framework.runtime.plain_net import PlainNet
from .loops import append_loop
from .methods import builder_method
from .net_builder import NetBuilder
from .var import Var, as_var


def loop_title(name: str) -> str:
    """What begins messages about a recurrent net: the line of the call, and its name."""
    where = caller_location()
    return f"{where.file}:{where.line}: recurrent net {name!r}"


def check_boot(title: str, boot: VarDecl, row: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of a memory's rows, which a variable of a known shape begins.

    Raises:
        ShapeError: it has no rows, or others than `row`.
    """
    shape = boot.shape
    if not shape or (row is not None and shape[1:] != row):
        raise ShapeError(
            f"{title}: boot {boot.name!r} is {format_shape(shape)}; a memory of rows"
            f" {format_shape(row)} wants {format_shape((-1, *(row or ())))}"
        )
    return shape[1:]


class StepBlock:
    """One step of a recurrent net, while its block is open. See the module's example."""

    def __init__(self, builder: NetBuilder, name: str, reverse: bool) -> None:
        self.name = name
        self._builder = builder
        self._step = StepDecl(reverse=reverse)
        self._desc = OpList(name, RECURRENT, steps=[self._step])
        self._outer_vars: list[str] = []  # in the order in which they are read first
        self._source: Any = None
        self._net: Any = None  # the step net, while it is built
        self._before: Any = None  # the net around it

    # -- links ---------------------------------------------------------------------------------

    def input(self, x: Var | str) -> Var:
        """The rows of this step of an outer variable that holds sequences.

        Of sequences of sequences a step sees inner sequences. All inputs have the same lengths.

        Args:
            x: sequences [rows, ...].

        Raises:
            VariableError: the outer net has no such variable.
        """
        outer = self._outer(x)
        inner = self._inner_name(f"{outer.name}.row")
        shape, dtype = outer.shape, outer.dtype
        if shape == ():
            raise ShapeError(f"{self._title}: {outer.name!r} is a single number and has no rows")
        shape = None if shape is None else (-1, *shape[1:])
        self._net.add_var(make_var(inner, shape, dtype, INPUT))
        self._step.in_links.append(Link(outer.name, inner))
        return Var(self._builder, inner)

    def memory(
        self,
        shape: int | Sequence[int] | None = None,
        *,
        boot: Var | str | None = None,
        value: float = 0.0,
        delay: int = 1,
        dtype: object = None,
        name: str = "",
    ) -> Var:
        """A state of the step before; `update` sets its value for the next step.

        Args:
            shape: of one row; needed where no `boot` tells it.
            boot: [sequences, ...], what each sequence starts from.
            value: what all start from, where there is no `boot`.
            delay: steps back, at least 1.
            dtype: by default the dtype of `boot`, else the builder's.
            name: inside the step net.

        Returns:
            [sequences that have this step, ...]

        Raises:
            ShapeError: neither shape nor boot, or a boot of another shape.
        """
        self._check_open()
        row = (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        if delay < 1 or (row is None and boot is None):
            raise ShapeError(
                f"{self._title}: a memory wants a delay of at least 1 and a shape or a boot"
                f" variable, not delay={delay}, shape={shape}, boot={boot}"
            )
        outer = None if boot is None else self._outer(boot)
        if outer is not None and outer.shape is not None:
            row = check_boot(self._title, outer, row)
        if dtype is None:
            dtype = self._builder.dtype if outer is None else outer.dtype
        inner = self._inner_name(name or "memory", exact=bool(name))
        self._net.add_var(make_var(inner, None if row is None else (-1, *row), dtype, INPUT))
        first = "" if outer is None else outer.name
        self._step.memories.append(MemoryDecl("", inner, first, value, delay))
        return Var(self._builder, inner)

    def update(self, memory: Var | str, state: Var | str) -> None:
        """Let `memory` hold the value of `state` in the next step.

        Raises:
            VariableError: no memory of this step, or one that is updated already.
        """
        entry = self._memory(memory)
        if entry.state:
            raise VariableError(
                f"{self._title}: memory {entry.previous!r} is updated twice, with {entry.state!r}"
                f" and {str(state)!r}"
            )
        entry.state = self._own(state)

    def output(self, x: Var | str, name: str = "") -> Var:
        """The values of `x` in all steps: sequences [rows, ...], for use after the block.

        Args:
            name: of the outer variable; the first output has the recurrent net's by default.
        """
        inner = self._own(x)
        outer = self._outer_name(name or (self.name if not self._step.out_links else ""), inner)
        self._step.out_links.append(Link(outer, inner))
        return Var(self._builder, outer)

    def final(self, memory: Var | str, name: str = "") -> Var:
        """The last state of each sequence, [sequences, ...], for use after the block."""
        entry = self._memory(memory)
        if not entry.final:
            entry.final = self._outer_name(name, f"{entry.previous}.final")
        return Var(self._builder, entry.final)

    def total(self, x: Var | str, name: str = "") -> Var:
        """The sum of `x` over all steps, for use after the block; `x` has no rows."""
        inner = self._own(x)
        outer = self._outer_name(name, f"{inner}.total")
        self._step.sum_links.append(Link(outer, inner))
        return Var(self._builder, outer)

    # -- names ---------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return loop_title(self.name)

    def _outer(self, x: Var | str) -> VarDecl:
        """The outer net's declaration of a variable."""
        self._own(x)
        var = self._before.vars.get(str(x))
        if var is None:
            raise VariableError(
                f"{self._title}: {str(x)!r} is of the step itself; a step is given variables of the"
                " net around it"
            )
        return var

    def _own(self, x: Var | str) -> str:
        """The name of a variable that can be seen inside the block."""
        self._check_open()
        return self._builder.names_of(x, lookup("recurrent"), "x")[0]

    def _check_open(self) -> None:
        if self._net is None or self._builder.forward_net is not self._net:
            raise VariableError(f"{self._title}: its block is not the one that is open")

    def _memory(self, memory: Var | str) -> Any:
        self._check_open()
        for entry in self._step.memories:
            if entry.previous == str(memory):
                return entry
        names = ", ".join(repr(entry.previous) for entry in self._step.memories) or "none"
        raise VariableError(f"{self._title}: {str(memory)!r} is no memory; there are {names}")

    def _inner_name(self, wanted: str, *, exact: bool = False) -> str:
        if exact or wanted not in self._net.vars:
            return wanted
        return self._builder.unique_name(wanted)

    def _outer_name(self, name: str, inner: str) -> str:
        name = name or f"{self.name}.{inner}"
        if name in self._before.vars or name in self._outer_vars:
            raise VariableError(f"{self._title}: variable {name!r} is defined already")
        self._outer_vars.append(name)
        return name

    # -- the block -----------------------------------------------------------------------------

    def __enter__(self) -> StepBlock:
        builder = self._builder
        if self._net is not None:
            raise VariableError(f"{self._title}: its block was open before")
        self._source = caller_location()
        self._before = builder.forward_net
        self._objective = builder.objective
        net = OpList(self.name)
        for var in self._before.vars.values():  # inputs of the step net, if it reads them
            net.vars.append(make_var(var.name, var.shape, var.dtype, INPUT))
            net.vars[-1].sequence_levels = var.sequence_levels
        self._net = PlainNet(net, check=False)
        builder.switch_to(self._net)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        inner = self._builder.forward_net
        self._builder.switch_to(self._before)
        if kind is None:
            self._finish(inner)

    def _finish(self, inner: PlainNet) -> None:
        """Check the links and memories of the block and append its operator to the outer net."""
        builder, step, outer = self._builder, self._step, self._before
        if builder.objective is not self._objective:
            builder.objective = self._objective
            raise VariableError(
                f"{self._title}: gradients and optimizers are asked for outside the block"
            )
        if not step.in_links:
            raise VariableError(f"{self._title}: wants an input: step.input(sequences)")
        not_updated = [entry.previous for entry in step.memories if not entry.state]
        if not_updated:
            raise VariableError(
                f"{self._title}: the memory {not_updated[0]!r} is not updated:"
                f" step.update({not_updated[0]}, ...)"
            )
        linked = {link.inner for link in step.in_links}
        linked |= {entry.previous for entry in step.memories}
        step.net.name = self.name
        step.net.ops += inner.written
        self._copy_linked_inputs(step, linked)
        used = {name for op in step.net.ops for name in (*op.input_names(), *op.output_names())}
        new_vars = [
            var
            for var in inner.vars.values()
            if var.name not in outer.vars
            and var.name not in linked
            and (var.kind in (PARAMETER, STATE, INPUT))
        ]
        hoisted = {var.name for var in new_vars}
        for var in inner.vars.values():
            if var.name in used | linked:
                if var.name in hoisted:
                    var = make_var(var.name, var.shape, var.dtype, INPUT)
                step.net.vars.append(var)
        op = recurrent_op(self._desc, builder.unique_name(steps_name(self.name)))
        for var in new_vars:
            outer.add_var(var)
        try:
            append_loop(builder, op, self.name, (), self._source)
        except Exception:
            _remove(outer, hoisted)
            raise

    def _copy_linked_inputs(self, step: Any, linked: set[str]) -> None:
        """Copy inputs that links or memories take as they are: these need outputs of operators."""
        written = {name for op in step.net.ops for name in op.output_names()}
        wanted = [*step.out_links, *step.sum_links]
        copies: dict[str, str] = {}
        for holder, field in (
            *((link, "inner") for link in wanted),
            *((entry, "state") for entry in step.memories),
        ):
            name = getattr(holder, field)
            if name not in written:
                if name not in copies:
                    copies[name] = f"{name}.copy"
                    op = make_op("assign", {"x": name}, {"out": copies[name]})
                    step.net.ops.append(op)
                setattr(holder, field, copies[name])


def _remove(net: PlainNet, names: set[str]) -> None:
    """Remove the declarations of variables that no operator uses yet."""
    net.remove_vars(names)


@builder_method
def recurrent(builder: NetBuilder, name: str = "", *, reverse: bool = False) -> StepBlock:
    """A recurrent net whose step is written in a `with` block; see `StepBlock`.

    Args:
        name: of the net, and of its first output.
        reverse: begin with the last step of each sequence.
    """
    return StepBlock(builder, name or builder.unique_name("recurrent"), reverse)


@builder_method
def carried(
    builder: NetBuilder, shape: Sequence[int], *, keep: Var | str | None = None, name: str = ""
) -> tuple[Var, Var]:
    """A state that goes from one minibatch to the next: truncated back-propagation.

    No gradient flows to the minibatch before. Say with `carry` what the state becomes.

    Args:
        shape: [sequences, ...], the same in each minibatch.
        keep: broadcasts against it; 0 where a new sequence starts, from zeros, else 1.
        name: of the state variable.

    Returns:
        The value to start from, and the state variable itself.
    """
    variable = builder.state(name or builder.unique_name("carried"), shape)
    start = variable if keep is None else variable * as_var(builder, keep)
    return start, variable


@builder_method
def carry(builder: NetBuilder, held: Var | str, value: Var | str) -> None:
    """Let a state variable hold `value` in the next run."""
    builder.append(lookup("assign"), (value,), {}, outputs={"out": str(held)})
