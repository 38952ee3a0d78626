"""Nets of attention beside PyTorch's modules: the same weights, inputs and gradients."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from opscope import NetBuilder, Scope
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import PARAMETER

D, HEADS, FEEDFORWARD = 8, 2, 12


def attention_weights(module: Any, name: str) -> dict[str, Any]:
    """Parameters of a torch.nn.MultiheadAttention under our names, laid out as ours."""
    parts = {}
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    for part, weight in zip("qkv", weights, strict=True):
        parts[f"{name}.{part}.w"] = weight.T
    parts[f"{name}.out.w"] = module.out_proj.weight.T
    if module.in_proj_bias is not None:
        for part, bias in zip("qkv", module.in_proj_bias.chunk(3), strict=True):
            parts[f"{name}.{part}.b"] = bias
        parts[f"{name}.out.b"] = module.out_proj.bias
    return parts


def layer_weights(module: Any, name: str) -> dict[str, Any]:
    """Parameters of an encoder or decoder layer of PyTorch under our names."""
    parts = attention_weights(module.self_attn, f"{name}.attention")
    if hasattr(module, "multihead_attn"):
        parts |= attention_weights(module.multihead_attn, f"{name}.memory")
    for ours, linear in (("in", module.linear1), ("out", module.linear2)):
        parts[f"{name}.feedforward.{ours}.w"] = linear.weight.T
        parts[f"{name}.feedforward.{ours}.b"] = linear.bias
    for number in (1, 2, 3):
        norm = getattr(module, f"norm{number}", None)
        if norm is not None:
            parts |= norm_weights(norm, f"{name}.norm{number}")
    return parts


def norm_weights(module: Any, name: str) -> dict[str, Any]:
    return {f"{name}.scale": module.weight, f"{name}.bias": module.bias}


def shaken(module: Any, seed: int = 0) -> Any:
    """A module in float64 whose parameters are all random, biases and norms too."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    return module


def gradients_of(module: Any) -> Any:
    """A copy of a module that holds the gradients in place of its parameters."""
    import torch

    held = copy.deepcopy(module)
    with torch.no_grad():
        for target, source in zip(held.parameters(), module.parameters(), strict=True):
            target.copy_(source.grad)
    return held


def as_arrays(tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def outcome(
    b: NetBuilder, out: Any, feed: dict[str, Any], weights: dict[str, np.ndarray], seed: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    """The output of a net with these weights, and the gradients of sum(seed * out).

    They are those of all parameters, which `weights` names one by one, and of what is fed.
    """
    parameters = [var.name for var in b.forward_net.op_list.vars if var.kind == PARAMETER]
    assert sorted(parameters) == sorted(weights)
    factor = b.input("seed", out.shape, levels=int(hasattr(seed, "levels")))
    cost = b.reduce_sum(b.mul(out, factor))
    fed = [name for name, value in feed.items() if _array(value).dtype.kind == "f"]
    b.backward_from(cost, wrt=[*parameters, *fed])
    wanted = {name: b.gradients[name] for name in (*parameters, *fed)}
    scope = Scope()
    scope.feed(weights)
    b.run(scope, feed={**feed, "seed": seed}, fetch=[out.name, *wanted.values()])
    return value_of(scope, out.name), {n: value_of(scope, grad) for n, grad in wanted.items()}


def value_of(scope: Scope, name: str) -> Any:
    """What a variable holds: an array, or sequences."""
    return scope.sequences(name) if scope.get(name).offsets else scope.numpy(name)


def _array(value: Any) -> np.ndarray:
    return value.data if isinstance(value, Sequences) else np.asarray(value)


def assert_same(found: dict[str, Any], wanted: dict[str, Any], atol: float = 1e-11) -> None:
    """Arrays or sequences by name that are equal but for rounding."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(
            _array(found[name]), _array(value), rtol=1e-8, atol=atol, err_msg=name
        )
