"""Fills the page of operators: signature, shapes, formula, gradients, an example, the source."""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cntk_pages import table
from operator_examples import ELSEWHERE, code_of, output_of
from source_pages import operator_link

from opscope.framework.ir.op_list import OpNode
from opscope.framework.ir.registry import REQUIRED, OperatorDef, lookup, operator_types
from opscope.framework.passes.optimizer import optimizer_types
from opscope.python_api.builder.methods import BUILDER_METHODS
from opscope.python_api.builder.operator_methods import attr_facts, method_parameters, method_types
from opscope.python_api.cli.ops import stands_for

_OPERATORS = "opscope.operators."
_OPTIM = f"{_OPERATORS}optim."


def operators() -> Iterator[str]:
    """The operators that are methods of NetBuilder, by topic; then optimizers and schedules."""
    updates = [
        name
        for name in operator_types()
        if lookup(name).module.startswith(_OPTIM) or "param_out" in lookup(name).output_slots
    ]
    topics: dict[str, list[str]] = {}
    for name in (*method_types(), *updates):
        module = lookup(name).module
        topic = module.removeprefix(_OPERATORS).partition(".")[0]
        if module.startswith(_OPERATORS) and name not in topics.setdefault(topic, []):
            topics[topic].append(name)
    for topic, names in sorted(topics.items()):
        yield f"## {topic}"
        for name in names:
            yield from _operator(lookup(name))


def _operator(entry: OperatorDef) -> Iterator[str]:
    yield f"### {entry.type}\n\n{operator_link(entry)}"
    yield f"```python\n{_signature(entry)}\n```"
    yield from (plain(part) for part in entry.doc.strip().split("\n\n"))
    if entry.type in BUILDER_METHODS:
        link = f"builder.md#{BUILDER_METHODS[entry.type].__module__}.{entry.type}"
        yield f"`b.{entry.type}` is [the layer]({link}) that appends this operator."
    gradients = gradients_of(entry)
    yield from _table(
        ("input", "shape and meaning", "gradient"),
        ((f"`{s.name}`", _facts(s), gradients[s.name]) for s in entry.inputs),
    )
    yield from _table(
        ("attribute", "type", "meaning"),
        ((f"`{a.name}`", f"`{attr_facts(a)}`", plain(a.doc)) for a in entry.attrs),
    )
    yield from _table(
        ("output", "shape and meaning"),
        ((f"`{s.name}`", _facts(s)) for s in entry.outputs if not s.intermediate),
    )
    formula = [f"{slot} = {text}" for slot, text in entry.expressions.items()]
    if formula := [*formula, *stands_for(entry)]:
        yield "```text\n" + "\n".join(formula) + "\n```"
    yield from example(entry)
    if entry.source:
        yield f"After {plain(entry.source)}."


def example(entry: OperatorDef) -> Iterator[str]:
    """The example of an operator and what it prints, or where it is at work."""
    if entry.type in ELSEWHERE:
        yield f"An example is in {ELSEWHERE[entry.type]}."
        return
    code = code_of(entry)
    yield f"```python\n{code}\n```\n\n```text\n{output_of(code)}\n```"


def _signature(entry: OperatorDef) -> str:
    """The call, without annotations; the tables have types and shapes."""
    if entry.type in optimizer_types():
        words = [f"{a.name}={a.default!r}" for a in entry.attrs if a.name in _settable(entry)]
        arguments = ", ".join(["learning_rate", f'"{entry.type}"', *words])
        return f"b.add_optimization({arguments})"
    _, *parameters = method_parameters(entry)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    text = str(inspect.Signature(bare)).replace("'", '"')
    if entry.type in BUILDER_METHODS:  # the method of this name is the layer
        return f'b.add_op("{entry.type}", {text[1:]}'
    return f"b.{entry.type}{text}"


def _settable(entry: OperatorDef) -> set[str]:
    return {a.name for a in entry.attrs if isinstance(a.default, (bool, int, float))}


def _facts(slot: Any) -> str:
    flags = [f for f in ("duplicable", "optional") if getattr(slot, f)]
    return plain(slot.doc) + (f" ({', '.join(flags)})" if flags else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    rows = list(rows)
    if rows:
        yield table(head, rows)


def plain(text: str) -> str:
    """A text of a docstring as Markdown: only what stands in backticks is code."""
    parts = " ".join(text.split()).split("`")
    for place in range(0, len(parts), 2):
        escaped = html.escape(parts[place], quote=False)
        parts[place] = escaped.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\*_[]|"})
    return "`".join(parts) if len(parts) % 2 else text


def gradients_of(entry: OperatorDef) -> dict[str, str]:
    """How each input of an operator gets its gradient: slot -> a cell of the table."""
    if entry.expand is not None:
        return dict.fromkeys(entry.input_slots, "yes, of the operators it stands for")
    if entry.gradient is None:
        return dict.fromkeys(entry.input_slots, f"no: {plain(entry.no_gradient)}")
    if entry.type in ELSEWHERE:
        return dict.fromkeys(entry.input_slots, "yes, of the net that runs backwards")
    seen = _Recorder(entry)
    nodes = entry.gradient(seen)
    return {
        slot: _how(f"{slot}@", nodes) if slot in seen.asked else "no" for slot in entry.input_slots
    }


def _how(grad: str, nodes: Sequence[OpNode]) -> str:
    """The operator that writes a gradient, with its expression where it has one."""
    for node in nodes:
        for slot, names in node.outputs.items():
            if grad in names:
                text = lookup(node.type).expressions.get(slot)
                return f"yes: `{slot} = {text}`" if text else f"yes, by `{node.type}`"
    return "yes"


_ANY: Final[dict[str, Any]] = {
    "bool": False,
    "int": 1,
    "ints": (1,),
    "float": 1.0,
    "floats": (1.0,),
    "string": "",
    "strings": (),
    "dtype": "float32",
    "tensor": None,
}


class _Recorder:
    """`GradientArgs` of an operator whose slots hold one variable each, named as the slot."""

    def __init__(self, entry: OperatorDef) -> None:
        self.entry = entry
        self.asked: set[str] = set()
        # Makers compute with attributes; any value does for those that have no default.
        self.attrs = {
            a.name: _ANY[a.type] if a.default is REQUIRED else a.default for a in entry.attrs
        }
        names = ({s.name: [s.name] for s in slots} for slots in (entry.inputs, entry.outputs))
        self.node = OpNode(entry.type, *names, attrs=self.attrs)

    def has(self, slot: str) -> bool:
        return True

    def inputs(self, slot: str) -> list[str]:
        return [slot]

    outputs = inputs

    def output_grads(self, slot: str) -> list[str]:
        return [f"{slot}@"]

    arriving_grads = output_grads

    def input_grads(self, slot: str) -> list[str]:
        self.asked.add(slot)
        return [f"{slot}@"]

    def needs(self, slot: str) -> bool:
        return True

    def sparse_rows(self, grad: str) -> str:
        return f"{grad}rows"

    def op(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
    ) -> OpNode:
        lists = (
            {
                slot: [names] if isinstance(names, str) else list(names)
                for slot, names in some.items()
            }
            for some in (inputs, outputs)
        )
        return OpNode(op_type, *lists, attrs=dict(attrs or {}))
