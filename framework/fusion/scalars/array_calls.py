"""Scalar expressions as calls of NumPy or CuPy: the reference kernels of elementwise operators.

C and CUDA text come from the same expressions (codegen.py). Here each operation becomes one call of
an array function that is bound to its arrays: a run allocates nothing. Expressions are first
rewritten into what array functions do faster than masked copies: `x < 0 ? 0 : x` is a maximum, and
`c ? x : 0` a product with the truth value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.backend import address, same_memory
from ...ir.kernel_args import Call
from .array_idioms import BINARY, NOT_IN_NUMPY, TRUTH, array_function, array_tree, is_truth
from .expression import (
    ExpressionError,
    Tree,
    names,
    of_bounded_height,
    parse,
    replace_names,
    written_out,
)

_SELECT = "select"
_BOOL = np.dtype(bool)


class ArrayHost(Protocol):
    """Who calls are made for: an array module, and scratch memory (`KernelArgs`, say)."""

    xp: Any

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any: ...


class ChunkScratch:
    """Scratch memory that chunks of an array use one after the other.

    Chunks have equal numbers of rows, except for the last, which may have fewer. `begin` comes
    before each chunk.
    """

    def __init__(self, k: ArrayHost) -> None:
        self.xp = k.xp
        self._take = k.scratch
        self._blocks: list[Any] = []
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        if self._next == len(self._blocks):
            self._blocks.append(self._take(shape, dtype))
        self._next += 1
        return self._blocks[self._next - 1][: shape[0]]


SPECIAL: dict[str, Callable[[ArrayHost, Any, Any], Call]] = {}
"""Functions that NumPy lacks: name -> maker of a call, from the argument and another array for the
result. Operators fill it."""


# -- instructions ------------------------------------------------------------------------------

Operand = tuple[str, Any]
"""An operand of an instruction: ("num", value), ("array", name) or ("value", number)."""


class _Instruction(NamedTuple):
    """One array function.

    Attributes:
        dying: places of the operands that nothing reads afterwards, of those that are values.
        last: number of the last instruction that reads the value; that after the last for results.
        result: name of the result that the value is, or "".
        is_reused: whether another instruction reads the value.
    """

    function: str
    operands: tuple[Operand, ...]
    dying: tuple[int, ...]
    last: int
    result: str
    is_reused: bool


class ArrayPlan(NamedTuple):
    """Array functions in the order of computation.

    Attributes:
        results: name -> operand that holds its value in the end; given arrays come first, as
            another result may have their memory.
        reads: given array -> number of the last instruction that reads it.
        is_one_call: whether it is one array function with one result.
        per_run: computes the arrays of one number that the instructions read, from those that are
            given; `per_run_values` makes its calls.
    """

    instructions: tuple[_Instruction, ...]
    results: tuple[tuple[str, Operand], ...]
    reads: dict[str, int]
    is_one_call: bool
    per_run: ArrayPlan | None


@dataclass
class _Writer:
    """Writes trees as instructions; equal ones once.

    Attributes:
        single: names of arrays of one number.
        per_run: trees over these alone, which are not written, by the name that is read instead.
    """

    single: frozenset[str] = frozenset()
    per_run: dict[Tree, str] = field(default_factory=dict)
    applied: list[tuple[str, tuple[Operand, ...]]] = field(default_factory=list)
    _known: dict[tuple[str, tuple[Operand, ...]], Operand] = field(default_factory=dict)
    _values: dict[Tree, Operand] = field(default_factory=dict)

    def write(self, tree: Tree) -> Operand:
        operand = self._values.get(tree)
        if operand is None:
            operand = self._values[tree] = self._write(tree)
        return operand

    def _write(self, tree: Tree) -> Operand:
        kind = tree[0]
        if kind == "num":
            return ("num", tree[1])
        if kind == "var":
            return ("array", tree[1])
        # A truth value stays: it would come back as a float, which no mask can be.
        if self.single and not is_truth(tree) and names(tree) <= self.single:
            return ("array", self.per_run.setdefault(tree, f"per run {len(self.per_run)}"))
        if kind == "unary":
            if tree[1] == "!":
                return self.apply("logical_not", self.write(tree[2]))
            return self.apply("negative", self.number(tree[2]))
        if kind == "binary":
            return self._binary(tree)
        # From the left, as loops in C add: the same rounding.
        if kind == "sum":
            terms = [self.write(term) for term in tree[1:]]
            return reduce(lambda total, term: self.apply("add", total, term), terms)
        if kind == "choose":
            return self._choose(tree)
        if tree[1] == "fma":
            return self.write(("binary", "+", ("binary", "*", tree[2], tree[3]), tree[4]))
        return self.apply(_known_function(tree[1]), *(self.number(arg) for arg in tree[2:]))

    def number(self, tree: Tree) -> Operand:
        """Like `write`, but truth values become 1 and 0."""
        written = self.write(tree)
        return self.apply("multiply", written, ("num", 1.0)) if is_truth(tree) else written

    def _binary(self, tree: Tree) -> Operand:
        _, sign, left, right = tree
        name = BINARY[sign]
        if name in TRUTH:
            return self.apply(name, self.write(left), self.write(right))
        if sign == "*" and left == right:
            return self.apply("square", self.number(left))
        if sign == "/" and left == ("num", 1.0) and right[0] in ("var", "call"):
            return self.apply("reciprocal", self.number(right))
        if is_truth(left) and is_truth(right):  # NumPy adds truth values as truth values
            left_value = self.number(left)
        else:
            left_value = self.write(left)
        return self.apply(name, left_value, self.write(right))

    def _choose(self, tree: Tree) -> Operand:
        _, condition, then, otherwise = tree
        if otherwise[0] == "num" and then[0] != "num":  # what is computed is written over
            condition, then, otherwise = ("unary", "!", condition), otherwise, then
        return self.apply(_SELECT, self.number(otherwise), self.write(condition), self.number(then))

    def apply(self, name: str, *operands: Operand) -> Operand:
        key = name, operands
        operand = self._known.get(key)
        if operand is None:
            operand = self._known[key] = ("value", len(self.applied))
            self.applied.append(key)
        return operand


def _known_function(name: str) -> str:
    if name in NOT_IN_NUMPY and name not in SPECIAL:
        raise ExpressionError(f"NumPy has no function {name!r}: the operator wants its own kernel")
    return array_function(name)


@lru_cache(maxsize=4096)
def array_plan(
    texts: tuple[tuple[str, str], ...],
    wanted: tuple[str, ...],
    numbers: tuple[tuple[str, str], ...] = (),
    counts: tuple[tuple[str, int], ...] = (),
    single: tuple[str, ...] = (),
) -> ArrayPlan:
    """The array functions that compute expressions.

    Args:
        texts: (name, expression) in the order of computation; each may mention those before it.
        wanted: names of the results.
        numbers: names of numbers, and their texts: 0.0 and -0.0 would be one key of the cache.
        counts: how many variables `sum(x)` adds up, by slot; they are arrays `x[0]`, `x[1]`, ...
        single: names of arrays of one number. What follows from these alone is computed once for
            all elements, in float64, as in compiled loops: see `per_run_values`.

    Raises:
        ExpressionError: a text breaks the grammar, or NumPy has no such function.
    """
    results: dict[str, Tree] = {}
    known = _Named({name: ("num", float(text)) for name, text in numbers})
    for name, text in texts:
        whole = replace_names(written_out(parse(text), dict(counts)), known)
        tree = of_bounded_height(whole)  # an output that is named stands there with all of its own
        known[name] = tree
        if name in wanted:
            results[name] = array_tree(tree)
    return _plan(results, frozenset(single))


def _plan(trees: Mapping[str, Tree], single: frozenset[str]) -> ArrayPlan:
    writer = _Writer(single)
    results = {name: writer.write(tree) for name, tree in trees.items()}
    end = len(writer.applied)
    last: dict[Operand, int] = {}
    for number, (_, operands) in enumerate(writer.applied):
        last.update((operand, number) for operand in operands)
    # Before the results count as readers: `is_reused` asks for other instructions alone.
    reused = set(last)
    last.update((operand, end) for operand in results.values())
    # Reversed, so that of two results with one value the first is computed in place, the others
    # copied.
    finals = {operand: name for name, operand in reversed(results.items())}
    instructions = []
    for number, (function, operands) in enumerate(writer.applied):
        places = range(len(operands))
        dying = (i for i in places if operands[i][0] == "value" and last[operands[i]] == number)
        own: Operand = ("value", number)
        instruction = _Instruction(
            function, operands, tuple(dying), last[own], finals.get(own, ""), own in reused
        )
        instructions.append(instruction)
    # Copies of given arrays come first: a computed result may be written over their memory.
    pairs = sorted(results.items(), key=lambda pair: pair[1][0] != "array")
    reads = {name: number for (kind, name), number in last.items() if kind == "array"}
    simple = end == len(results) == 1 and writer.applied[0][0] not in (_SELECT, *SPECIAL)
    inner = {name: tree for tree, name in writer.per_run.items()}
    per_run = _plan(inner, frozenset()) if inner else None
    return ArrayPlan(tuple(instructions), tuple(pairs), reads, simple, per_run)


class _Named(dict[str, Tree]):
    """Trees by name; other names remain."""

    def __missing__(self, name: str) -> Tree:
        return ("var", name)


# -- binding -----------------------------------------------------------------------------------


def array_calls(
    k: ArrayHost, plan: ArrayPlan, given: Mapping[str, Any], results: Mapping[str, Any]
) -> list[Call]:
    """The calls of a plan that is bound to arrays.

    Args:
        given: arrays that broadcast, by the names in `plan.reads`.
        results: the array for each result. It may be the memory of a given one.
    """
    dtype = next(iter(results.values())).dtype
    if plan.is_one_call:  # as for most operators that run by themselves
        instruction = plan.instructions[0]
        ((name, _),) = plan.results
        arrays = [
            given[what] if kind == "array" else _constant(dtype, what)
            for kind, what in instruction.operands
        ]
        return [_apply(k.xp, instruction.function, arrays, results[name])]
    if not plan.instructions and len(plan.results) == 1:
        ((name, (kind, what)),) = plan.results
        value = given[what] if kind == "array" else _constant(dtype, what)
        return _delivered(k.xp, value, results[name])
    return _Binder(k, plan, given, results, dtype).calls


def per_run_values(
    k: ArrayHost, plan: ArrayPlan, single: Mapping[str, Any], dtype: np.dtype
) -> tuple[list[Call], dict[str, Any]]:
    """What a plan reads that is the same for all elements: calls that compute it, and its arrays.

    Args:
        single: arrays of one number, of any dtype, by the names that were `single` for the plan.
        dtype: of the arrays of the plan, and of those that are returned.
    """
    calls: list[Call] = []
    arrays = {name: array for name, array in single.items() if name in plan.reads}
    if plan.per_run is not None:
        # In float64 and rounded once, as the head of a compiled loop does it (codegen.py).
        exact = {name: k.scratch((), np.float64) for name, _ in plan.per_run.results}
        calls += array_calls(k, plan.per_run, single, exact)
        arrays |= exact
    for name, array in arrays.items():
        if array.dtype != dtype:
            arrays[name] = k.scratch((), dtype)
            calls.append(partial(k.xp.copyto, arrays[name], array))
    return calls, arrays


def _constant(dtype: np.dtype, value: float) -> Any:
    # Of the arrays' own dtype: whole numbers with a Python float would be computed in float64.
    return dtype.type(int(value) if dtype.kind in "iu" else value)


def _apply(xp: Any, function: str, arrays: Sequence[Any], out: Any) -> Call:
    if function in ("maximum", "minimum"):  # NumPy takes their third argument by name
        return partial(getattr(xp, function), *arrays, out=out)
    return partial(getattr(xp, function), *arrays, out)


class _Binder:
    """Gives every instruction of a plan its arrays.

    A value is written over an operand that nothing reads again, or into a result whose memory is
    not read any more, or else to scratch memory.
    """

    def __init__(
        self,
        k: ArrayHost,
        plan: ArrayPlan,
        given: Mapping[str, Any],
        results: Mapping[str, Any],
        dtype: np.dtype,
    ) -> None:
        self.k = k
        self.plan = plan
        self.dtype = dtype
        self.given = given
        self.results = results
        self.calls: list[Call] = []
        self._results: list[Any] = []
        self._free: list[Any] = []
        finals = {i.result: n for n, i in enumerate(plan.instructions) if i.result}
        # What is computed on the way, or read again, is slower in columns of a matrix.
        self._unused = [results[name] for name in finals if results[name].flags.c_contiguous]
        self._until = {id(results[name]): number for name, number in finals.items()}
        self._clashes = self._find_clashes()
        for number, instruction in enumerate(plan.instructions):
            self._bind(number, instruction)
        for name, operand in plan.results:
            self.calls += _delivered(k.xp, self._array(operand), results[name])

    def _find_clashes(self) -> dict[int, list[tuple[int, bool]]]:
        """For each result, the given arrays in its memory.

        For each of these: the last instruction that reads it, and whether it is the same array.
        """
        clashes: dict[int, list[tuple[int, bool]]] = {}
        given = ((self.given[name], last) for name, last in self.plan.reads.items())
        others = [(array, *_span(array), last) for array, last in given]
        for target in self.results.values():
            first, end = _span(target)
            for array, other_first, other_end, last in others:
                if first < other_end and other_first < end:
                    clashes.setdefault(id(target), []).append((last, _is_same(array, target)))
        return clashes

    def _array(self, operand: Operand) -> Any:
        kind, what = operand
        if kind == "num":
            return _constant(self.dtype, what)
        return self.given[what] if kind == "array" else self._results[what]

    def _bind(self, number: int, instruction: _Instruction) -> None:
        name = instruction.function
        arrays = [self._array(operand) for operand in instruction.operands]
        out = self._place(number, instruction, arrays)
        self._results.append(out)
        copyto = self.k.xp.copyto
        if name == _SELECT:
            otherwise, condition, then = arrays
            # First the one value everywhere, then the other through the mask: NumPy's `where` has
            # no `out` and would allocate.
            if otherwise is not out and not _is_same(otherwise, out):
                self.calls.append(partial(copyto, out, otherwise))
            self.calls.append(partial(copyto, out, then, where=condition))
        elif name in SPECIAL:
            self.calls.append(SPECIAL[name](self.k, arrays[0], out))
        else:
            self.calls.append(_apply(self.k.xp, name, arrays, out))

    def _place(self, number: int, instruction: _Instruction, arrays: Sequence[Any]) -> Any:
        """Where an instruction's value goes."""
        name = instruction.function
        shape = _shape(arrays)
        dtype = _BOOL if name in TRUTH else self.dtype
        # What these read must not be where they write.
        aside = arrays[1:] if name == _SELECT else arrays if name in SPECIAL else ()
        dying = [arrays[i] for i in instruction.dying]
        wanted = []
        if instruction.result:
            target = self.results[instruction.result]
            wanted = [target] if target.flags.c_contiguous or not instruction.is_reused else []
        for array in (*wanted, *dying, *self._free, *self._unused):
            if (
                array.shape == shape
                and array.dtype == dtype
                and not any(array is other for other in aside)
                and self._is_writable(array, number, instruction)
            ):
                break
        else:
            array = self.k.scratch(shape, dtype)
        self._unused = [other for other in self._unused if other is not array]
        self._free = [a for a in (*self._free, *dying) if a is not array]
        return array

    def _is_writable(self, target: Any, number: int, instruction: _Instruction) -> bool:
        """Whether an instruction may write to an array that may be that of a result."""
        until = self._until.get(id(target))
        if until is None:
            return True
        is_own = instruction.result and self.results[instruction.result] is target
        if instruction.last > until and not is_own:
            return False  # the result itself comes before that
        later = self.plan.instructions
        if any(
            result is target and later[n].last > number for n, result in enumerate(self._results)
        ):
            return False
        careful = instruction.function == _SELECT or instruction.function in SPECIAL
        return all(
            last < number or (last == number and same and not careful)
            for last, same in self._clashes.get(id(target), ())
        )


def _delivered(xp: Any, value: Any, target: Any) -> list[Call]:
    """The call that copies a value to its result; none if it was computed there."""
    if value is target or _is_same(value, target):
        return []
    return [partial(xp.copyto, target, value, casting="unsafe")]


def _span(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the one after its last."""
    first = address(array)
    if array.flags.c_contiguous or not array.size:
        return first, first + array.nbytes
    steps = zip(array.shape, array.strides, strict=True)
    return first, first + sum((dim - 1) * step for dim, step in steps) + array.itemsize


def _is_same(a: Any, b: Any) -> bool:
    """Whether two arrays are the same elements in the same places."""
    return not isinstance(a, np.generic) and same_memory(a, b)


def _shape(arrays: Sequence[Any]) -> tuple[int, ...]:
    """The shape that arrays broadcast to."""
    shapes = {array.shape for array in arrays if array.shape}
    if len(shapes) < 2:
        return shapes.pop() if shapes else ()
    return np.broadcast_shapes(*shapes)
