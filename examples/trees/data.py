"""Arithmetic expressions as trees: written at random, read by Python's own parser.

- (3 * (7 - 2))   ->   ("neg", ("*", "3", ("-", "7", "2")))   ->   its value modulo 5
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opscope.framework.base.sequence import Sequences
from opscope.framework.loops.trees.forest import Trees

CLASSES = 5
"""The answer is the value modulo this."""

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_UNARY = {ast.USub: "neg"}
TOKENS = [*map(str, range(10)), *_BINARY.values(), *_UNARY.values()]
_IDS = {token: number for number, token in enumerate(TOKENS)}


def write(rng: np.random.Generator, numbers: int) -> str:
    """A random expression with this many numbers in it."""
    if numbers == 1:
        text = str(rng.integers(10))
    else:
        left = int(rng.integers(1, numbers))
        sign = rng.choice(list(_BINARY.values()))
        text = f"({write(rng, left)} {sign} {write(rng, numbers - left)})"
    return f"-{text}" if rng.random() < 0.1 else text


def parse(text: str) -> Any:
    """The expression as nested tuples, (operator, operand, ...), from Python's syntax tree."""
    return _nested(ast.parse(text, mode="eval").body)


def _nested(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)], _nested(node.left), _nested(node.right)
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)], _nested(node.operand)
    return str(node.value)


_VALUES = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
}


@dataclass(frozen=True)
class Expression:
    """An expression ready for a minibatch. Arrays are by node, the whole expression first.

    Attributes:
        tokens: [nodes] token ids; parents: [nodes], as `framework.forest` wants them.
        answers: [nodes], value of each sub-expression modulo `CLASSES`.
        bags: [nodes, tokens], how often each token occurs in each sub-expression.
    """

    text: str
    tokens: np.ndarray
    parents: np.ndarray
    answers: np.ndarray
    bags: np.ndarray


def read(text: str) -> Expression:
    """An expression from its text."""
    tree = Trees.from_nested([parse(text)])
    tokens = np.array([_IDS[label] for label in tree.labels])
    parents = tree.parents.data
    bags = np.eye(len(TOKENS), dtype=np.float32)[tokens]
    answers = np.zeros(len(tokens), np.int64)
    operands: list[list[int]] = [[] for _ in tokens]
    for node in reversed(range(len(tokens))):  # operands stand behind their operator
        label = tree.labels[node]
        held = operands[node][::-1]
        answers[node] = (_VALUES[label](*held) if held else int(label)) % CLASSES
        if parents[node] >= 0:
            operands[parents[node]].append(int(answers[node]))
            bags[parents[node]] += bags[node]
    return Expression(text, tokens, parents, answers, bags)


def expressions(seed: int, count: int, numbers: range, apart_from: set[str]) -> list[Expression]:
    """Different random expressions with so many numbers, none of which is in `apart_from`."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        text = write(rng, int(rng.choice(numbers)))
        if text not in apart_from:
            found[text] = None
    return [read(text) for text in found]


def minibatch(items: Sequence[Expression]) -> dict[str, Any]:
    """What the nets are fed with: a forest, and the answer and the bag of each sub-expression."""
    return {
        "token": Sequences.from_list([item.tokens for item in items]),
        "parent": Sequences.from_list([item.parents for item in items]),
        "bag": np.concatenate([item.bags for item in items]),
        "answer": np.concatenate([item.answers for item in items]),
    }


def minibatches(
    items: Sequence[Expression], size: int, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """All items once, in a new order."""
    order = rng.permutation(len(items))
    for start in range(0, len(items), size):
        yield minibatch([items[row] for row in order[start : start + size]])
