"""Sums of products of arrays whose axes have labels, as products of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

from ...framework.base.sizes.shape import count
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import reducing, stacked
from .matmul import product

Labels = tuple[str, ...]


class Term(NamedTuple):
    """An array and the label of each of its axes; no label stands there twice."""

    labels: Labels
    array: Any


def labeled(xp: Any, labels: Sequence[str], array: Any, sizes: Mapping[str, int]) -> Term:
    """An array as a term, a view of it.

    Axes with the same label become one, the diagonal. Axes of size 1 whose label has another size
    elsewhere are left out: they broadcast.
    """
    kept: dict[str, tuple[int, int]] = {}
    for label, size, stride in zip(labels, array.shape, array.strides, strict=True):
        before = kept.get(label, (size, 0))[1]
        if size == sizes[label]:
            # A step along a diagonal is a step along each of its axes, so strides add up.
            kept[label] = size, before + stride
    shape, strides = ([pair[i] for pair in kept.values()] for i in (0, 1))
    if len(kept) == array.ndim:
        return Term(tuple(kept), array)
    view = xp.lib.stride_tricks.as_strided(array, shape=tuple(shape), strides=tuple(strides))
    return Term(tuple(kept), view)


def contracting(
    k: KernelArgs, terms: Sequence[Term], labels: Labels, out: Any, sizes: Mapping[str, int]
) -> list[Call]:
    """Calls for out = the sum of the product of all terms over the labels that `out` has not.

    Args:
        labels: of `out`; each is a label of some term. sizes: of every label.
    """
    left = list(terms)
    calls = []
    while len(left) > 2:
        # The cheapest pair first: greedy, not the best of all orders.
        a, b = min(combinations(left, 2), key=lambda pair: _work(pair, sizes))
        left = [term for term in left if term is not a and term is not b]
        others = {label for term in left for label in term.labels}.union(labels)
        kept = tuple(label for label in dict.fromkeys(a.labels + b.labels) if label in others)
        held = Term(kept, k.scratch([sizes[label] for label in kept], out.dtype))
        calls += _pair(k, a, b, held)
        left.append(held)
    target = Term(labels, out)
    if len(left) == 1:
        return [*calls, *_summed(k, left[0], target)]
    return [*calls, *_pair(k, left[0], left[1], target)]


def _work(pair: Sequence[Term], sizes: Mapping[str, int]) -> int:
    """Number of products of elements."""
    return prod(sizes[label] for label in {*pair[0].labels, *pair[1].labels})


def _ordered(term: Term, labels: Sequence[str]) -> Any:
    """The term's array with its axes in the order of `labels`, with size 1 where it has none."""
    axes = [term.labels.index(label) for label in labels if label in term.labels]
    array = term.array.transpose(axes)
    index = (slice(None) if label in term.labels else None for label in labels)
    return array[(*index, ...)]  # the ellipsis: a view even of a scalar


def _summed(k: KernelArgs, term: Term, target: Term) -> list[Call]:
    """Calls for target = the term, summed over the labels that the target has not."""
    call = reducing(k.xp, term.array, _ordered(target, term.labels))
    return [] if call is None else [call]


def _without(k: KernelArgs, term: Term, other: Term, labels: Labels) -> tuple[Term, list[Call]]:
    """The term, summed over labels that neither the other term nor the result has."""
    kept = tuple(label for label in term.labels if label in other.labels or label in labels)
    if kept == term.labels:
        return term, []
    shape = [term.array.shape[term.labels.index(label)] for label in kept]
    held = Term(kept, k.scratch(shape, term.array.dtype))
    return held, _summed(k, term, held)


