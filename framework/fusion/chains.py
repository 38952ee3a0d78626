"""Programs of fused loops for the interpreter of the native library (native/chains.c).

A step of a program computes a block of elements. Its result stays in vector registers for the next
step; other operands are arrays, buffers and single numbers. What does not change inside the loop is
computed before it, in double. `native/chains.c` tells the layout of a program.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...native.arguments import ADDRESS, COUNT, STEP, Struct, reads, updates
from ..base import settings
from ..base.python.cached import new_rlock
from . import native, team
from .arguments import Block, Layout
from .codegen import COLUMN, FULL, HALF_NAMES, ONE, ROW, Graph, Loop, Operation, Value
from .expression import ExpressionError
from .libraries import Library
from .team import ParallelTask

_log = logging.getLogger(__name__)

_MOST_BUFFERS, _MOST_STEPS = 64, 4096
"""Values that wait in memory at once, of which each takes 512 bytes of a thread's stack; steps."""

HOT_WORK = 2_000_000_000
"""Work that was interpreted from which a loop is hot, in the units of native/constants.py. Loops of
real nets take two to three times as long as these say: more than a tenth of a second, against two
that a compiler takes, in the background, for what may run for hours."""
HOT = ctypes.c_int64()
"""1 once there are hot loops that hot.py has not seen."""

