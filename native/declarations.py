"""The arguments of all native functions; arguments.py says how to read and write this table."""

from __future__ import annotations

from .arguments import (
    COUNT,
    REAL,
    SOME,
    Struct,
    reads,
    step_of,
    updates,
    writes,
)

RECORDS: dict[str, dict[str, str]] = {}
"""Records that arrays are made of: the dtype of each field, by its name."""

DECLARED: dict[str, tuple[Struct, ...]] = {
    "column_sums": (
        Struct(
            "sums",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows:step columns"),
            step=step_of("x"),
            out=writes("columns"),
        ),
    ),
    "few_rows": (
        # The products of pieces of k, which `few_added` adds up.
        Struct(
            "few",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:a_step k"),
            a_step=step_of("a"),
            b=reads("k:b_step n"),
            b_step=step_of("b"),
            pieces=SOME,
            sums=writes("pieces m n"),
            backward=reads("1", "int64"),  # whether the last piece comes first
        ),
        Struct(
            "few_added",
            m=COUNT,
            n=COUNT,
            pieces=SOME,
            sums=updates("pieces m n"),
            out=writes("m:step n"),
            step=step_of("out"),
            bias=reads("n", optional=True),
            alpha=REAL,
            backward=updates("1", "int64"),
        ),
        # One row with packed blocks of columns.
        Struct(
            "line",
            k=COUNT,
            n=COUNT,
            a=reads("k"),
            panels=reads("whole(n,lanes) k", "packed"),
            out=updates("n"),
            begin=reads("n", optional=True),
            # Whether a thread that begins with a block goes backward, in a cache line of its own.
            ways=updates("whole(n,wide)//wide 8", "int64"),
        ),
        Struct(
            "pack_line",
            k=COUNT,
            n=COUNT,
            b=reads("k:down n:right"),
            down=step_of("b"),
            right=step_of("b", -1),
            panels=writes("whole(n,lanes) k", "packed"),
            alpha=REAL,
        ),
    ),
    "row_adder": (
        Struct(
            "add_rows",
            count=COUNT,
            columns=COUNT,
            rows=COUNT,
            out=updates("rows columns"),
            ids=reads("count", "int64"),
            values=reads("count columns"),
        ),
    ),
}
