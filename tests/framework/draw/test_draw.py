"""Drawings: well-formed, complete, nothing overlaps, text fits its boxes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.draw.pictures import ROLE_COLORS, to_dot, to_svg
from opscope.framework.draw.sugiyama import Box, place
from opscope.framework.ir.desc import (
    INPUT,
    PARAMETER,
    RECURRENT,
    make_op,
    make_var,
)
from opscope.framework.ir.op_list import Link, OpList, StepDecl
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.runtime.net import Net

SVG = "{http://www.w3.org/2000/svg}"
WIDEST_CHARACTER = 0.61  # of a monospace font, in em


def training_net(layers=6):
    desc = OpList(name="mlp")
    desc.vars.append(make_var("x", (2, 3), kind=INPUT))
    net = Net.create(desc)
    before = "x"
    for number in range(layers):
        net.add_var(make_var(f"w{number}", (2, 3), kind=PARAMETER))
        net.add_op("toy_mul", {"x": before, "y": f"w{number}"}, {"out": f"m{number}"})
        net.add_op("toy_relu", {"x": f"m{number}"}, {"out": f"h{number}"})
        before = f"h{number}"
    net.add_op("toy_add", {"x": before, "y": "h0"}, {"out": "y"})
    net.add_backward_ops()
    net.add_optimizer_ops(OptimizerAttrs("toy_sgd"))
    return net.op_list


def boxes_of(svg):
    """(x, y, width, height, texts, fill) of every drawn box."""
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        numbers = [float(rect.get(key)) for key in ("x", "y", "width", "height")]
        texts = [text.text for text in group.findall(f"{SVG}text")]
        found.append((*numbers, texts, rect.get("fill")))
    return found


def test_every_operator_is_drawn_in_the_color_of_its_role():
    desc = training_net()
    boxes = boxes_of(to_svg(desc))
    for index, op in enumerate(desc.ops):
        fills = [fill for *_, texts, fill in boxes if texts == [f"%{index} {op.type}"]]
        assert fills == [ROLE_COLORS[op.role]]


def test_text_fits_its_boxes():
    desc = training_net()
    desc.ops.append(make_op("toy_relu", {"x": "変数" * 8}, {"out": "a" * 200}))
    for _, _, width, height, texts, _ in boxes_of(to_svg(desc)):
        assert height >= 15 * len(texts)
        for text in texts:
            wide = sum(ord(char) > 0x2E80 for char in text)
            assert (len(text) + wide) * 12 * WIDEST_CHARACTER <= width


def test_boxes_do_not_overlap_and_lie_in_the_picture():
    svg = to_svg(training_net())
    boxes = boxes_of(svg)
    root = ElementTree.fromstring(svg)
    for number, (x, y, width, height, *_) in enumerate(boxes):
        assert x >= 0 and y >= 0
        assert x + width <= float(root.get("width")) and y + height <= float(root.get("height"))
        for x1, y1, width1, height1, *_ in boxes[:number]:
            apart = x + width <= x1 or x1 + width1 <= x or y + height <= y1 or y1 + height1 <= y
            assert apart


def test_dot_names_all_operators_and_edges():
    desc = training_net()
    dot = to_dot(desc)
    assert dot.count("shape=box") == len(desc.ops)
    assert 'label="net mlp: backward"' in dot and dot.count("{") == dot.count("}")
    reads = sum(len(op.input_names()) + len(op.output_names()) for op in desc.ops)
    assert dot.count(" -> ") == reads


def test_drawings_are_stable():
    assert to_svg(training_net()) == to_svg(training_net())
    assert to_dot(training_net()) == to_dot(training_net())


def test_overwritten_variables_have_a_box_for_each_value():
    desc = OpList()
    desc.ops.append(make_op("toy_relu", {"x": "h"}, {"out": "h"}))
    desc.ops.append(make_op("toy_relu", {"x": "h"}, {"out": "h"}))
    assert sum(texts == ["h"] for *_, texts, _ in boxes_of(to_svg(desc))) == 3


def test_nets_inside_nets_are_drawn():
    inner = OpList(name="inner", ops=[make_op("toy_square", {"x": "p"}, {"out": "q"})])
    desc = OpList(name="outer", type=RECURRENT)
    desc.ops.append(make_op("toy_holder", {"x": "a"}, {"out": "b"}, {"body": inner}))
    step = StepDecl()
    desc.steps.append(step)
    step.net.ops.append(make_op("toy_relu", {"x": "r"}, {"out": "s"}))
    step.in_links.append(Link("a", "r"))
    svg, dot = to_svg(desc), to_dot(desc)
    for text in ("toy_square", "toy_relu", "in a -&gt; r", "body of op 0 (toy_holder)"):
        assert text in svg
    assert "in a -> r" in dot


@pytest.mark.parametrize("desc", [OpList(), OpList(name="<&\"'>\n")])
def test_empty_and_odd_nets_are_well_formed(desc):
    desc.ops.append(make_op("t<&>", {"x": '"', "y": "\x00"}, {"out": "]]>"}))
    ElementTree.fromstring(to_svg(desc))
    ElementTree.fromstring(to_svg(OpList()))
    assert to_dot(desc).startswith("digraph")


def test_layers_follow_the_edges():
    rng = np.random.default_rng(0)
    for _ in range(10):
        count = int(rng.integers(2, 25))
        edges = [
            (int(rng.integers(0, end)), end)
            for end in range(1, count)
            for _ in range(rng.integers(0, 3))
        ]
        placed = place([Box(30.0, 20.0) for _ in range(count)], edges)
        assert len(placed.routes) == len(edges)
        for (start, end), route in zip(edges, placed.routes, strict=True):
            assert placed.boxes[start].y < placed.boxes[end].y
            heights = [y for _, y in route]
            assert heights == sorted(heights)


def test_many_sources_of_one_reader_stand_in_rows():
    placed = place([Box(50, 10) for _ in range(21)], [(source, 20) for source in range(20)])
    rows = sorted({box.y for box in placed.boxes})
    assert len(rows) == 5 and placed.width < 0.75 * 20 * (50 + 18)
    assert all(box.y < placed.boxes[20].y for box in placed.boxes[:20])


def test_a_shared_clip_scale_does_not_widen_the_picture():
    def width(layers):
        b = NetBuilder("net")
        h = b.input("x", [-1, 4])
        for _ in range(layers):
            h = b.fc(h, size=4)
        b.backward_from(b.mean(h))
        b.add_optimization(type="adam", clip_norm=1.0)
        return float(ElementTree.fromstring(to_svg(b.desc)).get("width"))

    assert width(8) < 1.5 * width(3)


def test_a_diamond_has_no_crossing_and_nothing_has_no_size():
    placed = place([Box(30, 20) for _ in range(4)], [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert placed.boxes[0].x == placed.boxes[3].x
    empty = place([], [])
    assert (empty.width, empty.height, empty.boxes) == (0, 0, [])
