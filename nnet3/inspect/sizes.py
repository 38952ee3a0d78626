"""Sizes and memory of a compiled request."""

from __future__ import annotations

from collections.abc import Iterator

from ..compiler.computation import Computation, MatrixInfo
from ..compiler.listing import matrix_table
from ..compiler.memory_use import MemoryUse, memory_use


class Sizes:
    """The matrices of the optimized computation: size, node and rows; `sizes[1]` is m1."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation

    def __len__(self) -> int:
        return len(self._computation.matrices) - 1

    def __getitem__(self, number: int) -> MatrixInfo:
        if not 1 <= number <= len(self):
            raise IndexError(f"there is no matrix m{number}; there are m1 to m{len(self)}")
        return self._computation.matrices[number]

    def __iter__(self) -> Iterator[MatrixInfo]:
        return iter(self._computation.matrices[1:])

    def __str__(self) -> str:
        return "\n".join(matrix_table(self._computation))

    def to_kaldi(self) -> str:
        """What Kaldi prints before the commands of a computation."""
        return self._computation.preamble_to_kaldi()


class Memory:
    """The memory of the computation before and after the passes.

    Attributes:
        plain, optimized: see `MemoryUse`.
    """

    def __init__(self, plain: Computation, optimized: Computation) -> None:
        self.plain: MemoryUse = memory_use(plain)
        self.optimized: MemoryUse = memory_use(optimized)
        self._computation = optimized.explicit()

    @property
    def peak(self) -> int:
        """The most bytes that the optimized computation takes at one time."""
        return self.optimized.peak

    @property
    def total(self) -> int:
        """The bytes of all matrices of the optimized computation together."""
        return self.optimized.total

    def __str__(self) -> str:
        lines = []
        for word, use in (("plain", self.plain), ("optimized", self.optimized)):
            lines.append(
                f"{word:<9}  peak {shown_bytes(use.peak)} (command {use.peak_at}),"
                f" {len(use.matrices)} matrices of {shown_bytes(use.total)} together"
            )
        nodes = self._computation.topology.nodes
        rows = []
        for use in self.optimized.matrices:
            matrix = self._computation.matrices[use.number]
            node = nodes[matrix.node].name if matrix.node >= 0 else ""
            kind = "deriv" if matrix.is_deriv else "value"
            when = f"commands {use.begin}:{use.end}" if use.begin >= 0 else "not taken"
            handed = f", memory of m{use.handed_from}" if use.handed_from else ""
            rows.append((f"m{use.number}", shown_bytes(use.bytes), f"{kind} {node}", when + handed))
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines += [
            f"{name:<{widths[0]}}  {size:>{widths[1]}}  {what:<{widths[2]}}  {when}"
            for name, size, what, when in rows
        ]
        return "\n".join(lines)

    def to_kaldi(self) -> str:
        """The lines of Kaldi's `--verbose=3`."""
        return (
            f"Before optimization, max memory use (bytes) = {self.plain.peak}\n"
            f"After optimization, max memory use (bytes) = {self.optimized.peak}\n"
        )


def shown_bytes(count: int) -> str:
    """`640 B`, `12.5 kB`, `3.1 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
