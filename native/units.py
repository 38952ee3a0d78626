"""What the native library consists of: C files, each compiled for numbers and processors.

A unit is a C file for one kind of numbers: `rows.c` for floats. It is compiled once for each
processor that has code of its own, by other flags and with other names: `softmax` of `rows.c` is
exported as `softmax_float_avx512`. Whoever loads the library takes the names of the best processor
that is there.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .constants import macros

FOLDER = Path(__file__).resolve().parent
BUILT = FOLDER / "opscope_native.so"
"""The whole library, where it was built: in a wheel, or in a tree that is installed."""

TYPES = ("float", "double")

KINDS: dict[str, tuple[str, ...]] = {
    "attention": TYPES,
    "bayes_risk": ("",),
    "bf16_gemm": ("3", "1"),
    "blas": TYPES,
    "block_products": ("",),
    "boxes": ("",),
    "bytes": ("",),
    "chains": TYPES,
    "column_sums": TYPES,
    "convolution": TYPES,
    "depthwise": TYPES,
    "determinization": ("",),
    "dot_products": TYPES,
    "features": ("",),
    "few_rows": TYPES,
    "glibc": ("",),
    "image_norm": TYPES,
    "images": TYPES,
    "integer_convolution": ("",),
    "integer_gemm": ("",),
    "integers": ("",),
    "interpolation": TYPES,
    "ivectors": ("",),
    "label_lines": ("",),
    "lattices": ("",),
    "local_epsilons": ("",),
    "mersenne": ("",),
    "minimization": ("",),
    "mkl_rows": TYPES,
    "packed_gemm": TYPES,
    "pooling": TYPES,
    "row_adder": TYPES,
    "row_products": TYPES,
    "rows": TYPES,
    "search": ("",),
    "segments": TYPES,
    "team": ("",),
    "tile_convolution": ("float",),
    "transducers": ("",),
    "vector_products": TYPES,
    "winograd": ("float",),
}
"""The C files, and the kinds of numbers that each is compiled for."""

ALONE = ("glibc", "team")
"""Files that are compiled once for all processors: there is one state of them in a process."""

EXACT = (
    *("bayes_risk", "boxes", "chains", "determinization", "features", "integers", "ivectors"),
    *("lattices", "local_epsilons", "mersenne", "minimization", "transducers"),
)
"""Files whose every operation rounds: none makes a product and a sum one operation."""

SPECIAL = "bf16_gemm", "tile_convolution"
"""Files for those kinds of processor alone that name them."""

COMMON_FLAGS = (
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    # glibc declares the vector variants of exp, tanh and so on under this macro only; the flag
    # -ffast-math itself would lose NaN and infinity.
    "-D__FAST_MATH__",
    *("-w", "-fPIC"),
)
"""Flags of a compiler for all C of the package, that of fused loops included."""
EXACT_FLAG = "-ffp-contract=off"
_FLAGS = (*COMMON_FLAGS, "-fopenmp-simd", "-fvisibility=hidden")
_SHARED = ("-shared", "-fPIC", "-pthread")
# Without BIGINT words are cut in two for JavaScript, and functions that take them have other types
# than those that call them by address believe.
_LINKED = {"wasm32": ("-sSIDE_MODULE=1", "-sWASM_BIGINT=1")}


@dataclass(frozen=True)
class Processor:
    """A kind of processor.

    Attributes:
        flags: of the compiler. files: those that have code of its own, some for one kind of
            numbers; None: all. base: the kind all of whose instructions it has, and whose code
            serves where a file has none for it; "" for the first one.
    """

    name: str
    flags: tuple[str, ...]
    files: tuple[str, ...] | None = None
    base: str = ""

    def takes(self, file: str, kind: str) -> bool:
        """Whether a file has code of its own for it."""
        if self.files is None:
            return file not in SPECIAL
        return file in self.files or f"{file}_{kind}" in self.files


_AVX512 = ("-march=x86-64-v4", "-mprefer-vector-width=512")
_AVX2 = ("-march=x86-64-v3",)
_BYTES = "integer_convolution", "integer_gemm"
_BF16 = (*_AVX512, "-mavx512bf16", "-mavx512vnni")
_AMX = (*_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")
TILED = "amx"
"""The kind of processor that multiplies tiles, which the system has to grant."""
TILED_FILES = "bf16_gemm", "tile_convolution", *_BYTES
PROCESSORS: dict[str, tuple[Processor, ...]] = {
    "x86_64": (
        Processor("sse4", ("-march=x86-64-v2",)),
        Processor("avx2", _AVX2, base="sse4"),
        Processor("avx512", _AVX512, base="avx2"),
        # Of processors for laptops; many with AVX-512 lack it.
        Processor("avxvnni", (*_AVX2, "-mavxvnni"), ("block_products", *_BYTES), "avx2"),
        Processor("avx512bf16", _BF16, ("bf16_gemm_1", "block_products", *_BYTES), "avx512"),
        Processor(TILED, _AMX, TILED_FILES, "avx512bf16"),
    ),
    "aarch64": (Processor("neon", ()),),
    # Steps of chains end in calls, which must be jumps.
    "wasm32": (Processor("simd128", ("-msimd128", "-mtail-call")),),
}
"""By the name of the machine. A file is loaded for the last kind that has code for it; the bits of
`opscope_processor` in processor.h have this order."""

NAMES = tuple(one.name for kinds in PROCESSORS.values() for one in kinds)
_OTHER = (Processor("plain", ()),)
_INCLUDE = re.compile(r'^#include "(\w+\.h)"$', re.MULTILINE)


class Unit(NamedTuple):
    """A C file for one kind of numbers."""

    file: str
    kind: str = ""

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file}.c"

    def suffix(self, processor: Processor) -> str:
        """What ends the names that it exports."""
        alone = self.file in ALONE
        return "".join(f"_{part}" for part in (self.kind, "" if alone else processor.name) if part)

    def processors(self, machine: str = "") -> tuple[Processor, ...]:
        """Those that have code of their own."""
        if self.file in ALONE:
            return (Processor("", ()),)
        return tuple(one for one in processors(machine) if one.takes(self.file, self.kind))

    def arguments(self, processor: Processor) -> list[str]:
        """Arguments of the compiler: flags, macros, and the file."""
        names = {"UNIT": self.file, "KIND": self.kind, "PROCESSOR": processor.name, **macros()}
        defined = [f"-D{name}={value}" for name, value in names.items() if value]
        exact = [EXACT_FLAG] if self.file in EXACT else []
        return [*_FLAGS, *exact, *processor.flags, *defined, str(self.path)]

    def marker(self, processor: Processor) -> str:
        """The name that it exports in any case."""
        return f"unit_{self.file}{self.suffix(processor)}"


def machine_name(machine: str = "") -> str:
    """The name of a machine as `PROCESSORS` has it; that of this one for ""."""
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def processors(machine: str = "") -> tuple[Processor, ...]:
    """The kinds of processors that a machine may have, from the simplest on."""
    return PROCESSORS.get(machine_name(machine), _OTHER)


def link_flags(machine: str = "") -> tuple[str, ...]:
    """Flags of a compiler that makes a library for a machine."""
    return _LINKED.get(machine_name(machine), _SHARED)


def units() -> Iterator[Unit]:
    """All units."""
    return (Unit(file, kind) for file, kinds in KINDS.items() for kind in kinds)


@cache
def made_headers() -> dict[str, str]:
    """The headers that are made of declarations, by their names."""
    from .arguments import (
        c_header,
    )  # the options of the package, too, read names of processors here
    from .declarations import DECLARED, ENUMS, RECORDS

    return {f"{file}_arguments.h": c_header(file, DECLARED, RECORDS, ENUMS) for file in DECLARED}


def write_headers(folder: Path) -> None:
    """Put the headers that are made of declarations where a compiler shall look for them."""
    for name, content in made_headers().items():
        (folder / name).write_text(content, encoding="utf-8")


@cache
def included(file: str) -> dict[str, str]:
    """The headers that a C file includes, and those that they include, with their texts."""
    names = [f"{file}.c"]
    made = made_headers()
    found = {}
    for name in names:  # grows on the way
        found[name] = made.get(name) or (FOLDER / name).read_text(encoding="utf-8")
        names += [one for one in _INCLUDE.findall(found[name]) if one not in names]
    return {name: found[name] for name in sorted(names[1:])}


def text(file: str) -> str:
    """A C file and what it includes: all that its code depends on."""
    own = (FOLDER / f"{file}.c").read_text(encoding="utf-8")
    return own + "".join(f"/* {name} */\n{one}" for name, one in included(file).items())


def digest() -> str:
    """What a library that was built of these files, in this way, says of itself."""
    parts = [text(file) for file in sorted(KINDS)]
    parts += [
        repr((KINDS, ALONE, EXACT, EXACT_FLAG, _FLAGS, _SHARED, _LINKED, PROCESSORS, macros()))
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
