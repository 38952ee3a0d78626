"""Attention and transformers: PyTorch's numbers and gradients, packed sequences, positions."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import AttributeTypeError, RunError, ShapeError
from opscope.framework.base.sequence import Sequences
from transformer_nets import (
    FEEDFORWARD,
    HEADS,
    D,
    as_arrays,
    assert_same,
    attention_weights,
    gradients_of,
    layer_weights,
    norm_weights,
    outcome,
    shaken,
    value_of,
)

RNG = np.random.default_rng(0)
N, T, S = 3, 5, 4
X, MEMORY = RNG.normal(size=(N, T, D)), RNG.normal(size=(N, S, D))
SEED = RNG.normal(size=(N, T, D))
PADDING = np.array([[False] * 4, [False, False, True, True], [False, True, False, True]])
ALLOWED = np.tri(T, S, dtype=bool) | (RNG.random((T, S)) < 0.3)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def net(**inputs):
    """A builder in float64, and its inputs by shape (and dtype)."""
    b = NetBuilder("net", dtype="float64")
    made = [
        b.input(name, *how) if isinstance(how, tuple) else b.input(name, how)
        for name, how in inputs.items()
    ]
    return b, *made


def compare(torch, module, weights_of, b, out, feed, result, fed, seed=SEED):
    """Assert that output and all gradients of a net are those of a module that has been run.

    Args:
        weights_of: module -> its parameters by our names. fed: our input -> PyTorch's.
    """
    weights = as_arrays(weights_of(module))
    found, gradients = outcome(b, out, feed, weights, seed)
    np.testing.assert_allclose(found, result.detach().numpy(), rtol=1e-9, atol=1e-11)
    (result * torch.tensor(seed)).sum().backward()
    wanted = as_arrays(weights_of(gradients_of(module)))
    wanted |= {name: tensor.grad.numpy() for name, tensor in fed.items()}
    assert_same(gradients, wanted)


# -- multi-head attention ------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_pytorch(torch, causal, bias):
    module = shaken(torch.nn.MultiheadAttention(D, HEADS, bias=bias, batch_first=True))
    x = torch.tensor(X, requires_grad=True)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
    result, shares = module(x, x, x, attn_mask=hidden, average_attn_weights=False)
    b, ours = net(x=[-1, -1, D])
    out = b.multi_head_attention(ours, heads=HEADS, causal=causal, bias=bias, name="mha")
    compare(
        torch, module, lambda m: attention_weights(m, "mha"), b, out, {"x": X}, result, {"x": x}
    )
    scope = Scope()
    scope.feed(as_arrays(attention_weights(module, "mha")))
    fetched = b.run(scope, feed={"x": X, "seed": SEED}, fetch=["mha.weights"], need_backward=False)
    np.testing.assert_allclose(fetched["mha.weights"], shares.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("padding", [None, "bool", "int"])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_masks_equal_pytorch(torch, mask, padding):
    module = shaken(torch.nn.MultiheadAttention(D, HEADS, kdim=6, vdim=7, batch_first=True))
    key, value = RNG.normal(size=(N, S, 6)), RNG.normal(size=(N, S, 7))
    tensors = {"x": torch.tensor(X), "key": torch.tensor(key), "value": torch.tensor(value)}
    for tensor in tensors.values():
        tensor.requires_grad_()
    b, *arrays = net(x=[-1, T, D], key=[-1, S, 6], value=[-1, S, 7])
    feed, how, theirs = {"x": X, "key": key, "value": value}, {}, {}
    if mask == "bool":
        feed["mask"], theirs["attn_mask"] = ALLOWED, torch.tensor(~ALLOWED)
        how["mask"] = b.input("mask", [T, S], "bool")
    if mask == "float":
        feed["mask"] = RNG.normal(size=(T, S))
        tensors["mask"] = theirs["attn_mask"] = torch.tensor(feed["mask"], requires_grad=True)
        how["mask"] = b.input("mask", [T, S])
    if padding:
        feed["padding"] = PADDING if padding == "bool" else PADDING.astype("int32")
        theirs["key_padding_mask"] = torch.tensor(PADDING)
        if mask == "float":  # PyTorch wants both of one kind
            hidden = torch.zeros(N, S, dtype=torch.float64)
            theirs["key_padding_mask"] = hidden.masked_fill(torch.tensor(PADDING), -torch.inf)
        how["key_padding_mask"] = b.input("padding", [-1, S], feed["padding"].dtype)
    result, _ = module(tensors["x"], tensors["key"], tensors["value"], **theirs)
    out = b.multi_head_attention(*arrays, heads=HEADS, name="mha", **how)
    compare(torch, module, lambda m: attention_weights(m, "mha"), b, out, feed, result, tensors)


def test_a_query_that_may_look_nowhere_gets_the_bias():
    b, x, mask = net(x=[-1, -1, D], mask=([-1, 1, 1, T], "bool"))
    out = b.multi_head_attention(x, heads=HEADS, mask=mask, name="mha")
    b.backward_from(b.reduce_sum(out), wrt=[x])
    scope = Scope()
    allowed = np.ones((N, 1, 1, T), bool)
    allowed[1] = False
    wanted = [out.name, "mha.out.b", b.gradients["x"]]
    found = b.run(scope, feed={"x": X, "mask": allowed}, fetch=wanted)
    np.testing.assert_array_equal(found[out.name][1], np.tile(found["mha.out.b"], (T, 1)))
    assert not found[b.gradients["x"]][1].any() and np.isfinite(found[b.gradients["x"]]).all()


# -- packed sequences ----------------------------------------------------------------------------

LENGTHS, MEMORY_LENGTHS = [5, 0, 3, 1], [2, 4, 1, 3]


def packed(lengths, width=D, seed=1):
    rng = np.random.default_rng(seed)
    return Sequences.from_list([rng.normal(size=(length, width)) for length in lengths])


def alone(sequences, number):
    return sequences.to_list()[number][None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_sequences_are_seen_one_by_one(causal, rotary):
    """Packed sequences give what each gives alone, and gradients that are the sum of theirs."""
    x, seed = packed(LENGTHS), packed(LENGTHS, seed=2)
    how = {"heads": HEADS, "causal": causal, "rotary": rotary, "norm_first": True, "dropout": 0.0}

    def layer(shape, levels):
        b = NetBuilder("net", dtype="float64")
        return b, b.transformer_encoder_layer(
            b.input("x", shape, levels=levels), name="layer", **how
        )

    b, out = layer([-1, D], 1)
    weights = {
        v.name: RNG.normal(size=v.shape) * 0.4
        for v in b.forward_net.op_list.vars
        if v.name.startswith("layer.") and v.initializer
    }
    found, gradients = outcome(b, out, {"x": x}, weights, seed)
    total = {name: np.zeros_like(value) for name, value in weights.items()}
    for number, length in enumerate(LENGTHS):
        if not length:
            continue
        b, out = layer([-1, -1, D], 0)
        own, part = outcome(b, out, {"x": alone(x, number)}, weights, alone(seed, number))
        np.testing.assert_allclose(found.to_list()[number], own[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(gradients["x"].to_list()[number], part["x"][0], atol=1e-10)
        for name in total:
            total[name] += part[name]
    assert_same({name: gradients[name] for name in total}, total, atol=1e-10)


@pytest.mark.parametrize("query_packed", [False, True])
@pytest.mark.parametrize("memory_packed", [False, True])
def test_a_decoder_sees_packed_and_padded_memories(query_packed, memory_packed):
    """A padded batch with a mask and packed sequences are the same to a decoder."""
    x, memory = packed([5, 2, 3, 1]), packed(MEMORY_LENGTHS, seed=3)
    padded, rows = x.to_padded()
    keys, there = memory.to_padded()

    def run(x_is_packed, memory_is_packed):
        b = NetBuilder("net", dtype="float64")
        ours = b.input("x", [-1, D] if x_is_packed else [-1, -1, D], levels=int(x_is_packed))
        shape = [-1, D] if memory_is_packed else [-1, -1, D]
        seen = b.input("memory", shape, levels=int(memory_is_packed))
        how, feed = {}, {"x": x if x_is_packed else padded}
        feed["memory"] = memory if memory_is_packed else keys
        if not memory_is_packed:
            how["memory_key_padding_mask"] = b.input("padding", [-1, -1], "bool")
            feed["padding"] = ~there
        out = b.transformer_decoder(ours, seen, layers=2, heads=HEADS, dropout=0.0, name="d", **how)
        scope = Scope()
        scope.feed(weights or {})
        b.run(scope, feed=feed, fetch=[out.name])
        weights.update(
            {v.name: scope.numpy(v.name) for v in b.forward_net.op_list.vars if v.initializer}
        )
        return value_of(scope, out.name)

    weights = {}

    found, wanted = run(query_packed, memory_packed), run(True, True)
    if not query_packed:
        found = Sequences(found[rows], wanted.levels)
    np.testing.assert_allclose(found.data, wanted.data, rtol=1e-10, atol=1e-12)


# -- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_pytorch(torch, norm_first, activation):
    module = shaken(
        torch.nn.TransformerEncoderLayer(
            D, HEADS, FEEDFORWARD, 0.0, activation, batch_first=True, norm_first=norm_first
        )
    )
    x, padding = torch.tensor(X, requires_grad=True), np.zeros((N, T), bool)
    padding[1, 3:] = True
    result = module(x, src_key_padding_mask=torch.tensor(padding))
    b, ours, mask = net(x=[-1, -1, D], padding=([-1, -1], "bool"))
    out = b.transformer_encoder_layer(
        ours, heads=HEADS, feedforward=FEEDFORWARD, activation=activation, norm_first=norm_first,
        dropout=0.0, key_padding_mask=mask, name="layer",
    )  # fmt: skip
    feed = {"x": X, "padding": padding}
    compare(torch, module, lambda m: layer_weights(m, "layer"), b, out, feed, result, {"x": x})


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_pytorch(torch, norm_first, activation):
    module = shaken(
        torch.nn.TransformerDecoderLayer(
            D, HEADS, FEEDFORWARD, 0.0, activation, batch_first=True, norm_first=norm_first
        )
    )
    x, memory = torch.tensor(X, requires_grad=True), torch.tensor(MEMORY, requires_grad=True)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    hidden = torch.tensor(~ALLOWED)
    result = module(x, memory, later, hidden, memory_key_padding_mask=torch.tensor(PADDING))
    b, ours, seen, mask, padding = net(
        x=[-1, T, D], memory=[-1, S, D], mask=([T, S], "bool"), padding=([-1, S], "bool")
    )
    out = b.transformer_decoder_layer(
        ours, seen, heads=HEADS, feedforward=FEEDFORWARD, activation=activation,
        norm_first=norm_first, dropout=0.0, memory_mask=mask, memory_key_padding_mask=padding,
        name="layer",
    )  # fmt: skip
    feed = {"x": X, "memory": MEMORY, "mask": ALLOWED, "padding": PADDING}
    fed = {"x": x, "memory": memory}
    compare(torch, module, lambda m: layer_weights(m, "layer"), b, out, feed, result, fed)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_equal_pytorch(torch, norm_first):
    def stack(module):
        weights = {}
        for number, layer in enumerate(module.layers):
            weights |= layer_weights(layer, f"stack.{number}")
        return weights | (norm_weights(module.norm, "stack.norm") if norm_first else {})

    nn, shape = torch.nn, (D, HEADS, FEEDFORWARD, 0.0)
    how = {"batch_first": True, "norm_first": norm_first}
    norms = [nn.LayerNorm(D) if norm_first else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*shape, **how), 2, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*shape, **how), 2, norms[1])
    ours = {"layers": 2, "heads": HEADS, "feedforward": FEEDFORWARD, "dropout": 0.0,
            "norm_first": norm_first, "name": "stack"}  # fmt: skip
    module, x = shaken(encoder), torch.tensor(X, requires_grad=True)
    b, given = net(x=[-1, -1, D])
    out = b.transformer_encoder(given, **ours)
    compare(torch, module, stack, b, out, {"x": X}, module(x), {"x": x})
    module, x = shaken(decoder, 1), torch.tensor(X, requires_grad=True)
    memory = torch.tensor(MEMORY, requires_grad=True)
    result = module(x, memory, tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1))
    b, given, seen = net(x=[-1, -1, D], memory=[-1, -1, D])
    out = b.transformer_decoder(given, seen, **ours)
    feed, fed = {"x": X, "memory": MEMORY}, {"x": x, "memory": memory}
    compare(torch, module, stack, b, out, feed, result, fed)


def test_dropout_is_for_training_alone():
    b, x = net(x=[-1, -1, D])
    out = b.transformer_encoder_layer(x, heads=HEADS, dropout=0.5, name="layer")
    scope = Scope()
    runs = [b.run(scope, feed={"x": X}, fetch=[out.name])[out.name] for _ in range(2)]
    assert not np.array_equal(*runs)
    kinds = [op.type for op in b.forward_net.op_list.ops]
    assert kinds.count("dropout") == 3  # two sublayers and the activation; the weights have theirs
    plain, x = net(x=[-1, -1, D])
    plain.transformer_encoder_layer(x, heads=HEADS, dropout=0.0)
    assert "dropout" not in [op.type for op in plain.forward_net.op_list.ops]


def test_parameters_can_be_held_and_slowed():
    b, x = net(x=[-1, -1, D])
    out = b.transformer_encoder_layer(x, heads=HEADS, trainable=False, name="held")
    out = b.transformer_encoder_layer(out, heads=HEADS, lr_factor=0.5, init="zeros", name="slow")
    b.backward_from(b.mean(out))
    held = [v for v in b.forward_net.op_list.vars if v.name.startswith("held.") and v.initializer]
    slow = [v for v in b.forward_net.op_list.vars if v.name.startswith("slow.") and v.initializer]
    assert len(held) == len(slow) == 16
    assert all(v.stop_gradient and v.name not in b.gradients for v in held)
    assert all(v.lr_factor == 0.5 and v.name in b.gradients for v in slow)
    scope = Scope()
    b.run(scope, feed={"x": X})
    assert not scope.numpy("slow.attention.q.w").any() and scope.numpy("held.attention.q.w").any()


# -- positions -----------------------------------------------------------------------------------


def test_positions_are_added():
    b, x = net(x=[-1, -1, D])
    rows = b.input("packed", [-1, D], levels=1)
    fixed, moving = b.positional_encoding(x), b.positional_encoding(rows)
    learned = b.positional_encoding(x, kind="learned", max_length=T, name="table")
    data = packed(LENGTHS)
    scope = Scope()
    found = b.run(
        scope,
        feed={"x": X, "packed": data},
        fetch=[fixed.name, moving.name, learned.name],
    )
    angles = np.arange(T)[:, None] / 1e4 ** (2 * (np.arange(D) // 2) / D)
    table = np.where(np.arange(D) % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(found[fixed.name], X + table, rtol=1e-12)
    for one, other in zip(scope.sequences(moving.name).to_list(), data.to_list(), strict=True):
        np.testing.assert_allclose(one, other + table[: len(other)], rtol=1e-12)
    np.testing.assert_allclose(found[learned.name], X + scope.numpy("table.w"), rtol=1e-12)
    with pytest.raises(RunError, match="want 0 <= ids < 5"):
        b.run(scope, feed={"x": np.zeros((1, T + 1, D)), "packed": data})


# -- mistakes ------------------------------------------------------------------------------------


def test_what_is_refused():
    b, x, flat, vector = net(x=[-1, -1, D], flat=[-1, D], vector=[-1])
    with pytest.raises(ShapeError, match="8 columns and heads=3 do not go"):
        b.multi_head_attention(x, heads=3)
    with pytest.raises(ShapeError, match="do not go into pairs"):
        b.multi_head_attention(x, heads=8, rotary=True)
    with pytest.raises(ShapeError, match=r"must be \[N, T, D\], or sequences \[rows, D\]"):
        b.multi_head_attention(vector, heads=1)
    with pytest.raises(ShapeError, match="of key and value one alone is packed"):
        b.multi_head_attention(x, x, flat, heads=2)
    padding = b.input("padding", [-1, -1])
    with pytest.raises(AttributeTypeError, match="wants booleans or integers, true where a key"):
        b.multi_head_attention(x, heads=2, key_padding_mask=padding)
    with pytest.raises(AttributeTypeError, match="packed sequences, which have no padding"):
        b.multi_head_attention(flat, heads=2, key_padding_mask=padding)
    with pytest.raises(AttributeTypeError, match="kind is one of sinusoidal, learned, not 'sine'"):
        b.positional_encoding(x, kind="sine")
    with pytest.raises(AttributeTypeError, match="want max_length"):
        b.positional_encoding(x, kind="learned")
    with pytest.raises(AttributeTypeError, match="layers=0 wants 1 or more"):
        b.transformer_encoder(x, layers=0, heads=2)
    with pytest.raises(AttributeTypeError, match=r"no argument 'nhead' \(write heads=4\)"):
        b.transformer_encoder_layer(x, nhead=4)
    with pytest.raises(AttributeTypeError, match="missing a required .*'heads'"):
        b.transformer_decoder(x, x, layers=2)
    with pytest.raises(AttributeTypeError, match='write activation="gelu"'):
        b.transformer_encoder(x, layers=2, heads=4, activation=b.gelu)


def test_a_transformer_learns_from_sequences_of_different_lengths():
    """The label is the token that stands in front, which positions alone can tell."""
    rng = np.random.default_rng(0)
    tokens = [rng.integers(0, 4, rng.integers(1, 7)) for _ in range(64)]
    feed = {"tokens": tokens, "label": np.array([own[0] for own in tokens])}
    b = NetBuilder("first")
    x = b.embedding(b.input("tokens", [-1], "int64", levels=1), [4, 16], init="xavier")
    x = b.transformer_encoder(b.positional_encoding(x), layers=1, heads=2, dropout=0.0)
    scores = b.fc(b.sequence_pool(x), size=4)
    loss = b.cross_entropy_loss(scores, b.input("label", [-1], "int64"))
    b.backward_from(loss)
    b.add_optimization(5e-3, "adam")
    scope = Scope()
    costs = [b.run(scope, feed=feed, fetch=[loss.name])[loss.name] for _ in range(120)]
    assert costs[0] > 1 and costs[-1] < 0.05
