"""BrainScript text to its parse tree.

Line ends mean nothing: `a = 1 b = 2` are two members, and an expression continues across lines.
Parentheses leave no trace in the tree, and `a : b : c` is one array of three.

Source: BrainScriptParser.cpp. These are from the 2015 notes on the language alone: `^` between
booleans, `Class [ a = 1 ]` without `new`, members `a.b.c = 1` and `a = delete` that change a
record, and members and parameters called `with`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ....framework.base.errors import FormatError
from ...base.text import Source, located
from .depth import MAX_ERRORS, MAX_NESTING, MAX_OPERATORS, deep_calls
from .syntax import (
    PRECEDENCE,
    UNARY,
    Access,
    Apply,
    Array,
    Boolean,
    Delete,
    Expression,
    Identifier,
    If,
    Index,
    Infix,
    Lambda,
    Member,
    New,
    Number,
    Range,
    Record,
    String,
    Unary,
    height,
)
from .tokens import Finder, Token, tokens

MAX_SKIPPED = 5_000  # tokens after an error, to find the next member
Tree = TypeVar("Tree", bound=Expression)
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_LONGEST_NAME = 64  # pieces of a dotted name that tell a record without `new` from an index
_AFTER_NAMES = ("=", "(", "{", "[", ".")  # what follows the name of a member


def parse_members(source: Source, find: Finder | None = None) -> Record:
    """The record of a file's members, which have no brackets around them.

    `find` looks up the files of `include`.

    Raises:
        FormatError: the text is not BrainScript; the message shows the place. What is wrong in
            other members is in the error's attribute `others`.
    """
    return _Parser(source, find).parse(lambda parser: Record(source, 0, parser.members(), True))


def parse_expression(source: Source, find: Finder | None = None) -> Expression:
    """The expression that is the whole text; `FormatError` as `parse_members`."""
    return _Parser(source, find).parse(_Parser.expression)


def _line_column(token: Token) -> int | None:
    """The column of the first token of a line; None for other tokens."""
    text = token.source.text
    start = token.at
    while start and text[start - 1] in " \t":
        start -= 1
    return token.at - start if start == 0 or text[start - 1] == "\n" else None


class _Parser:
    def __init__(self, source: Source, find: Finder | None):
        self.tokens = tokens(source, find)
        self.ahead: list[Token] = []  # read already, in reverse order
        self.token = Token("end", "", source, 0)
        self.nesting = 0
        self.errors: list[FormatError] = []

    def parse(self, read: Callable[[_Parser], Tree]) -> Tree:
        """What `read` makes of the whole text; or the first error, with all others."""
        tree: Tree | None = None
        try:
            self.token = next(self.tokens)
            with deep_calls():
                tree = read(self)
            if self.token.kind != "end":
                raise self.error(f"unexpected {self.shown()}")
            if height(tree) > 2 * MAX_OPERATORS:
                raise located(FormatError, "an expression of too many operators", tree.location)
        except FormatError as error:
            if error not in self.errors:
                self.errors.append(error)
        if self.errors:
            vars(self.errors[0])["others"] = self.errors[1:]
            raise self.errors[0]
        assert tree is not None
        return tree

    # --- tokens

    def shown(self) -> str:
        token = self.token
        if token.kind == "end":
            return "end of the text"
        if token.kind == "string":
            return "a string"
        return repr(token.text)

    def error(self, message: str) -> FormatError:
        return located(FormatError, message, self.token.source.locate(self.token.at))

    def advance(self) -> Token:
        """Step to the next token and return the one that was current."""
        token = self.token
        if self.ahead:
            self.token = self.ahead.pop()
        elif token.kind != "end":
            # After an error in a token there are no more of them.
            self.token = next(self.tokens, Token("end", "", token.source, token.at))
        return token

    def peek(self, count: int) -> list[Token]:
        """The `count` tokens after the current one (fewer at the end)."""
        read = self.ahead[::-1]
        while len(read) < count and (not read or read[-1].kind != "end"):
            token = next(self.tokens, None)
            if token is None:
                break
            read.append(token)
        self.ahead = read[::-1]
        return read[:count]

    def at_symbol(self, *symbols: str) -> bool:
        return self.token.kind == "symbol" and self.token.text in symbols

    def expect(self, text: str) -> Token:
        if self.token.kind not in ("symbol", "keyword") or self.token.text != text:
            raise self.error(f"{text!r} expected, not {self.shown()}")
        return self.advance()

    def expect_name(self) -> Token:
        if self.token.kind != "name":
            raise self.error(f"identifier expected, not {self.shown()}")
        return self.advance()

    # --- expressions

    def expression(self, weakest: int = 0) -> Expression:
        """Operands joined by operators that bind at least as tightly as `weakest`."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} levels of nesting")
        left = self.operand()
        operators = 0
        while True:
            token = self.token
            operators += 1
            if operators > MAX_OPERATORS:
                raise self.error(f"more than {MAX_OPERATORS} operators in one expression")
            text = token.text
            if token.kind == "symbol" and text in ".[({":
                left = self.postfix(left, token)
                continue
            if token.kind not in ("symbol", "keyword"):
                break
            precedence = PRECEDENCE.get(text)
            if precedence is None or precedence < weakest or self.at_with_member():
                break
            if text == "=>":
                if not isinstance(left, Identifier):
                    raise self.error("the parameter of a lambda must be an identifier")
                self.advance()
                body = self.expression(precedence)
                left = Lambda(left.source, left.at, (left.name,), (), body)
                continue
            self.advance()
            right = self.expression(precedence + 1)
            if text != ":":
                left = Infix(token.source, token.at, text, left, right)
            elif isinstance(left, Array):
                left = Array(left.source, left.at, (*left.items, right))
            else:
                left = self.array(token, left, right)
        self.nesting -= 1
        return left

    def array(self, token: Token, first: Expression, second: Expression) -> Array:
        """`first : second : ...` in one go, so that long arrays take linear time."""
        items = [first, second]
        while self.at_symbol(":"):
            self.advance()
            items.append(self.expression(PRECEDENCE[":"] + 1))
        return Array(token.source, token.at, tuple(items))

    def postfix(self, left: Expression, token: Token) -> Expression:
        if token.text == ".":
            self.advance()
            name = self.expect_name()
            return Access(name.source, name.at, left, name.text)
        if token.text == "[":
            if isinstance(left, Identifier) and self.record_follows():
                return New(left.source, left.at, left.name, self.operand())
            self.advance()
            index = self.expression()
            self.expect("]")
            return Index(token.source, token.at, left, index)
        arguments, named, _ = self.arguments(token.text)
        return Apply(left.source, left.at, left, arguments, named, token.text == "{")

    def record_follows(self) -> bool:
        """Whether the `[` at hand opens a record: `[]`, `[ name =` or `[ name.name =`."""
        after = self.peek(2)
        if after[0].kind == "symbol" and after[0].text == "]":
            return True
        for at in range(0, 2 * _LONGEST_NAME, 2):
            after = self.peek(at + 2)
            if len(after) < at + 2 or after[at].kind != "name":
                return False
            if after[at + 1][:2] != ("symbol", "."):
                return after[at + 1][:2] == ("symbol", "=")
        return False

    def at_with_member(self) -> bool:
        """Whether `with =` is at hand: a member called `with`, no operator."""
        if self.token.kind != "keyword" or self.token.text != "with":
            return False
        after = self.peek(1)
        return bool(after) and after[0][:2] == ("symbol", "=")

    def arguments(self, opening: str) -> tuple[tuple[Expression, ...], tuple[Member, ...], int]:
        """`(a, b, name = value)`: positional ones, named ones, and where they start."""
        closing = _CLOSING[opening]
        self.expect(opening)
        at = self.token.at
        positional: list[Expression] = []
        named: dict[str, Member] = {}
        while not self.at_symbol(closing):
            item = self.expression()
            if isinstance(item, Identifier) and self.at_symbol("="):
                self.advance()
                member = Member(item.source, item.at, item.name, self.expression())
                if item.name in named:
                    raise located(FormatError, f"{item.name!r} is given twice", item.location)
                named[item.name] = member
            else:
                positional.append(item)
            if not self.at_symbol(","):
                break
            self.advance()
            if self.at_symbol(closing):
                raise self.error("operand expected")
        self.expect(closing)
        return tuple(positional), tuple(named.values()), at

    def operand(self) -> Expression:
        token = self.token
        where = (token.source, token.at)
        if token.kind == "number":
            self.advance()
            return Number(*where, float(token.text))
        if token.kind == "string":
            self.advance()
            return String(*where, token.text)
        if token.kind == "name":
            self.advance()
            return Identifier(*where, token.text)
        if token.kind == "keyword":
            return self.keyword(token)
        if token.kind == "symbol":
            if token.text in "+-!":
                self.advance()
                return Unary(*where, token.text, self.expression(UNARY))
            if token.text == "(":
                self.advance()
                inside = self.expression()
                self.expect(")")
                return inside
            if token.text in "{[":
                self.advance()
                record = Record(*where, self.members(), token.text == "{")
                self.expect(_CLOSING[token.text])
                return record
            if token.text == "[|":
                return self.array_literal()
        raise self.error(f"operand expected, not {self.shown()}")

    def keyword(self, token: Token) -> Expression:
        where = (token.source, token.at)
        if token.text not in ("true", "false", "new", "if", "array", "with"):
            raise self.error(f"operand expected, not {self.shown()}")
        self.advance()
        if token.text == "with":
            return Identifier(*where, token.text)
        if token.text == "new":
            name = self.expect_name()
            return New(*where, name.text, self.operand())
        if token.text == "if":
            condition = self.expression()
            self.expect("then")
            then = self.expression()
            self.expect("else")
            return If(*where, condition, then, self.expression())
        if token.text == "array":
            self.expect("[")
            first = self.expression()
            self.expect("..")
            last = self.expression()
            self.expect("]")
            self.expect("(")
            initializer = self.expression()
            self.expect(")")
            return Range(*where, first, last, initializer)
        return Boolean(*where, token.text == "true")

    def array_literal(self) -> Array:
        token = self.advance()
        items = []
        if not self.at_symbol("|]"):
            items.append(self.expression())
            while self.at_symbol(";"):
                self.advance()
                items.append(self.expression())
        self.expect("|]")
        return Array(token.source, token.at, tuple(items))

    # --- records

    def members(self) -> tuple[Member, ...]:
        members: dict[str, Member] = {}
        nesting = self.nesting
        while self.token.kind == "name" or self.at_with_member():
            start = self.token
            try:
                member = self.member()
                if member.name in members:
                    raise located(
                        FormatError,
                        f"{member.name!r} is defined twice in one record",
                        member.location,
                        [("first defined at", members[member.name].location)],
                    )
            except FormatError as error:
                if not self.recover(start, error):
                    raise
                self.nesting = nesting
                continue
            members[member.name] = member
            while self.at_symbol(";"):
                self.advance()
        return tuple(members.values())

    def recover(self, start: Token, error: FormatError) -> bool:
        """Note the error in the member that starts at a token, and continue with the next one.

        That is a name at the beginning of a line, as far left as the wrong one. A name further left
        is for the record around: then, and where there is none, the answer is no.
        """
        if error not in self.errors:
            self.errors.append(error)
        column = _line_column(start)
        if column is None or len(self.errors) >= MAX_ERRORS:
            return False
        for _ in range(MAX_SKIPPED):
            if self.token.kind == "end":
                break
            here = _line_column(self.token)
            if here is not None and here <= column and self.token is not start:
                if self.at_symbol(*_CLOSING.values()) and here < column:
                    return True
                after = self.peek(1)
                if self.token.kind == "name" and after and after[0].text in _AFTER_NAMES:
                    return here == column
            self.advance()
        return False

    def member(self) -> Member:
        name = self.advance()
        if self.at_symbol("."):
            return self.change(name)
        bounds = None
        if self.at_symbol("["):
            self.advance()
            index = self.expect_name()
            self.expect(":")
            first = self.expression()
            self.expect("..")
            bounds = (index, first, self.expression())
            self.expect("]")
        function = self.at_symbol("(", "{")
        if function:
            arguments, optional, at = self.arguments(self.token.text)
            source = self.token.source
            parameters: list[Identifier] = []
            for argument in arguments:
                if not isinstance(argument, Identifier):
                    raise located(
                        FormatError, "a parameter must be an identifier", argument.location
                    )
                parameters.append(argument)
            names = tuple(parameter.name for parameter in parameters)
            self.check_distinct(parameters, optional)
        self.expect("=")
        value = self.expression()
        if function:
            value = Lambda(source, at, names, optional, value)
        if bounds is not None:
            index, first, last = bounds
            initializer = Lambda(index.source, index.at, (index.text,), (), value)
            value = Range(name.source, name.at, first, last, initializer)
        if isinstance(value, Identifier) and value.name == "delete":
            value = Delete(value.source, value.at)
        return Member(name.source, name.at, name.text, value)

    def change(self, name: Token) -> Member:
        """`a.b.c = value`, of which `a` is read already."""
        names = [name.text]
        while self.at_symbol("."):
            self.advance()
            names.append(self.expect_name().text)
            if len(names) > MAX_NESTING:
                raise self.error(f"more than {MAX_NESTING} records in one another")
        self.expect("=")
        value = self.expression()
        if isinstance(value, Identifier) and value.name == "delete":
            value = Delete(value.source, value.at)
        return Member(name.source, name.at, ".".join(names), value)

    def check_distinct(
        self, parameters: Sequence[Identifier], optional: tuple[Member, ...]
    ) -> None:
        seen: set[str] = set()
        for parameter in (*parameters, *optional):
            if parameter.name in seen:
                raise located(
                    FormatError, f"two parameters are called {parameter.name!r}", parameter.location
                )
            seen.add(parameter.name)
