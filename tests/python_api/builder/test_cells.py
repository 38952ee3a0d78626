"""Recurrent layers: against PyTorch on packed sequences, against formulas, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import AttributeTypeError
from rnn_layers import LENGTHS, H, K, check_gradients, feed_for, layer_net, parameters


@pytest.fixture(params=["steps", "fast"])
def way(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", request.param)
    return request.param


# -- against PyTorch ---------------------------------------------------------------------------

TORCH = {"lstm": "LSTM", "gru": "GRU", "simple_rnn": "RNN"}


def torch_parts(kind, module, layer, suffix):
    """PyTorch's parameters of one layer and direction, named and laid out as ours."""
    end = f"l{layer}{suffix}"
    parts = {
        "w_x": getattr(module, f"weight_ih_{end}").T,
        "w_h": getattr(module, f"weight_hh_{end}").T,
        "b": getattr(module, f"bias_ih_{end}"),
    }
    if kind == "gru":
        parts["b_h"] = getattr(module, f"bias_hh_{end}")
    if module.proj_size:
        parts["w_proj"] = getattr(module, f"weight_hr_{end}").T
    return parts


def torch_side(torch, kind, module, feed, layers, both):
    """Outputs (packed), last states and all gradients of PyTorch, by our names."""
    x, lengths = feed["x"], np.diff(feed["x"].levels[0])
    rows = torch.tensor(x.data, requires_grad=True)
    sequences = list(torch.split(rows, lengths.tolist()))
    packed_x = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    count = layers * (2 if both else 1)

    def boots(part):
        held = [torch.tensor(feed[f"boot_{part}{n}"], requires_grad=True) for n in range(count)]
        return held, torch.stack(held)

    h_parts, h0 = boots("h")
    if kind == "lstm":
        c_parts, c0 = boots("c")
        out, (h, c) = module(packed_x, (h0, c0))
        finals = [part for n in range(count) for part in (h[n], c[n])]
    else:
        out, h = module(packed_x, h0)
        finals = list(h)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    whole = torch.cat([padded[n, :length] for n, length in enumerate(lengths)])
    results = [whole, *finals]
    cost = sum((r * torch.tensor(feed[f"weight_{n}"])).sum() for n, r in enumerate(results))
    cost.backward()
    grads = {"x": rows.grad.numpy()}
    for n in range(count):
        grads[f"boot_h{n}"] = h_parts[n].grad.numpy()
        if kind == "lstm":
            grads[f"boot_c{n}"] = c_parts[n].grad.numpy()
    return [r.detach().numpy() for r in results], grads


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", list(TORCH))
def test_equal_to_pytorch(kind, layers, both, way):
    compare(kind, layers, both, {})


@pytest.mark.parametrize("both", [False, True])
def test_projection_equal_to_pytorch(both, way):
    compare("lstm", 2, both, {"projection": 3})


@pytest.mark.parametrize("lengths", [[4, 4, 4], [1], [7], [1, 1], [2, 9, 2]])
def test_lengths_equal_to_pytorch(lengths, way):
    compare("lstm", 1, True, {}, lengths)


def test_relu_equal_to_pytorch(way):
    compare("simple_rnn", 1, False, {"activation": "relu"})


def compare(kind, layers, both, extra, lengths=LENGTHS):
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    width = extra.get("projection", H)
    given = {"nonlinearity": extra["activation"]} if "activation" in extra else {}
    if "projection" in extra:
        given = {"proj_size": width}
    module = getattr(torch.nn, TORCH[kind])(K, H, layers, bidirectional=both, **given)
    options = {"layers": layers, "bidirectional": both, **extra}
    b, results, _ = layer_net(kind, width=width, **options)
    scope = Scope()
    b.initialize(scope)
    ours = {}
    for layer in range(layers):
        for suffix in ("", "_reverse") if both else ("",):
            prefix = "layer" + (f".l{layer}" if layers > 1 else "") + suffix.replace("_", ".")
            parts = torch_parts(kind, module, layer, suffix)
            for part, tensor in parts.items():
                name = f"{prefix}.{part}"
                value = tensor.detach().numpy()
                if part == "b" and kind != "gru":
                    value = value + getattr(module, f"bias_hh_l{layer}{suffix}").detach().numpy()
                assert scope.numpy(name).shape == value.shape
                scope.get(name).set(np.ascontiguousarray(value))
                ours[name] = (layer, suffix, part)
    assert sorted(ours) == sorted(parameters(b))
    feed = feed_for(b, np.random.default_rng(1), lengths)
    wanted, grads = torch_side(torch, kind, module, feed, layers, both)
    found = b.run(scope, feed=feed, fetch=[*results, *(b.gradient(n) for n in (*ours, *grads))])
    for var, value in zip(results, wanted, strict=True):
        close(found[var.name], value, var.name)
    for name, (layer, suffix, part) in ours.items():
        end = f"l{layer}{suffix}"
        source = {"w_x": "weight_ih_", "w_h": "weight_hh_", "b": "bias_ih_", "b_h": "bias_hh_"}
        grad = getattr(module, source.get(part, "weight_hr_") + end).grad.numpy().T
        close(found[b.gradient(name)], grad, name)
    for name, grad in grads.items():
        close(found[b.gradient(name)], grad, name)


