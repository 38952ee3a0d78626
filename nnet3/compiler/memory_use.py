"""How much memory the matrices of a computation take, and when.

Source: GetMaxMemoryUse in Kaldi's `nnet3/nnet-analyze.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .computation import Computation

_BYTES = 4  # of a number, float32
_PACKED = {"uint8": 1, "int16": 2}


@dataclass
class MatrixUse:
    """The memory of one matrix.

    Attributes:
        number: of the matrix; it is called m1, m2 ...
        bytes: what it takes while it is not compressed.
        begin, end: the first and the last command with its memory; -1 where no command takes it.
        handed_from: the matrix whose memory it takes over; 0: none.
    """

    number: int
    bytes: int
    begin: int = -1
    end: int = -1
    handed_from: int = 0


@dataclass
class MemoryUse:
    """The memory of a computation.

    Attributes:
        peak: the most bytes that are taken at one time, as Kaldi counts them.
        peak_at: the first command with so many.
        total: the bytes of all matrices together, as if none gave its memory back.
        matrices: the memory of each matrix.
        by_command: the bytes that are taken after each command.
    """

    peak: int
    peak_at: int
    total: int
    matrices: list[MatrixUse]
    by_command: list[int]


def memory_use(computation: Computation) -> MemoryUse:
    """The memory of a computation, command by command; see `Computation.explicit` for commands."""
    computation = computation.explicit()
    matrices = [
        MatrixUse(number, _BYTES * matrix.rows * matrix.cols)
        for number, matrix in enumerate(computation.matrices)
    ]
    last = len(computation.commands) - 1
    now = 0
    by_command = []
    packed: dict[int, int] = {}
    for number, command in enumerate(computation.commands):
        use = matrices[computation.submatrices[command.target].matrix]
        kind = command.type
        if kind in ("AllocMatrix", "AcceptInput"):
            now += use.bytes
            use.begin = number if use.begin < 0 else use.begin
            use.end = last
        elif kind == "DeallocMatrix":
            now -= use.bytes
            use.end = number
        elif kind == "SwapMatrix":
            source = matrices[computation.submatrices[command.source].matrix]
            use.handed_from = source.number
            use.begin = number if use.begin < 0 else use.begin
            use.end = last
            source.end = number
        elif kind == "CompressMatrix":
            packed[use.number] = use.bytes // _BYTES * _PACKED[command.storage]
            now += packed[use.number] - use.bytes
        elif kind == "DecompressMatrix":
            now += use.bytes - packed[use.number]
        by_command.append(now)
    peak = max(by_command, default=0)
    return MemoryUse(
        peak=peak,
        peak_at=by_command.index(peak) if by_command else -1,
        total=sum(use.bytes for use in matrices),
        matrices=matrices[1:],
        by_command=by_command,
    )
