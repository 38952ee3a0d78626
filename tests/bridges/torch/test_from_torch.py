"""Programs of torch.export run here as they do in PyTorch, as one net for sizes that vary, too."""

from __future__ import annotations

import functools
import importlib
import itertools
import operator
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import FormatError, NetBuilder, OpscopeError, RunError, ShapeError, from_torch

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("torch.export is older than 2.6", allow_module_level=True)

from opscope.bridges.torch.importing.calls import COMPLEX, DOMAIN, RULES, aten, known_form  # noqa: E402
from opscope.bridges.torch.importing.kinds.pairs import _BY_HALVES  # noqa: E402
from opscope.bridges.torch.importing.refusals import REFUSED  # noqa: E402
from opscope.framework.base.dtypes import to_dtype  # noqa: E402
from torch_programs import CASES, Fn, Unseen, mlp, x  # noqa: E402


def export(module: Any, inputs: list[Any], *, dynamic: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic)


def tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [one for each in value for one in tensors(each)]
    return [value]


def array(tensor: Any) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(to_dtype("bfloat16"))
    return tensor.numpy()


def flat(value: Any) -> list[Any]:
    return [array(one) for one in tensors(value)]


def dims_of(draws: list[Any]) -> tuple[Any, ...]:
    """What may vary: dimensions whose size follows the batch or the time."""
    one, other = ([draw(*sizes).shape for draw in draws] for sizes in ((3, 7), (4, 8)))
    auto = torch.export.Dim.AUTO
    return tuple(
        {k: auto for k, (p, q) in enumerate(zip(a, b, strict=True)) if p != q}
        for a, b in zip(one, other, strict=True)
    )


@functools.cache
def loaded(name: str) -> tuple[Any, list[Any], Any, Any]:
    """The module, what draws its inputs, the program, and the program here."""
    make, draws = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    inputs = [draw(3, 7) for draw in draws]
    dynamic = dims_of(draws)
    if isinstance(module, Fn):
        dynamic = (dynamic,)
    program = export(module, inputs, dynamic=dynamic)
    return module, draws, program, from_torch(program)


def assert_same(found: dict[str, Any], wanted: Any) -> None:
    wanted = flat(wanted)
    assert len(found) == len(wanted)
    for name, array in zip(found, wanted, strict=True):
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        tolerance = 1e-2 if array.dtype.kind == "V" else 1e-5
        pair = (one.astype(np.float64) for one in (found[name], array))
        np.testing.assert_allclose(*pair, atol=tolerance, rtol=tolerance, err_msg=name)


def fed(model: Any, inputs: list[Any]) -> dict[str, Any]:
    return dict(zip((info.name for info in model.inputs), (i.numpy() for i in inputs), strict=True))


def varies(model: Any) -> bool:
    return any(isinstance(dim, str) for info in model.inputs for dim in info.shape or ())


FIXED = {"losses"}
"""Cases in which a size that varies is a number of the computation."""
ON_DATA = {"bits", "whole_products"}
"""Cases that no net computes: NumPy does, between nets."""


@pytest.mark.parametrize("name", CASES)
def test_outputs(name: str) -> None:
    module, draws, program, model = loaded(name)
    assert model.parameters.keys() <= set(program.state_dict)
    inputs = [draw(3, 7) for draw in draws]
    sizes = [(3, 7)] + ([(5, 7)] if varies(model) else [])
    for size in sizes:
        inputs = [draw(*size) for draw in draws]
        with torch.no_grad():
            wanted = module(*inputs)
        assert_same(model.run(fed(model, inputs)), wanted)
    assert model.is_one_net(fed(model, inputs)) != (name in {"blocks"} | ON_DATA)


@pytest.mark.parametrize("name", CASES.keys() - ON_DATA)
def test_one_net(name: str, tmp_path: Any) -> None:
    """The net of all sizes that vary, saved and loaded."""
    module, draws, _, model = loaded(name)
    shapes = {}
    if name in FIXED:
        with pytest.raises(ShapeError, match="cannot vary: it is part of the operator 'div'"):
            model.op_list()
        shapes = {
            info.name: draw(3, 7).shape for info, draw in zip(model.inputs, draws, strict=True)
        }
    model.save(tmp_path / "net", shapes)
    net = opscope.load(tmp_path / "net")
    for size in [(3, 7)] + ([(6, 7)] if varies(model) and not shapes else []):
        inputs = [draw(*size) for draw in draws]
        with torch.no_grad():
            wanted = module(*inputs)
        found = net.predict(fed(model, inputs))
        assert_same({info.name: found[info.name] for info in model.outputs}, wanted)


