"""Which GPU a process takes, by the variables of launchers, and what is said where it cannot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from opscope.framework.base import backend
from opscope.framework.base.backend import GPUPlace, parse_place
from opscope.framework.base.errors import DeviceError
from opscope.framework.base.machine import local_rank
from opscope.framework.base.scope import Scope
from opscope.testing.device_double import instead_of_cupy

LAUNCHERS = {
    "mpich": ({"MPI_LOCALRANKID": "1"}, 1),
    "open mpi": ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1),
    "slurm": ({"SLURM_LOCALID": "1"}, 1),
    "slurm with a GPU for each task": ({"SLURM_LOCALID": "1", "SLURM_GPUS_PER_TASK": "1"}, 0),
    "torchrun": ({"LOCAL_RANK": "1", "RANK": "5"}, 1),
    "three share two": ({"MPI_LOCALRANKID": "2", "OPSCOPE_SHARED_GPUS": "2"}, 0),
    "none": ({}, 0),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*local_rank._NUMBERS, *local_rank._OWN_GPUS, "OPSCOPE_SHARED_GPUS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_takes_its_own_gpu(launcher, monkeypatch):
    variables, wanted = LAUNCHERS[launcher]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPSCOPE_DEVICE", "gpu")
    assert GPUPlace().index == parse_place("gpu").index == Scope().place.index == wanted
    assert GPUPlace(0).index == parse_place("gpu:0").index == 0  # who names one gets it


def test_a_rank_beyond_the_gpus_is_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    with (
        instead_of_cupy(),
        pytest.raises(DeviceError, match="process 2 of its machine.*share-gpus"),
    ):
        GPUPlace().xp  # noqa: B018


def test_an_unknown_place(monkeypatch):
    monkeypatch.setenv("OPSCOPE_DEVICE", "tpu")
    with pytest.raises(DeviceError, match="'tpu' is no device: want cpu, gpu or gpu:N"):
        Scope()


def failing(error):
    """An importer of a CuPy whose driver fails."""

    def count():
        raise error

    runtime = SimpleNamespace(getDeviceCount=count)
    return lambda name: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


class CUDARuntimeError(RuntimeError):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (CUDARuntimeError(35, "insufficient"), "no NVIDIA driver, or one that is too old.*insuff"),
        (CUDARuntimeError(100, "no device"), "CuPy finds none: no device"),
    ],
)
def test_what_is_missing_is_named(error, wanted, monkeypatch):
    backend._cupy.cache_clear()
    monkeypatch.setattr("importlib.import_module", failing(error))
    with pytest.raises(DeviceError, match=wanted):
        GPUPlace(0).xp  # noqa: B018
