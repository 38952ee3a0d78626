"""Work in proportion to size: a stage may need more for a part of a large net than of a small one,
but never twice as much.

Every stage runs on something of `n` parts and of `4 n`, and their CPU time is compared. What grows
with the square of the size takes sixteen times as long.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope import cntk, nnet3
from opscope.framework.base.errors import nearest, one_list
from opscope.framework.draw.sugiyama import Box, Placement
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.cleanup import clean_up
from opscope.framework.passes.verify.verifier import problems, verify
from opscope.nnet3.draw.columns import fit_columns
from opscope.nnet3.network.config_check import config_problems
from opscope.nnet3.network.nnet import Nnet
from opscope.proto.net_pb2 import NetDesc

PARTS = 400
MOST = 8  # times the time of a quarter: 4 in proportion, 16 by the square
NOISE = 0.02  # seconds of the small one that are too few to be measured
FEED = {"x": np.ones((2, 3), np.float32)}


def layers(size: int) -> opscope.NetBuilder:
    """Layers with a parameter each."""
    b = opscope.NetBuilder("layers")
    h = b.input("x", [-1, 3])
    for number in range(size):
        h = b.relu(b.add(h, b.parameter(f"w{number}", [3], 0.5)), name=f"h{number}")
    b.mean(h, name="loss")
    return b


@dataclass
class Layers:
    """A net of so many layers, and what the stages before the one that is measured make of it."""

    size: int
    folder: Path

    @cached_property
    def builder(self) -> opscope.NetBuilder:
        return layers(self.size)

    @cached_property
    def scope(self) -> opscope.Scope:
        scope = opscope.Scope()
        self.builder.initialize(scope)
        return scope

    @cached_property
    def saved(self) -> Path:
        path = self.folder / f"{self.size}.pb"
        opscope.save(self.builder, self.scope, path)
        return path

    @cached_property
    def onnx(self) -> Path:
        path = self.folder / f"{self.size}.onnx"
        opscope.to_onnx(self.builder, path, self.scope, outputs=[f"h{self.size - 1}"])
        return path

    @cached_property
    def message(self) -> bytes:
        return serialize_net(self.builder.op_list)

    @cached_property
    def undefined(self) -> NetDesc:
        """A net whose layers read names that are none, though many are near."""
        desc = parse_net(self.message)
        for number, op in enumerate(desc.ops):
            for slot in op.inputs:
                slot.vars[:] = [f"{name}_{number}" for name in slot.vars]
        return desc

    def text(self, first: str, line: str, last: str) -> str:
        """Lines in which `{n}` is the number of a layer and `{p}` that of the one before it."""
        lines = [line.format(n=n, p=n - 1) for n in range(1, self.size + 1)]
        return "\n".join([first, *lines, last.format(n=self.size), ""])

    def file(self, name: str, first: str, line: str, last: str) -> Path:
        path = self.folder / f"{self.size}{name}"
        path.write_text(self.text(first, line, last))
        return path

    @cached_property
    def config(self) -> str:
        return self.text(
            "input-node name=r0 dim=3",
            "component name=a{n} type=NaturalGradientAffineComponent input-dim=3 output-dim=3\n"
            "component-node name=a{n} component=a{n} input=r{p}\n"
            "component name=r{n} type=RectifiedLinearComponent dim=3\n"
            "component-node name=r{n} component=r{n} input=a{n}",
            "output-node name=output input=r{n}",
        )

    @cached_property
    def wrong_config(self) -> Path:
        return self.file(
            ".config",
            "input-node name=r0 dim=3",
            "component name=relu{n} type=RectifiedLinearComponent dim=3\n"
            "component-node name=r{n} component=rleu{n} input=r{p}",
            "output-node name=output input=r{n}",
        )

    @cached_property
    def xconfig(self) -> str:
        return self.text(
            "input dim=3 name=input",
            "relu-batchnorm-layer name=r{n} dim=3",
            "output-layer name=output dim=3",
        )

    @cached_property
    def ndl(self) -> Path:
        return self.file(
            ".ndl",
            "s0 = Input(3)",
            "w{n} = Parameter(3, 3)\nt{n} = Times(w{n}, s{p})\ns{n} = Sigmoid(t{n})",
            "OutputNodes = (s{n})\nFeatureNodes = (s0)",
        )

    @cached_property
    def brainscript(self) -> str:
        body = self.text(
            "s0 = Input {3}",
            "w{n} = ParameterTensor {{(3:3)}}\ns{n} = Sigmoid (w{n} * s{p})",
            "outputNodes = (s{n})\nfeatureNodes = (s0)",
        )
        return f"BrainScriptNetworkBuilder = [\n{body}]\n"

    @cached_property
    def chain(self) -> tuple[Placement, list[tuple[int, int]]]:
        """Boxes one below the other, of many heights, and the edges between them."""
        boxes = []
        y = 0.0
        for number in range(self.size):
            height = 20 + number**0.5
            boxes.append(Box(90, height, 45, y + height / 2))
            y += height + 30
        edges = [(n, n + 1) for n in range(self.size - 1)]
        return Placement(
            90, y, boxes, [[(45, boxes[a].y), (45, boxes[b].y)] for a, b in edges]
        ), edges

    @cached_property
    def names(self) -> list[str]:
        return [f"layer{number}_weight" for number in range(self.size)]


def _save(c: Layers) -> None:
    opscope.save(c.builder, c.scope, c.folder / "again.pb")


def _load(c: Layers) -> None:
    opscope.load(c.saved, opscope.Scope())


def _to_onnx(c: Layers) -> None:
    opscope.to_onnx(c.builder, c.folder / "again.onnx", c.scope, outputs=[f"h{c.size - 1}"])


def _run(c: Layers) -> None:
    c.builder.run(c.scope, feed=FEED, fetch=["loss"])


def _run_again(c: Layers) -> None:
    for _ in range(20):
        _run(c)


def _undefined(c: Layers) -> None:
    found = [problem.message for problem in problems(c.undefined)]
    assert len(found) > c.size and "(did you mean w" in found[1]


def _wrong_config(c: Layers) -> None:
    found = config_problems(c.wrong_config)
    assert len(found) >= c.size and "did you mean" in found[0].message


def _suggestions(c: Layers) -> None:
    with one_list():
        hints = [nearest(name.replace("weight", "wieght"), c.names) for name in c.names]
    assert hints[0].startswith(" (did you mean layer0_weight")
    assert c.size <= PARTS or not hints[-1], "suggestions of one list have no end"


def _xconfig_and_init(c: Layers) -> None:
    Nnet.from_config_text(nnet3.xconfig_to_config(c.xconfig), 1)


STAGES: dict[str, tuple[Callable[[Layers], object], ...]] = {
    "build": (lambda c: layers(c.size),),
    "verify": (lambda c: c.builder, lambda c: verify(c.builder.op_list)),
    "clean up": (lambda c: c.builder, lambda c: clean_up(c.builder.op_list)),
    "initialize": (lambda c: c.builder, lambda c: c.builder.initialize(opscope.Scope())),
    "plan": (lambda c: c.scope, _run),
    "run": (_run, _run_again),
    "save": (lambda c: c.scope, _save),
    "load": (lambda c: c.saved, _load),
    "message": (lambda c: c.builder, lambda c: serialize_net(c.builder.op_list)),
    "parse message": (lambda c: c.message, lambda c: parse_net(c.message)),
    "text": (lambda c: c.builder, lambda c: net_text(c.builder.op_list)),
    "backward": (lambda c: c.builder, lambda c: c.builder.backward_from("loss")),
    "to ONNX": (lambda c: c.scope, _to_onnx),
    "from ONNX": (lambda c: c.onnx, lambda c: opscope.from_onnx(c.onnx)),
    "run ONNX": (lambda c: c.onnx, lambda c: opscope.from_onnx(c.onnx).run(FEED)),
    "nnet3 config": (lambda c: c.config, lambda c: Nnet.from_config_text(c.config, 1)),
    "xconfig": (lambda c: c.xconfig, _xconfig_and_init),
    "NDL": (lambda c: c.ndl, lambda c: cntk.build_ndl_file(c.ndl)),
    "BrainScript": (
        lambda c: c.brainscript,
        lambda c: cntk.build_section_network(cntk.parse_config(c.brainscript)),
    ),
    "undefined names": (lambda c: c.undefined, _undefined),
    "undefined components": (lambda c: c.wrong_config, _wrong_config),
    "columns of a drawing": (lambda c: c.chain, lambda c: fit_columns(*c.chain, 900, 600)),
    "suggestions": (lambda c: c.names, _suggestions),
}
"""What is done before, unmeasured, and what is measured."""


def _seconds(stage: str, size: int, folder: Path) -> float:
    case = Layers(size, folder)
    *before, measured = STAGES[stage]
    for step in before:
        step(case)
    gc.collect()
    start = time.process_time()
    measured(case)
    return time.process_time() - start


@pytest.mark.parametrize("stage", STAGES)
def test_work_is_in_proportion_to_size(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    _seconds(stage, 4, tmp_path)  # what it imports is loaded
    small = min(_seconds(stage, PARTS, tmp_path) for _ in range(2))
    most = MOST * max(small, NOISE)
    large = _seconds(stage, 4 * PARTS, tmp_path)
    if large > most:  # the machine may have been busy
        large = min(large, _seconds(stage, 4 * PARTS, tmp_path))
    assert large <= most, f"{small:.3f} s for {PARTS} parts, {large:.3f} s for {4 * PARTS}"
