"""PyTorch modules as `to-torch` writes them: their modules are layers. Source runs if allowed."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np

from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.errors import FormatError, VariableError
from ...framework.base.untrusted.opener import read_file, read_text
from ...framework.base.untrusted.values import json_value
from ..torch.folder import CONFIG_FILE, MODEL_FILE
from .layers import Computed, Feed, InputSpec, Layer, Wanted


class TorchFolder:
    """A module in evaluation mode; see `Form`.

    Args:
        folder: as `opscope to-torch` writes it.
        wanted: says whether the folder's source may be executed.

    Raises:
        VariableError: it may not, or PyTorch is not installed.
        FormatError: the folder is not one of `to-torch`.
    """

    kind = "torch"

    def __init__(self, folder: str, title: str, wanted: Wanted) -> None:
        self.title = title
        self.dtype = to_dtype(wanted.dtype) if wanted.dtype else SINGLE
        source_path = os.path.join(folder, MODEL_FILE)
        if not wanted.run_code:
            raise VariableError(
                f"{title}: a PyTorch module is Python source, {source_path}, which is run only if"
                " you trust it and say so: --run-code, or run_code=True"
            )
        self._config = _config(os.path.join(folder, CONFIG_FILE))
        self._is_nnet3 = self._config["model_type"] == "nnet3"
        try:
            self._torch: Any = importlib.import_module("torch")
            module = _run(source_path)
            self._model = module.load(folder)
        except ImportError as error:
            raise VariableError(
                f"{title}: {error.name} is not installed, which runs PyTorch modules"
            ) from None
        except Exception as error:  # whatever the source raises
            message = str(error).strip().splitlines() or [type(error).__name__]
            raise FormatError(f"{title}: the module cannot be loaded: {message[0]}") from error
        self._model = self._model.to(getattr(self._torch, str(self.dtype)))

    def inputs(self) -> list[InputSpec]:
        """See `Form`. An utterance or sequence is fed without the axis of these."""
        if not self._is_nnet3:
            sizes = self._config["inputs"].items()
            return [InputSpec(name, tuple(dims), self.dtype) for name, dims in sizes]
        context = self._config["left_context"], self._config["right_context"]
        dim, ivector = self._config["feature_dim"], self._config["ivector_dim"]
        specs = [InputSpec("input", (-1, dim), self.dtype, context=context)]
        return specs + ([InputSpec("ivector", (1, ivector), self.dtype)] if ivector else [])

    def compute(self, feed: Feed) -> Computed:
        """See `Form`."""
        torch = self._torch
        order = [spec.name for spec in self.inputs()]
        names = dict(self._config.get("components", {}))
        layers: dict[str, Layer] = {}
        before = order[0]

        def watch(name: str) -> Any:
            def hook(module: Any, _: Any, result: Any) -> None:
                nonlocal before
                if isinstance(result, torch.Tensor):
                    key = name
                    number = 1
                    while key in layers:
                        number += 1
                        key = f"{name}#{number}"
                    kind = type(module).__name__
                    layers[key] = Layer(key, kind, self._array(result), (before,))
                    before = key

            return hook

        given = [self._tensor(name, np.asarray(feed[name])) for name in order]
        hooks = [
            module.register_forward_hook(watch(names.get(name, name)))
            for name, module in self._model.named_modules()
            if name and "." not in name
        ]
        try:
            with torch.no_grad():
                result = self._model(*given)
        except Exception as error:  # whatever the module raises
            message = str(error).strip().splitlines() or [type(error).__name__]
            raise VariableError(f"{self.title}: the module fails: {message[0]}") from error
        finally:
            for hook in hooks:
                hook.remove()
        outputs = (
            result if isinstance(result, dict) else {next(iter(self._config["outputs"])): result}
        )
        for name, value in outputs.items():
            layers[name] = Layer(name, "Output", self._array(value), (before,), True)
        return Computed(layers)

    def _array(self, tensor: Any) -> np.ndarray:
        wide = tensor.detach().cpu()
        return np.array((wide.float() if self.dtype.itemsize < 4 else wide).numpy())

    def _tensor(self, name: str, array: np.ndarray) -> Any:
        """[frames, dim] with the axis of utterances; [1, dim] of an iVector has it, and rows of
        an input that holds no sequences are its first axis."""
        tensor = self._torch.from_numpy(np.ascontiguousarray(array, np.float64))
        tensor = tensor.to(getattr(self._torch, str(self.dtype)))
        if not self._is_nnet3:
            return tensor[None] if name in self._config["sequences"] else tensor
        is_ivector = array.shape[-1] == self._config["ivector_dim"] and array.shape[0] == 1
        return tensor if is_ivector and array.ndim == 2 else tensor[None]


def _config(path: str) -> dict[str, Any]:
    """The numbers of a folder's config.

    Raises:
        FormatError: they are not there.
    """
    config = json_value(read_text(path), path)
    if isinstance(config, dict) and config.get("model_type") == "cntk":
        _check_sizes(config, path)
        return config
    whole = ("left_context", "right_context", "feature_dim", "ivector_dim")
    wrong = not isinstance(config, dict) or config.get("model_type") != "nnet3"
    if wrong or not all(isinstance(config.get(key), int) for key in whole):
        raise FormatError(f"{path}: not the config of a module that `opscope to-torch` wrote")
    for key in "components", "outputs":
        if not isinstance(config.get(key), dict) or not (config[key] or key == "components"):
            raise FormatError(f"{path}: {key!r} is no table of names")
    return config


def _check_sizes(config: dict[str, Any], path: str) -> None:
    """Whether a config says what the module takes and gives."""
    for key in "inputs", "outputs":
        sizes = config.get(key)
        if not isinstance(sizes, dict) or not sizes or not all(map(_is_shape, sizes.values())):
            raise FormatError(f"{path}: {key!r} is no table of names and sizes")
    if not isinstance(config.get("sequences"), list):
        raise FormatError(f"{path}: 'sequences' is missing")


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(size) is int and (size > 0 or size == -1) for size in value
    )


def _run(path: str) -> ModuleType:
    """The module of a Python source that the user trusts."""
    module = ModuleType("opscope_compared_module")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where PyTorch looks a class's source up
    try:
        exec(compile(read_file(path), path, "exec"), module.__dict__)  # noqa: S102
    finally:
        del sys.modules[module.__name__]
    return module
