"""Einstein's summation convention: sums of products, written with a letter for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from ...framework.base.errors import ShapeError
from ...framework.base.sizes.shape import Shape, ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .contraction import Labels, Term, contracting, labeled

_ELLIPSIS = "..."

einsum = operator(
    "einsum",
    doc="Sum of products by Einstein's convention. The equation has a letter for each axis of each"
    " operand and, after ->, of the result: `ij,jk->ik` is a product of matrices, `ii->i` a"
    " diagonal, `ij->` a sum. Letters that the result has not are summed over. `...` stands for"
    " any further axes, which broadcast. Without -> the result has the letters that occur once, in"
    " alphabetical order, after `...`. Axes of size 1 broadcast.",
    inputs=[Slot("x", "one or more arrays of one floating dtype", duplicable=True)],
    outputs=[Slot("out", "the axes that the equation names", not_in_gradient=True)],
    attrs=[AttrSpec("equation", "string", "letters of the operands and of the result")],
    source="numpy.einsum; torch.einsum",
)


# -- the equation ------------------------------------------------------------------------------


class _Equation(NamedTuple):
    """Labels of each operand's axes and of the result's; axes of `...` are labeled `.0`, ...

    The last of these is `.0`, as they are lined up at their ends.
    """

    operands: tuple[Labels, ...]
    result: Labels


# Read for the shape rule, the kernel and the gradient of each operator.
@lru_cache(maxsize=256)
def _read(equation: str, ranks: tuple[int, ...]) -> _Equation:
    """The equation for operands of so many axes.

    Raises:
        ShapeError: says what is wrong.
    """
    text = "".join(equation.split())
    before, arrow, after = text.partition("->")
    operands = before.split(",")
    if len(operands) != len(ranks):
        raise ShapeError(f"has letters for {len(operands)} operands and is given {len(ranks)}")
    labels = tuple(
        _labels(operand, rank, f"operand {number}")
        for number, (operand, rank) in enumerate(zip(operands, ranks, strict=True))
    )
    everything = [label for operand in labels for label in operand]
    spread = _spread_labels(max((_spread_of(operand) for operand in labels), default=0))
    if not arrow:
        once = sorted(label for label in set(everything) if everything.count(label) == 1)
        # `spread` has the labels of `...` already, so only letters follow.
        return _Equation(labels, spread + tuple(one for one in once if one.isalpha()))
    letters = after.replace(_ELLIPSIS, "", 1)
    rank = len(letters) + (len(spread) if _ELLIPSIS in after else 0)
    result = _labels(after, rank, "the result")
    for label in result:
        if label not in everything:
            raise ShapeError(f"gives the result an axis {label!r}, which no operand has")
        if result.count(label) > 1:
            raise ShapeError(f"gives the result two axes {label!r}")
    return _Equation(labels, result)


def _spread_labels(count: int) -> Labels:
    # A dot before the number: no letter of an equation can be the same.
    return tuple(f".{place}" for place in reversed(range(count)))


def _spread_of(labels: Labels) -> int:
    """How many axes of an operand `...` stands for."""
    return sum(label.startswith(".") for label in labels)


def _labels(text: str, rank: int, whose: str) -> Labels:
    """The labels of one operand's axes, or of the result's."""
    before, dots, after = text.partition(_ELLIPSIS)
    for sign in before + after:
        if not (sign.isascii() and sign.isalpha()):
            raise ShapeError(f"has {sign!r} among the letters of {whose}")
    letters = len(before) + len(after)
    if rank < letters or (rank > letters and not dots):
        raise ShapeError(f"has {letters} letters for {whose}, which has {rank} dimensions")
    return (*before, *_spread_labels(rank - letters if dots else 0), *after)


@einsum.shape_rule
def einsum_shape(s: ShapeArgs) -> None:
    dtype, shapes = s.floats("x"), s.shapes("x")
    try:
        equation = _read(s.attrs["equation"], tuple(map(len, shapes)))
        sizes = _sizes(equation.operands, shapes)
    except ShapeError as error:
        s.fail(f"equation {s.attrs['equation']!r} {error}")
    s.set("out", ([sizes[label] for label in equation.result], dtype))


def _sizes(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each label: 1 gives way to any other; -1 where it is not known.

    Raises:
        ShapeError: two sizes for one label.
    """
    seen: dict[str, list[int]] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            held = own.get(label, -1)
            if -1 not in (held, size) and held != size:
                raise ShapeError(f"takes a diagonal along {label!r} of sizes {held} and {size}")
            own[label] = max(held, size)
        for label, size in own.items():
            seen.setdefault(label, []).append(size)
    return {label: _joint(label, sizes) for label, sizes in seen.items()}


def _joint(label: str, sizes: Sequence[int]) -> int:
    known = sorted({size for size in sizes if size not in (1, -1)})
    if len(known) > 1:
        what = "an axis of `...`" if label.startswith(".") else f"the axis {label!r}"
        raise ShapeError(f"gives {what} the sizes {' and '.join(map(str, known))}")
    # Sizes 1 and unknown together are unknown: -1.
    return known[0] if known else min(sizes)


# -- kernels -----------------------------------------------------------------------------------


def _operands(k: KernelArgs) -> tuple[_Equation, dict[str, int], list[Term]]:
    """The equation, the sizes of its labels, and the operands as terms."""
    shapes = k.shapes("x")
    equation = _read(k.attrs["equation"], tuple(map(len, shapes)))
    sizes = _sizes(equation.operands, shapes)
    pairs = zip(equation.operands, k.list("x"), strict=True)
    return equation, sizes, [labeled(k.xp, labels, array, sizes) for labels, array in pairs]


@einsum.kernel
def einsum_kernel(k: KernelArgs) -> Call:
    equation, sizes, terms = _operands(k)
    return in_order(*contracting(k, terms, equation.result, k["out"], sizes))


@einsum.backward("x")
def einsum_grad_kernel(k: KernelArgs) -> Call:
    equation, sizes, terms = _operands(k)
    arriving = Term(equation.result, k["out_grad"])
    calls: list[Call] = []
    for number, target in enumerate(k.list("x_grad")):
        if target is None:
            continue
        labels = equation.operands[number]
        if len(set(labels)) < len(labels):  # a diagonal, and nothing beside it
            calls.append(partial(target.fill, 0))
        own = labeled(k.xp, labels, target, sizes)
        others = [arriving, *(term for place, term in enumerate(terms) if place != number)]
        calls += _filling(k, others, own, sizes)
    return in_order(*calls)


def _filling(k: KernelArgs, terms: Sequence[Term], own: Term, sizes: dict[str, int]) -> list[Call]:
    """Calls for a gradient: the product of the other terms, the same along axes of no other."""
    known = {label for term in terms for label in term.labels}
    kept = tuple(label for label in own.labels if label in known)
    if kept == own.labels:
        return contracting(k, terms, kept, own.array, sizes)
    held = k.scratch([sizes[label] for label in kept], own.array.dtype)
    index = (slice(None) if label in known else None for label in own.labels)
    # An axis of this operand alone was summed forward, so every place along it has one gradient.
    copy = partial(k.xp.copyto, own.array, held[(*index, ...)])
    return [*contracting(k, terms, kept, held, sizes), copy]