@pytest.mark.parametrize("name", CASES.keys() - ON_DATA)
def test_gradients(name: str) -> None:
    """Of random sums of the outputs, with respect to all parameters and inputs."""
    module, draws, _, model = loaded(name)
    torch.manual_seed(1)
    inputs = [draw(3, 7) for draw in draws]
    leaves = [one.requires_grad_(one.is_floating_point()) for one in inputs]
    outputs = dict(zip(model.outputs, tensors(module(*leaves)), strict=True))
    wanted = [(info.name, one) for info, one in outputs.items() if one.requires_grad]
    weights = {f"{key}/weight": torch.randn(one.shape, dtype=one.dtype) for key, one in wanted}
    if not wanted:
        pytest.skip("nothing to differentiate")
    module.zero_grad()
    sum((one * weights[f"{key}/weight"]).sum() for key, one in wanted).backward()
    gradients = {key: one.grad for key, one in module.named_parameters() if key in model.parameters}
    names = [info.name for info in model.inputs]
    gradients |= {key: one.grad for key, one in zip(names, leaves, strict=True)}
    gradients = {
        key: torch.view_as_real(one) if one.is_complex() else one
        for key, one in gradients.items()
        if one is not None
    }
    arrays = {key: one.detach() for key, one in zip(names, inputs, strict=True)}
    b = NetBuilder.from_desc(model.op_list({key: one.shape for key, one in arrays.items()}))
    costs = []
    for key, one in wanted:
        dtype = str(one.dtype).removeprefix("torch.")
        factor = b.input(f"{key}/weight", list(one.shape), dtype)
        costs.append(b.cast(b.reduce_sum(b.mul(b.var(key), factor)), dtype="float32"))
    b.backward_from(b.sum(costs), wrt=list(gradients))
    feed = {key: array(one) for key, one in (arrays | weights).items()}
    found = b.run(model.scope, feed=feed, fetch=[b.gradient(key) for key in gradients])
    for got, (key, one) in zip(found.values(), gradients.items(), strict=True):
        np.testing.assert_allclose(got, one.numpy(), atol=2e-4, rtol=2e-4, err_msg=key)


@pytest.mark.parametrize("name", ["residual", "encoder", "class_losses", "cutting"])
def test_decomposed_programs(name: str) -> None:
    """Programs in core operators give the same."""
    make, draws = CASES[name]
    module, inputs = make().eval(), [draw(3, 7) for draw in draws]
    model = from_torch(export(module, inputs).run_decompositions())
    with torch.no_grad():
        assert_same(model.run(fed(model, inputs)), module(*inputs))


# -- training --------------------------------------------------------------------------------------


def trained_there(module: Any, batches: list[tuple[Any, Any]], rate: float) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    losses = []
    for given, label in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(given).flatten(0, -2), label.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_here(model: Any, batches: list[tuple[Any, Any]], rate: float) -> list[float]:
    b = NetBuilder.from_desc(model.op_list())
    label = b.input("label", [-1] * batches[0][1].ndim, "int64")
    loss = b.mean(b.softmax_cross_entropy(b.var("output"), label), name="loss")
    b.backward_from(loss)
    b.add_optimization(rate, "sgd")
    name = model.inputs[0].name
    return [
        float(
            b.run(model.scope, feed={name: x.numpy(), "label": y.numpy()}, fetch=["loss"])["loss"]
        )
        for x, y in batches
    ]


@pytest.mark.parametrize("name", ["mlp", "residual", "tagger", "encoder", "batch_norm"])
def test_training(name: str) -> None:
    """Five steps give the losses, parameters and statistics that they give in PyTorch."""
    torch.manual_seed(0)
    if name == "batch_norm":
        module = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        ).train()
        draw = x(-1, 6)
    else:
        make, (draw,) = CASES[name]
        module = make().eval()
    first = draw(4, 6)
    program = export(module, [first], dynamic=({0: torch.export.Dim.AUTO},))
    model = from_torch(program)
    batches = []
    for rows in (4, 3, 6, 4, 5):
        given = draw(rows, 6)
        shape = module.eval()(given).shape
        batches.append((given, torch.randint(0, shape[-1], shape[:-1])))
    module.train(name == "batch_norm")
    ours = trained_here(model, batches, 0.1)
    np.testing.assert_allclose(ours, trained_there(module, batches, 0.1), rtol=2e-5)
    state = module.state_dict()
    for key, array in {**model.parameters, **model.buffers}.items():
        np.testing.assert_allclose(array, state[key].numpy(), atol=2e-5, err_msg=key)
    module.eval()
    with torch.no_grad():
        assert_same(model.run({model.inputs[0].name: first.numpy()}), module(first))


