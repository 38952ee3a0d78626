"""Generation: one step equals the whole net; sampling and beam search against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import (
    AttributeTypeError,
    NotFiniteError,
    OpscopeError,
    ShapeError,
    VariableError,
)
from opscope.framework.base.sequence import Sequences
from opscope.python_api.generate.generation import Generator, Hypothesis, log_softmax
from opscope.python_api.generate.last_tokens import of_last_tokens
from opscope.python_api.generate.stepping import Stepper

V, E, H = 5, 4, 6
WIDE = ("normal", {"std": 1.0})


def language_model(kind="lstm", **options):
    b = NetBuilder("model", "float64")
    ids = b.input("ids", [-1], "int64", levels=1)
    x = b.embedding(ids, [V, E], init=WIDE)
    states, _ = getattr(b, kind)(x, H, init=WIDE, name="rnn", **options)
    b.fc(b.dropout(states, p=0.5), size=V, init=WIDE, name="scores")
    scope = Scope()
    b.initialize(scope, opscope.OpContext(seed=3))
    return b, scope


def translator(kind="additive"):
    """An encoder, and a decoder that attends to it."""
    b = NetBuilder("translator", "float64")
    source = b.input("source", [-1], "int64", levels=1)
    ids = b.input("ids", [-1], "int64", levels=1)
    read = b.embedding(source, [V, E], init=WIDE)
    memory, last = b.gru(read, H // 2, bidirectional=True, init=WIDE, name="encoder")
    keys = b.fc(memory, size=H, init=WIDE, name="keys")
    first = b.tanh(b.concat(last, axis=1))
    x = b.embedding(ids, [V, E], init=WIDE)
    with b.recurrent("decoder") as step:
        row, h = step.input(x), step.memory(boot=first)
        seen, _ = b.attention(h, memory, keys=keys, kind=kind, init=WIDE, name="look")
        h_new = b.gru_cell(b.concat([row, seen], axis=1), h, init=WIDE, name="cell")
        step.update(h, h_new)
        states = step.output(h_new)
    b.fc(states, size=V, init=WIDE, name="scores")
    scope = Scope()
    b.initialize(scope, opscope.OpContext(seed=4))
    return b, scope


SOURCES = Sequences.from_list([[1, 2, 3], [4], [0, 0, 2, 1]], np.int64)


def whole(b, scope, sequences, **feed):
    """Scores of whole sequences, by the net as it is."""
    feed = {"ids": Sequences.from_list(sequences, np.int64), **feed}
    scores = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    return Sequences(scores, feed["ids"].levels).to_list()


def check_steps(b, scope, rows, **feed):
    stepper = Stepper(b, scope)
    stepper.start(len(rows), feed)
    wanted = whole(b, scope, rows, **feed)
    for time in range(len(rows[0])):
        scores = stepper.run([row[time] for row in rows])
        np.testing.assert_allclose(scores, [own[time] for own in wanted], rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("lstm", {}),
        ("lstm", {"layers": 2, "dropout": 0.3, "peepholes": True, "projection": 3}),
        ("gru", {"layers": 2}),
        ("gru", {"reset_after": False}),
        ("simple_rnn", {}),
    ],
)
def test_steps_equal_the_whole_net(kind, options):
    b, scope = language_model(kind, **options)
    check_steps(b, scope, [[1, 2, 3, 0], [4, 4, 0, 1]])


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_steps_of_a_decoder_equal_the_whole_net(kind):
    b, scope = translator(kind)
    check_steps(b, scope, [[1, 2, 3, 0], [4, 4, 0, 1], [0, 1, 0, 1]], source=SOURCES)


def test_delays_and_constant_boots():
    b = NetBuilder("model", "float64")
    x = b.embedding(b.input("ids", [-1], "int64", levels=1), [V, E], init=WIDE)
    with b.recurrent("rnn") as step:
        row = step.input(x)
        h = step.memory(E, value=0.5, delay=3)
        new = b.tanh(row + h)
        step.update(h, new)
        states, again = step.output(new), step.output(new)
    b.fc(states + again, size=V, init=WIDE, name="scores")
    scope = Scope()
    b.initialize(scope)
    check_steps(b, scope, [[1, 2, 3, 0, 1, 2], [4, 4, 0, 1, 1, 0]])


def test_states_carried_in_training_start_from_zeros():
    b, scope = language_model(carry=2)
    b.run(scope, feed={"ids": Sequences.from_list([[1, 2], [3, 4]], np.int64)})
    plain, other = language_model()
    for name in ("embedding_0.w", "rnn.w_x", "rnn.w_h", "rnn.b", "scores.w", "scores.b"):
        other.var(name).set(scope.numpy(name))
    prompts = [[1], [2], [3]]
    assert_same(Generator(b, scope).greedy(prompts, 8), Generator(plain, other).greedy(prompts, 8))


def transformer(kind, packed, encoder=False, context=40):
    """A decoder of causal attention, over padded tokens or sequences."""
    b = NetBuilder("gpt", "float64")

    def tokens(name, positions):
        shape, levels = ([-1], 1) if packed else ([-1, -1], 0)
        x = b.embedding(b.input(name, shape, "int64", levels=levels), [V, 8], init=WIDE)
        return (
            x
            if positions == "rotary"
            else b.positional_encoding(
                x,
                kind=positions,
                max_length=context if positions == "learned" else 0,
                name=f"{name}_at",
            )
        )

    options = {"layers": 2, "heads": 2, "norm_first": True, "causal": True}
    x = tokens("ids", kind)
    options["rotary"] = kind == "rotary"
    if encoder:
        memory = b.transformer_encoder(tokens("source", "sinusoidal"), layers=1, heads=2)
        x = b.transformer_decoder(x, memory, **options)
    else:
        x = b.transformer_encoder(x, **options)
    b.fc(x, size=V, init=WIDE, name="scores")
    scope = Scope()
    b.initialize(scope, opscope.OpContext(seed=3))
    return b, scope


def last(b, scope, packed, row, source=None):
    """Scores of what follows a row, by the whole net."""
    given = {"ids": row} | ({} if source is None else {"source": source})
    feed = {n: Sequences.from_list([r], np.int64) if packed else [r] for n, r in given.items()}
    scores = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    return scores.reshape(len(row), V)[-1]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary"])
def test_tokens_read_from_caches_equal_the_whole_net(kind, packed):
    b, scope = transformer(kind, packed)
    generator = Generator(b, scope)
    stepper, rows = generator.stepper, [[1, 2], [3], [0, 4, 4, 1]]
    stepper.start(3)
    scores = stepper.read([np.array(row) for row in rows])
    for more in ([0, 1, 2], [[3, 1, 0], [2], [4, 4]], [1, 1, 0]):
        for one, row in zip(scores, rows, strict=True):
            np.testing.assert_allclose(one, last(b, scope, packed, row), rtol=1e-9)
        several = [np.atleast_1d(one) for one in more]
        single = all(len(one) == 1 for one in several)
        scores = stepper.run(more) if single else stepper.read(several)
        rows = [[*row, *one] for row, one in zip(rows, several, strict=True)]
    stepper.reorder(np.array([2, 2, 0]))
    scores = stepper.run([3, 1, 2])
    for one, (parent, token) in zip(scores, ((2, 3), (2, 1), (0, 2)), strict=True):
        np.testing.assert_allclose(one, last(b, scope, packed, [*rows[parent], token]), rtol=1e-9)
    greedy = generator.greedy([[1], [2, 3]], 9)
    assert_same(greedy, [one[0].tokens for one in generator.beam([[1], [2, 3]], 9, width=1)])
    assert list(generator.stream([1], 9, top_k=1)) == greedy[0].tolist()
    best = generator.beam([[1], [2, 3]], 5, width=3)[1][0]
    row, total = [2, 3], 0.0
    for token in best.tokens:
        total += log_softmax(last(b, scope, packed, row))[token]
        row.append(token)
    assert best.log_prob == pytest.approx(total)


def test_prompts_are_scored_at_their_ends_alone():
    b, scope = transformer("learned", packed=False)
    stepper = Generator(b, scope).stepper
    net = of_last_tokens(stepper.step, "ids", "scores", "ends")
    kinds = [op.type for op in net.ops]
    behind = len(kinds) - kinds[::-1].index("scaled_dot_product_attention")
    # What attention gives, and what is added to it; products and norms follow.
    assert kinds[behind:].count("gather_nd") == 2 == kinds.count("gather_nd")
    stepper.start(2)
    stepper.read([np.arange(5), np.arange(3)])
    assert stepper._work.get("scores").array.shape == (2, 1, V)


def test_scores_may_be_what_attention_gives():
    b, scope = NetBuilder("attention"), Scope()
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, V], init=WIDE)
    b.scaled_dot_product_attention(x, x, x, causal=True, name="scores")
    b.initialize(scope)
    stepper = Generator(b, scope).stepper
    stepper.start(2)
    rows = [[1, 2, 3, 4], [3, 0]]
    scores = stepper.read([np.array(row) for row in rows])
    for one, row in zip(scores, rows, strict=True):
        np.testing.assert_allclose(one, last(b, scope, False, row), rtol=1e-5)


def late(kind, packed):
    """A net that reads tokens, or what a user calls like parts of a step, behind attention."""
    b, scope = NetBuilder("late", "float64"), Scope()
    ids = b.input("ids", [-1] if packed else [-1, -1], "int64", levels=int(packed))
    table = b.parameter("table", [V, V], init=WIDE)
    if kind == "table":
        b.embedding(ids, w=table, name="scores")
    else:
        h = b.assign(b.embedding(ids, [V, 8], init=WIDE), name="h")
        w = b.parameter("w", [8, V], init=WIDE)
        if kind == "product":
            b.matmul(h, w, name="scores")
        else:
            last = b.scale(h, scale=0.5, name="h.last" if kind == "names" else "half")
            seen = b.multi_head_attention(h, last, h, causal=True, heads=2)
            sums = b.matmul(b.add(b.add(seen, h), last), w)
            own = b.embedding(ids, w=table, name="last.tokens" if kind == "names" else "own")
            whole = b.add(sums, own, name="scores.whole" if kind == "names" else "whole")
            b.add(whole, b.embedding(ids, [V, V], init=WIDE), name="scores")
    b.initialize(scope, opscope.OpContext(seed=3))
    return b, scope


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["product", "table", "late", "names"])
def test_tokens_may_be_read_behind_attention(kind, packed):
    b, scope = late(kind, packed)
    stepper, rows = Generator(b, scope).stepper, [[1, 2, 4, 0], [3], [0, 4]]
    assert stepper.step.blocks == (not packed or kind in ("late", "names"))
    stepper.start(3)
    scores = stepper.read([np.array(row) for row in rows])
    for more in ([0, 1, 2], [[3, 1, 0], [2], [4, 4]], [1, 1, 0]):
        for one, row in zip(scores, rows, strict=True):
            np.testing.assert_allclose(one, last(b, scope, packed, row), rtol=1e-9)
        several = [np.atleast_1d(one) for one in more]
        single = all(len(one) == 1 for one in several)
        scores = stepper.run(more) if single else stepper.read(several)
        rows = [[*row, *one] for row, one in zip(rows, several, strict=True)]


def test_scores_of_attention_are_picked_from_a_name_that_no_variable_has():
    b, scope = NetBuilder("attention", "float64"), Scope()
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, V], init=WIDE)
    x = b.scale(x, scale=2.0, name="scores.whole")
    b.scaled_dot_product_attention(x, x, x, causal=True, name="scores")
    b.initialize(scope, opscope.OpContext(seed=3))
    stepper = Generator(b, scope).stepper
    stepper.start(1)
    scores = stepper.read([np.array([1, 2, 3])])
    np.testing.assert_allclose(scores[0], last(b, scope, False, [1, 2, 3]), rtol=1e-9)


@pytest.mark.parametrize("packed", [False, True])
def test_a_decoder_with_caches_reads_its_own_source(packed):
    b, scope = transformer("learned", packed, encoder=True)
    sources = [[1, 2, 3], [4, 0, 1]] + [[2, 2]] * packed
    feed = {"source": Sequences.from_list(sources, np.int64) if packed else sources}
    prompts = [[1], [2, 4, 4], [3, 0]][: len(sources)]
    found = Generator(b, scope).beam(prompts, 4, width=2, feed=feed)
    for hypotheses, prompt, source in zip(found, prompts, sources, strict=True):
        for one in hypotheses:
            row, total = list(prompt), 0.0
            for token in one.tokens:
                total += log_softmax(last(b, scope, packed, row, source))[token]
                row.append(token)
            assert one.log_prob == pytest.approx(total)


@pytest.mark.parametrize("make", [language_model, lambda: transformer("learned", False)])
def test_what_several_texts_begin_with_is_read_once(make):
    generator = Generator(*make())
    context = generator.read([[1, 2, 3]])
    both = generator.read([[1, 2], [3, 0, 4]])
    for prompts in ([[4], [0, 2]], [[2]]):
        wholes = [[1, 2, 3, *prompt] for prompt in prompts]
        assert_same(generator.greedy(prompts, 6, after=context), generator.greedy(wholes, 6))
        found = generator.beam(prompts, 6, width=3, after=context)
        for one, two in zip(found, generator.beam(wholes, 6, width=3), strict=True):
            assert [h.tokens for h in one] == [h.tokens for h in two]
    whole = generator.greedy([[1, 2, 4], [3, 0, 4, 0, 2]], 6)
    assert_same(generator.greedy([[4], [0, 2]], 6, after=both), whole)
    assert list(generator.stream([4], 6, top_k=1, after=context)) == (
        generator.greedy([[1, 2, 3, 4]], 6)[0].tolist()
    )
    with pytest.raises(ShapeError, match="2 sequences were read before, and these are 3"):
        generator.greedy([[1]] * 3, 2, after=both)
    with pytest.raises(OpscopeError, match="in the caches of another generator, '(model|gpt)'"):
        Generator(*language_model()).greedy([[1]], 2, after=context)
    with pytest.raises(OpscopeError, match="with the feed of `read`"):
        generator.greedy([[1]], 2, after=context, feed={"ids": 1})


@pytest.mark.parametrize("prompts", [[[1, 2], [3], [0, 4, 4, 1]], [[1]], [[1, 2], [3, 4]]])
def test_packed_tokens_may_be_padded_for_attention(prompts):
    """Scores of padded tokens are [N, T, kinds], though the tokens are packed."""
    wide = ("normal", {"std": 1.0})
    b, scope = NetBuilder("padded", "float64"), Scope()
    ids = b.input("ids", [-1], "int64", levels=1)
    x = b.sequence_pad(b.embedding(ids, [5, 8], init=wide))
    seen = b.add(b.scaled_dot_product_attention(x, x, x, causal=True), x)
    b.matmul(seen, b.parameter("w", [8, 5], init=wide), name="scores")
    b.initialize(scope, opscope.OpContext(seed=3))
    stepper = Generator(b, scope).stepper
    stepper.start(len(prompts))
    found = stepper.read([np.array(one) for one in prompts])
    assert found.shape == (len(prompts), 5)
    for prompt, scores in zip(prompts, found, strict=True):
        feed = {"ids": [np.array(prompt)]}
        whole = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
        assert np.abs(whole.reshape(-1, 5)[-1] - scores).max() < 1e-12


def test_caches_grow_and_positions_end():
    b, scope = transformer("learned", False, context=150)
    generator = Generator(b, scope)
    long = generator.greedy([[1, 2], [3]], 148)
    stepper = generator.stepper
    stepper.start(2)
    scores = stepper.read([np.array([1, 2]), np.array([3])])
    for step in range(148):  # without saying how many come
        assert scores.argmax(1).tolist() == [row[step] for row in long]
        scores = stepper.run(scores.argmax(1))
    with pytest.raises(
        ShapeError, match=r"prompt 1 of 30 tokens, and 122 .* want 151 .*'ids_at.w' has 150"
    ):
        generator.greedy([[1], [2] * 30], 122)
    stream = generator.stream([1], 5)
    next(stream)
    generator.greedy([[1]], 1)
    with pytest.raises(OpscopeError, match="was given other prompts before"):
        next(stream)


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_greedy_with_prompts_of_several_lengths_and_an_end():
    b, scope = language_model()
    prompts = [[1], [2, 3, 1], [0, 4]]
    found = Generator(b, scope).greedy(prompts, 7)
    for prompt, made in zip(prompts, found, strict=True):
        wanted = list(prompt)
        for _ in range(7):
            wanted.append(int(whole(b, scope, [wanted])[0][-1].argmax()))
        assert made.tolist() == wanted[len(prompt) :]
    end = int(found[1][3])
    ended = Generator(b, scope).greedy(prompts, 7, end=end)
    for plain, cut in zip(found, ended, strict=True):
        stop = plain.tolist().index(end) if end in plain else 7
        assert cut.tolist() == plain[:stop].tolist()


def test_a_loaded_net_generates_the_same(tmp_path):
    b, scope = translator()
    b.backward_from(b.mean(b.square("scores")))
    b.add_optimization(0.1, "adam")
    b.run(
        scope,
        feed={"source": SOURCES, "ids": Sequences.from_list([[1], [2, 3], [1]], np.int64)},
    )
    opscope.save(b, scope, tmp_path / "model.pb")
    prompts, feed = [[0], [1], [2, 2]], {"source": SOURCES}
    wanted = Generator(b, scope).sample(prompts, 9, feed=feed, seed=1)
    loaded = opscope.load(tmp_path / "model.pb")
    before = loaded.scope.names()
    assert_same(wanted, Generator(loaded).sample(prompts, 9, feed=feed, seed=1))
    assert loaded.scope.names() == before and not loaded.scope.kids


def test_samples_follow_the_probabilities():
    b, scope = language_model()
    generator = Generator(b, scope)
    scores = whole(b, scope, [[1]])[0][-1]

    def shares(**options):
        rng = np.random.default_rng(0)
        drawn = generator.sample([[1]] * 4000, 1, seed=rng, **options)
        return np.bincount(np.concatenate(drawn), minlength=V) / 4000

    for temperature in (0.5, 1.0, 3.0):
        wanted = np.exp(log_softmax(scores / temperature))
        np.testing.assert_allclose(shares(temperature=temperature), wanted, atol=0.03)
    best = np.argsort(-scores)[:2]
    wanted = np.zeros(V)
    wanted[best] = np.exp(log_softmax(scores[best]))
    np.testing.assert_allclose(shares(top_k=2), wanted, atol=0.03)
    assert shares(top_k=1)[best[0]] == 1
    order = np.argsort(-scores)
    falling = np.exp(log_softmax(scores))[order]
    nucleus = order[: 1 + int((falling.cumsum() < 0.6).sum())]
    wanted = np.zeros(V)
    wanted[nucleus] = np.exp(log_softmax(scores[nucleus]))
    np.testing.assert_allclose(shares(top_p=0.6), wanted, atol=0.03)
    assert_same(generator.sample([[1]], 20, seed=5), generator.sample([[1]], 20, seed=5))
    assert_same(generator.sample([[1]], 20, top_k=1), generator.greedy([[1]], 20))


def enumerate_all(b, scope, prompt, steps, end, alpha, **feed):
    """Every result of a search that forgets nothing, best first."""
    found = []
    endings = [()] if end is None else [(), (end,)]
    others = [token for token in range(V) if token != end]
    for length in range(steps + 1):
        for tokens in itertools.product(others, repeat=length):
            for ending in endings:
                full = (*tokens, *ending)
                if len(full) > steps or not full or (not ending and len(full) < steps):
                    continue
                scores = log_softmax(whole(b, scope, [[*prompt, *full]], **feed)[0])
                begin = len(prompt) - 1
                log_prob = sum(scores[begin + n][token] for n, token in enumerate(full))
                score = log_prob / ((5 + len(full)) / 6) ** alpha
                found.append(Hypothesis(score, log_prob, tokens, bool(ending)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("end", [None, 2])
def test_a_wide_beam_finds_the_best_of_all(alpha, end):
    b, scope = language_model()
    options = {"width": V**3, "end": end, "length_penalty": alpha}
    prompts = [[1], [3, 0], [4]]
    found = Generator(b, scope).beam(prompts, 3, **options)
    for prompt, mine in zip(prompts, found, strict=True):
        assert len(mine) >= 3
        wanted = enumerate_all(b, scope, prompt, 3, end, alpha)[: len(mine)]
        assert [one.tokens for one in mine] == [one.tokens for one in wanted]
        assert [one.ended for one in mine] == [one.ended for one in wanted]
        np.testing.assert_allclose([o.score for o in mine], [o.score for o in wanted])
        np.testing.assert_allclose([o.log_prob for o in mine], [o.log_prob for o in wanted])


def test_a_beam_of_one_is_greedy_and_wider_ones_are_no_worse():
    b, scope = language_model()
    generator, prompts = Generator(b, scope), [[1], [2, 4], [3]]
    greedy = generator.greedy(prompts, 6)
    narrow = generator.beam(prompts, 6, width=1)
    assert_same(greedy, [one[0].tokens for one in narrow])
    for one, wide in zip(narrow, generator.beam(prompts, 6, width=50), strict=True):
        assert len(wide) == 50 and wide[0].score >= one[0].score - 1e-9  # but for rounding
        assert wide == sorted(wide, reverse=True)


def test_each_sequence_of_a_beam_sees_its_own_source():
    b, scope = translator()
    generator = Generator(b, scope)
    prompts = [[1], [1], [1]]
    together = generator.beam(prompts, 4, width=3, end=0, feed={"source": SOURCES})
    for number, source in enumerate(SOURCES.to_list()):
        alone = Sequences.from_list([source], np.int64)
        (found,) = generator.beam([[1]], 4, width=3, end=0, feed={"source": alone})
        assert [o.tokens for o in found] == [o.tokens for o in together[number]]
        assert found[0].log_prob == pytest.approx(together[number][0].log_prob)
        scores = log_softmax(
            whole(b, scope, [[1, *found[0].tokens, 0]], source=alone)[0].astype(float)
        )
        full = (*found[0].tokens, *([0] if found[0].ended else []))
        log_prob = sum(scores[n][token] for n, token in enumerate(full))
        assert found[0].log_prob == pytest.approx(log_prob)


# -- bad input ---------------------------------------------------------------------------------


def test_nets_that_cannot_run_step_by_step():
    b = NetBuilder("model")
    ids = b.input("ids", [-1], "int64", levels=1)
    other = b.input("other", [-1, E], levels=1)
    x = b.embedding(ids, [V, E])
    back, last = b.gru(x, H, reverse=True, name="back")
    both, _ = b.lstm(x, H, bidirectional=True, name="both")
    forth, end = b.gru(x, H, name="forth")
    with b.recurrent("aside") as step:
        row = step.input(x) + step.input(other)
        step.output(row)
    scope = Scope()
    b.initialize(scope)
    b.sequence_expand(end[0], x, name="expanded")
    b.sequence_softmax(forth, name="softmax")
    for name, text in (
        ("back", "'back' goes from the end of sequences to their beginning"),
        ("both", "goes from the end of sequences"),
        ("aside", "'other', in slot 'x' of recurrent net 'aside', does not depend on 'ids'"),
        ("softmax", "sequence_softmax.*does not work on each row by itself"),
        ("expanded", "does not work on each row by itself|known after the last step only"),
    ):
        with pytest.raises(OpscopeError, match=text):
            Generator(b, scope, scores=name)
    with pytest.raises(VariableError, match="'other' does not depend on 'ids'"):
        Generator(b, scope, scores="other")
    with pytest.raises(VariableError, match="no variable 'idz'.*did you mean ids"):
        Generator(b, scope, ids="idz")
    with pytest.raises(VariableError, match="want the scope"):
        Generator(b)
    with pytest.raises(ShapeError, match="'other' does not hold one integer a row"):
        Generator(b, scope, ids="other", scores=b.tanh(other))


def test_attention_that_looks_elsewhere_is_refused():
    b = NetBuilder("model")
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8])
    mask = b.input("mask", [-1, -1], "bool")
    b.transformer_encoder(x, layers=1, heads=2, name="both_ways")
    b.multi_head_attention(x, heads=2, causal=True, mask=mask, name="masked")
    b.reduce_mean(x, axes=[1], name="mean")
    b.stack([x, x], axis=1, name="stacked")
    b.stack([x, x], axis=-3, name="behind")
    b.mul(x, b.parameter("table", [7, 8]), name="scaled")
    scope = Scope()
    b.initialize(scope)
    for name, text in (
        ("both_ways", "does not look at earlier tokens alone: want causal=True"),
        ("masked", "does not look at earlier tokens alone"),
        ("mean", "reduce_mean.*does not work on each row by itself"),
        ("stacked", "stack.*does not work on each row by itself"),
        ("behind", "stack.*does not work on each row by itself"),
        ("scaled", "mul.*does not work on each row by itself"),
    ):
        with pytest.raises(OpscopeError, match=text):
            Generator(b, scope, scores=name)


def test_wrong_arguments():
    b, scope = translator()
    generator, feed = Generator(b, scope), {"source": SOURCES}
    with pytest.raises(ShapeError, match="wants prompts"):
        generator.greedy([], 3)
    with pytest.raises(ShapeError, match="prompt 1 must be a list of at least one token"):
        generator.greedy([[1], []], 3)
    with pytest.raises(ShapeError, match="prompt 0 must be"):
        generator.beam(["abc"], 3)
    with pytest.raises(AttributeTypeError, match="generation of 0 tokens"):
        generator.sample([[1]], 0)
    several = {"temperature": [0.0], "top_p": [0.0, 1.5], "top_k": [-1, 2.5, 2.0, None]}
    for wrong in ({name: value} for name, values in several.items() for value in values):
        with pytest.raises(AttributeTypeError, match="temperature > 0"):
            generator.sample([[1]], 3, **wrong)
    with pytest.raises(AttributeTypeError, match="width >= 1"):
        generator.beam([[1]], 3, width=0)
    with pytest.raises(VariableError, match="'source'"):
        generator.greedy([[1]], 3)
    with pytest.raises(VariableError, match="no variable 'sauce'.*did you mean source"):
        generator.greedy([[1]], 3, feed={"sauce": SOURCES})
    with pytest.raises(ShapeError, match="'source' wants 1 level of sequences"):
        generator.greedy([[1]], 3, feed={"source": np.array([1, 2])})
    with pytest.raises(OpscopeError, match="99"):
        generator.greedy([[99]], 3, feed={"source": [[1, 2]]})
    scope.get("scores.b").set(np.full(V, np.nan))
    with pytest.raises(NotFiniteError, match="'scores' holds NaN"):
        generator.greedy([[1]], 3, feed={"source": [[1, 2]]})
    with pytest.raises(ShapeError, match="has 3 rows for 2 sequences"):
        generator.greedy([[1], [2]], 3, feed=feed)
