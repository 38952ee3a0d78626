"""PTX as statements: entries, functions, variables, and instructions with their CUDA lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property


class PtxError(ValueError):
    """PTX that cannot be read or run, with its line."""


@dataclass(frozen=True)
class Place:
    """Where an instruction stands.

    Attributes:
        line: in the PTX. text: of the instruction. cuda: the line in the CUDA text; 0: unknown.
    """

    line: int
    text: str
    cuda: int


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode.modifier.modifier operand, operand;`; a label has the opcode ":"."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    place: Place

    @property
    def type(self) -> str:
        return self.modifiers[-1]


@dataclass(frozen=True)
class Variable:
    """An array or a number in shared, local, global or constant memory, or a parameter."""

    name: str
    size: int
    alignment: int
    values: bytes = b""


@dataclass
class Body:
    """An entry or a function.

    Attributes:
        parameters: of a function, what it returns comes first.
        registers: their types. passed: variables for parameters of calls.
        shared, local: variables that it declares.
        tables: labels of `brx.idx`, by the names of their lists.
    """

    name: str
    parameters: list[Variable]
    registers: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    shared: list[Variable] = field(default_factory=list)
    local: list[Variable] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)


_SPACES = re.compile(r"^(?:\s|//[^\n]*\n)*")
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(shared|local|global|const|param)\s+(?:\.align\s+(\d+)\s+)?"
    r"\.([a-z]\d+|pred)\s+([\w$%]+)(?:\s*\[(\d*)\])?(?:\s*=\s*(.*))?$",
    re.DOTALL,
)
_HEAD = re.compile(
    r"(?:\.(?:visible|weak)\s+)*\.(entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*\(([^)]*)\)[^;{]*"
)
_LOCATION = re.compile(r"\.loc\s+\d+\s+(\d+)[^\n]*\n")
_LABEL = re.compile(r"([$%\w]+):(?!:)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")


class Module:
    """A text of PTX, whose bodies are read when they are asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.variables: dict[str, list[Variable]] = {"shared": [], "global": [], "const": []}
        self._bodies: dict[str, tuple[int, str, str]] = {}
        self._read: dict[str, Body] = {}
        self.entries: list[str] = []
        self._scan()

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def body(self, name: str) -> Body:
        """An entry or a function by its name."""
        if name not in self._read:
            if name not in self._bodies:
                raise PtxError(f"no function {name}; these are here: {', '.join(self._bodies)}")
            start, returned, given = self._bodies[name]
            parts = [p.strip() for text in (returned, given) for p in text.split(",") if p.strip()]
            body = Body(name, [_variable(part)[1] for part in parts])
            _Reader(self, body, start).read()
            self._read[name] = body
        return self._read[name]

    def _scan(self) -> None:
        """Finds heads of bodies, and reads the variables outside of them."""
        at = 0
        while True:
            at += _length(_SPACES, self.text, at)
            if at >= len(self.text):
                return
            if head := _HEAD.match(self.text, at):
                kind, returned, name, given = head.groups()
                at = head.end()
                if self.text[at] == ";":  # declared, defined below
                    at += 1
                    continue
                self._bodies[name] = at, returned or "", given
                if kind == "entry":
                    self.entries.append(name)
                at = self.text.index("\n}", at) + 2
                continue
            line = self.text[at:].partition("\n")[0]
            if re.match(r"\.(version|target|address_size|file)\b", line):
                at += len(line)
            elif line.startswith(".section"):
                at = self.text.index("}", at) + 1
            else:
                end = self.text.index(";", at)
                space, variable = _variable(self.text[at:end].strip())
                self.variables[space].append(variable)
                at = end + 1


