"""Convolution as matrix products, its three directions sharing one layout.

A convolution relates a `large` array [N, C, *S], a `small` one [N, O, *P] and weights
[O, C/groups, *K]: forward makes `small`, the input's gradient makes `large`, and a transposed
convolution is the same with the two swapped.

The large array is gathered into rows: one for each place along the first spatial axis, holding for
every tap of the *other* axes a copy of the channels, already shifted (Chellapilla et al. 2006
gather all taps). Where stride and dilation of the first axis are 1, the matrix that belongs to
output row `p` is then rows p .. p+K0-1, which lie side by side in memory: an overlapping view, no
copy. The gathered data are K0 times smaller than a full im2col matrix. Otherwise all taps are
gathered.

    rows   [G, R, taps, C/G, inner]      inner = N and the spatial axes but the first
    windows[G, P0, K0*taps*C/G, inner]   a view of rows
    small  [G, P0, O/G, inner] = weights [G, 1, O/G, K0*taps*C/G] @ windows

`inner` ends in N where the last spatial axis is short, so that copies still have long runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...framework.base.python.cached import cached_property
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import copying, stacked
from .windows import Axis, tap_spans

_SHORT_AXIS = 16
_CHUNK = 1 << 20  # elements of the products that are summed to weight gradients at a time


class Correlation:
    """Geometry and scratch memory of one convolution, bound to one kernel call.

    Args:
        k: the kernel's arguments (scratch memory, array module).
        axes: windows along the spatial axes, one to three.
        large, small: shapes [N, C, *S] and [N, O, *P].
        groups: channels are split into so many independent convolutions.
        multiply: makes the call for products of stacks of matrices, as `stacked` does.
    """

    def __init__(
        self,
        k: KernelArgs,
        axes: Sequence[Axis],
        large: Sequence[int],
        small: Sequence[int],
        groups: int,
        dtype: Any,
        multiply: Callable[..., Call] = stacked,
    ) -> None:
        self.multiply = partial(multiply, k.xp)
        self.k = k
        self.xp = k.xp
        self.dtype = dtype
        self.groups = groups
        self.lifted = len(axes) == 1  # [N, C, L] is worked on as [N, C, 1, L]
        unit = (1,) if self.lifted else ()
        self.axes = (Axis(1), *axes) if self.lifted else tuple(axes)
        self.batch = large[0]
        self.large_dims = (*unit, *large[2:])
        self.small_dims = (*unit, *small[2:])
        self.channels = large[1] // groups
        self.filters = small[1] // groups
        first = self.axes[0]
        self.kernel = tuple(axis.kernel for axis in self.axes)
        self.overlap = first.stride == 1 and first.dilation == 1
        # Copies along a short row cost a call for a few numbers; along the batch they are longer.
        self.batch_last = self.small_dims[-1] < _SHORT_AXIS and self.batch >= self.small_dims[-1]
        self.positions = self.small_dims[0]
        self.row_count = self.positions + first.kernel - 1 if self.overlap else self.positions
        gathered = self.axes[1:] if self.overlap else self.axes
        self.taps = 1
        for axis in gathered:
            self.taps *= axis.kernel
        self.spans = list(
            tap_spans(
                gathered, self.large_dims[-len(gathered) :], self.small_dims[-len(gathered) :]
            )
        )
        self.inner = self.batch
        for dim in self.small_dims[1:]:
            self.inner *= dim
        self.depth = self.taps * self.channels * (first.kernel if self.overlap else 1)

    # -- layouts -------------------------------------------------------------------------------

    def _memory(self, lead: Sequence[int], dims: Sequence[int]) -> tuple[Any, Any]:
        """Scratch [*lead, inner...] and its view [*lead, N, *dims], whichever order inner has."""
        if self.batch_last:
            memory = self.k.scratch((*lead, *dims, self.batch), self.dtype)
            return memory, self.xp.moveaxis(memory, -1, len(lead))
        memory = self.k.scratch((*lead, self.batch, *dims), self.dtype)
        return memory, memory

    def _by_rows(self, array: Any, channels: int, dims: Sequence[int]) -> Any:
        """View [G, dims[0], channels, N, *dims[1:]] of an array [N, G*channels, *dims]."""
        split = array.reshape(self.batch, self.groups, channels, *dims)
        return split.transpose(1, 3, 2, 0, *range(4, 3 + len(dims)))

    def _weights(self, w: Any) -> Any:
        """View [G, O/G, C/G, *K] of weights [O, C/G, *K]."""
        return w.reshape(self.groups, self.filters, self.channels, *self.kernel)

    def _windows_of(self, rows: Any, count: int, height: int, width: int) -> Any:
        """View [G, count, height*width, inner] of rows [G, R, width, inner]: each `height` rows."""
        group, row, line, item = rows.strides
        return self.xp.lib.stride_tricks.as_strided(
            rows,
            (self.groups, count, height * width, self.inner),
            (group, row, line, item),
        )

    # These are made when first asked for: each direction needs some of them, and memory costs.
    @cached_property
    def _rows(self) -> tuple[Any, Any, Any]:
        """Rows as [G, R, taps*C/G, inner], as [G, R, taps, C/G, N, ...], and their windows."""
        lead = (self.groups, self.row_count, self.taps, self.channels)
        memory, view = self._memory(lead, self.small_dims[1:])
        rows = memory.reshape(self.groups, self.row_count, lead[2] * lead[3], self.inner)
        height = self.kernel[0] if self.overlap else 1
        return rows, view, self._windows_of(rows, self.positions, height, rows.shape[2])

    @cached_property
    def _turned(self) -> tuple[Any, Any]:
        """Scratch for the large array by rows where its copies need N last: memory and view."""
        lead = (self.groups, self.large_dims[0], self.channels)
        return self._memory(lead, self.large_dims[1:])

    @cached_property
    def _small(self) -> tuple[Any, Any, Any]:
        """The small array by rows: whole memory, as [G, P0, O/G, inner], as [G, P0, O/G, N, ...].

        Where rows overlap, K0-1 rows of zeros surround it, which the input's gradient reads.
        """
        edge = self.kernel[0] - 1 if self.overlap else 0
        lead = (self.groups, self.positions + 2 * edge, self.filters)
        memory, view = self._memory(lead, self.small_dims[1:])
        padded = memory.reshape(*lead, self.inner)
        inside = slice(edge, edge + self.positions)
        return padded, padded[:, inside], view[:, inside]

    def _tap_views(self, rows: Any, large: Any) -> list[tuple[Any, Any]]:
        """For each tap that reads anything: its part of the rows and of the large array."""
        first, size = self.axes[0], self.large_dims[0]
        everything = (slice(None),) * 2
        pairs = []
        for tap, (out, source) in enumerate(self.spans):
            if self.overlap:
                here = slice(first.before, first.before + size)
                there = slice(None)
            else:
                here = out[0]
                there = source[0]
                out = out[1:]
                source = source[1:]
            part = rows[:, here, tap, :, :]
            pairs.append((part[(..., *out)], large[(slice(None), there, *everything, *source)]))
        return [pair for pair in pairs if pair[0].size]

    @property
    def _padded(self) -> bool:
        return any(axis.before or axis.after for axis in self.axes) or any(
            axis.positions(size) != count
            for axis, size, count in zip(self.axes, self.large_dims, self.small_dims, strict=True)
        )

    # -- steps ---------------------------------------------------------------------------------

    def gather(self, large: Any) -> Call:
        """Fill the rows from the large array."""
        xp = self.xp
        by_rows = self._by_rows(large, self.channels, self.large_dims)
        turn = None
        if self.batch_last and self.taps > 1:
            source = self._turned[1]
            # Turned once: each tap would turn the whole image again.
            turn = copying(xp, by_rows, source)
        else:
            source = by_rows
        _, view, _ = self._rows
        copies = [copying(xp, there, here) for here, there in self._tap_views(view, source)]
        # Without padding every place is written, and nothing need be cleared.
        clear = partial(view.fill, 0) if self._padded else None
        return in_order(clear, turn, *copies)

    def load_small(self, small: Any, *, edges: bool = False) -> Call:
        """Bring the small array into rows; with `edges` also clear the zero rows around it."""
        padded, rows, view = self._small
        by_rows = self._by_rows(small, self.filters, self.small_dims)
        edge = (padded.shape[1] - rows.shape[1]) // 2
        clears: list[Call] = []
        if edges and edge:
            ends = padded[:, :edge], padded[:, edge + self.positions :]
            clears = [partial(end.fill, 0) for end in ends]
        return in_order(*clears, copying(self.xp, by_rows, view))

    def make_small(self, w: Any, b: Any, out: Any) -> Call:
        """out = weights times gathered rows, plus the bias [O] where there is one."""
        xp = self.xp
        weights = self._weights(w)
        order = (0, 1, *range(3, weights.ndim), 2)
        packed = self.k.scratch([weights.shape[axis] for axis in order], self.dtype)
        # Packed in each call, as the weights may have changed since the last.
        pack = partial(xp.copyto, packed, weights.transpose(order), casting="unsafe")
        matrix = packed.reshape(self.groups, 1, self.filters, self.depth)
        windows = self._rows[2]
        _, rows, view = self._small
        bias = None if b is None else b.reshape(self.groups, 1, self.filters, 1)
        by_rows = self._by_rows(out, self.filters, self.small_dims)
        multiply = self.multiply(matrix, windows, rows)
        add, copyto = xp.add, xp.copyto

        def run() -> None:
            pack()
            multiply()
            if bias is not None:
                add(rows, bias, out=rows)
            copyto(by_rows, view)

        return run

    def make_large(self, w: Any, out: Any) -> Call:
        """out = transposed weights times the small array, which `load_small` brought with edges."""
        xp = self.xp
        weights = self._weights(w)
        rows, view, _ = self._rows
        padded, small, _ = self._small
        if self.overlap:  # flipped along the first axis: [taps, C/G] from [K0, O/G]
            weights = weights[:, :, :, ::-1]
            order = (0, *range(4, weights.ndim), 2, 3, 1)
            first = self.axes[0].before
            count, height = self.large_dims[0], self.kernel[0]
            source = self._windows_of(padded[:, first:], count, height, self.filters)
            target = rows[:, first : first + count]
        else:
            order = (0, *range(3, weights.ndim), 2, 1)
            source, target = small, rows
        packed = self.k.scratch([weights.shape[axis] for axis in order], self.dtype)
        pack = partial(xp.copyto, packed, weights.transpose(order), casting="unsafe")
        matrix = packed.reshape(self.groups, 1, self.taps * self.channels, -1)
        by_rows = self._by_rows(out, self.channels, self.large_dims)
        total = self._turned[1] if self.batch_last else by_rows
        pairs = self._tap_views(view, total)
        finish = copying(xp, total, by_rows)
        multiply = self.multiply(matrix, source, target)
        add = xp.add

        def run() -> None:
            pack()
            multiply()
            # The taps overlap: each adds to what others have put there.
            total.fill(0)
            for part, there in pairs:
                add(there, part, out=there)
            if finish is not None:
                finish()

        return run

    def make_weights(self, out: Any) -> Call:
        """out = gradient of the weights from the gathered rows and the small array's rows."""
        xp = self.xp
        windows = self._rows[2]
        small = self._small[1].swapaxes(2, 3)
        size = self.groups * self.depth * self.filters
        # Products of all positions at once would take as much memory as the gathered rows again.
        chunk = max(1, min(self.positions, _CHUNK // max(size, 1)))
        products = self.k.scratch((self.groups, chunk, self.depth, self.filters), self.dtype)
        shape = (self.groups, self.depth, self.filters)
        total, part = self.k.scratch(shape, self.dtype), self.k.scratch(shape, self.dtype)
        starts = range(0, self.positions, chunk)
        chunks = [
            (
                self.multiply(windows[:, at : at + chunk], small[:, at : at + chunk], terms),
                terms,
            )
            for at in starts
            # The last chunk may be shorter than the others.
            for terms in (products[:, : self.positions - at],)
        ]
        weights = self._weights(out)
        order = (0, *range(3, weights.ndim), 2, 1)
        shaped = total.reshape([weights.shape[axis] for axis in order])
        unpack = partial(xp.copyto, weights.transpose(order), shaped, casting="unsafe")
        add, total_of = xp.add, xp.sum

        def run() -> None:
            # The first chunk's sum is written, not added, so `total` need not be cleared.
            target = total
            for multiply, terms in chunks:
                multiply()
                total_of(terms, axis=1, out=target)
                if target is part:
                    add(total, part, out=total)
                target = part
            unpack()

        return run

    def make_bias(self, out: Any) -> Call:
        """out = sum of the small array, by rows, over everything but its channels."""
        xp = self.xp
        rows = self._small[1]
        # A sum as a product with ones, which BLAS does faster than a reduction.
        ones = xp.ones((self.inner, 1), self.dtype)
        sums = self.k.scratch((self.groups, self.positions, self.filters, 1), self.dtype)
        target = out.reshape(self.groups, self.filters, 1)
        multiply = self.multiply(rows, ones, sums)
        total_of = xp.sum

        def run() -> None:
            multiply()
            total_of(sums, axis=1, out=target)

        return run
