"""Values and gradients of operators against PyTorch's, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.scope import Scope

torch = pytest.importorskip("torch")
F = torch.nn.functional

RNG = np.random.default_rng(7)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape) * 2


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 3, shape)


def inside(*shape: int) -> np.ndarray:
    """Numbers between -1 and 1."""
    return RNG.uniform(-0.95, 0.95, shape)


ONE = [
    # operator, attributes, PyTorch's function, input
    ("selu", {}, F.selu, drawn(3, 4)),
    ("celu", {"alpha": 0.5}, lambda x: F.celu(x, 0.5), drawn(3, 4)),
    ("elu", {"alpha": 0.7}, lambda x: F.elu(x, 0.7), drawn(3, 4)),
    ("leaky_relu", {"alpha": 0.2}, lambda x: F.leaky_relu(x, 0.2), drawn(3, 4)),
    ("relu6", {}, F.relu6, drawn(5, 6) * 3),
    ("hard_tanh", {"minimum": -0.5, "maximum": 2.0}, lambda x: F.hardtanh(x, -0.5, 2), drawn(3, 4)),
    ("hard_swish", {}, F.hardswish, drawn(5, 6) * 2),
    ("log_sigmoid", {}, F.logsigmoid, drawn(5, 6) * 9),
    ("softsign", {}, F.softsign, drawn(3, 4)),
    ("mish", {}, F.mish, drawn(5, 6) * 9),
    ("silu", {}, F.silu, drawn(5, 6) * 9),
    ("glu", {"axis": 1}, lambda x: F.glu(x, 1), drawn(3, 4, 2)),
    ("exp2", {}, torch.exp2, drawn(3, 4)),
    ("expm1", {}, torch.expm1, drawn(3, 4)),
    ("log2", {}, torch.log2, positive(3, 4)),
    ("log10", {}, torch.log10, positive(3, 4)),
    ("log1p", {}, torch.log1p, positive(3, 4)),
    ("tan", {}, torch.tan, inside(3, 4)),
    ("asin", {}, torch.asin, inside(3, 4)),
    ("acos", {}, torch.acos, inside(3, 4)),
    ("atan", {}, torch.atan, drawn(3, 4)),
    ("sinh", {}, torch.sinh, drawn(3, 4)),
    ("cosh", {}, torch.cosh, drawn(3, 4)),
    ("asinh", {}, torch.asinh, drawn(3, 4)),
    ("acosh", {}, torch.acosh, positive(3, 4) + 1),
    ("atanh", {}, torch.atanh, inside(3, 4)),
    ("reduce_var", {"axes": [1], "ddof": 1}, lambda x: torch.var(x, 1), drawn(3, 4)),
    ("reduce_std", {"axes": [0], "ddof": 1}, lambda x: torch.std(x, 0), drawn(3, 4)),
    ("reduce_std", {}, lambda x: torch.std(x, correction=0), drawn(3, 4)),
    ("cumprod", {"axis": 1}, lambda x: torch.cumprod(x, 1), drawn(3, 4) * (drawn(3, 4) > -1)),
    ("sort", {"axis": 0}, lambda x: torch.sort(x, 0)[0], drawn(5, 4)),
    ("tril", {"diagonal": -1}, lambda x: torch.tril(x, -1), drawn(2, 3, 4)),
    ("triu", {"diagonal": 1}, lambda x: torch.triu(x, 1), drawn(2, 3, 4)),
    ("diag", {"diagonal": 1}, lambda x: torch.diag(x, 1), drawn(4)),
    ("diag", {"diagonal": -1}, lambda x: torch.diag(x, -1), drawn(4, 3)),
    ("roll", {"shifts": [9, -1], "axes": [0, 1]}, lambda x: x.roll((9, -1), (0, 1)), drawn(3, 4)),
    ("roll", {"shifts": [5]}, lambda x: x.roll(5), drawn(3, 4)),
    ("flip", {"axes": [0, 1]}, lambda x: x.flip(0, 1), drawn(3, 4)),
    (
        "repeat_interleave",
        {"repeats": 3, "axis": 1},
        lambda x: torch.repeat_interleave(x, 3, 1),
        drawn(3, 4),
    ),
    ("normalize", {"axis": 1}, F.normalize, drawn(3, 4)),
    ("normalize", {"axis": 1, "epsilon": 9.0}, lambda x: F.normalize(x, eps=9.0), drawn(3, 4)),
    *(
        ("norm", {"axes": [1], "p": p}, lambda x, p=p: torch.linalg.vector_norm(x, p, 1), x)
        for x in (drawn(3, 4), drawn(3, 4) * (np.arange(4) > 0))  # with zeros, too
        for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"), float("-inf"))
    ),
    *(
        (
            "pad",
            {"paddings": [0, 0, 0, 0, 2, 1, 1, 2], "mode": ours},
            lambda x, theirs=theirs: F.pad(x, (1, 2, 2, 1), theirs),
            drawn(2, 3, 3, 4),
        )
        for ours, theirs in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular"))
    ),
]

IDS = np.array([[0, 3, 1], [2, 2, 0], [1, 0, 3]])
PLACES = np.array([[0, 3, 1], [2, 1, 0], [1, 0, 3]])

TWO = [
    ("mod", {}, torch.remainder, drawn(3, 4), drawn(4) + 0.1),
    ("fmod", {}, torch.fmod, drawn(3, 4), drawn(4) + 0.1),
    ("atan2", {}, torch.atan2, drawn(3, 4), drawn(4)),
    ("cosine_similarity", {"axis": 1}, F.cosine_similarity, drawn(3, 4), drawn(3, 4)),
    ("cosine_similarity", {}, lambda x, y: F.cosine_similarity(x, y, -1), drawn(3, 4), drawn(4)),
    ("prelu", {}, F.prelu, drawn(3, 4, 2), drawn(4)),
    ("prelu", {}, F.prelu, drawn(3, 4, 2), drawn(1)),
    ("take_along_axis", {}, lambda x, ids: torch.gather(x, 1, ids), drawn(3, 4), IDS),
]

THREE = [
    (
        "put_along_axis",
        {"mode": "add"},
        lambda x, ids, updates: x.scatter_add(1, ids, updates),
        (drawn(3, 4), IDS, drawn(3, 3)),
    ),
    (
        "put_along_axis",
        {},
        lambda x, ids, updates: x.scatter(1, ids, updates),
        (drawn(3, 4), PLACES, drawn(3, 3)),
    ),
]

CASES = [(op, attrs, function, (x,)) for op, attrs, function, x in ONE]
CASES += [(op, attrs, function, (x, y)) for op, attrs, function, x, y in TWO]
CASES += THREE
CASES += [
    ("einsum", {"equation": equation}, lambda *x, e=equation: torch.einsum(e, *x), tuple(arrays))
    for equation, *arrays in (
        ("bhqd,bhkd->bhqk", drawn(2, 2, 3, 4), drawn(2, 2, 5, 4)),
        ("...ij,...jk->...ik", drawn(2, 1, 3, 4), drawn(3, 4, 2)),
        ("bn,anm,bm->ba", drawn(2, 3), drawn(4, 3, 5), drawn(2, 5)),
        ("iij->j", drawn(3, 3, 2)),
        ("i...->...", drawn(3, 2)),
    )
]


@pytest.mark.parametrize(
    ("op", "attrs", "function", "arrays"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_values_and_gradients(
    op: str, attrs: dict[str, Any], function: Callable[..., Any], arrays: tuple[np.ndarray, ...]
) -> None:
    tensors = [torch.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays]
    wanted = function(*tensors)
    seed = RNG.normal(size=tuple(wanted.shape))
    wanted.backward(torch.tensor(seed))

    b = NetBuilder()
    given = [
        b.input(f"x{number}", list(array.shape), str(array.dtype))
        for number, array in enumerate(arrays)
    ]
    slots = [given] if op == "einsum" else given
    out = b.add_op(op, *slots, **attrs)
    out = out[0] if isinstance(out, tuple) else out
    cost = b.reduce_sum(b.mul(out, b.input("seed", list(seed.shape), "float64")))
    floats = [(var, t) for var, t in zip(given, tensors, strict=True) if t.requires_grad]
    b.backward_from(cost, wrt=[var for var, _ in floats])
    feed = {var.name: array for var, array in zip(given, arrays, strict=True)} | {"seed": seed}
    fetch = [out.name, *(b.gradient(var) for var, _ in floats)]
    found = b.run(Scope(), feed=feed, fetch=fetch)
    np.testing.assert_allclose(found[out.name], wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    for name, (_, tensor) in zip(fetch[1:], floats, strict=True):
        grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        np.testing.assert_allclose(found[name], grad.numpy(), rtol=1e-8, atol=1e-10)
