"""PTX translated to Python: a function over arrays of lanes for each basic block.

A block is straight text: the same lanes run throughout it. Calls of functions are replaced by the
functions' bodies, and an instruction under a predicate becomes a block of its own with a branch
around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import arithmetic
from .instructions import Block
from .operands import DTYPES, NAME, size_of
from .text import Body, Instruction, Module, Place, PtxError, Variable

_ENDS = ("bra", "ret", "exit", "bar", "barrier", "brx", "trap")
_NUMPY = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")


@dataclass(frozen=True)
class Program:
    """A kernel as functions `block(registers, lanes, run)`, in the order of its text.

    Attributes:
        registers: their dtypes. places: of the instructions that may fail.
        shared, local: where variables begin and end in their space. shared_size, local_size: of
            these spaces, for a block and for a lane. constants: global and constant variables.
    """

    name: str
    parameters: list[Variable]
    blocks: list[Callable[..., None]]
    registers: list[str]
    places: list[Place]
    shared: dict[str, tuple[int, int]]
    local: dict[str, tuple[int, int]]
    shared_size: int
    local_size: int
    constants: list[Variable]
    source: str


def translate(module: Module, name: str) -> Program:
    """An entry of a module.

    Raises:
        PtxError: it has an instruction that is not known here, with its line.
    """
    entry = module.body(name)
    flat = _Flat(module, {one.name for one in entry.parameters})
    instructions = flat.written_out(entry, "", {}, ())
    blocks, labels = _blocks(instructions)
    shared, shared_size = _laid([*module.variables["shared"], *flat.shared])
    local, local_size = _laid(flat.local)
    constants = [*module.variables["global"], *module.variables["const"]]
    symbols = {
        **{one: f"u8({begin})" for one, (begin, _) in (*shared.items(), *local.items())},
        **{one.name: f"run.memory.constant({one.name!r})" for one in constants},
    }
    registers = {name: number for number, name in enumerate(flat.registers)}
    kept = _read_before_written(blocks, flat.registers)
    places: list[Place] = []
    texts = []
    for number, block in enumerate(blocks):
        own = Block(flat.registers, registers, symbols, kept, labels, flat.tables, places)
        texts.append(own.text(number, block, len(blocks)))
    source = "\n".join(texts)
    names: dict[str, Any] = {"np": np, "a": arithmetic}
    names.update({dtype: np.dtype(dtype).type for dtype in _NUMPY})
    exec(compile(source, f"<{name}>", "exec"), names)
    return Program(
        name,
        entry.parameters,
        [names[f"block_{number}"] for number in range(len(blocks))],
        [DTYPES[kind] for kind in flat.registers.values()],
        places,
        shared,
        local,
        shared_size,
        local_size,
        constants,
        source,
    )


class _Flat:
    """One list of instructions, with functions in the places of their calls.

    Attributes:
        registers: types by names. shared, local: variables. tables: of `brx.idx`.
    """

    def __init__(self, module: Module, parameters: set[str]) -> None:
        self._module = module
        self._parameters = parameters
        self._calls = 0
        self.registers: dict[str, str] = {}
        self.shared: list[Variable] = []
        self.local: list[Variable] = []
        self.tables: dict[str, list[str]] = {}

    def written_out(
        self, body: Body, mark: str, bound: dict[str, str], above: Sequence[str]
    ) -> list[Instruction]:
        """The instructions of a body.

        Args:
            mark: the end of all its names. bound: the caller's names for parameters.
            above: the bodies that call it.
        """
        if body.name in above:
            raise PtxError(f"{body.name} calls itself")
        labels = [one.operands[0] for one in body.instructions if one.opcode == ":"]
        inner = (*body.registers, *body.passed, *labels, *body.tables)
        own = {name: f"{name}{mark}" for name in (*inner, *(one.name for one in body.local))}
        self.registers.update({own[name]: kind for name, kind in body.registers.items()})
        self.shared += body.shared
        self.local += [replace(one, name=own[one.name]) for one in body.local]
        for table, targets in body.tables.items():
            self.tables[own[table]] = [own[target] for target in targets]
        own.update(bound)

        def renamed(text: str) -> str:
            return NAME.sub(lambda found: own.get(found[0], found[0]), text) if mark else text

        found = []
        for one in body.instructions:
            operands = tuple(map(renamed, one.operands))
            named = replace(one, operands=operands, guard=renamed(one.guard))
            if one.opcode == "call":
                found += self._called(named, (*above, body.name))
            elif mark and one.opcode == "ret":
                found.append(replace(named, opcode="bra", operands=(f"end{mark}",)))
            else:
                found.append(self._without_passing(named))
        if mark:
            found.append(Instruction(":", (), (f"end{mark}",), "", found[-1].place))
        return found

    def _called(self, one: Instruction, above: Sequence[str]) -> list[Instruction]:
        if one.guard:
            raise PtxError(f"line {one.place.line}: a call under a predicate")
        returned, name, *given = one.operands if one.operands[0][0] == "(" else ("", *one.operands)
        body = self._module.body(name)
        self._calls += 1
        lists = ",".join((returned, *given)).replace("(", "").replace(")", "").split(",")
        actual = [part.strip() for part in lists if part.strip()]
        bound = dict(zip((part.name for part in body.parameters), actual, strict=True))
        return self.written_out(body, f".{self._calls}", bound, above)

    def _without_passing(self, one: Instruction) -> Instruction:
        """What is passed to a function and back is kept as registers are."""
        if one.modifiers[:1] != ("param",):
            return one
        place = 0 if one.opcode == "st" else 1
        name, _, offset = one.operands[place].strip("[] ").partition("+")
        if name in self._parameters:
            return one
        register = f"{name}@{offset or 0}"
        self.registers[register] = f"b{8 * size_of(one.type)}"
        operands = (
            (register, one.operands[1]) if one.opcode == "st" else (one.operands[0], register)
        )
        return replace(one, opcode="mov", modifiers=(one.type,), operands=operands)


def _blocks(
    instructions: Sequence[Instruction],
) -> tuple[list[list[Instruction]], dict[str, int]]:
    """Basic blocks, and the numbers of those that labels begin."""
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for one in instructions:
        if one.opcode == ":":
            if blocks[-1]:
                blocks.append([])
            labels[one.operands[0]] = len(blocks) - 1
        elif one.guard and one.opcode != "bra":
            opposite = one.guard[1:] if one.guard.startswith("!") else f"!{one.guard}"
            target = f"after {len(blocks)}"
            labels[target] = len(blocks) + 1
            blocks[-1].append(replace(one, opcode="bra", operands=(target,), guard=opposite))
            blocks += [[replace(one, guard="")], []]
        else:
            blocks[-1].append(one)
            if one.opcode in _ENDS:
                blocks.append([])
    if not blocks[-1]:
        blocks.pop()
    return blocks, labels


def _laid(variables: Sequence[Variable]) -> tuple[dict[str, tuple[int, int]], int]:
    """Where variables begin and end in their space, with a gap after each; and its size."""
    at, found = 0, {}
    for one in variables:
        found[one.name] = at, at + one.size
        at = -(-(at + one.size + 16) // 16) * 16
    return found, at


def _read_before_written(
    blocks: Sequence[Sequence[Instruction]], registers: dict[str, str]
) -> set[str]:
    """Registers that some block reads before it writes them: others end with their block."""
    found: set[str] = set()
    for block in blocks:
        written: set[str] = set()
        for one in block:
            places = one.operands[:1] if one.opcode not in ("st", "red", "bra") else ()
            targets = [n for text in places if "[" not in text for n in NAME.findall(text)]
            read = [
                n for text in (*one.operands[len(places) :], one.guard) for n in NAME.findall(text)
            ]
            read += [n for text in places if "[" in text for n in NAME.findall(text)]
            found.update(n for n in read if n in registers and n not in written)
            written.update(targets)
    return found
