"""Each instruction of PTX as a statement of Python over arrays of lanes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from .operands import DTYPES, as_dtype, literal, size_of, widened
from .text import Instruction, Place, PtxError

_SPECIAL = re.compile(r"%(?:(?:n?tid|n?ctaid|nctaid)\.[xyz]|laneid|warpid)$")
_SPACES = ("shared", "global", "local", "const", "param")
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_ORDERED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_OPPOSITE = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}
_WHOLE = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


class Block:
    """Translates one basic block.

    Args:
        registers: types by names. numbers: their places. symbols: addresses of variables, as text.
        kept: registers that other blocks read. labels: numbers of blocks. tables: of `brx.idx`.
        places: receives the places of instructions that may fail.
    """

    def __init__(
        self,
        registers: Mapping[str, str],
        numbers: Mapping[str, int],
        symbols: Mapping[str, str],
        kept: set[str],
        labels: Mapping[str, int],
        tables: Mapping[str, Sequence[str]],
        places: list[Place],
    ) -> None:
        self._registers = registers
        self._numbers = numbers
        self._symbols = symbols
        self._kept = kept
        self._labels = labels
        self._tables = tables
        self._places = places
        self._lines: list[str] = []
        self._known: set[str] = set()
        self._written: list[str] = []

    def text(self, number: int, block: Sequence[Instruction], count: int) -> str:
        """The function of the block with this number."""
        end = f"run.pc[m] = {number + 1}"
        for one in block:
            try:
                end = self._statement(one, number) or end
            except (KeyError, AttributeError, IndexError, ValueError) as error:
                where = f"PTX line {one.place.line}"
                what = f"no meaning is known for `{one.place.text}` ({error})"
                raise PtxError(f"{where}: {what}") from error
        if number + 1 == count and end == f"run.pc[m] = {number + 1}":
            end = "run.leave(m)"
        back = [
            f"R[{self._numbers[name]}][m] = v{self._numbers[name]}"
            for name in dict.fromkeys(self._written)
            if name in self._kept
        ]
        lines = [f"def block_{number}(R, m, run):", *self._lines, *back, end]
        return "\n  ".join(lines)

    def _statement(self, one: Instruction, number: int) -> str:
        """Adds an instruction; returns the end of the block if it is one."""
        own: Callable[[Instruction], None] | None = getattr(self, f"_{one.opcode}", None)
        if own is not None:
            own(one)
            return ""
        ends = {
            "bra": self._branch,
            "brx": self._switch,
            "ret": lambda one, number: "run.leave(m)",
            "exit": lambda one, number: "run.leave(m)",
            "bar": self._barrier,
            "barrier": self._barrier,
            "trap": lambda one, number: f"run.trap(m, {self._place(one)})",
        }
        return ends[one.opcode](one, number)

    # -- operands ----------------------------------------------------------------------------------

    def _place(self, one: Instruction) -> int:
        self._places.append(one.place)
        return len(self._places) - 1

    def _value(self, operand: str, dtype: str) -> str:
        """An operand as an expression of a dtype."""
        if operand.startswith("!"):
            return f"~{self._value(operand[1:], dtype)}"
        if operand in self._registers:
            own = DTYPES[self._registers[operand]]
            if operand not in self._known:
                place = self._numbers[operand]
                self._lines.append(f"v{place} = R[{place}][m]")
                self._known.add(operand)
            return as_dtype(f"v{self._numbers[operand]}", own, dtype)
        if _SPECIAL.match(operand):
            return as_dtype(f"run.special[{operand[1:]!r}][m]", "u4", dtype)
        name, _, offset = operand.partition("+")
        if name in self._symbols:
            found = f"({self._symbols[name]} + u8({int(offset or 0)}))"
            return as_dtype(found, "u8", dtype)
        return literal("32" if operand == "WARP_SZ" else operand, dtype)

    def _set(self, target: str, text: str, dtype: str) -> None:
        if target == "_":
            return
        if "|" in target:
            raise ValueError("two targets")
        own = DTYPES[self._registers[target]]
        self._lines.append(f"v{self._numbers[target]} = {widened(text, dtype, own)}")
        self._known.add(target)
        self._written.append(target)

    def _address(self, operand: str) -> str:
        name, _, offset = operand.strip("[] ").partition("+")
        if name in self._registers and self._registers[name][-2:] == "32":
            base = f"{self._value(name, 'u4')}.astype(u8)"
        else:
            base = self._value(name, "u8")
        return f"{base} + u8({int(offset) % (1 << 64)})" if offset else base

    def _simple(self, one: Instruction, text: str, signed: bool = True) -> None:
        """target = text, where {0}, {1} ... are the other operands, of the instruction's type."""
        dtype = DTYPES[one.type]
        if not signed:
            dtype = dtype.replace("i", "u")
        values = [self._value(operand, dtype) for operand in one.operands[1:]]
        self._set(one.operands[0], self._finished(one, text.format(*values)), dtype)

    def _finished(self, one: Instruction, text: str) -> str:
        if "sat" in one.modifiers:
            text = f"a.unit({text})"
        return f"a.flushed({text})" if "ftz" in one.modifiers else text

    def _rounding(self, one: Instruction) -> str:
        return next((name for name in one.modifiers if name in _ROUNDINGS), "rn")

    # -- moves -------------------------------------------------------------------------------------

    def _mov(self, one: Instruction) -> None:
        target, source = one.operands
        if target.startswith("{"):  # parts, the lowest first
            parts = [part.strip() for part in target.strip("{}").split(",")]
            size = size_of(one.type) // len(parts)
            whole = self._value(source, f"u{size_of(one.type)}")
            self._lines.append(f"whole = {whole}")
            for number, part in enumerate(parts):
                shift = f"u{size_of(one.type)}({8 * size * number})"
                self._set(part, f"(whole >> {shift}).astype(u{size})", f"u{size}")
        elif source.startswith("{"):
            parts = [part.strip() for part in source.strip("{}").split(",")]
            size, dtype = size_of(one.type) // len(parts), f"u{size_of(one.type)}"
            values = [
                f"(({self._value(part, f'u{size}')}).astype({dtype}) << {dtype}({8 * size * n}))"
                for n, part in enumerate(parts)
            ]
            self._set(target, " | ".join(values), dtype)
        else:
            dtype = DTYPES[one.type]
            self._set(target, f"({self._value(source, dtype)}).copy()", dtype)

    def _cvta(self, one: Instruction) -> None:
        bases = {"shared": "run.memory.SHARED", "local": "run.memory.LOCAL"}
        space = next(name for name in one.modifiers if name in _SPACES)
        base = bases.get(space, "0")
        sign = "-" if "to" in one.modifiers else "+"
        self._set(one.operands[0], f"{self._value(one.operands[1], 'u8')} {sign} u8({base})", "u8")

    def _selp(self, one: Instruction) -> None:
        dtype = DTYPES[one.type]
        first, second = (self._value(operand, dtype) for operand in one.operands[1:3])
        condition = self._value(one.operands[3], "?")
        self._set(one.operands[0], f"np.where({condition}, {first}, {second})", dtype)

    def _cvt(self, one: Instruction) -> None:
        *modifiers, to, source = one.modifiers
        target, given = one.operands
        if "bf16" in (to, source):
            if to == "bf16":
                self._set(target, f"a.lower_half({self._value(given, 'f4')})", "u2")
                return
            wide = f"({self._value(given, 'u2')}.astype(u4) << u4(16)).view(f4)"
            self._set(target, wide, "f4")
            return
        after, before = DTYPES[to], DTYPES[source]
        own = self._registers.get(given)
        value = self._value(given, before)
        if own and size_of(own) > size_of(source):
            value = as_dtype(self._value(given, DTYPES[own]), DTYPES[own], before)
        whole = next((_WHOLE[name] for name in modifiers if name in _WHOLE), "")
        if before[0] == "f" and after[0] != "f":
            text = f"a.to_integer({whole}({value}), {after})"
        elif before[0] == after[0] == "f":
            rounding = self._rounding(one)
            if rounding != "rn" and (before, after) != ("f8", "f4"):
                raise ValueError(f"rounding {rounding}")
            text = f"{whole}({value}).astype({after})"
            if rounding != "rn":
                text = f"a.rounded({value}, {rounding!r})"
            text = self._finished(one, text)
        elif after[0] == "f":
            text = f"({value}).astype({after})"
        else:
            text = f"({value}).astype({after})"
            if "sat" in modifiers:
                text = f"a.saturated({value}, {after})"
        self._set(target, text, after)

    # -- arithmetic --------------------------------------------------------------------------------

    def _add(self, one: Instruction) -> None:
        self._sum(one, "+", "a.add({0}, {1}, {rounding!r})")

    def _sub(self, one: Instruction) -> None:
        self._sum(one, "-", "a.add({0}, -{1}, {rounding!r})")

    def _sum(self, one: Instruction, sign: str, directed: str) -> None:
        rounding = self._rounding(one)
        if DTYPES[one.type][0] == "f":
            if rounding == "rn":
                self._simple(one, f"{{0}} {sign} {{1}}")
            elif one.type == "f32":
                values = [self._value(operand, "f4") for operand in one.operands[1:]]
                text = directed.format(*values, rounding=rounding)
                self._set(one.operands[0], self._finished(one, text), "f4")
            else:
                raise ValueError(f"rounding {rounding}")
        elif "cc" in one.modifiers or one.opcode.endswith("c"):
            self._with_carry(one, sign, "{0}", "{1}")
        else:
            self._simple(one, f"{{0}} {sign} {{1}}", signed=False)

    def _addc(self, one: Instruction) -> None:
        self._with_carry(one, "+", "{0}", "{1}")

    def _subc(self, one: Instruction) -> None:
        self._with_carry(one, "-", "{0}", "{1}")

    def _with_carry(self, one: Instruction, sign: str, first: str, second: str) -> None:
        """A sum of 32 bits in 64, whose upper half is the carry."""
        values = [f"np.int64({self._value(operand, 'u4')})" for operand in one.operands[1:]]
        text = f"{first} {sign} {second}".format(*values)
        if one.opcode in ("addc", "subc", "madc"):
            text += f" {sign} carry"
        if size_of(one.type) != 4:
            raise ValueError("a carry beyond 32 bits")
        self._lines.append(f"whole = {text}")
        if "cc" in one.modifiers:
            self._lines.append("carry = (whole >> 32) & 1")
        self._set(one.operands[0], "(whole & 0xFFFFFFFF).astype(u4)", "u4")

    def _mul(self, one: Instruction) -> None:
        self._product(one, "{0} * {1}")

    def _product(self, one: Instruction, low: str, plus: str = "") -> None:
        dtype = DTYPES[one.type]
        values = [self._value(operand, dtype) for operand in one.operands[1:3]]
        if dtype[0] == "f":
            rounding = self._rounding(one)
            text = f"{values[0]} * {values[1]}"
            if rounding != "rn":
                if dtype != "f4":
                    raise ValueError(f"rounding {rounding}")
                text = f"a.multiply({values[0]}, {values[1]}, {rounding!r})"
            self._set(one.operands[0], self._finished(one, text), dtype)
            return
        if "wide" in one.modifiers:
            dtype = dtype[0] + str(2 * int(dtype[1:]))
            text = " * ".join(f"({value}).astype({dtype})" for value in values)
        elif "hi" in one.modifiers:
            text = f"a.high_product({values[0]}, {values[1]})"
        else:
            text = f"{values[0]} * {values[1]}"
        if plus:
            text = f"{text} + {self._value(plus, dtype)}"
        self._set(one.operands[0], text, dtype)

    def _mad(self, one: Instruction) -> None:
        if DTYPES[one.type][0] == "f":
            self._fma(one)
        elif "cc" in one.modifiers or one.opcode == "madc":
            wide = "(np.uint64({0}) * np.uint64({1}))"
            part = f"({wide} >> u8(32))" if "hi" in one.modifiers else f"({wide} & u8(0xFFFFFFFF))"
            self._with_carry(one, "+", f"np.int64({part})", "{2}")
        else:
            self._product(one, "", one.operands[3])

    _madc = _mad

    def _fma(self, one: Instruction) -> None:
        dtype, rounding = DTYPES[one.type], self._rounding(one)
        if rounding != "rn" and dtype != "f4":
            raise ValueError(f"rounding {rounding}")
        values = ", ".join(self._value(operand, dtype) for operand in one.operands[1:])
        text = f"a.fma({values}, {rounding!r}, {dtype})"
        self._set(one.operands[0], self._finished(one, text), dtype)

    def _div(self, one: Instruction) -> None:
        if DTYPES[one.type][0] == "f":
            self._simple(one, "{0} / {1}")
        else:
            self._refuse_zero(one)
            self._simple(one, "a.quotient({0}, {1})")

    def _rem(self, one: Instruction) -> None:
        self._refuse_zero(one)
        self._simple(one, "np.fmod({0}, {1})")

    def _refuse_zero(self, one: Instruction) -> None:
        divisor = self._value(one.operands[2], DTYPES[one.type])
        self._lines.append(f"run.refuse_zero({divisor}, m, {self._place(one)})")

    def _abs(self, one: Instruction) -> None:
        self._simple(one, "np.abs({0})")

    def _neg(self, one: Instruction) -> None:
        self._simple(one, "-{0}")

    def _min(self, one: Instruction) -> None:
        self._extreme(one, "min")

    def _max(self, one: Instruction) -> None:
        self._extreme(one, "max")

    def _extreme(self, one: Instruction, name: str) -> None:
        # In PTX a number is less and greater than what is none.
        full = {"min": "np.minimum", "max": "np.maximum"}[name]
        plain = DTYPES[one.type][0] != "f" or "NaN" in one.modifiers
        self._simple(one, f"{full if plain else f'np.f{name}'}({{0}}, {{1}})")

    def _rcp(self, one: Instruction) -> None:
        self._simple(one, f"{DTYPES[one.type]}(1) / {{0}}")

    def _sqrt(self, one: Instruction) -> None:
        self._simple(one, "np.sqrt({0})")

    def _rsqrt(self, one: Instruction) -> None:
        self._approximate(one, "lambda x: 1 / np.sqrt(x)")

    def _ex2(self, one: Instruction) -> None:
        self._approximate(one, "np.exp2")

    def _lg2(self, one: Instruction) -> None:
        self._approximate(one, "np.log2")

    def _sin(self, one: Instruction) -> None:
        self._approximate(one, "np.sin")

    def _cos(self, one: Instruction) -> None:
        self._approximate(one, "np.cos")

    def _tanh(self, one: Instruction) -> None:
        self._approximate(one, "np.tanh")

    def _approximate(self, one: Instruction, function: str) -> None:
        dtype = DTYPES[one.type]
        given = self._value(one.operands[1], dtype)
        if dtype == "f8":
            self._set(one.operands[0], f"({function})({given})", dtype)
            return
        given = self._finished(one, given)
        text = self._finished(one, f"a.approximate({function}, {given})")
        self._set(one.operands[0], text, dtype)

    # -- bits --------------------------------------------------------------------------------------

    def _and(self, one: Instruction) -> None:
        self._simple(one, "{0} & {1}")

    def _or(self, one: Instruction) -> None:
        self._simple(one, "{0} | {1}")

    def _xor(self, one: Instruction) -> None:
        self._simple(one, "{0} ^ {1}")

    def _not(self, one: Instruction) -> None:
        self._simple(one, "~{0}")

    def _shl(self, one: Instruction) -> None:
        self._shift(one, "<<")

    def _shr(self, one: Instruction) -> None:
        self._shift(one, ">>")

    def _shift(self, one: Instruction, sign: str) -> None:
        dtype = DTYPES[one.type]
        amount = f"({self._value(one.operands[2], 'u4')}).astype({dtype})"
        self._set(one.operands[0], f"{self._value(one.operands[1], dtype)} {sign} {amount}", dtype)

    def _clz(self, one: Instruction) -> None:
        value = self._value(one.operands[1], DTYPES[one.type])
        self._set(one.operands[0], f"a.leading_zeros({value})", "u4")

    def _popc(self, one: Instruction) -> None:
        self._set(
            one.operands[0], f"a.ones({self._value(one.operands[1], DTYPES[one.type])})", "u4"
        )

    def _bfe(self, one: Instruction) -> None:
        dtype = DTYPES[one.type]
        start, length = (self._value(operand, "u4") for operand in one.operands[2:])
        text = f"a.field({self._value(one.operands[1], dtype)}, {start}, {length})"
        self._set(one.operands[0], text, dtype)

    def _bfi(self, one: Instruction) -> None:
        dtype = DTYPES[one.type]
        low, into = (self._value(operand, dtype) for operand in one.operands[1:3])
        start, length = (self._value(operand, "u4") for operand in one.operands[3:])
        self._set(one.operands[0], f"a.inserted({low}, {into}, {start}, {length})", dtype)

    def _prmt(self, one: Instruction) -> None:
        if one.modifiers != ("b32",):
            raise ValueError("a mode")
        self._simple(one, "a.permuted({0}, {1}, {2})")

    # -- comparisons -------------------------------------------------------------------------------

    def _setp(self, one: Instruction) -> None:
        comparison, *between = [name for name in one.modifiers[:-1] if name != "ftz"]
        dtype = DTYPES[one.type]
        first, second = (self._value(operand, dtype) for operand in one.operands[1:3])
        text = self._compared(comparison, first, second, dtype[0] == "f")
        targets = one.operands[0].split("|")
        texts = [f"({text})", f"~({text})"][: len(targets)]
        if between:
            sign = {"and": "&", "or": "|", "xor": "^"}[between[0]]
            other = self._value(one.operands[3], "?")
            texts = [f"{part} {sign} ({other})" for part in texts]
        for target, part in zip(targets, texts, strict=True):
            self._set(target, part, "?")

    def _compared(self, name: str, first: str, second: str, floats: bool) -> str:
        if name in _ORDERED or name in _UNSIGNED:
            return f"{first} {(_ORDERED | _UNSIGNED)[name]} {second}"
        if name == "neu" or name == "ne" and not floats:
            return f"{first} != {second}"
        if name in _OPPOSITE:
            return f"~({first} {_OPPOSITE[name]} {second})"
        pair = f"({first}, {second})"
        return {
            "ne": f"({first} < {second}) | ({first} > {second})",
            "equ": f"({first} == {second}) | a.no_numbers{pair}",
            "nan": f"a.no_numbers{pair}",
            "num": f"~a.no_numbers{pair}",
        }[name]

    # -- memory ------------------------------------------------------------------------------------

    def _ld(self, one: Instruction) -> None:
        space = next((name for name in one.modifiers if name in _SPACES), "generic")
        dtype = DTYPES[one.type]
        if space == "param":
            name, _, offset = one.operands[1].strip("[] ").partition("+")
            text = f"run.parameter({name!r}, {int(offset or 0)}, {dtype})"
            self._set(one.operands[0], text, dtype)
            return
        targets = [part.strip() for part in one.operands[0].strip("{}").split(",")]
        call = f"run.memory.load({space!r}, {self._address(one.operands[1])}, run.lanes[m]"
        self._lines.append(f"given = {call}, {dtype}, {len(targets)}, {self._place(one)})")
        for number, target in enumerate(targets):
            self._set(target, f"given[{number}]", dtype)

    def _st(self, one: Instruction) -> None:
        space = next((name for name in one.modifiers if name in _SPACES), "generic")
        dtype = DTYPES[one.type]
        sources = [part.strip() for part in one.operands[1].strip("{}").split(",")]
        values = ", ".join(self._value(source, dtype) for source in sources)
        call = f"run.memory.store({space!r}, {self._address(one.operands[0])}, run.lanes[m]"
        self._lines.append(f"{call}, {dtype}, ({values},), {self._place(one)})")

    def _atom(self, one: Instruction) -> None:
        self._atomic(one, one.operands[1], one.operands[2:], one.operands[0])

    def _red(self, one: Instruction) -> None:
        self._atomic(one, one.operands[0], one.operands[1:], "_")

    def _atomic(self, one: Instruction, address: str, operands: Sequence[str], target: str) -> None:
        space = next((name for name in one.modifiers if name in _SPACES), "generic")
        names = ("add", "cas", "exch", "min", "max", "and", "or", "xor")
        operation = next(name for name in one.modifiers if name in names)
        dtype = DTYPES[one.type]
        values = ", ".join(self._value(operand, dtype) for operand in operands)
        call = f"run.memory.atomic({space!r}, {self._address(address)}, run.lanes[m], {dtype}"
        self._lines.append(f"given = {call}, {operation!r}, ({values},), {self._place(one)})")
        self._set(target, "given", dtype)

    def _membar(self, one: Instruction) -> None:
        if not {"cta", "proxy"} & {*one.modifiers}:
            self._lines.append("run.memory.fence(run.lanes[m])")

    _fence = _membar

    # -- warps -------------------------------------------------------------------------------------

    def _shfl(self, one: Instruction) -> None:
        """shfl.sync.MODE.b32 target|inside, value, offset, clamp, mask."""
        target, _, inside = one.operands[0].partition("|")
        values = [self._value(operand, "u4") for operand in one.operands[1:]]
        call = f"run.shuffle({one.modifiers[1]!r}, m, {', '.join(values)}, {self._place(one)})"
        self._lines.append(f"given, found = {call}")
        self._set(target.strip(), "given", "u4")
        if inside:
            self._set(inside.strip(), "found", "?")

    def _vote(self, one: Instruction) -> None:
        """vote.sync.MODE.type target, predicate, mask."""
        values = self._value(one.operands[1], "?"), self._value(one.operands[2], "u4")
        text = f"run.vote({one.modifiers[1]!r}, m, {', '.join(values)}, {self._place(one)})"
        self._set(one.operands[0], text, DTYPES[one.type])

    # -- ends of blocks ----------------------------------------------------------------------------

    def _branch(self, one: Instruction, number: int) -> str:
        target = self._labels[one.operands[0]]
        if not one.guard:
            return f"run.pc[m] = {target}"
        return f"run.pc[m] = np.where({self._value(one.guard, '?')}, {target}, {number + 1})"

    def _switch(self, one: Instruction, number: int) -> str:
        targets = [self._labels[label] for label in self._tables[one.operands[1]]]
        return f"run.pc[m] = np.array({targets})[{self._value(one.operands[0], 'u4')}]"

    def _barrier(self, one: Instruction, number: int) -> str:
        place = self._place(one)
        if "warp" in one.modifiers:
            mask = self._value(one.operands[0], "u4")
            return f"run.meet(m, {mask}, {place}); run.pc[m] = {number + 1}"
        if len(one.operands) != 1 or "sync" not in one.modifiers:
            raise ValueError("a barrier of some threads, or with a result")
        return f"run.wait(m, {self._value(one.operands[0], 'u4')}, {number + 1}, {place})"