def test_no_gradient_passes_blocks_under_no_grad() -> None:
    """Decompositions, which a change in place asks for, would forget the blocks."""
    torch.manual_seed(0)
    module = Unseen()
    given = torch.randn(4, 3, requires_grad=True)
    program = export(module, [given.detach()])
    before = str(program.graph)
    model = from_torch(program)
    assert str(program.graph) == before
    b = NetBuilder.from_desc(model.op_list())
    b.backward_from(b.reduce_sum(b.var("output")), wrt=["w", "x"])
    fetch = [b.gradient("w"), b.gradient("x")]
    found = b.run(model.scope, feed={"x": given.detach().numpy()}, fetch=fetch)
    module(given).sum().backward()
    for name, wanted in zip(fetch, (module.w.grad, given.grad), strict=True):
        np.testing.assert_allclose(found[name], wanted.numpy(), atol=1e-6)


def test_core_operators_are_known_or_refused_for_a_reason() -> None:
    """PyTorch's own list: what has the tag `core`."""
    every = {one.split(".")[0] for one in torch._C._dispatch_get_all_op_names()}
    names = {
        plain
        for plain in (one.removeprefix("aten::") for one in every if one.startswith("aten::"))
        for overload in getattr(torch.ops.aten, plain).overloads()
        if torch.Tag.core in getattr(getattr(torch.ops.aten, plain), overload).tags
    }
    assert len(names) > 150 and REFUSED.keys() <= names
    known = {name for name in names if known_form(DOMAIN, name) or known_form(COMPLEX, name)}
    assert known.isdisjoint(REFUSED) and names - known == REFUSED.keys()
    assert all(REFUSED.values())


def test_complex_numbers_use_the_rules_of_real_ones() -> None:
    """Those that are refused are named, and so is a number whose second part would be lost."""
    assert {(DOMAIN, name) for name in _BY_HALVES} <= RULES.keys()
    one = torch.randn(2, 2, 2)
    for function in (torch.sqrt, torch.abs, lambda z: z * 2 == z):
        program = export(Fn(lambda x, f=function: f(torch.view_as_complex(x)).real), [one])
        if function is torch.abs:
            assert_same(from_torch(program).run({"args_0": one.numpy()}), one.norm(dim=-1))
        else:
            with pytest.raises(FormatError, match=r"not supported:\n  aten\.(sqrt|eq)"):
                from_torch(program)

    turned = Fn(lambda x: torch.add(torch.view_as_complex(x), 1, alpha=2j).real)
    with pytest.raises(FormatError, match="a complex number as alpha"):
        from_torch(export(turned, [one])).run({"args_0": one.numpy()})


def test_quotients_of_complex_numbers_whose_squares_leave_float32() -> None:
    """Of tiny and huge ones, and infinity by zero, as of numbers of twice the width."""
    parts = np.array([0, 1, -2, 3e-30, -4e-25, 5e25, -6e30], np.float32)
    x = np.stack(np.meshgrid(parts, parts, parts, parts), -1).reshape(-1, 4)

    def divided(x: Any) -> Any:
        a, b = torch.view_as_complex(x[:, :2]), torch.view_as_complex(x[:, 2:])
        return torch.view_as_real(a / b), torch.view_as_real(1 / b)

    a, b = np.ascontiguousarray(x, np.float64).view(np.complex128).T
    model = from_torch(export(Fn(divided), [torch.tensor(x)]))
    for ours, over in zip(model.run({"args_0": x}).values(), (a, np.ones_like(a)), strict=True):
        found = ours[:, 0].astype(np.float64) + 1j * ours[:, 1]
        wanted = np.divide(over, b, where=b != 0)
        inside = (b != 0) & (np.abs(wanted) < 1e38)
        assert inside.sum() > 1500
        assert np.all(np.abs(found - wanted)[inside] <= 1e-6 * np.abs(wanted[inside]) + 1e-37)
        assert np.isinf(ours[(b == 0) & (over != 0)]).any(1).all()


