"""Programs of torch.export that write keys and values to buffers of their own."""

import numpy as np
import pytest

import opscope
from opscope.framework.base.errors import OpscopeError, ShapeError, VariableError
from opscope.python_api.generate.generation import Generator

torch = pytest.importorskip("torch")
V, D, HEADS, ROWS = 7, 8, 2, 24


class Decoder(torch.nn.Module):
    def __init__(self, sequences, copies):
        super().__init__()
        self.tokens, self.at = torch.nn.Embedding(V, D), torch.nn.Embedding(ROWS, D)
        self.qkv, self.out = torch.nn.Linear(D, 3 * D), torch.nn.Linear(D, V)
        self.copies = copies
        for name in ("key_cache", "value_cache"):
            zeros = torch.zeros(sequences, HEADS, ROWS, D // HEADS)
            self.register_buffer(name, zeros, persistent=copies)

    def forward(self, input_ids, cache_position):
        x = self.tokens(input_ids) + self.at(cache_position)
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        if self.copies:
            self.key_cache.index_copy_(2, cache_position, k)
            self.value_cache.index_copy_(2, cache_position, v)
        else:
            self.key_cache[:, :, cache_position] = k
            self.value_cache[:, :, cache_position] = v
        mask = torch.arange(ROWS) <= cache_position[:, None]
        attend = torch.nn.functional.scaled_dot_product_attention
        seen = attend(q, self.key_cache, self.value_cache, attn_mask=mask)
        return self.out(x + seen.transpose(1, 2).flatten(2))


def exported(sequences, copies):
    torch.manual_seed(1)
    module = Decoder(sequences, copies).eval()
    given = torch.zeros(sequences, 1, dtype=torch.int64), torch.tensor([0])
    return module, opscope.from_torch(torch.export.export(module, given))


@pytest.mark.parametrize(("sequences", "copies"), [(1, True), (2, False)])
def test_a_program_with_static_caches_writes_as_pytorch_does(sequences, copies):
    module, program = exported(sequences, copies)
    prompts = [[1, 2, 3], [4, 0, 6]][:sequences]
    rows = [list(prompt) for prompt in prompts]
    with torch.no_grad():
        for at in range(12):
            token = torch.tensor([[row[at]] for row in rows])
            scores = module(token, torch.tensor([at]))[:, -1].numpy()
            feed = {"input_ids": token.numpy(), "cache_position": np.array([at])}
            found = program.run(feed)  # changes the program's buffers as the module's
            assert list(found) == ["output"]
            np.testing.assert_allclose(found["output"][:, -1], scores, rtol=1e-4, atol=1e-6)
            if at >= 2:
                for row, best in zip(rows, scores.argmax(-1), strict=True):
                    row.append(int(best))
    generator = Generator(program, ids="input_ids", scores="output")
    wanted = [row[3:] for row in rows]
    assert [row.tolist() for row in generator.greedy(prompts, 10)] == wanted
    context = generator.read([prompt[:2] for prompt in prompts])
    again = generator.greedy([prompt[2:] for prompt in prompts], 10, after=context)
    assert [row.tolist() for row in again] == wanted


def test_what_static_caches_cannot_do():
    _, program = exported(2, True)
    generator = Generator(program, ids="input_ids", scores="output")
    with pytest.raises(ShapeError, match="and 24 to be written, want 25 positions.* have 24"):
        generator.greedy([[1, 2], [2, 3]], 24)
    with pytest.raises(ShapeError, match="exported for 2 sequences, not 1"):
        generator.greedy([[1]], 2)
    with pytest.raises(ShapeError, match="prompts of several lengths"):
        generator.greedy([[1], [2, 3]], 2)
    with pytest.raises(VariableError, match="has no other input 'x' to feed; it has none"):
        generator.greedy([[1], [2]], 2, feed={"x": 1})
    with pytest.raises(OpscopeError, match="wants 'ids', a position and 'scores', and has inputs"):
        Generator(program)