def close(got, wanted, what):
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=what)


# -- gradients in float64 ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("lstm", {}),
        ("lstm", {"peepholes": True}),
        ("lstm", {"peepholes": True, "projection": 3, "reverse": True}),
        ("lstm", {"layers": 2, "bidirectional": True}),
        ("gru", {}),
        ("gru", {"reset_after": False, "reverse": True}),
        ("simple_rnn", {"activation": "sigmoid"}),
    ],
)
def test_gradients(kind, options, way):
    width = options.get("projection", H)
    b, _, wrt = layer_net(kind, dtype="float64", width=width, **options)
    scope = Scope()
    feed = feed_for(b, np.random.default_rng(2), [3, 0, 5, 1], "float64")
    b.run(scope, feed=feed)
    for name in parameters(b):  # peepholes and biases start from zeros
        rng = np.random.default_rng(len(name))
        scope.get(name).set(rng.normal(size=scope.numpy(name).shape) * 0.5)
    check_gradients(b, scope, feed, wrt)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("projection", [0, 4])
def test_peepholes_against_the_formula(projection, way):
    options = {"peepholes": True, "projection": projection}
    b, (out, h_last, c_last), _ = layer_net(
        "lstm", dtype="float64", width=projection or H, **options
    )
    scope, rng = Scope(), np.random.default_rng(0)
    b.initialize(scope)
    for name in parameters(b):
        scope.get(name).set(rng.normal(size=scope.numpy(name).shape))
    p = {name.removeprefix("layer."): scope.numpy(name) for name in parameters(b)}
    feed = feed_for(b, rng, dtype="float64")
    found = b.run(scope, feed=feed, fetch=[out, h_last, c_last], need_backward=False)
    outputs = []
    for n, rows in enumerate(feed["x"].to_list()):
        h, c = feed["boot_h0"][n], feed["boot_c0"][n]
        for row in rows:
            i, f, g, o = np.split(row @ p["w_x"] + h @ p["w_h"] + p["b"], 4)
            i, f = sigmoid(i + p["p_i"] * c), sigmoid(f + p["p_f"] * c)
            c = f * c + i * np.tanh(g)
            h = sigmoid(o + p["p_o"] * c) * np.tanh(c)
            h = h @ p["w_proj"] if projection else h
            outputs.append(h)
        np.testing.assert_allclose(found[h_last.name][n], h, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found[c_last.name][n], c, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[out.name], outputs, rtol=1e-12, atol=1e-14)


def test_classic_gru_against_the_formula():
    b, (out, _), _ = layer_net("gru", dtype="float64", reset_after=False)
    scope, rng = Scope(), np.random.default_rng(0)
    feed = feed_for(b, rng, dtype="float64")
    found = b.run(scope, feed=feed, fetch=[out], need_backward=False)
    p = {name.removeprefix("layer."): scope.numpy(name) for name in parameters(b)}
    outputs = []
    for n, rows in enumerate(feed["x"].to_list()):
        h = feed["boot_h0"][n]
        for row in rows:
            x_r, x_z, x_n = np.split(row @ p["w_x"] + p["b"], 3)
            h_r, h_z = np.split(h @ p["w_h"], 2)
            r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
            h = (1 - z) * np.tanh(x_n + (r * h) @ p["w_n"]) + z * h
            outputs.append(h)
    np.testing.assert_allclose(found[out.name], outputs, rtol=1e-12, atol=1e-14)


def test_the_forget_bias_and_arrays_as_first_values():
    b = NetBuilder("net")
    b.lstm(b.input("x", [-1, K], levels=1), H, forget_bias=1.0, name="layer")
    scope = Scope()
    b.initialize(scope)
    assert scope.numpy("layer.b").tolist() == [0] * H + [1] * H + [0] * 2 * H
    with pytest.raises(AttributeTypeError, match=r"'w' is \[2, 2\], its first value \[3\]"):
        b.parameter("w", [2, 2], np.zeros(3))
