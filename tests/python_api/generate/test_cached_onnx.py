"""A step with its caches outside: in ONNX Runtime token by token, and taken back by a generator."""

import numpy as np
import pytest

import opscope
from counting_decoder import counting
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import NotFiniteError, OpscopeError, ShapeError, VariableError
from opscope.python_api.generate.generation import Generator

V = 7
WIDE = ("normal", {"std": 1.0})


def generator(kind="learned", source=False, weights=""):
    b = NetBuilder("gpt")
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8], init=WIDE)
    if kind != "rotary":
        length = 40 if kind == "learned" else 0
        x = b.positional_encoding(x, kind=kind, max_length=length, name="at")
    options = {"layers": 2, "heads": 2, "norm_first": True, "causal": True}
    options["rotary"] = kind == "rotary"
    if source:
        x = b.transformer_decoder(x, b.input("memory", [-1, -1, 8]), **options)
    else:
        x = b.transformer_encoder(x, **options)
    b.fc(x, size=V, init=WIDE, name="scores")
    scope = Scope()
    b.initialize(scope, opscope.OpContext(seed=5))
    if weights:
        return Generator(opscope.quantize_weights(b, scope, weights))
    return Generator(b, scope)


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("weights", ["", "q8", "q4", "bf16"])
def test_onnx_runtime_writes_the_same(kind, weights, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    own = generator(kind, weights=weights)
    check = own.to_onnx(tmp_path / "gpt.onnx")
    assert check.error < 1e-5
    session = runtime.InferenceSession(tmp_path / "gpt.onnx")
    prompts = np.array([[1, 2, 3], [4, 0, 6]])
    wanted = own.greedy(prompts, 20)
    names = [one.name for one in session.get_inputs()]
    assert names[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    caches = {name: np.zeros((2, 2, 0, 4), np.float32) for name in names[3:]}
    ids, past = prompts, 0
    for step in range(20):
        many = ids.shape[1]
        at = np.tile(past + np.arange(many), (2, 1))
        given = {"input_ids": ids, "attention_mask": np.ones((2, past + many), np.int64)}
        scores, *present = session.run(None, {**given, "position_ids": at, **caches})
        caches = dict(zip(caches, present, strict=True))
        past += many
        ids = scores[:, -1:].argmax(-1)
        assert ids[:, 0].tolist() == [row[step] for row in wanted]


def test_a_generator_takes_such_a_file(tmp_path):
    own = generator()
    own.to_onnx(tmp_path / "gpt.onnx")
    model = opscope.from_onnx(tmp_path / "gpt.onnx")
    other = Generator(model, ids="input_ids", scores="logits")
    prompts = [[1], [2, 3, 1, 5, 6], [0, 4]]
    for one, two in zip(own.greedy(prompts, 30), other.greedy(prompts, 30), strict=True):
        assert one.tolist() == two.tolist()
    for one, two in zip(own.beam(prompts, 9), other.beam(prompts, 9), strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in two]
    drawn = (g.sample(prompts, 9, top_p=0.8, seed=3) for g in (own, other))
    assert [[r.tolist() for r in rows] for rows in drawn] == [
        [r.tolist() for r in own.sample(prompts, 9, top_p=0.8, seed=3)]
    ] * 2
    assert list(other.stream([1], 5, top_k=1)) == own.greedy([[1]], 5)[0].tolist()
    context = other.read([[1, 2]])
    after = other.greedy([[3], [4, 0]], 5, after=context)
    for one, two in zip(own.greedy([[1, 2, 3], [1, 2, 4, 0]], 5), after, strict=True):
        assert one.tolist() == two.tolist()
    with pytest.raises(OpscopeError, match="in the caches of another generator, .*gpt.onnx"):
        own.greedy([[3]], 2, after=context)
    with pytest.raises(OpscopeError, match="has its caches outside already"):
        other.to_onnx(tmp_path / "again.onnx")
    with pytest.raises(VariableError, match="wants 'ids', and has input_ids, attention_mask"):
        Generator(model)
    model.scope.get("scores.b").set(np.full(V, np.nan, np.float32))
    with pytest.raises(NotFiniteError, match="'logits' holds NaN"):
        other.greedy([[1]], 2)


def test_a_net_without_positions_wants_none(tmp_path):
    b, scope = NetBuilder("bare"), Scope()
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8], init=("normal", {"std": 1.0}))
    seen = b.scaled_dot_product_attention(x, x, x, causal=True, heads=2)
    b.fc(b.add(seen, x), size=V, name="scores")
    b.initialize(scope, opscope.OpContext(seed=3))
    own = Generator(b, scope)
    assert own.to_onnx(tmp_path / "bare.onnx").error < 1e-5
    model = opscope.from_onnx(tmp_path / "bare.onnx")
    names = [info.name for info in model.inputs]
    assert names == [
        "input_ids", "attention_mask", "past_key_values.0.key", "past_key_values.0.value"
    ]  # fmt: skip
    other = Generator(model, ids="input_ids", scores="logits")
    prompts = [[1], [2, 3, 1, 5, 6], [0, 4]]
    for one, two in zip(own.greedy(prompts, 30), other.greedy(prompts, 30), strict=True):
        assert one.tolist() == two.tolist()


def test_a_decoder_reads_the_memory_that_it_is_fed(tmp_path):
    own = generator(source=True)
    feed = {"memory": np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)}
    own.to_onnx(tmp_path / "decoder.onnx", feed=feed)
    other = Generator(
        opscope.from_onnx(tmp_path / "decoder.onnx"), ids="input_ids", scores="logits"
    )
    context, _ = own.stepper.context(feed)
    prompts = [[1], [2, 3], [0, 4]]
    for one, two in zip(
        own.greedy(prompts, 9, feed=feed), other.greedy(prompts, 9, feed=context), strict=True
    ):
        assert one.tolist() == two.tolist()


def test_a_model_without_a_mask_is_given_just_the_rows_that_there_are(tmp_path):
    decoder = counting(tmp_path / "m.onnx")
    found = decoder.greedy([[1, 2, 2], [3, 3, 3]], 4)
    assert [row.tolist() for row in found] == [[2] * 4, [3] * 4]
    with pytest.raises(ShapeError, match="prompts of 1 to 2 tokens.*'attention_mask'"):
        decoder.greedy([[1], [1, 2]], 4)


def test_what_has_no_such_form_is_refused(tmp_path):
    b = NetBuilder("model")
    x = b.embedding(b.input("ids", [-1], "int64", levels=1), [V, 8])
    b.fc(b.gru(x, 8)[0], size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    with pytest.raises(OpscopeError, match=r"wants tokens \[N, T\], read by causal attention"):
        Generator(b, scope).to_onnx(tmp_path / "model.onnx")
    b = NetBuilder("plain")
    b.fc(b.embedding(b.input("input_ids", [-1, 3], "int64"), [V, 8]), size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    opscope.to_onnx(b, tmp_path / "plain.onnx", scope, outputs=["scores"])
    with pytest.raises(OpscopeError, match="0 inputs past... and 0 outputs present"):
        Generator(opscope.from_onnx(tmp_path / "plain.onnx"), ids="input_ids")
