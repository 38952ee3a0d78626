"""How an inner net is joined to the outside: what recurrent and recursive nets check alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import VariableError, doubled, nearest
from ..base.sizes.shape import ArraySpec
from ..ir.op_list import VarDecl
from ..ir.operation import Operator


@dataclass(frozen=True)
class Memory:
    """A state that an inner net hands to the run of itself that follows.

    Attributes:
        state: what a run writes. previous: what the next one reads it as.
        boot: position among the variables of the slot `boot`, -1 where it starts as `boot_value`.
        final: position among the variables of the slot `final`, or -1.
    """

    state: str
    previous: str
    boot: int = -1
    boot_value: float = 0.0
    final: int = -1


def slot_positions(names: Iterable[str]) -> list[int]:
    """For each name its position among those that are not empty; -1 for an empty one."""
    positions: list[int] = []
    count = 0
    for name in names:
        positions.append(count if name else -1)
        count += bool(name)
    return positions


def check_given(title: str, part: str, given: Sequence[str], written: Collection[str]) -> None:
    """Refuse names that are given twice, or given and written.

    Args:
        title: of the whole net. part: what the inner net is called, for messages.
        given: what links and memories give to the inner net. written: what it writes.

    Raises:
        VariableError: with the name.
    """
    twice = doubled(given)
    for name in given:
        if name in twice:
            raise VariableError(f"{title}: {name!r} of the {part} is linked twice")
        if name in written:
            raise VariableError(f"{title}: {name!r} comes from outside, but the {part} writes it")


def check_taken(
    title: str, part: str, taken: Iterable[tuple[str, str]], written: Collection[str]
) -> None:
    """Refuse links and memories whose variable the inner net does not write.

    Args:
        title, part: as for `check_given`.
        taken: (who takes it and the verb, name); for example ("its out link takes", "y").

    Raises:
        VariableError: with the name, and a similar one that is written.
    """
    for who, name in taken:
        if name not in written:
            hint = nearest(name, written)
            raise VariableError(
                f"{title}: {who} {name!r}, which no operator of the {part} writes{hint}"
            )


def check_reads(
    title: str,
    part: str,
    given: Iterable[str],
    operators: Iterable[Operator],
    declared: Mapping[str, VarDecl],
) -> None:
    """Refuse operators that read what is neither given nor written before.

    Args:
        title, part, given: as for `check_given`.
        declared: variables of the inner net. A view may be read once its base is known.

    Raises:
        VariableError: with the operator, the name, and a similar one.
    """
    operators = list(operators)
    known = set(given)
    for op in operators:
        for name in op.input_vars():
            view = _base_of(declared.get(name))
            if name not in known and view not in known:
                written = {output for other in operators for output in other.output_vars()}
                raise VariableError(
                    f"{title}: {op.title()} of the {part} reads {name!r}, which is neither linked"
                    f" nor written before{nearest(name, known | written)}"
                )
        known.update(op.output_vars())


def _base_of(var: VarDecl | None) -> str:
    """The variable that a view is a part of; "" where it is none."""
    return "" if var is None or var.view is None else var.view.base


def declared_row(*variables: VarDecl | None) -> ArraySpec | None:
    """Shape without rows, and dtype, of the first variable that declares both; None: none does."""
    for var in variables:
        if var is None:
            continue
        shape, dtype = var.shape, var.dtype
        # Rows may be unknown, as they differ from step to step; a row itself must be known.
        if shape and dtype is not None and min(shape[1:], default=0) >= 0:
            return shape[1:], dtype
    return None
