"""Every name of ours in the tables exists; those of other systems where they can be asked."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

import opscope
from opscope.cntk.network.nodes.kind import KINDS
from opscope.framework.passes.optimizer import optimizer_types
from opscope.nnet3.components import COMPONENTS
from opscope.nnet3.xconfig.configs import layer_types
from opscope.python_api.builder.initializers import INITIALIZERS
from opscope.python_api.cli.main import commands, kaldi_programs
from opscope.python_api.coming_from.rows import PEERS, Row, called_elsewhere, read, rows, search

LEAST = {"pytorch": 300, "keras": 240, "paddle": 280, "cntk": 700, "kaldi": 330, "vosk": 50}


def attribute(name: str) -> Any:
    """What a dotted name of the package is; modules on the way are imported."""
    value: Any = opscope
    path = "opscope"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(value, part):
            import_module(path)
        value = getattr(value, part)
    return value


def exists(ours: str, builder: opscope.NetBuilder) -> bool:
    """Whether a name of the second column is there."""
    if ours.startswith("b."):
        value: Any = builder
        for part in ours.split(".")[1:]:
            value = getattr(value, part, None)
        return value is not None
    if ours.startswith('"'):
        return ours.strip('"') in {*INITIALIZERS, *optimizer_types()}
    if ours.startswith("opscope "):
        command, *rest = ours.split()[1:]
        groups = {"components": COMPONENTS, "xconfig-layers": layer_types(), "train": [None]}
        known = groups[rest[0]] if rest else [None]
        return command in commands() and (rest[1] if rest[1:] else None) in known
    return attribute(ours) is not None


@pytest.mark.parametrize("peer", PEERS)
def test_every_name_of_ours_is_there(peer: str) -> None:
    builder = opscope.NetBuilder("names")
    found = rows(peer)
    assert len(found) >= LEAST[peer]
    missing = []
    for row in found:
        names = row.ours.split(", ") if row.ours else []
        names += re.findall(r"`((?:b|opscope)\.[\w.]+)`", row.note)
        missing += [(row.theirs, name) for name in names if not exists(name, builder)]
        assert row.ours or row.note, row
    assert not missing
    if peer != "cntk":
        assert len({(row.theirs, row.ours) for row in found}) == len(found)


def test_every_name_of_pytorch_is_there() -> None:
    torch = pytest.importorskip("torch")
    starts = {"nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim, "torch": torch}
    starts["Tensor"] = torch.Tensor
    for row in rows("pytorch"):
        first, *rest = row.theirs.split(".")
        value = starts[first]
        path = value.__name__ if first != "Tensor" else ""
        for part in rest:
            path += f".{part}"
            if not hasattr(value, part):
                value = import_module(path)
            else:
                value = getattr(value, part)


def test_names_come_from_the_catalogs() -> None:
    theirs = {row.theirs for row in rows("kaldi")}
    assert {
        *kaldi_programs(),
        *COMPONENTS,
        *(f"xconfig {name}" for name in layer_types()),
    } <= theirs
    assert set(KINDS) <= {row.theirs for row in rows("cntk")}


def test_short_forms_of_a_table() -> None:
    found = list(read("X", "a.{ReLU topk} | =\na.{Model} | opscope.speech.* | a note\n"))
    assert found == [
        Row("X", "a.ReLU", "b.relu", ""),
        Row("X", "a.topk", "b.top_k", ""),
        Row("X", "a.Model", "opscope.speech.Model", "a note"),
    ]


def test_search() -> None:
    assert [row.theirs for row in search("dataloader")] == [
        "torch.utils.data.DataLoader",
        "paddle.io.DataLoader",
    ]
    assert not search("batchtaps")
    assert {row.peer for row in search("dropout")} == {"PyTorch", "Keras", "Paddle", "CNTK"}
    assert "nn.Linear" in [row.theirs for row in search("nn.lin")]  # a part of a name
    assert called_elsewhere("adamw")["Keras"] == ["keras.optimizers.AdamW"]
