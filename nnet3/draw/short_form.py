"""Descriptors in a short form for drawings.

`a[-3]` is `Offset(a, -3)`, `a[-1,0,1]` the frames of one node appended, `a[t=0]` is
`ReplaceIndex(a, t, 0)`, `0.66·a` is `Scale(0.66, a)`, `a + b` is `Sum(a, b)`, and commas append.
Anything else keeps the word of the config line: `IfDefined(a[-1])`, `Round(a, 3)`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    Descriptor,
    ForwardingDescriptor,
    OffsetForwardingDescriptor,
    OptionalSumDescriptor,
    ReplaceIndexForwardingDescriptor,
    RoundingForwardingDescriptor,
    SimpleForwardingDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
    SwitchingForwardingDescriptor,
    format_scale,
)

Naming = Callable[[str], str]
"""What a drawing calls a node."""


def short_parts(descriptor: Descriptor, naming: Naming = str) -> list[str]:
    """The appended parts in short form; frames of one node that follow each other are one part."""
    frames: list[tuple[str, list[int]]] = []  # a part without its offset, its offsets
    for part in descriptor.parts:
        node, offset = _node_at(part)
        text = _sum(part, naming) if node is None else _forwarding(node, naming)
        if node is not None and frames and frames[-1][1] and frames[-1][0] == text:
            frames[-1][1].append(offset)
        else:
            frames.append((text, [] if node is None else [offset]))
    several = len(frames) > 1
    return [
        f"({text})" if several and not offsets and " + " in text else _framed(text, offsets)
        for text, offsets in frames
    ]


def plain_source(descriptor: Descriptor) -> str:
    """The node that is read as it is, without offset, scale or sum; empty where there is none."""
    if len(descriptor.parts) != 1:
        return ""
    node, offset = _node_at(descriptor.parts[0])
    return node.node if node is not None and not offset and float(node.scale) == 1 else ""


def sources_at_t(descriptor: Descriptor) -> set[str]:
    """The nodes that are read at the frame itself and must be there; recurrent reads are not."""
    sources = set()
    for part in descriptor.parts:
        sources |= _sources_at_t(part)
    return sources


def _sources_at_t(part: SumDescriptor) -> set[str]:
    if isinstance(part, BinarySumDescriptor):
        return _sources_at_t(part.a) | _sources_at_t(part.b)
    node, offset = _node_at(part)
    return set() if node is None or offset else {node.node}


def _framed(text: str, offsets: list[int]) -> str:
    return text if offsets in ([], [0]) else f"{text}[{','.join(map(str, offsets))}]"


def _node_at(part: SumDescriptor) -> tuple[SimpleForwardingDescriptor | None, int]:
    """The node and the offset in t of a part that is one node's row, else None."""
    if not isinstance(part, SimpleSumDescriptor):
        return None, 0
    src = part.src
    offset = 0
    while isinstance(src, OffsetForwardingDescriptor) and not src.x:
        src, offset = src.src, offset + src.t
    return (src, offset) if isinstance(src, SimpleForwardingDescriptor) else (None, 0)


def _forwarding(src: ForwardingDescriptor, naming: Naming) -> str:
    if isinstance(src, SimpleForwardingDescriptor):
        scale = "" if src.scale == 1 else f"{format_scale(src.scale)}·"
        return f"{scale}{naming(src.node)}"
    if isinstance(src, SwitchingForwardingDescriptor):
        return f"Switch({', '.join(_forwarding(part, naming) for part in src.srcs)})"
    if isinstance(src, OffsetForwardingDescriptor):
        inner = src.src
        index = f"{src.t}"
        if src.x:
            index = f"t{src.t:+d}, x{src.x:+d}" if src.t else f"x{src.x:+d}"
        return f"{_forwarding(inner, naming)}[{index}]"
    if isinstance(src, ReplaceIndexForwardingDescriptor):
        return f"{_forwarding(src.src, naming)}[{src.variable}={src.value}]"
    if isinstance(src, RoundingForwardingDescriptor):
        return f"Round({_forwarding(src.src, naming)}, {src.t_modulus})"
    return str(src)


def _sum(part: SumDescriptor, naming: Naming) -> str:
    if isinstance(part, SimpleSumDescriptor):
        node, offset = _node_at(part)
        if node is not None:
            return _framed(_forwarding(node, naming), [offset])
        return _forwarding(part.src, naming)
    if isinstance(part, BinarySumDescriptor):
        a, b = _sum(part.a, naming), _sum(part.b, naming)
        return f"{a} + {b}" if part.op == "Sum" else f"{part.op}({a}, {b})"
    if isinstance(part, OptionalSumDescriptor):
        return f"IfDefined({_sum(part.src, naming)})"
    if isinstance(part, ConstantSumDescriptor):
        return str(part)
    return str(part)