def test_frozen_parameters_stay() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval()
    module[0].requires_grad_(False)
    model = from_torch(export(module, [torch.randn(2, 3)]))
    assert set(model.parameters) == {"1.weight", "1.bias"}
    assert set(model.buffers) == {"0.weight", "0.bias"}
    before = model.buffers["0.weight"]
    trained_here(model, [(torch.randn(2, 3), torch.tensor([0, 1]))] * 2, 0.5)
    np.testing.assert_array_equal(model.buffers["0.weight"], before)


def test_dropout_of_training() -> None:
    """Exported in training form it drops in training alone."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    model = from_torch(export(module, [torch.randn(2, 4)]))
    assert "dropout" in [op.type for op in model.op_list().ops]
    given = torch.randn(2, 4)
    with torch.no_grad():
        assert_same(model.run({"input": given.numpy()}), module.eval()(given))


def test_tied_weights() -> None:
    _, _, program, model = loaded("tied")
    names = {"words.weight", "out.weight"}
    assert names <= set(program.state_dict)
    assert len(names & set(model.parameters)) == 1
    assert list(model.run({model.inputs[0].name: np.zeros((2, 3), np.int64)})) == [
        "hidden",
        "scores",
    ]


# -- shapes ----------------------------------------------------------------------------------------


def test_time_and_batch_vary() -> None:
    module, _, _, model = loaded("encoder")
    net = model.op_list()
    spec = next(var for var in net.vars if var.name == model.inputs[0].name)
    assert spec.shape == (-1, -1, 8)
    assert {op.type for op in net.ops} >= {"scaled_dot_product_attention", "layer_norm", "matmul"}
    b = NetBuilder.from_desc(net)
    for rows, steps in ((1, 2), (5, 13)):
        given = torch.randn(rows, steps, 8)
        found = b.run(model.scope, feed={model.inputs[0].name: given.numpy()}, fetch=["output"])
        with torch.no_grad():
            np.testing.assert_allclose(found["output"], module(given).numpy(), atol=1e-5)


def test_shapes_given() -> None:
    model = from_torch(export(mlp().eval(), [torch.randn(3, 6)], dynamic=({0: torch.export.Dim(
        "rows", min=2, max=9)},)))  # fmt: skip
    name = model.inputs[0].name
    assert model.op_list({name: (4, 6)}).vars[0].shape == (4, 6)
    assert model.op_list({name: (-1, 6)}).vars[0].shape == (-1, 6)
    for shape, text in (((4, 7), "not"), ((4,), "not"), ((10, 6), "range 2 to 9")):
        with pytest.raises(ShapeError, match=text):
            model.op_list({name: shape})
    with pytest.raises(ShapeError, match="fed was"):
        model.run({name: np.zeros((3, 7), np.float32)})


# -- what is refused -------------------------------------------------------------------------------


class Strange(nn.Module):
    """Operators of which nothing here computes any."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x), torch.polygamma(2, x), torch.mode(x)


def test_unknown_operators_are_named_at_once() -> None:
    with pytest.raises(FormatError) as told:
        from_torch(export(Strange(), [torch.randn(3, 3)]))
    text = str(told.value)
    for name in ("svd", "aten.mode.default: node 'mode'", "polygamma"):
        assert name in text
    line = Strange.forward.__code__.co_firstlineno + 1
    assert text.count(f"test_from_torch.py:{line}") == 3