def _pair(k: KernelArgs, a: Term, b: Term, target: Term) -> list[Call]:
    """Calls for target = the product of two terms, summed over the labels that it has not."""
    labels = target.labels
    # A label of one factor alone is summed before the product, which is smaller then.
    a, calls = _without(k, a, b, labels)
    b, more = _without(k, b, a, labels)
    calls += more
    inner = [label for label in a.labels if label not in labels]
    # Nothing is summed: one product that broadcasts, and no matrices.
    if not inner:
        factors = (_ordered(term, labels) for term in (a, b))
        return [*calls, partial(k.xp.multiply, *factors, target.array)]
    if labels and labels[-1] in a.labels and labels[-1] not in b.labels:
        a, b = b, a  # so that the columns of the product are the result's, too
    both = [label for label in labels if label in a.labels and label in b.labels]
    rows = [label for label in labels if label in a.labels and label not in both]
    columns = [label for label in labels if label in b.labels and label not in both]
    if prod(b.array.shape) > prod(a.array.shape):  # the larger one is read in its own order
        inner = [label for label in b.labels if label in inner]
    x, load_x = _matrices(k, a, both, rows, inner)
    y, load_y = _matrices(k, b, both, inner, columns)
    result, store = _result_matrices(k, target, both, rows, columns)
    return [*calls, *load_x, *load_y, _product(k.xp, x, y, result), *store]


def _product(xp: Any, x: Any, y: Any, out: Any) -> Call:
    if out.ndim > 2:
        return stacked(xp, x, y, out)
    # The transposed product writes rows: NumPy's `dot` writes to C-contiguous memory alone.
    if out.flags.f_contiguous and not out.flags.c_contiguous:
        return product(xp, y.T, x.T, out.T)
    return product(xp, x, y, out)


def _matrices(
    k: KernelArgs, term: Term, both: list[str], rows: list[str], columns: list[str]
) -> tuple[Any, list[Call]]:
    """The term as a stack of matrices, and calls that bring it into scratch memory if needed."""
    view = _ordered(term, [*both, *rows, *columns])
    matrices = _as_matrices(view, len(both), len(rows))
    if matrices is not None:
        return matrices, []
    held = k.scratch(view.shape, view.dtype)
    matrices = _as_matrices(held, len(both), len(rows))
    return matrices, [partial(k.xp.copyto, held, view)]


def _result_matrices(
    k: KernelArgs, target: Term, both: list[str], rows: list[str], columns: list[str]
) -> tuple[Any, list[Call]]:
    """As `_matrices`, for a result: the calls bring it to its place afterwards."""
    view = _ordered(target, [*both, *rows, *columns])
    matrices = _as_matrices(view, len(both), len(rows))
    if matrices is not None:
        return matrices, []
    held = k.scratch(view.shape, view.dtype)
    return _as_matrices(held, len(both), len(rows)), [partial(k.xp.copyto, view, held)]


def _as_matrices(array: Any, stack: int, rows: int) -> Any:
    """A view whose axes after the first `stack` are rows and columns; None where BLAS takes none.

    Of these axes the first `rows` become one, and the others.
    """
    split = stack + rows
    if not (_joins(array, stack, split) and _joins(array, split, array.ndim)):
        return None
    shape = array.shape
    matrices = array.reshape((*shape[:stack], count(shape[stack:split]), count(shape[split:])))
    (height, width), (down, right) = matrices.shape[-2:], matrices.strides[-2:]
    item = array.dtype.itemsize
    # BLAS wants one axis without gaps, and lines that do not overlap along the other.
    by_rows = right == item and down >= width * item
    by_columns = down == item and right >= height * item
    # A single row or column has one stride that counts.
    line = (height <= 1 and right >= item) or (width <= 1 and down >= item)
    return matrices if by_rows or by_columns or line or not array.size else None


def _joins(array: Any, begin: int, end: int) -> bool:
    """Whether consecutive axes can be seen as one."""
    pairs = [
        (size, stride)
        for size, stride in zip(array.shape[begin:end], array.strides[begin:end], strict=True)
        # The stride of an axis of size 1 leads nowhere, and may be any number.
        if size != 1
    ]
    return array.size == 0 or all(
        outer[1] == inner[0] * inner[1] for outer, inner in zip(pairs, pairs[1:], strict=False)
    )
