"""Checkpoints whose state is whole JSON and means nothing: the package's error, names the file."""

import json

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.files.tensor_file import TensorFile, write_tensors
from training_runs import run


@pytest.fixture
def resumed_with(tmp_path):
    """Trains, puts another state into the checkpoint, and goes on from it."""
    run(Scope(), epochs=1, checkpoint=tmp_path / "run")
    path = tmp_path / "run.checkpoint"
    file = TensorFile(path)
    tensors = {name: file.read(name) for name in file}
    state = json.loads(file.metadata["opscope.state"])

    def resume(text=None, how=True, version="1", **changes):
        metadata = dict(file.metadata) | {"opscope.checkpoint": version}
        metadata["opscope.state"] = json.dumps(state | changes) if text is None else text
        with open(path, "wb") as out:
            write_tensors(out, tensors, metadata)
        run(Scope(), epochs=2, checkpoint=tmp_path / "run", resume=how)

    return resume


def test_the_state_that_it_had(resumed_with):
    resumed_with()


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "[]", "7", "null", "", "9" * 5000, "{}"],
)
def test_texts_that_are_no_state(resumed_with, text):
    with pytest.raises(OpscopeError, match=r"run\.checkpoint"):
        resumed_with(text)


@pytest.mark.parametrize("version", ["²", "9" * 5000, "-1", "1.0"])
def test_formats_that_are_none(resumed_with, version):
    with pytest.raises(OpscopeError, match=r"run\.checkpoint: (the format|checkpoint format)"):
        resumed_with(version=version)


@pytest.mark.parametrize("how", [True, "weights"])
@pytest.mark.parametrize(
    "change",
    [
        *({"epoch": value} for value in (-1, 1e999, 10**400, "x", None, 1.5, [], True, 2**40)),
        *({"rows": value} for value in (7, None, [1], "x", {})),
        *({"random": value} for value in (7, None, {}, [], {"bit_generator": "X"})),
    ],
)
def test_states_that_no_training_has(resumed_with, change, how):
    with pytest.raises(OpscopeError):
        resumed_with(how=how, **change)


@pytest.mark.parametrize(
    "change",
    [
        *({"batch": value} for value in (-1, "x", 10**400)),
        *({"seconds": value} for value in (float("nan"), "x", [])),
        *({"metrics": value} for value in (7, [], {}, {"loss": 7})),
        {"random": {"bit_generator": "PCG64", "state": {"state": 10**80, "inc": -1}}},
    ],
)
def test_positions_that_no_training_has(resumed_with, change):
    with pytest.raises(OpscopeError):
        resumed_with(**change)


def test_a_tensor_file_from_a_device():
    with pytest.raises(OpscopeError, match="/dev/zero"):
        TensorFile("/dev/zero")