@pytest.mark.parametrize("mistake", [KeyError, TypeError, AttributeError])
def test_a_mistake_in_a_rule_is_named(
    mistake: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(n: Any) -> None:
        raise mistake("q")

    monkeypatch.setitem(RULES, (DOMAIN, "relu"), RULES[DOMAIN, "relu"])
    aten("relu")(mistaken)
    given = [torch.ones(2, 3)]
    model = from_torch(export(nn.ReLU(), given))
    told = r"aten.relu.default.*its rule .*test_from_torch.*mistaken failed: "
    with pytest.raises(RunError, match=told + mistake.__name__):
        model.run(fed(model, given))


def test_arguments_that_are_not_supported() -> None:
    pool = functools.partial(F.avg_pool2d, kernel_size=2, ceil_mode=True, divisor_override=3)
    program = export(Fn(pool), [torch.randn(2, 1, 5, 5)])
    with pytest.raises(FormatError, match=r"avg_pool2d.*: divisor_override with ceil_mode"):
        from_torch(program).run({"args_0": np.zeros((2, 1, 5, 5), np.float32)})


def test_gradients_of_pytorch_are_refused_with_the_reason() -> None:
    def function(x: Any) -> Any:
        return torch.ops.aten.avg_pool2d_backward(x, x, [1, 1], [], [0, 0], False, True, None)

    with pytest.raises(FormatError, match="export the model itself"):
        from_torch(export(Fn(function), [torch.randn(1, 1, 2, 2)]))


def test_what_data_decide() -> None:
    """Loops with a condition, masks that pick entries: nets, and NumPy between them."""
    loop = importlib.import_module("torch._higher_order_ops.while_loop").while_loop

    def function(x: Any, n: Any) -> Any:
        _, y = loop(lambda k, y: k < 3, lambda k, y: (k + 1, y * 2), (n, x))
        return y, x[x > 0], torch.nonzero(x > 0), x.masked_select(x < 0), x.cummax(0)

    given = [torch.randn(5, 3), torch.tensor(0)]
    model = from_torch(export(Fn(function), given))
    for first in (given[0], given[0].flip(0), -given[0]):
        for count in (0, 2, 7):
            inputs = [first, torch.tensor(count)]
            assert_same(model.run(fed(model, inputs)), function(*inputs))


def test_random_numbers_are_drawn_in_every_run() -> None:
    def function(x: Any) -> Any:
        return torch.rand_like(x), torch.randn(40), torch.bernoulli(x), torch.randperm(9)

    model = from_torch(export(Fn(function), [torch.full((50,), 0.3)]))
    feed = {"args_0": np.full(50, 0.3, np.float32)}
    first, second = (list(model.run(feed).values()) for _ in range(2))
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert 0 <= first[0].min() and first[0].max() < 1 and set(first[2]) <= {0, 1}
    assert sorted(first[3]) == list(range(9))


def test_buffers_of_floats_may_change() -> None:
    class Counts(nn.Module):
        def __init__(self, dtype: Any = None) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3, dtype=dtype))

        def forward(self, x: Any) -> Any:
            self.count.add_(x)
            return self.count * 2

    program = from_torch(export(Counts(), [torch.randn(3)]))
    for times in (2, 4):
        found = program.run({"x": np.ones(3, np.float32)})
        assert {name: value.tolist() for name, value in found.items()} == {"output": [times] * 3}
    assert program.buffers["count"].tolist() == [2] * 3
    whole = torch.ones(3, dtype=torch.int64)
    with pytest.raises(FormatError, match="buffer 'count' is changed"):
        from_torch(export(Counts(torch.int64), [whole]))


def test_what_is_no_program() -> None:
    for given, text in (
        ("model.pt2", "torch.export.load"),
        (nn.Linear(2, 2), "export it first"),
        (operator, "module is no ExportedProgram"),
    ):
        with pytest.raises(OpscopeError, match=text):
            from_torch(given)


def test_changes_in_place() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y[:, 0].add_(1)
        return y.mul_(3)

    given = torch.randn(2, 3)
    model = from_torch(export(Fn(function), [given]))
    assert_same(model.run({"args_0": given.numpy()}), function(given))


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, opscope; from opscope.bridges.torch.importing import program;"
        " opscope.from_torch; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ALONG_AN_AXIS: dict[str, Any] = {
    "index_select": lambda x, index, source: torch.index_select(x, 0, index),
    "gather": lambda x, index, source: torch.gather(x, 0, index),
    "scatter": lambda x, index, source: torch.scatter(x, 0, index, source),
    "scatter of a number": lambda x, index, source: torch.scatter(x, 0, index, 2.5),
    "scatter_add": lambda x, index, source: torch.scatter_add(x, 0, index, source),
    "mean": lambda x, index, source: torch.scatter_reduce(x, 0, index, source, "mean"),
    "amax": lambda x, index, source: torch.scatter_reduce(x, 0, index, source, "amax"),
    "index_copy": lambda x, index, source: torch.index_copy(x, 0, index, source),
    "index_add": lambda x, index, source: torch.index_add(x, 0, index, source),
    "index_fill": lambda x, index, source: torch.index_fill(x, 0, index, 2.5),
}