_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
_KINDS = {FULL: 0, ROW: 0, COLUMN: 1, ONE: 2}
"""Bytes of dtypes in the order of their numbers in `chains.c`; numbers of kinds of operands."""
_REACHES = {FULL: "rows:step{0} columns:1", ROW: "columns", COLUMN: "rows:step{0}", ONE: "1"}
"""What operands hold at least; see native/arguments.py."""
_REVERSED = {
    **{"add": "add", "mul": "mul", "sub": "sub_from", "div": "div_into", "eq": "eq", "ne": "ne"},
    **{"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "and": "and", "or": "or"},
}
"""Operations that can also take their operands the other way round: which one that is."""
_WITH_RIGHT = {"add": "add_product", "sub": "sub_product", "mul": "mul_product"}
_WITH_LEFT = {**_WITH_RIGHT, "sub": "sub_from_product", "div": "div_into_product"}
"""Operations that take a product as one of their operands, and the step of both."""
_OF_RIGHT = {"add": "mul_add", "sub": "mul_sub_from"}
_OF_LEFT = {"add": "mul_add", "sub": "mul_sub"}
"""The same where the registers hold a factor of the product."""
_COMPARISONS = frozenset("lt gt le ge eq ne".split())


class _Writer:
    """Writes the operations of a graph as steps, each of which takes over what the last one left.

    Attributes:
        steps: (name of the step, x, y, z, function); x, y and z are numbers of single numbers where
            the step reads such, and of operands, then buffers, elsewhere.
        numbers: the single numbers that steps read, as values.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[tuple[str, int, int, int, str]] = []
        self.numbers: dict[Value, int] = {}
        self.buffers = 0
        self._free: list[int] = []
        self._held: Value | None = None  # what the registers hold
        self._homes: dict[Value, int] = {}  # buffers of values
        self._uses: dict[Value, int] = {}  # of a value, by steps that are still to come
        # products that the step of an operation computes, with their factors; in those of the
        # second kind the registers hold the first factor
        self._products: dict[int, tuple[Value, tuple[Value, Value]]] = {}
        self._held_products: dict[int, tuple[Value, tuple[Value, Value]]] = {}
        self._compared: dict[int, Operation] = {}  # comparisons that the step of a choice makes
        self._write_all()

    def _write_all(self) -> None:
        operations, stores = self.graph.operations, self.graph.stores
        needed = self.graph.needed()
        for _, value in stores:
            self._count(value)
        for index in needed:
            for operand in operations[index].operands:
                self._count(operand)
        self._find_products(needed)
        self._find_comparisons(needed)
        products = [*self._products.values(), *self._held_products.values()]
        inner = {product.index for product, _ in products}
        inner.update(operations[index].operands[0].index for index in self._compared)
        needed = [index for index in needed if index not in inner]
        last_read = max(filter(self._reads, needed), default=-1)
        # A store may write over what the loop reads elsewhere: none comes before the last read.
        early = not any(value.kind == "array" for _, value in stores)
        waiting = list(stores)
        for index in needed:
            self._write_one(Value("step", index), operations[index])
            if early and index >= last_read:
                for store in [one for one in waiting if one[1] == self._held]:
                    self._store(*store)
                    waiting.remove(store)
        arrays = [store for store in waiting if store[1].kind == "array"]
        if len(arrays) > 1 or arrays and len(waiting) > 1:
            for _, value in arrays:  # all are read before the first is written
                self._load(value)
                self._keep()
        for store in waiting:
            self._load(store[1])
            self._store(*store)
        self._step("end")

    def _reads(self, index: int) -> bool:
        """Whether a step reads arrays that are given."""
        operation = self.graph.operations[index]
        operands = operation.operands
        for products in (self._products, self._held_products):
            if index in products:
                operands += products[index][1]
        if index in self._compared:
            operands += self._compared[index].operands
        return operation.name.startswith("load_") or any(one.kind == "array" for one in operands)

    def _find_products(self, needed: Sequence[int]) -> None:
        """Products that the step of another operation computes: nothing else reads them."""
        operations = self.graph.operations
        for index in needed:
            for side, name in ((1, _WITH_RIGHT), (0, _WITH_LEFT)):
                operation = operations[index]
                if operation.name not in name or operation.operands[0] == operation.operands[1]:
                    continue
                value = operation.operands[side]
                if not self._read_once(value) or operations[value.index].name != "mul":
                    continue
                if value.index in self._products:
                    continue
                factors = self._factors(operations[value.index])
                if factors is not None:
                    self._products[index] = value, factors
                    break
                held = self._held_factors(operations[value.index], operation.operands[1 - side])
                if held is not None and operation.name in _OF_LEFT:
                    self._held_products[index] = value, held
                    break

    def _read_once(self, value: Value) -> bool:
        return value.kind == "step" and self._uses[value] == 1

    def _factors(self, operation: Operation) -> tuple[Value, Value] | None:
        """The factors of a product, the first of them in memory; None where neither of them is."""
        first, second = operation.operands
        reads = 2 if first == second else 1
        for one, other in ((first, second), (second, first)):
            in_memory = one.kind == "array" or (one.kind == "step" and self._uses[one] > reads)
            if in_memory and (other.kind != "step" or self._uses[other] > reads):
                return one, other
        return None

    def _held_factors(self, operation: Operation, third: Value) -> tuple[Value, Value] | None:
        """The factors of a product, the first of which comes after all that it meets; None where
        that is not so, or where it is read elsewhere."""
        for one, other in (operation.operands, operation.operands[::-1]):
            if self._read_once(one):
                rest = [value for value in (other, third) if value.kind == "step"]
                if all(value.index < one.index for value in rest):
                    return one, other
        return None

    def _find_comparisons(self, needed: Sequence[int]) -> None:
        """Comparisons that the step of a choice makes: nothing else reads them."""
        for index in needed:
            operation = self.graph.operations[index]
            if operation.name == "choose" and self._read_once(operation.operands[0]):
                compared = self.graph.operations[operation.operands[0].index]
                if compared.name in _COMPARISONS and operation.operands[1] != operation.operands[2]:
                    self._compared[index] = compared

    def _of_product(
        self, operation: Operation, product: Value, factors: tuple[Value, Value]
    ) -> None:
        """A sum or difference with a product, of whose factors the registers hold the first."""
        on_right = operation.operands[1] == product
        name = (_OF_RIGHT if on_right else _OF_LEFT)[operation.name]
        rest = factors[1], operation.operands[0 if on_right else 1]
        self._first(factors[0], rest)
        (with_what, x), (other, y) = map(self._reading, rest)
        self._step(f"{name}_{with_what}{other}", x, y)

    def _with_product(
        self, operation: Operation, product: Value, factors: tuple[Value, Value]
    ) -> None:
        on_right = operation.operands[1] == product
        name = (_WITH_RIGHT if on_right else _WITH_LEFT)[operation.name]
        self._first(operation.operands[0 if on_right else 1], factors)
        if self._in_memory(factors[1]):
            self._step(name, self._place(factors[0]), self._place(factors[1]))
        else:
            self._step(f"{name}_number", self._place(factors[0]), self._number(factors[1]))

    def _count(self, value: Value) -> None:
        self._uses[value] = self._uses.get(value, 0) + 1

    def _step(self, name: str, x: int = 0, y: int = 0, z: int = 0, function: str = "") -> None:
        self.steps.append((name, x, y, z, function))

    def _number(self, value: Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _place(self, value: Value) -> int:
        """Where a value is in memory: an operand, or a buffer after all operands."""
        if value in self._homes:
            return len(self.graph.loop.operands) + self._homes[value]
        return value.index

    def _reading(self, value: Value) -> tuple[str, int]:
        """How a step reads an operand, "m" from memory and "n" as a number; and where."""
        in_memory = self._in_memory(value)
        return ("m", self._place(value)) if in_memory else ("n", self._number(value))

    def _in_memory(self, value: Value) -> bool:
        return value.kind == "array" or value in self._homes

    def _keep(self) -> None:
        """Write what the registers hold to a buffer."""
        assert self._held is not None
        if not self._free:
            self._free.append(self.buffers)
            self.buffers += 1
        self._homes[self._held] = self._free.pop()
        self._step("store", self._place(self._held))

    def _leave(self, value: Value | None = None) -> None:
        """Before other values take the registers: what is read again is kept."""
        held = self._held
        if held is not None and held.kind == "step" and self._uses[held] > 0:
            if held not in self._homes:
                self._keep()
        self._held = value

    def _used(self, value: Value) -> None:
        self._uses[value] -= 1
        if not self._uses[value] and value in self._homes:
            self._free.append(self._homes[value])

    def _load(self, value: Value) -> None:
        """Bring a value into the registers."""
        if value == self._held:
            return
        self._leave(value)
        if self._in_memory(value):
            self._step("load", self._place(value))
        else:
            self._step("load_number", self._number(value))

    def _store(self, operand: int, value: Value) -> None:
        dtype = self.graph.loop.operands[operand].dtype
        self._step(f"store_{dtype}" if dtype in HALF_NAMES else "store", operand)
        self._used(value)

    def _write_one(self, result: Value, operation: Operation) -> None:
        operands, name = operation.operands, operation.name
        if not operands:  # a load of halves
            self._leave()
            self._step(name, int(operation.extra))
        elif name == "load_number":
            self._load(operands[0])
            self._used(operands[0])
        elif result.index in self._compared:
            self._compare_and_choose(self._compared[result.index], *operands[1:])
        elif name == "choose":
            self._choose(operands)
        elif result.index in self._products:
            self._with_product(operation, *self._products[result.index])
        elif result.index in self._held_products:
            self._of_product(operation, *self._held_products[result.index])
        elif len(operands) == 1 or name == "call":
            self._first(operands[0], operands[1:])
            x, y = (*map(self._place, operands[1:]), 0, 0)[:2]
            self._step(name, x, y, function=str(operation.extra))
        else:
            self._binary(name, *operands)
        self._held = result

    def _first(self, first: Value, rest: Sequence[Value]) -> None:
        """Bring the first operand into the registers, others into memory; these are then used."""
        self._load(first)
        self._used(first)
        # The step writes over the registers, and an operand may be in them twice.
        if first.kind == "step" and (self._uses[first] or first in rest):
            if first not in self._homes:
                self._keep()
        for one in rest:
            self._used(one)

    def _binary(self, name: str, left: Value, right: Value) -> None:
        if left == right and not self._in_memory(left):
            self._load(left)
            self._used(left)
            self._used(left)
            self._leave()
            self._step(f"{name}_self")
            return
        if right == self._held and left != right and name in _REVERSED:
            name, left, right = _REVERSED[name], right, left
        self._first(left, (right,))
        if self._in_memory(right):
            self._step(name, self._place(right))
        else:
            self._step(f"{name}_number", self._number(right))

    def _compare_and_choose(self, compared: Operation, then: Value, otherwise: Value) -> None:
        name, (left, right) = compared.name, compared.operands
        held = self._held
        if right == held or left.kind not in ("step", "array"):
            name, left, right = _REVERSED[name], right, left
        branches = then, otherwise
        if held is not None and held in branches and held not in (left, right):
            if self._in_memory(left):
                other = otherwise if held == then else then
                self._first(held, (left, right, other))
                (with_what, y), (kind, z) = map(self._reading, (right, other))
                order = f"a{kind}" if held == then else f"{kind}a"
                self._step(f"held_{name}_{with_what}_{order}", self._place(left), y, z)
                return
        self._load(left)
        rest = right, *branches
        if left.kind == "step" and left not in self._homes:
            if left == right or self._uses[left] > 1 + rest.count(left):
                self._keep()
        with_what, x = self._reading(right)
        (kind, y), (other_kind, z) = (
            ("a", 0) if one == left else self._reading(one) for one in branches
        )
        for one in (left, *rest):
            self._used(one)
        self._step(f"{name}_{with_what}_{kind}{other_kind}", x, y, z)

    def _choose(self, operands: tuple[Value, ...]) -> None:
        truth, then, otherwise = operands
        held = next((one for one in (then, otherwise) if one == self._held), None)
        if held is None or then == otherwise or held.kind != "step":
            self._first(truth, (then, otherwise))
            kinds = ["a" if self._in_memory(one) else "n" for one in (then, otherwise)]
            places = [
                self._place(one) if kind == "a" else self._number(one)
                for one, kind in zip((then, otherwise), kinds, strict=True)
            ]
            self._step(f"choose_{''.join(kinds)}", places[0], places[1])
            return
        other = otherwise if held == then else then
        self._first(held, (truth, other))
        kind = "a" if self._in_memory(other) else "n"
        place = self._place(other) if kind == "a" else self._number(other)
        self._step(f"{'then' if held == then else 'else'}_{kind}", self._place(truth), place)


# -- programs in memory ----------------------------------------------------------------------------


class Program:
    """The program of a loop for the processor of a library.

    Attributes:
        address: of it, which the arguments of its calls hold. library: whose `chain` runs it.
        layout: of these arguments.
        tables: names of the functions that it may call, of arrays and of single numbers.
    """

    def __init__(self, loop: Loop, library: Library) -> None:
        writer = _Writer(Graph(loop))
        if writer.buffers > _MOST_BUFFERS or len(writer.steps) > _MOST_STEPS:
            raise ExpressionError("a loop that keeps too many values")
        self.loop = loop
        self.tables = tuple(
            library.text(name).split() for name in ("chain_functions", "chain_number_functions")
        )
        self._words = np.array(_words_of(writer, self.tables, library), np.int64)
        self.address = self._words.ctypes.data
        self.library = library
        self.layout = Layout(library.file, "chain", _argument_of(loop))
        given = np.array([self.address], np.int64)
        library.function("chain_prepare")(given.ctypes.data)

    @property
    def is_compiled(self) -> bool:
        return bool(self._words[0])

    @property
    def is_hot(self) -> bool:
        """Whether the interpreter has spent long with it, and it has not been given up."""
        return bool(self._words[1] >= self._words[3])

    def set_hot_work(self, work: int) -> None:
        """Let it be hot from so much work on."""
        self._words[3] = work

    def use(self, compiled: int) -> None:
        """Let a compiled loop, which gives the same bits, do the work from now on."""
        self._words[0] = compiled


def _argument_of(loop: Loop) -> Struct:
    """What `chain` and compiled loops take: where operands lie, their steps from row to row."""
    stored = {operand for operand, _ in loop.stores}
    fields: dict[str, Any] = {"rows": COUNT, "columns": COUNT, "program": ADDRESS}
    for number, operand in enumerate(loop.operands):
        array = updates if number in stored else reads
        fields[f"x{number}"] = array(_REACHES[operand.kind].format(number), operand.dtype)
        fields[f"step{number}"] = STEP
    return Struct("chain", **fields)


def _words_of(writer: _Writer, tables: Sequence[list[str]], library: Library) -> list[int]:
    graph = writer.graph
    loop = graph.loop
    functions, number_functions, steps = (
        {name: number for number, name in enumerate(names)}
        for names in (*tables, library.text("chain_steps").split())
    )

    def step_of(place: int) -> int:
        """Bytes of an element of an operand, by which steps move on there; 0 for a buffer."""
        return _SIZES[loop.operands[place].dtype] if place < len(loop.operands) else 0

    registers = graph.register(Value("head", len(graph.head)))
    words = [0, 0, loop.work, HOT_WORK, ctypes.addressof(HOT)]
    words += [len(graph.literals), len(loop.operands), len(graph.head)]
    words += [len(writer.numbers), len(writer.steps), registers, writer.buffers]
    words += np.array(graph.literals, np.float64).view(np.int64).tolist()
    stored = {operand for operand, _ in loop.stores}
    read = set(loop.loads())
    for i, operand in enumerate(loop.operands):
        size, kind = _SIZES[operand.dtype], _KINDS[operand.kind]
        words += [kind, list(_SIZES).index(operand.dtype), size, 0 if kind else size]
        words.append((i in stored) + 2 * (i in stored and i in read))
    for number, (name, operands) in enumerate(graph.head):
        to = graph.register(Value("head", number))
        words += [number_functions[name], to, *([*map(graph.register, operands), 0, 0][:3])]
    for value in writer.numbers:
        words.append(-1 - value.index if value.kind == "number" else graph.register(value))
    for name, x, y, z, function in writer.steps:
        called = functions[function] if function else 0
        words += [steps[name], 0, x, step_of(x), y, step_of(y), z, step_of(z), called]
    return words


_lock = new_rlock()
_programs: dict[tuple[str, Library], Program | None] = {}
_by_switches: dict[tuple[str, str, str], Program | None] = {}  # by what the switches said


def available() -> bool:
    """Whether loops can be run: there is a native library."""
    # Every plan asks, and these switches are all that the answer depends on.
    return _available(settings.switch("OPSCOPE_CPU"), settings.switch("OPSCOPE_CC"))


@functools.lru_cache(maxsize=16)
def _available(*_: str) -> bool:
    return native.load("chains", "float") is not None and team.library() is not None


def program(loop: Loop) -> Program | None:
    """The program of a loop, made once; None without a native library, or where it is too large."""
    # A long recurrence asks for each of its steps, so the library is not looked for each time.
    asked = loop.key, settings.switch("OPSCOPE_CPU"), settings.switch("OPSCOPE_CC")
    if asked not in _by_switches:
        library = native.typed("chains", np.dtype(loop.dtype))
        if library is None or team.library() is None:
            return None
        _by_switches[asked] = _new_program(loop, library)
    return _by_switches[asked]


def _new_program(loop: Loop, library: Library) -> Program | None:
    key = loop.key, library
    with _lock:
        if key not in _programs:
            try:
                _programs[key] = Program(loop, library)
            except ExpressionError as error:
                _log.warning("a fused loop runs operator by operator: %s", error)
                _programs[key] = None
        return _programs[key]


def argument(
    program: Program, shape: tuple[int, int], operands: Iterable[tuple[np.ndarray, int]]
) -> Block:
    """What `chain` of native/chains.c and compiled loops take.

    Args:
        shape: rows and columns. operands: arrays, and their steps from row to row in elements.

    Raises:
        ArgumentError: an array has another dtype than its operand, or is too small.
    """
    values: dict[str, Any] = {"rows": shape[0], "columns": shape[1], "program": program.address}
    for number, (array, step) in enumerate(operands):
        values[f"x{number}"] = array
        values[f"step{number}"] = step
    return program.layout.bind(program.library, values)


def programs() -> list[Program]:
    """All programs that there are."""
    with _lock:
        return [one for one in _programs.values() if one is not None]


def task(loop: Loop, block: Block) -> ParallelTask:
    """The work of a loop that has a program, with its `argument`."""
    size = block.struct.rows * block.struct.columns
    return ParallelTask((block.item,), size * loop.work, block)