def _length(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Spaces and comments, from a place on."""
    start = at
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if not text.startswith("//", at):
            return at - start
        end = text.find("\n", at)
        at = len(text) if end < 0 else end + 1


def _variable(text: str) -> tuple[str, Variable]:
    found = _VARIABLE.match(text)
    if found is None:
        raise PtxError(f"no variable: {text[:80]}")
    space, alignment, kind, name, count, values = found.groups()
    size = int(kind[1:]) // 8
    held = b""
    if values:
        numbers = values.strip(" {}").split(",")
        held = b"".join((int(n, 0) % (1 << 8 * size)).to_bytes(size, "little") for n in numbers)
    elements = int(count) if count else 1
    whole = held.ljust(elements * size, b"\0") if values else b""
    return space, Variable(name, elements * size, int(alignment or size), whole)


class _Reader:
    """Reads a body; names of inner scopes become names of their own."""

    def __init__(self, module: Module, body: Body, start: int) -> None:
        self._text = module.text
        self._body = body
        self._at = start
        self._line = module.text.count("\n", 0, start) + 1
        self._cuda = 0
        self._scopes: list[dict[str, str]] = []
        self._count = 0

    def read(self) -> None:
        while True:
            self._skip(_length(_SPACES, self._text, self._at))
            char = self._text[self._at]
            if char == "{":
                self._scopes.append({})
                self._skip(1)
            elif char == "}":
                self._scopes.pop()
                self._skip(1)
                if not self._scopes:
                    return
            elif location := _LOCATION.match(self._text, self._at):
                self._cuda = int(location[1])
                self._skip(len(location[0]))
            elif label := _LABEL.match(self._text, self._at):
                self._add(":", (), (label[1],), "", label[0])
                self._skip(len(label[0]))
            else:
                end = self._text.index(";", self._at)
                statement = self._text[self._at : end].strip()
                self._statement(statement)
                self._skip(end + 1 - self._at)

    def _skip(self, count: int) -> None:
        self._line += self._text.count("\n", self._at, self._at + count)
        self._at += count

    def _add(self, opcode: str, modifiers: tuple, operands: tuple, guard: str, text: str) -> None:
        place = Place(self._line, " ".join(text.split()), self._cuda)
        self._body.instructions.append(Instruction(opcode, modifiers, operands, guard, place))

    def _statement(self, text: str) -> None:
        if text.startswith(".pragma"):
            return
        if registers := _REGISTERS.match(text):
            for name in registers[2].split(","):
                self._registers(registers[1], name.strip())
            return
        if text.startswith(".branchtargets"):
            targets = [one.strip() for one in text.removeprefix(".branchtargets").split(",")]
            label = self._body.instructions.pop()
            self._body.tables[label.operands[0]] = targets
            return
        if text.startswith("."):
            space, variable = _variable(text)
            if space == "param":
                self._body.passed.add(self._named(variable.name))
            else:
                getattr(self._body, space).append(variable)
            return
        guard = ""
        if text.startswith("@"):
            guard, text = text.split(None, 1)
            guard = self._renamed(guard[1:])
        head, _, rest = text.partition("{") if "{" in text.split()[0] else _first_word(text)
        opcode, *modifiers = head.split(".")
        operands = tuple(self._renamed(part) for part in _split(rest))
        self._add(opcode, tuple(modifiers), operands, guard, text)

    def _registers(self, kind: str, name: str) -> None:
        many = re.fullmatch(r"(%?[\w$]+)<(\d+)>", name)
        if many is None:
            self._body.registers[self._named(name)] = kind
            return
        for number in range(int(many[2])):
            self._body.registers[f"{many[1]}{number}"] = kind

    def _named(self, name: str) -> str:
        """A name in the innermost scope, which may hide another."""
        if len(self._scopes) == 1:
            return name
        self._count += 1
        self._scopes[-1][name] = f"{name}.{self._count}"
        return self._scopes[-1][name]

    def _renamed(self, operand: str) -> str:
        inner = [scope for scope in self._scopes if scope]
        if not inner:
            return operand

        def new(found: re.Match[str]) -> str:
            for scope in reversed(inner):
                if found[0] in scope:
                    return scope[found[0]]
            return found[0]

        return _NAME.sub(new, operand)


def _first_word(text: str) -> tuple[str, str, str]:
    word, *rest = text.split(None, 1)
    return word, "", rest[0] if rest else ""


def _split(text: str) -> Iterator[str]:
    """Operands, which commas part where they are not in brackets."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()
