"""nnet3 networks as PyTorch modules, run beside our own computation."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3_onnx import ours, with_statistics
from opscope.nnet3 import Nnet, xconfig_to_config

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors.torch")

_NUMBERS = itertools.count()


def module_of(folder):
    """The module `model` in a folder, under a name of its own: torch.export looks it up."""
    name = f"written_model_{next(_NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, Path(folder) / "model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def model_of(folder):
    return module_of(folder).load(folder)


def run(model, *inputs):
    with torch.no_grad():
        return model(*(torch.from_numpy(each)[None] for each in inputs))[0].numpy()


def assert_equals(model, nnet, *, unit=1, ivector=None, lengths=(1, 2, 7, 19), bound=1e-5):
    """The module gives what we compute for utterances of some lengths."""
    rng = np.random.default_rng(0)
    for frames in lengths:
        features = rng.normal(size=(frames, nnet.input_dim("input"))).astype(np.float32)
        wanted = ours(nnet, features, ivector, unit)
        found = run(model, features, *([] if ivector is None else [ivector]))
        assert found.shape == wanted.shape
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(found - wanted).max() <= bound * scale, frames


def layer_net(layer, inputs="input dim=6 name=input", seed=1):
    """A network of a layer, or several, and an output layer."""
    text = f"{inputs}\n{layer}\noutput-layer name=output dim=5 param-stddev=0.5\n"
    return with_statistics(Nnet.from_config_text(xconfig_to_config(text), seed), seed)


def exported(model, dim, unit=1):
    """The module as an exported program with dynamic batch and time."""
    frames = torch.export.Dim("T") if unit == 1 else unit * torch.export.Dim("rows", min=2)
    dynamic = {0: torch.export.Dim("N"), 1: frames}
    return torch.export.export(model, (torch.randn(2, 30, dim),), dynamic_shapes=(dynamic,))


def changed(module, model, folder):
    """Change all tensors of a model and save it."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor))
    module.save(model, folder)
