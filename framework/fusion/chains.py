"""Programs of fused loops for the interpreter of the native library (native/chains.c).

A step of a program computes a block of elements. Its result stays in vector registers for the next
step; other operands are arrays, buffers and single numbers. What does not change inside the loop is
computed before it, in double. `native/chains.c` tells the layout of a program.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...native import constants
from ...native.arguments import STEP, Rest, Struct, reads, updates
from ..base.options import settings
from ..base.python.cached import new_rlock
from . import team
from .compiled import arguments, native
from .compiled.arguments import Block, Layout
from .compiled.libraries import Library
from .rows.row_blocks import ByRows
from .scalars.codegen import COLUMN, FULL, HALF_NAMES, ONE, ROW, Graph, Loop, Operation, Value
from .scalars.expression import ExpressionError
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

_KINDS = {
    FULL: constants.ARRAY,
    ROW: constants.ARRAY,
    COLUMN: constants.COLUMN,
    ONE: constants.ONE,
}
_DTYPES = {
    "float16": constants.OF_FLOAT16,
    "bfloat16": constants.OF_BFLOAT16,
    "float32": constants.OF_FLOAT32,
    "float64": constants.OF_FLOAT64,
    "int32": constants.OF_INT32,
    "int64": constants.OF_INT64,
}
_REACHES = {FULL: "rows:step{0} columns:1", ROW: "columns", COLUMN: "rows:step{0}", ONE: "1"}
"""What operands hold at least; see native/arguments.py."""
_REVERSED = {
    **{"add": "add", "mul": "mul", "sub": "sub_from", "div": "div_into", "eq": "eq", "ne": "ne"},
    **{"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "and": "and", "or": "or"},
    **{"more": "at_least", "less": "at_most"},
}
"""Operations that can also take their operands the other way round: which one that is."""
_WITH_RIGHT = {"add": "add_product", "sub": "sub_product", "mul": "mul_product"}
_WITH_LEFT = {**_WITH_RIGHT, "sub": "sub_from_product", "div": "div_into_product"}
"""Operations that take a product as one of their operands, and the step of both."""
_OF_FACTORS = frozenset(_WITH_LEFT.values()) | frozenset(_WITH_RIGHT.values())
_OF_RIGHT = {"add": "mul_add", "sub": "mul_sub_from"}
_OF_LEFT = {"add": "mul_add", "sub": "mul_sub"}
"""The same where the registers hold a factor of the product."""
_EXTREMES = {
    **{("gt", True): "more", ("lt", True): "less"},
    **{("lt", False): "more", ("gt", False): "less"},
}
"""Comparisons, and the operation that chooses from what they compare: in their order, or not."""
_COMPARISONS = frozenset("lt gt le ge eq ne".split())
_SCALED, _SHRUNK = frozenset("lt gt le ge".split()), frozenset("lt le".split())
"""Those that choose a branch which the step itself scales, or takes a number from."""
_STEP, _LOAD, _STORE = 3, 4, 6
"""What a step costs, what it costs more for an operand in memory, and for a store there."""
_SLOTS = "xyzw"
"""Of the operands of a step, in their order."""


class _Writer:
    """Writes the operations of a graph as steps, each of which takes over what the last one left.

    Args:
        known: names of the steps that there are: an operation, and of each operand "a" where the
            registers hold it, "b" where the second block does, which some processors have in
            registers, too, "m" where it is in memory, "n" where it is a number.
        often: reads of an array from which it goes to that second block.

    Attributes:
        steps: fields of `ChainStep`, the operation and the function by name. In memory are the
            operands of the loop, then buffers.
        numbers: the single numbers that steps read, as values.
    """

    def __init__(self, graph: Graph, known: Collection[str], often: int) -> None:
        self.graph = graph
        self.known = known
        self.often = often
        self.steps: list[dict[str, Any]] = []
        self.numbers: dict[Value, int] = {}
        self.buffers = 0
        self._free: list[int] = []
        self._held: Value | None = None  # what the registers hold
        self._beside: Value | None = None  # what the second block holds
        self._kept: Value | None = None  # what a third one holds, to be stored
        self._waiting = list(graph.stores)
        self._homes: dict[Value, int] = {}  # buffers of values
        self._uses: dict[Value, int] = {}  # of a value, by steps that are still to come
        # products that the step of an operation computes, with their factors; in those of the
        # second kind the registers hold the first factor
        self._products: dict[int, tuple[Value, tuple[Value, Value]]] = {}
        self._held_products: dict[int, tuple[Value, tuple[Value, Value]]] = {}
        self._compared: dict[int, Operation] = {}  # comparisons that the step of a choice makes
        # choices whose step computes a branch as well: its name and operands, and what it computes
        self._branches: dict[int, tuple[str, list[Value], list[Value]]] = {}
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
        inner.update(one.index for _, _, inside in self._branches.values() for one in inside)
        needed = [index for index in needed if index not in inner]
        last_read = max(filter(self._reads, needed), default=-1)
        # A store may write over what the loop reads elsewhere: none comes before the last read.
        early = not any(value.kind == "array" for _, value in stores)
        waiting = self._waiting
        for index in needed:
            self._write_one(Value("step", index), operations[index])
            if early and index >= last_read:
                for store in [one for one in waiting if one[1] == self._held]:
                    self._store(*store)
        arrays = [store for store in waiting if store[1].kind == "array"]
        if len(arrays) > 1 or arrays and len(waiting) > 1:
            self._spill()
            for _, value in arrays:  # all are read before the first is written
                self._load(value)
                self._home("store", value)
        for store in list(waiting):
            self._store(*store)
        if self.steps[-1]["operation"] == "store_m":
            self.steps[-1]["operation"] = "store_end"
        else:
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
        if index in self._branches:
            operands += tuple(self._branches[index][1])
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
                    self._find_branch(index, compared, *operation.operands[1:])

    def _find_branch(self, index: int, compared: Operation, then: Value, other: Value) -> None:
        """The branch of a choice that its step computes: a product with the other branch, or what
        is left of the number that is compared, where one was taken from it."""
        first, bound = compared.operands
        name = compared.name
        if first.kind not in ("step", "array"):
            first, bound, name = bound, first, _REVERSED[name]
        if not self._read_once(other) or bound.kind in ("step", "array"):
            return
        branch = self.graph.operations[other.index]
        if branch.name == "mul" and name in _SCALED and then in branch.operands:
            factor = branch.operands[branch.operands[0] == then]
            if factor.kind not in ("step", "array"):
                self._uses[then] -= 1
                self._branches[index] = f"{name}_scaled", [first, bound, then, factor], [other]
        elif branch.name == "sub" and name in _SHRUNK and first.kind == "step":
            size, less = self.graph.operations[first.index], branch.operands[1]
            only = branch.operands[0] == first and self._uses[first] == 2
            if only and size.name == "fabs" and less.kind not in ("step", "array"):
                own = [size.operands[0], bound, then, less]
                self._branches[index] = f"{name}_shrunk", own, [first, other]

    def _count(self, value: Value) -> None:
        self._uses[value] = self._uses.get(value, 0) + 1

    def _step(
        self, operation: str, kinds: str = "", operands: Sequence[Value] = (), **more: Any
    ) -> None:
        """A step of operands, each of which is read as its kind says."""
        step: dict[str, Any] = {"operation": f"{operation}_{kinds}" if kinds else operation, **more}
        for slot, kind, value in zip(_SLOTS, kinds, operands, strict=False):
            if kind == "m":
                step[slot] = self._place(value)
            elif kind == "n":
                step[f"number_{slot}"] = self.numbers.setdefault(value, len(self.numbers))
        self.steps.append(step)

    def _place(self, value: Value) -> int:
        """Where a value is in memory: an operand, or a buffer after all operands."""
        if value in self._homes:
            return len(self.graph.loop.operands) + self._homes[value]
        return value.index

    def _in_memory(self, value: Value) -> bool:
        return value.kind == "array" or value in self._homes

    def _is_free(self) -> bool:
        """Whether the second block holds nothing that is read again."""
        return self._beside is None or not self._uses[self._beside]

    def _is_only_stored(self, value: Value, uses: int) -> bool:
        """Whether so many uses are stores, which a third block of registers can be for."""
        if "keep_a" not in self.known or self._kept is not None and self._uses[self._kept]:
            return False
        dtypes = [self.graph.loop.operands[n].dtype for n, one in self._waiting if one == value]
        return len(dtypes) == uses and not any(dtype in HALF_NAMES for dtype in dtypes)

    def _keep(self, uses: int) -> None:
        """Keep what the registers hold for so many uses: in another block of them, or a buffer."""
        assert self._held is not None
        if self._is_only_stored(self._held, uses):
            self._step("keep_a")
            self._kept = self._held
        elif self._is_free():
            self._step("hold_a")
            self._beside = self._held
        else:
            self._write("store", self._held)

    def _write(self, operation: str, value: Value) -> None:
        """Write a value to a buffer, where it is in none."""
        if value.kind == "step" and value not in self._homes:
            self._home(operation, value)

    def _home(self, operation: str, value: Value) -> None:
        if not self._free:
            self._free.append(self.buffers)
            self.buffers += 1
        self._homes[value] = self._free.pop()
        self._step(operation, "m", [value])

    def _spill(self) -> None:
        """Before other blocks of registers are lost: what is read again goes to a buffer."""
        if self._beside is not None and self._uses[self._beside]:
            self._write("spill", self._beside)
        if self._kept is not None and self._uses[self._kept]:
            self._write("kept", self._kept)
        self._beside = self._kept = None

    def _leave(self, reads: Sequence[Value] = ()) -> None:
        """Before the registers take another value: what is read again is kept.

        Args:
            reads: what the step reads that writes to them.
        """
        held = self._held
        if held is None or held.kind != "step":
            return
        uses = self._uses[held] - reads.count(held)
        if uses > 0 and held not in self._homes and held not in (self._beside, self._kept):
            self._keep(uses)

    def _used(self, value: Value) -> None:
        self._uses[value] -= 1
        if not self._uses[value] and value in self._homes:
            self._free.append(self._homes[value])

    def _load(self, value: Value) -> None:
        """Bring a value into the registers."""
        if value != self._held:
            self._leave()
            self._step("load", self._kinds_of(value)[0], [value])
            self._held = value

    def _store(self, operand: int, value: Value) -> None:
        dtype = self.graph.loop.operands[operand].dtype
        if value in (self._beside, self._kept) and dtype not in HALF_NAMES:
            self._step("spill_m" if value == self._beside else "kept_m", x=operand)
        else:
            self._load(value)
            self._step(f"store_{dtype}" if dtype in HALF_NAMES else "store_m", x=operand)
        self._used(value)
        self._waiting.remove((operand, value))

    def _write_one(self, result: Value, operation: Operation) -> None:
        operands, name, index = operation.operands, operation.name, result.index
        if not operands:  # a load of halves
            self._leave()
            self._step(name, x=int(operation.extra))
        elif name == "load_number":
            self._operate("load", operands)
        elif index in self._branches:
            step, own, _ = self._branches[index]
            if own[0] == own[2] != self._beside:
                self._load(own[0])  # once
            self._operate(step, own, "choose_")
        elif index in self._compared:
            compared, branches = self._compared[index], operands[1:]
            extreme = _EXTREMES.get((compared.name, branches == compared.operands))
            if extreme is not None and set(branches) == set(compared.operands):
                for one in compared.operands:
                    self._used(one)
                self._operate(extreme, branches)
            else:
                self._operate(compared.name, (*compared.operands, *branches), "choose_")
        elif index in self._products:
            product, factors = self._products[index]
            on_right = operands[1] == product
            by_name = _WITH_RIGHT if on_right else _WITH_LEFT
            self._operate(by_name[name], (operands[0 if on_right else 1], *factors))
        elif index in self._held_products:
            product, factors = self._held_products[index]
            on_right = operands[1] == product
            by_name = _OF_RIGHT if on_right else _OF_LEFT
            self._operate(by_name[name], (*factors, operands[0 if on_right else 1]))
        elif name == "call" and f"{operation.extra}_a" in self.known:
            self._operate(str(operation.extra), operands)
        elif name == "call":
            self._operate(name, operands, function=str(operation.extra))
        else:
            self._operate(name, operands)
        self._held = result

    def _operate(self, name: str, operands: Sequence[Value], before: str = "", **more: Any) -> None:
        """A step of these operands, of those that there are.

        Args:
            before: what its name begins with, where operands after the first two stay as they are
                when these two take each other's place. more: fields of the step.
        """
        forms = [(name, operands)]
        if name in _REVERSED:
            forms.append((_REVERSED[name], [operands[1], operands[0], *operands[2:]]))
        elif name in _OF_FACTORS:
            forms.append((name, [operands[0], operands[2], operands[1]]))
        elif name == "call" and "hold_m" in self.known:  # registers, which a function may change
            self._spill()
        self._hold(operands)
        found = self._form(forms, before)
        if found is None and self._held in operands:
            self._leave()
            found = self._form(forms, before)
        if found is None:
            # One that can be in memory: what the registers hold else is kept.
            first = next((o for _, o in forms if o[0].kind in ("step", "array")), operands)[0]
            self._load(first)
            found = self._form(forms, before)
        if found is None:
            assert self._held is not None
            self._write("store", self._held)
            self._spill()
            found = self._form(forms, before)
        assert found is not None, "operations have steps for what is in memory"
        operation, kinds, read = found
        self._leave(read)
        for one in read:
            self._used(one)
        self._step(operation, kinds, read, **more)

    def _hold(self, operands: Sequence[Value]) -> None:
        """Let the second block hold an array that is read several times, if it is of registers."""
        for one in operands:
            if one.kind == "array" and self._uses[one] >= self.often and self._is_free():
                if one != self._beside and one != self._held:
                    self._step("hold", "m", [one])
                    self._beside = one

    def work(self) -> int:
        """Rough work of the steps: jumps, loads, and stores to buffers."""
        operands = len(self.graph.loop.operands)
        work = 0
        for step in self.steps:
            name, _, kinds = step["operation"].rpartition("_")
            stores = name in ("store", "spill", "kept") and step["x"] >= operands
            work += _STEP + kinds.count("m") * _LOAD + stores * _STORE
        return work

    def _form(
        self, forms: Iterable[tuple[str, Sequence[Value]]], before: str
    ) -> tuple[str, str, Sequence[Value]] | None:
        """The step that can be next: its operation, the kinds of its operands, and these."""
        steps = [
            (before + name, kinds, operands)
            for name, operands in forms
            for kinds in map("".join, itertools.product(*map(self._kinds_of, operands)))
            if f"{before}{name}_{kinds}" in self.known
        ]
        return min(steps, key=lambda step: step[1].count("m"), default=None)

    def _kinds_of(self, value: Value) -> str:
        """How a step may read an operand, the best first."""
        kinds = "a" if value == self._held else ""
        if value == self._beside:
            kinds += "b"
        if self._in_memory(value):
            return kinds + "m"
        return kinds if value.kind == "step" else kinds + "n"


def _best_writer(graph: Graph, known: Collection[str]) -> _Writer:
    """The writer of the steps that take the least time."""
    most = len(graph.operations) + len(graph.stores)
    choices = (2, 3, 2 * most) if "hold_m" in known else (2 * most,)
    return min((_Writer(graph, known, often) for often in choices), key=_Writer.work)


# -- programs in memory ----------------------------------------------------------------------------


class Program:
    """The program of a loop for the processor of a library.

    Attributes:
        block: its struct, whose address the arguments of its calls hold. library: whose `chain`
            runs it. layout: of these arguments.
        tables: names of the functions that it may call, of arrays and of single numbers.
    """

    def __init__(self, loop: Loop, library: Library) -> None:
        self.loop = loop
        self.tables = tuple(map(list, _names(library)[1:]))
        fields = _fields(_steps_of(loop, library), library)
        self.block = arguments.bind(library, "chain_prepare", **fields)
        self.block.run()
        self.library = library
        self.layout = Layout(library.file, "chain", _argument_of(*_operands(loop)))

    @property
    def is_compiled(self) -> bool:
        return bool(self.block.struct.compiled)

    @property
    def is_hot(self) -> bool:
        """Whether the interpreter has spent long with it, and it has not been given up."""
        return bool(self.block.struct.done >= self.block.struct.enough)

    def set_hot_work(self, work: int) -> None:
        """Let it be hot from so much work on."""
        self.block.struct.enough = work

    def use(self, compiled: int) -> None:
        """Let a compiled loop, which gives the same bits, do the work from now on."""
        self.block.struct.compiled = compiled


@functools.cache
def _names(library: Library) -> tuple[Mapping[str, int], ...]:
    """Numbers of the steps, of functions of arrays and of those of single numbers."""
    texts = "chain_steps", "chain_functions", "chain_number_functions"
    return tuple({n: i for i, n in enumerate(library.text(text).split())} for text in texts)


def _operands(loop: Loop) -> tuple[tuple[str, str, bool], ...]:
    """How operands meet a loop, their dtypes, and whether it stores them."""
    stored = {operand for operand, _ in loop.stores}
    return tuple((one.kind, one.dtype, n in stored) for n, one in enumerate(loop.operands))


@functools.cache
def _argument_of(*operands: tuple[str, str, bool]) -> Struct:
    """What `chain` and compiled loops take: where operands lie, their steps from row to row."""
    head = arguments.declared("chains", "chain").fields
    fields: dict[str, Any] = {n: one for n, one in head.items() if not isinstance(one, Rest)}
    for number, (kind, dtype, is_stored) in enumerate(operands):
        array = updates if is_stored else reads
        fields[f"x{number}"] = array(_REACHES[kind].format(number), dtype)
        fields[f"step{number}"] = STEP
    return Struct("chain", **fields)


def _steps_of(loop: Loop, library: Library) -> _Writer:
    """The steps of a loop.

    Raises:
        ExpressionError: there are too many.
    """
    writer = _best_writer(Graph(loop), _names(library)[0])
    if writer.buffers > _MOST_BUFFERS or len(writer.steps) > _MOST_STEPS:
        raise ExpressionError("a loop that keeps too many values")
    return writer


def _fields(writer: _Writer, library: Library) -> dict[str, Any]:
    """The fields of `chain_program`."""
    steps, functions, number_functions = _names(library)
    graph = writer.graph
    loop = graph.loop
    stored = {operand for operand, _ in loop.stores}
    read = set(loop.loads())
    operands = [
        {
            **{"kind": _KINDS[operand.kind], "dtype": _DTYPES[operand.dtype]},
            **{"written": i in stored, "read": i in read},
        }
        for i, operand in enumerate(loop.operands)
    ]
    head = []
    for name, given in graph.head:
        own = zip(_SLOTS, map(graph.register, given), strict=False)
        head.append({"function": number_functions[name], **dict(own)})
    columns = [one for one in writer.numbers if one.kind == "number"]
    registers = [one for one in writer.numbers if one.kind != "number"]
    places = {writer.numbers[one]: i for i, one in enumerate([*registers, *columns])}
    rows = []
    for step in writer.steps:
        row = {n: places[v] if n.startswith("number_") else v for n, v in step.items()}
        row["operation"] = steps[step["operation"]]
        row["function"] = functions[step["function"]] if "function" in step else 0
        rows.append(row)
    arrays = {
        "literals": np.array(graph.literals, np.float64),
        "operands": _records("ChainOperand", operands),
        "head": _records("ChainHead", head),
        "registers": np.array([*map(graph.register, registers)], np.int64),
        "columns": np.array([one.index for one in columns], np.int64),
        "steps": _records("ChainStep", rows),
    }
    counts = {f"{name.removesuffix('s')}_count": len(array) for name, array in arrays.items()}
    return {
        **arrays,
        **counts,
        **{"buffers": writer.buffers, "work": loop.work, "enough": HOT_WORK},
        "runs": np.zeros(
            library.constant("block_sizes") * len(rows) + library.constant("more_steps"),
            arguments.DTYPES["ChainRun"],
        ),
        "seats": np.zeros(4 * len(rows), arguments.DTYPES["ChainSeat"]),
        "hot": ctypes.addressof(HOT),
    }


def _records(name: str, rows: Sequence[Mapping[str, int]]) -> np.ndarray:
    """Records of a C file; fields that a row does not name are 0."""
    records = np.zeros(len(rows), arguments.DTYPES[name])
    for record, row in zip(records, rows, strict=True):
        for field, value in row.items():
            record[field] = value
    return records


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
    values: dict[str, Any] = {
        "rows": shape[0],
        "columns": shape[1],
        "program": program.block.address,
    }
    for number, (array, step) in enumerate(operands):
        values[f"x{number}"] = array
        values[f"step{number}"] = step
    return program.layout.bind(program.library, values)


def programs() -> list[Program]:
    """All programs that there are."""
    with _lock:
        return [one for one in _programs.values() if one is not None]


def task(loop: Loop, block: Block, rows: Callable[[], ByRows | None] | None = None) -> ParallelTask:
    """The work of a loop that has a program, with its `argument`; `rows` is that of the task."""
    size = block.struct.rows * block.struct.columns
    return ParallelTask((block.item,), size * loop.work, block, rows)
