"""A transformer of GPT-2's size writes word by word; keys and values of earlier words are kept.

Weights are random; every side has arrays of the same sizes, and reads as many bytes a word. ONNX
Runtime runs the step that the generator exports, PyTorch the model of transformers, JAX one that is
written here, llama.cpp a GGUF file of the kinds F32, BF16, Q8_0 and Q4_0. Beside our weights in
bfloat16 PyTorch computes in bfloat16.
"""

from __future__ import annotations

import ctypes
import math
import os
import pathlib
from typing import Any

import numpy as np

from .workload import OURS, Maker, Step, Workload, kept, library, session, torch_threads

_PROMPT, _WRITTEN = 32, 32
"""Tokens that texts begin with, and that are written."""
_WORDS, _LENGTH, _LAYERS, _HEADS, _SIZE = 50_257, 1024, 12, 12, 768
_EACH = _SIZE // _HEADS
KINDS = {"": "F32", "bf16": "BF16", "q8": "Q8_0", "q4": "Q4_0"}
"""Of weights -> what llama.cpp calls them."""
_BYTES = {"": 4, "bf16": 2, "q8": 36 / 32, "q4": 20 / 32}
"""Of a weight, with its part of a scale."""


def _layers() -> dict[str, tuple[int, ...]]:
    """The sizes of matrices [outputs, inputs] and of vectors, by the names of llama.cpp."""
    one = {"attn_norm": (), "attn_qkv": (3 * _SIZE, _SIZE), "attn_output": (_SIZE, _SIZE)}
    one |= {"ffn_norm": (), "ffn_up": (4 * _SIZE, _SIZE), "ffn_down": (_SIZE, 4 * _SIZE)}
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (_WORDS, _SIZE)}
    found |= {"position_embd.weight": (_LENGTH, _SIZE), "output.weight": (_WORDS, _SIZE)}
    for name, sizes in {f"blk.{k}.{n}": s for k in range(_LAYERS) for n, s in one.items()}.items():
        found |= {f"{name}.weight": sizes or (_SIZE,), f"{name}.bias": sizes[:1] or (_SIZE,)}
    return found | {"output_norm.weight": (_SIZE,), "output_norm.bias": (_SIZE,)}