@pytest.mark.parametrize("name", ALONG_AN_AXIS)
def test_single_numbers_have_an_axis_where_one_is_named(name: str) -> None:
    """Of no dimension or of one, each of them, where PyTorch takes it."""
    function, taken = ALONG_AN_AXIS[name], 0
    for dims in itertools.product((0, 1), repeat=3):
        pairs = zip(dims, (3.0, 0, 7.0), strict=True)
        tensors = (torch.full((1,) * dim, value) for dim, value in pairs)
        given = dict(zip(("x", "index", "source"), tensors, strict=True))
        try:
            wanted = function(*given.values()).numpy()
        except (IndexError, RuntimeError):
            continue
        taken += 1
        model = from_torch(export(Fn(function), list(given.values())))
        inputs = [info.name for info in model.inputs]
        arrays = dict(zip(inputs, (one.numpy() for one in given.values()), strict=True))
        (found,) = model.run(arrays).values()
        assert found.shape == wanted.shape, dims
        np.testing.assert_array_equal(found, wanted, err_msg=str(dims))
    assert taken >= 4


@pytest.mark.parametrize("place", [-4, -3, 2, 3])
def test_indexes_outside_of_an_array_are_refused(place: int) -> None:
    """Also before the first row, which a place that counts from the end must not wrap to."""
    drawn = torch.arange(6.0).reshape(2, 3)
    ids, at = torch.tensor([1, 0]), torch.tensor([0, place])
    updates = torch.tensor([-1.0, -2.0])
    programs = [
        (lambda x, i, j: x[i, j], (ids, at)),
        (lambda x, i, j, u: x.index_put((i, j), u), (ids, at, updates)),
        (lambda x, i, j, u: x.index_put((i, j), u, accumulate=True), (ids, at, updates)),
    ]
    for function, others in programs:
        exported = export(Fn(function), [drawn, *[torch.zeros_like(one) for one in others]])
        model = from_torch(exported)
        feed = {
            info.name: one.numpy() for info, one in zip(model.inputs, (drawn, *others), strict=True)
        }
        if -3 <= place < 3:
            (found,) = model.run(feed).values()
            assert (found == function(drawn, *others).numpy()).all()
        else:
            with pytest.raises(RunError, match=rf"holds {place}, want -3 <= ids < 3"):
                model.run(feed)


RESIZED = {
    1: ["nearest", "nearest-exact", "linear"],
    2: ["nearest", "nearest-exact", "bilinear", "bicubic", "bilinear antialias",
        "bicubic antialias"],
    3: ["nearest", "nearest-exact", "trilinear"],
}  # fmt: skip
"""Modes of `F.interpolate` by the number of axes."""


@pytest.mark.parametrize(("rank", "mode"), [(k, one) for k, all in RESIZED.items() for one in all])
def test_images_of_random_sizes_become_as_large_as_pytorchs(rank: int, mode: str) -> None:
    """Sizes and factors, those that leave a size as it is among them, corners in place or not."""
    rng = np.random.default_rng(rank)
    kind, *antialias = mode.split()
    for number in range(9):
        sizes = rng.integers(1, 9, rank)
        more: dict[str, Any] = {"mode": kind}
        if "nearest" not in kind:
            more["align_corners"] = bool(number % 2)
        if antialias:
            more["antialias"] = True
        if number < 2:
            new = rng.integers(1, 12, rank).tolist()
            more["size"] = new
        else:
            draws = [
                rng.choice([0.5, 1, 2, 1.5, 3], rank),
                rng.uniform(0.4, 3, rank),
                1 + rng.uniform(0, 0.12, rank),
            ]
            more["scale_factor"] = draws[number % 3].tolist()
            sizes = np.maximum(sizes, 3)
            new = [int(n * by) for n, by in zip(sizes, more["scale_factor"], strict=True)]
            if number > 7:
                more["recompute_scale_factor"] = True
        if antialias and new[-1] == 1:
            continue  # PyTorch 2.13 repeats the first row where one column is left
        drawn = torch.tensor(rng.normal(size=(2, 3, *sizes)).astype("float32"))
        program = Fn(lambda x, more=more: F.interpolate(x, **more))
        model = from_torch(export(program, [drawn]))
        (found,) = model.run({model.inputs[0].name: drawn.numpy()}).values()
        np.testing.assert_allclose(
            found, program(drawn).numpy(), rtol=1e-4, atol=2e-5, err_msg=f"{sizes} {more}"
        )
