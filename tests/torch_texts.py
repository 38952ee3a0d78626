"""Runs what `to_torch` writes of op lists, and compares."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from opscope.bridges.torch.op_list.to_torch import NetWriter

torch = pytest.importorskip("torch", reason="torch is not installed")


def run_module(written: NetWriter, inputs):
    """What a written module computes of arrays; sequences of one length get their axis N."""
    module = ModuleType("written_net")
    sys.modules[module.__name__] = module
    exec(compile(written.source("", 0), "written_net", "exec"), module.__dict__)
    model = module.Net()
    state = {name: torch.from_numpy(np.array(a)) for name, a in written.state().items()}
    model.load_state_dict(state)
    given = []
    for var in written.arguments.values():
        array = torch.from_numpy(np.array(inputs[var.name]))
        given.append(array[None] if var.sequence_levels else array)
    with torch.no_grad():
        found = model.eval()(*given)
    names = written.form.outputs
    found = found if isinstance(found, dict) else {names[0]: found}
    return {
        name: (value.flatten(0, 1) if name in written.values.steps else value).numpy()
        for name, value in found.items()
    }


def error_of(found, wanted):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert np.array_equal(np.isfinite(found), np.isfinite(wanted))
    there = np.isfinite(wanted)
    away = np.abs(found[there].astype("f8") - wanted[there].astype("f8"))
    return float((away / np.maximum(1, np.abs(wanted[there].astype("f8")))).max(initial=0))