def _drawn(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    return 0.02 * rng.standard_normal(shape, np.float32)


class Writing:
    """A transformer writes `_WRITTEN` words after `_PROMPT` others, the likeliest each time.

    Args:
        texts: how many are written at once.
        weights: `bf16`, `q8` or `q4`; "": float32.
    """

    def __init__(self, texts: int, weights: str = "") -> None:
        self._texts, self._weights = texts, weights

    def read(self) -> float:
        """Bytes of weights that a step reads: all matrices but the embeddings."""
        sizes = (s for name, s in _layers().items() if len(s) == 2 and "embd" not in name)
        return _BYTES[self._weights] * sum(map(math.prod, sizes))

    def generator(self) -> Any:
        """Writes with random weights."""
        import opscope

        b, scope = opscope.NetBuilder("gpt2"), opscope.Scope()
        x = b.embedding(b.input("ids", [-1, -1], "int64"), [_WORDS, _SIZE])
        x = b.positional_encoding(x, kind="learned", max_length=_LENGTH, name="positions")
        x = b.transformer_encoder(
            x,
            layers=_LAYERS,
            heads=_HEADS,
            causal=True,
            norm_first=True,
            activation="gelu",
            dropout=0.0,
        )
        b.fc(x, size=_WORDS, bias=False, name="scores")
        b.initialize(scope)
        if self._weights:
            return opscope.Generator(opscope.quantize_weights(b, scope, self._weights))
        return opscope.Generator(b, scope)

    def _prompts(self) -> np.ndarray:
        return np.random.default_rng(0).integers(3, 30_522, (self._texts, _PROMPT))

    def ours(self, threads: int) -> Step:
        import opscope

        opscope.set_threads(threads)
        generator, prompts = self.generator(), list(self._prompts())
        return lambda: generator.greedy(prompts, _WRITTEN)

    def runtime(self, threads: int) -> Step:
        path = kept(
            f"gpt2-{self._weights or 'float32'}.onnx",
            lambda path: self.generator().to_onnx(str(path), bound=1.0),
        )
        running: Any = session(str(path), threads)
        values = library("onnxruntime").OrtValue.ortvalue_from_numpy
        outputs = [one.name for one in running.get_outputs()]
        empty = np.zeros((self._texts, _HEADS, 0, _EACH), np.float32)

        def step() -> Any:
            ids, past = self._prompts(), 0
            caches = {one.name: values(empty) for one in running.get_inputs() if "past" in one.name}
            for _ in range(_WRITTEN):
                count = past + ids.shape[1]
                feed = {"input_ids": ids, "attention_mask": np.ones((self._texts, count), np.int64)}
                feed["position_ids"] = np.tile(np.arange(past, count), (self._texts, 1))
                given = {name: values(array) for name, array in feed.items()} | caches
                found = dict(zip(outputs, running.run_with_ort_values(outputs, given), strict=True))
                ids = found["logits"].numpy()[:, -1:].argmax(-1)
                past = count
                caches = {
                    f"past_key_values{name.removeprefix('present')}": value
                    for name, value in found.items()
                    if name != "logits"
                }
            return ids

        return step

    def eager(self, threads: int) -> Step:
        torch_threads(threads)
        torch, transformers = library("torch"), library("transformers")
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        if self._weights == "bf16":
            model = model.to(torch.bfloat16)
        prompts = torch.from_numpy(self._prompts())
        how = {"max_new_tokens": _WRITTEN, "min_new_tokens": _WRITTEN, "do_sample": False}
        return lambda: model.generate(prompts, **how)

    def jax(self, threads: int) -> Step:
        os.environ["NPROC"] = str(threads)
        jax = library("jax")
        jnp, lax = jax.numpy, jax.lax
        rng = np.random.default_rng(0)
        drawn = {name: _drawn(name, s, rng) for name, s in _layers().items()}
        turned = {name for name in drawn if "embd" not in name}  # matrices: [inputs, outputs]
        weights = {n: jnp.asarray(a.T.copy() if n in turned else a) for n, a in drawn.items()}

        def normed(w: Any, name: str, x: Any) -> Any:
            x = x - x.mean(-1, keepdims=True)
            scaled = x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
            return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

        def product(w: Any, name: str, x: Any) -> Any:
            return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

        @jax.jit
        def advance(w: Any, ids: Any, past: Any, keys: Any, values: Any) -> Any:
            """The likeliest next words [B, 1], and caches [L, B, heads, words, size]."""
            rows, count = ids.shape
            at = past + jnp.arange(count)
            x = w["token_embd.weight"][ids] + w["position_embd.weight"][at]
            hidden = jnp.arange(keys.shape[3]) > at[:, None]
            for k in range(_LAYERS):
                layer = f"blk.{k}"
                qkv = product(w, f"{layer}.attn_qkv", normed(w, f"{layer}.attn_norm", x))
                heads = qkv.reshape(rows, count, 3, _HEADS, _EACH).transpose(2, 0, 3, 1, 4)
                keys = lax.dynamic_update_slice(keys, heads[1][None], (k, 0, 0, past, 0))
                values = lax.dynamic_update_slice(values, heads[2][None], (k, 0, 0, past, 0))
                scores = heads[0] @ keys[k].swapaxes(-1, -2) / np.sqrt(_EACH)
                mixed = jax.nn.softmax(jnp.where(hidden, -jnp.inf, scores)) @ values[k]
                joined = mixed.transpose(0, 2, 1, 3).reshape(rows, count, _SIZE)
                x = x + product(w, f"{layer}.attn_output", joined)
                inner = product(w, f"{layer}.ffn_up", normed(w, f"{layer}.ffn_norm", x))
                x = x + product(w, f"{layer}.ffn_down", jax.nn.gelu(inner))
            scores = normed(w, "output_norm", x[:, -1:]) @ w["output.weight"]
            return scores.argmax(-1), keys, values

        empty = jnp.zeros((_LAYERS, self._texts, _HEADS, _PROMPT + _WRITTEN, _EACH))

        def step() -> Any:
            ids, past, keys, values = jnp.asarray(self._prompts()), 0, empty, empty
            for _ in range(_WRITTEN):
                found, keys, values = advance(weights, ids, past, keys, values)
                past, ids = past + ids.shape[1], found
            return np.asarray(ids)

        return step

    # -- llama.cpp ---------------------------------------------------------------------------------

    def _gguf(self, path: pathlib.Path) -> None:
        """Writes a file of random weights; vectors and positions stay float32."""
        gguf = library("gguf")
        writer = gguf.GGUFWriter(str(path), "gpt2")
        writer.add_context_length(_LENGTH)
        writer.add_embedding_length(_SIZE)
        writer.add_block_count(_LAYERS)
        writer.add_feed_forward_length(4 * _SIZE)
        writer.add_head_count(_HEADS)
        writer.add_layer_norm_eps(1e-5)
        writer.add_vocab_size(_WORDS)
        writer.add_tokenizer_model("no_vocab")
        kind = gguf.GGMLQuantizationType[KINDS[self._weights]]
        rng = np.random.default_rng(0)
        for name, shape in _layers().items():
            array = _drawn(name, shape, rng)
            if len(shape) < 2 or name.startswith("position"):
                writer.add_tensor(name, array)
            else:
                writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def llama(self, threads: int) -> Step:
        llama = library("llama_cpp")
        path = kept(f"gpt2-{self._weights or 'float32'}.gguf", self._gguf)
        quiet = llama.llama_log_callback(lambda level, text, data: None)
        llama.llama_log_set(quiet, ctypes.c_void_p(0))
        llama.llama_backend_init()
        how = llama.llama_model_default_params()
        model = llama.llama_model_load_from_file(str(path).encode(), how)
        texts = self._texts
        about = llama.llama_context_default_params()
        about.n_ctx = texts * (_PROMPT + _WRITTEN)
        about.n_batch = about.n_ubatch = texts * _PROMPT
        about.n_seq_max = texts
        about.n_threads = about.n_threads_batch = threads
        about.kv_unified = False
        context = llama.llama_init_from_model(model, about)
        if not context:
            raise RuntimeError(f"llama.cpp makes no context of {path}")
        batch = llama.llama_batch_init(texts * _PROMPT, 0, 1)

        def advance(ids: np.ndarray, past: int) -> np.ndarray:
            rows, count = ids.shape
            batch.n_tokens = rows * count
            for place, word in enumerate(ids.reshape(-1).tolist()):
                batch.token[place] = word
                batch.pos[place] = past + place % count
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = place // count
                batch.logits[place] = place % count == count - 1
            if llama.llama_decode(context, batch):
                raise RuntimeError(f"llama.cpp does not decode {rows} x {count} words")
            last = [llama.llama_get_logits_ith(context, (k + 1) * count - 1) for k in range(rows)]
            scores = [np.ctypeslib.as_array(one, (_WORDS,)) for one in last]
            return np.array([[one.argmax()] for one in scores])

        def step() -> Any:
            assert quiet  # llama.cpp calls it as long as the step is there
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            ids, past = self._prompts(), 0
            for _ in range(_WRITTEN):
                found = advance(ids, past)
                past, ids = past + ids.shape[1], found
            return ids

        return step

    def workload(self) -> Workload:
        kind = self._weights or "float32"
        title = f"GPT-2 124M writes {self._texts} x {_WRITTEN} words, {kind}"
        sides: dict[str, Maker] = {OURS: self.ours, "torch": self.eager}
        sides |= {"onnxruntime": self.runtime, "llama.cpp": self.llama}
        if not self._weights:
            sides["jax"] = self.jax
        return Workload(title, 1.0, sides)


WORKLOADS = {
    f"gpt2-write-{texts}{kind and '-'}{kind}": Writing(texts, kind).workload()
    for texts in (1, 8)
    for kind in KINDS
}
