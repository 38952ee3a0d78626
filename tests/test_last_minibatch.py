"""Every example trains where its last minibatch has one row."""

from __future__ import annotations

import importlib
import pathlib
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import Minibatches, Scope, Sequences

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
MODULES = ("train", "data", "text", "ctf")  # names that several examples have
LIBRARIES = ("xp", "mkl", "blas", "native", "packed,direct,native,mkl,blas,xp")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports the `train` of an example, whose other modules stand beside it."""
    pytest.importorskip("sklearn")

    def load(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(EXAMPLES / name)
        return importlib.import_module("train")

    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield load
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture
def same_losses(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Trains a net for two epochs with each kernel library, and compares the losses."""

    def check(build: Callable[[], Any], batches: Any, loss: str = "cost") -> None:
        losses = []
        for libraries in LIBRARIES:
            monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
            history = opscope.train(
                build(), batches, epochs=2, scope=Scope(), loss=loss, seed=1, progress=False
            )
            losses.append(history[loss])
            np.testing.assert_allclose(losses[-1], losses[0], rtol=1e-3, err_msg=libraries)

    return check


def images(*shape: int, rows: int = 9) -> Minibatches:
    """Two minibatches of four rows, and one of one."""
    rng = np.random.default_rng(0)
    image = rng.random((rows, *shape), "float32")
    data = Minibatches({"image": image, "label": rng.integers(0, 10, rows)}, 4, shuffle=False)
    assert [len(batch["label"]) for batch in data] == [4, 4, 1]
    return data


def test_digits(example, same_losses) -> None:
    same_losses(example("digits").build, images(64))


def test_digits_with_convolutions(example, same_losses) -> None:
    same_losses(example("digits_conv").build, images(64))


def test_residual(example, same_losses) -> None:
    same_losses(partial(example("residual").build, 6), images(1, 8, 8), "loss")


@pytest.mark.parametrize("last", [[[5]], [[5, 3]]], ids=["a word", "a sentence"])
def test_tagger(example, same_losses, last) -> None:
    build = partial(example("tagger").build, 6, 5, 0.01, 4)
    batches = [
        {"word": Sequences.from_list(some), "slot": np.concatenate(some) % 7}
        for some in ([np.array([1, 2, 3]), np.array([4])], [np.array(s) for s in last])
    ]
    same_losses(build, batches)


@pytest.mark.parametrize("streams", [1, 3])
def test_characters(example, same_losses, streams, monkeypatch) -> None:
    train = example("char_rnn")
    monkeypatch.setattr(train, "STREAMS", streams)
    data = np.arange(streams * 9 + 1) % 7
    batches = list(train.batches(data, streams, 4))
    assert [len(batch["next"]) for batch in batches] == [4 * streams, 4 * streams, streams]
    same_losses(partial(train.build, 7, 5, 6), batches)


@pytest.mark.parametrize("net", ["tree_net", "bag_net"])
def test_trees(example, same_losses, net) -> None:
    train = example("trees")
    build = getattr(train, net)
    batches = [
        train.feed_of(build(), train.minibatch([train.read(text) for text in texts]))
        for texts in (["1 + 2", "3"], ["(4 - 5) * 6"], ["7"])
    ]
    assert len(batches[-1]["answer"]) == 1
    same_losses(build, batches)


@pytest.mark.parametrize("libraries", LIBRARIES)
def test_transformer(example, libraries, monkeypatch) -> None:
    """The script itself, with few data: its last minibatches have one row."""
    rng = np.random.default_rng(0)

    def load() -> tuple[dict[str, np.ndarray], ...]:
        return tuple(
            {"rows": rng.random((n, 8, 8), "float32"), "label": rng.integers(0, 10, n)}
            for n in (33, 361)
        )

    monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
    monkeypatch.setattr("opscope.framework.base.scope._default", Scope())
    monkeypatch.setitem(sys.modules, "data", SimpleNamespace(load=load))
    monkeypatch.setattr(sys, "argv", ["train.py", "--epochs", "1"])
    found = runpy.run_path(str(EXAMPLES / "transformer" / "train.py"))
    assert np.isfinite(found["history"].last["loss"])
    assert np.isfinite(found["history"].last["eval_loss"])
