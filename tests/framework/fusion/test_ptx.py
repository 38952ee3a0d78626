"""The interpreter of PTX: its arithmetic against NumPy, and each mistake that it finds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cuda_compiler import nvrtc, ptx_of
from ptx.machine import launch
from ptx.memory import KernelError, region_at
from ptx.text import PtxError

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="no nvidia-cuda-nvrtc-cu12")
HEAD = """\
.version 8.0
.target sm_80
.address_size 64
"""
ENTRY = """\
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<20>;
  .reg .f64 %g<9>; .reg .b32 %i;
  ld.param.u64 %d1, [k_param_0];
  ld.param.u64 %d2, [k_param_1];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %d3, %i, 8;
  add.s64 %d1, %d1, %d3;
  add.s64 %d2, %d2, %d3;
{body}
  ret;
}}
"""
RNG = np.random.default_rng(0)


def started(
    text: str, arrays: Sequence[np.ndarray], threads: int, blocks: int = 1, *numbers: Any
) -> None:
    """Runs a kernel `k` in CUDA or PTX on arrays and numbers."""
    ptx = text if text.startswith(HEAD) else ptx_of(text, 80, lines=True)
    given = [np.uint64(one.ctypes.data).tobytes() for one in arrays]
    regions = [region_at(one.ctypes.data, one.nbytes) for one in arrays]
    launch(ptx, "k", blocks, threads, [*given, *(n.tobytes() for n in numbers)], regions, text)


def computed(body: str, x: np.ndarray, dtype: Any = np.uint64) -> np.ndarray:
    """What PTX leaves at [%d2] of the words of x at [%d1], a lane for each."""
    out = np.zeros(len(x), np.uint64)
    started(HEAD + ENTRY.format(body=body), [x.view(np.uint64), out], len(x))
    size = np.dtype(dtype).itemsize
    return out.view(dtype)[:: 8 // size]


WORDS = RNG.integers(0, 1 << 63, 40, np.uint64) * np.uint64(2) + np.uint64(1)
WORDS[:6] = [0, 1, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1, 0x80000000]
LOW, HIGH = WORDS.astype(np.uint32), (WORDS >> np.uint64(32)).astype(np.uint32)
PAIR = "ld.global.v2.u32 {%r1, %r2}, [%d1];"
"""The lower and the upper half of a word."""


def bits(value: int, start: int, length: int) -> int:
    return value >> start & (1 << length) - 1


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("mul.hi.u32 %r3, %r1, %r2;", (LOW.astype(np.uint64) * HIGH) >> np.uint64(32)),
        ("mul.lo.s32 %r3, %r1, %r2;", LOW * HIGH),
        ("mad.lo.s32 %r3, %r1, %r2, 7;", LOW * HIGH + np.uint32(7)),
        (
            "shl.b32 %r3, %r1, %r2;",
            [a << b if b < 32 else 0 for a, b in zip(LOW, HIGH, strict=True)],
        ),
        ("shr.s32 %r3, %r1, 40;", LOW.view(np.int32) >> 31),
        ("bfe.u32 %r3, %r1, 5, 9;", [bits(int(a), 5, 9) for a in LOW]),
        ("bfe.s32 %r3, %r1, 5, 9;", [bits(int(a), 5, 9) - (bits(int(a), 13, 1) << 9) for a in LOW]),
        ("bfi.b32 %r3, %r1, %r2, 4, 8;", (HIGH & ~np.uint32(0xFF0)) | (LOW & 0xFF) << 4),
        ("prmt.b32 %r3, %r1, %r2, 0x4701;", None),
        ("popc.b32 %r3, %r1;", [int(a).bit_count() for a in LOW]),
        ("clz.b32 %r3, %r1;", [32 - int(a).bit_length() for a in LOW]),
        ("add.cc.u32 %r4, %r1, %r2; addc.u32 %r3, 0, 0;", (LOW.astype(np.uint64) + HIGH) >> 32),
        ("sub.cc.u32 %r4, %r1, %r2; subc.u32 %r3, 0, 0;", np.where(LOW < HIGH, -1, 0)),
        ("min.s32 %r3, %r1, %r2;", np.minimum(LOW.view(np.int32), HIGH.view(np.int32))),
        ("abs.s32 %r3, %r1; xor.b32 %r3, %r3, %r2;", np.abs(LOW.view(np.int32)).view("u4") ^ HIGH),
        ("cvt.u16.u32 %h1, %r1; cvt.s32.s16 %r3, %h1;", LOW.astype(np.int16).astype(np.int32)),
        ("cvt.sat.s8.s32 %r3, %r1;", np.clip(LOW.view(np.int32), -128, 127)),
        ("or.b32 %r4, %r2, 1; div.s32 %r3, %r1, %r4;", None),
        ("or.b32 %r4, %r2, 1; rem.u32 %r3, %r1, %r4;", LOW % (HIGH | 1)),
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, %r1, 5, %p1;", None),
        ("setp.lo.u32 %p1|%p2, %r1, %r2; @%p2 mov.u32 %r3, 9;", np.where(LOW < HIGH, 0, 9)),
    ],
)
def test_integers(body, wanted):
    signed = [
        (int(a), int(b)) for a, b in zip(LOW.view(np.int32), HIGH.view(np.int32), strict=True)
    ]
    if "prmt" in body:
        wanted = [
            int.from_bytes([bits(a, 8, 8), bits(a, 0, 8), bits(b, 24, 8), bits(b, 0, 8)], "little")
            for a, b in zip(map(int, LOW), map(int, HIGH), strict=True)
        ]
    elif "div.s32" in body:
        wanted = [int(np.fix(np.longdouble(a) / (b | 1))) for a, b in signed]
    elif "selp" in body:
        wanted = [a if a < b else 5 for a, b in signed]
    found = computed(f"{PAIR} mov.u32 %r3, 0; {body} st.global.u32 [%d2], %r3;", WORDS, np.uint32)
    np.testing.assert_array_equal(found, [int(one) % (1 << 32) for one in wanted])


def test_wide_integers():
    load = "ld.global.u64 %d4, [%d1]; not.b64 %d5, %d4; shr.u64 %d5, %d5, 3;"
    found = computed(f"{load} mul.hi.u64 %d6, %d4, %d5; st.global.u64 [%d2], %d6;", WORDS)
    pairs = [(int(a), (~int(a) & (1 << 64) - 1) >> 3) for a in WORDS]
    assert found.tolist() == [a * b >> 64 for a, b in pairs]
    found = computed(f"{load} mul.hi.s64 %d6, %d4, %d5; st.global.u64 [%d2], %d6;", WORDS, np.int64)
    signed = [(a - (a >> 63 << 64), b) for a, b in pairs]
    assert found.tolist() == [a * b >> 64 for a, b in signed]


def exactly(a: float, b: float, c: float) -> Fraction:
    return Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_a_product_and_a_sum_are_rounded_once(rounding):
    x = RNG.normal(size=(40, 2)).astype(np.float32)
    x[:4] = [[1 + 2**-12, 2**-12], [-1 - 2**-12, 2**-12], [1 + 2**-23, 1e-30], [3.0, -9.0]]
    body = "ld.global.v2.f32 {%f1, %f2}, [%d1];"
    body += f"fma.{rounding}.f32 %f3, %f1, %f1, %f2; st.global.f32 [%d2], %f3;"
    found = computed(body, x, np.float32)
    for (a, c), one in zip(x, found, strict=True):
        exact = exactly(a, a, c)
        below, above = np.nextafter(one, np.float32(-np.inf)), np.nextafter(one, np.float32(np.inf))
        gap = Fraction(float(one)) - exact
        nearest = min(abs(Fraction(float(n)) - exact) for n in (below, above))
        inside = {
            "rn": abs(gap) <= nearest,
            "rm": gap <= 0 and Fraction(float(above)) > exact,
            "rp": gap >= 0 and Fraction(float(below)) < exact,
        }
        inside["rz"] = inside["rm"] if exact > 0 else inside["rp"]
        assert inside[rounding], (a, c, one)


def test_a_product_and_a_sum_of_doubles():
    x = RNG.normal(size=40)
    x[:2] = 1 + 2.0**-30, 1 - 2.0**-52
    body = "ld.global.f64 %g1, [%d1]; neg.f64 %g2, %g1; mul.f64 %g2, %g2, %g1;"
    found = computed(f"{body} fma.rn.f64 %g3, %g1, %g1, %g2; st.global.f64 [%d2], %g3;", x, float)
    assert found.tolist() == [float(exactly(a, a, -(a * a))) for a in x]
    assert np.any(found != 0)


def whole(x: np.ndarray) -> np.ndarray:
    """As int32, the largest for what is larger, 0 for what is no number."""
    return np.nan_to_num(np.clip(x.astype(float), -(2.0**31), 2.0**31 - 1))


@pytest.mark.parametrize(
    ("body", "dtype", "wanted"),
    [
        ("cvt.rzi.s32.f32 %r1, %f1;", np.int32, lambda x: whole(np.trunc(x))),
        ("cvt.rmi.f32.f32 %f2, %f1; cvt.rni.s32.f32 %r1, %f2;", np.int32, None),
        (
            "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;",
            np.uint32,
            lambda x: x.astype(np.float16).view(np.uint16),
        ),
        ("cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;", np.uint32, None),
        (
            "cvt.sat.f32.f32 %f2, %f1; mov.b32 %r1, %f2;",
            np.float32,
            lambda x: np.clip(np.nan_to_num(x, posinf=9, neginf=-9), 0, 1),
        ),
        ("max.f32 %f2, %f1, 0f7FC00000; mov.b32 %r1, %f2;", np.float32, lambda x: x),
        (
            "ex2.approx.ftz.f32 %f2, %f1; mov.b32 %r1, %f2;",
            np.float32,
            lambda x: np.exp2(x.astype(float)),
        ),
        ("setp.nan.f32 %p1, %f1, %f1; selp.u32 %r1, 1, 0, %p1;", np.uint32, np.isnan),
        (
            "setp.ltu.f32 %p1, %f1, 0f00000000; selp.u32 %r1, 1, 0, %p1;",
            np.uint32,
            lambda x: ~(x >= 0),
        ),
    ],
)
def test_floats(body, dtype, wanted):
    x = np.array(
        [0.5, 1.5, 2.5, -0.5, -1.5, 1e10, -1e10, np.inf, -np.inf, np.nan, 3.14159], np.float32
    )
    words = np.zeros((len(x), 2), np.float32)
    words[:, 0] = x
    found = computed(f"ld.global.f32 %f1, [%d1]; {body} st.global.u32 [%d2], %r1;", words, dtype)
    if "rmi" in body:
        x, wanted = np.floor(x), whole
    if "bf16" in body:  # 16 bits of the nearest, of two the even one
        tops = [
            0x3F00,
            0x3FC0,
            0x4020,
            0xBF00,
            0xBFC0,
            0x5015,
            0xD015,
            0x7F80,
            0xFF80,
            0x7FFF,
            0x4049,
        ]
        assert found.tolist() == tops
        return
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.asarray(wanted(x)).astype(dtype))


def test_loops_of_lanes_end_apart_and_meet_again():
    """Collatz' numbers: each lane goes round as often as it must; then all vote."""
    body = """
  ld.global.u64 %d4, [%d1]; mov.u32 %r1, 0;
$loop:
  setp.eq.u64 %p1, %d4, 1; @%p1 bra $end;
  and.b64 %d5, %d4, 1; setp.eq.s64 %p2, %d5, 0; @%p2 bra $even;
  mul.lo.u64 %d4, %d4, 3; add.u64 %d4, %d4, 1; bra.uni $next;
$even:
  shr.u64 %d4, %d4, 1;
$next:
  add.u32 %r1, %r1, 1; bra $loop;
$end:
  vote.sync.ballot.b32 %r2, %p1, -1; st.global.v2.u32 [%d2], {%r1, %r2};"""
    found = computed(body, np.arange(1, 33, dtype=np.uint64))
    steps = [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4, 12, 20, 20, 7]
    assert (found & np.uint64(0xFFFFFFFF))[:20].tolist() == steps
    assert (found >> np.uint64(32) == 0xFFFFFFFF).all()


def test_sums_of_a_warp():
    body = "ld.global.u32 %r1, [%d1];"
    for step in (16, 8, 4, 2, 1):
        body += f"shfl.sync.bfly.b32 %r2|%p1, %r1, {step}, 31, -1; add.u32 %r1, %r1, %r2;"
    x = np.arange(64, dtype=np.uint64)
    found = computed(f"{body} st.global.u32 [%d2], %r1;", x)
    assert found.tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32
    body = "ld.global.u32 %r1, [%d1]; shfl.sync.{0} %r2|%p1, %r1, {1}, -1;"
    body += "selp.b32 %r2, %r2, 99, %p1; st.global.u32 [%d2], %r2;"
    lane = np.arange(32)
    for mode, offset, clamp, wanted in (
        ("up.b32", 3, 0, np.where(lane < 3, 99, lane - 3)),
        ("down.b32", 3, 0x181F, np.where(lane % 8 > 4, 99, lane + 3)),
        ("idx.b32", 5, 0x1C1F, lane // 4 * 4 + 1),
    ):
        found = computed(body.format(mode, f"{offset}, {clamp}"), x[:32])
        np.testing.assert_array_equal(found, wanted, err_msg=mode)


@needs_nvrtc
def test_functions_tables_and_local_memory():
    """A recursion-free call, constants, a switch, and an array of each lane."""
    text = """
__constant__ int steps[4] = {5, 7, 11, 13};
static __device__ __noinline__ double scaled(double x, int n) {
  for (int i = 0; i < n; i++) x = x * 1.5 + i;
  return x;
}
extern "C" __global__ void k(const double *x, double *out) {
  int i = threadIdx.x;
  volatile double held[4];
  for (int n = 0; n < 4; n++) held[n] = scaled(x[i], n + i % 2);
  double sum = 0;
  for (int n = 0; n < 4; n++) sum += held[(n + i) % 4] * steps[(n * i) % 4];
  switch (i % 5) {
    case 0: sum += 1; break;
    case 1: sum *= 2; break;
    case 2: sum -= 3; break;
    case 3: sum = -sum; break;
  }
  out[i] = sum;
}
"""
    x, out = RNG.normal(size=40), np.zeros(40)
    started(text, [x, out], 40)
    for i, value in enumerate(x):
        held = []
        for n in range(4):
            held.append(value)
            for j in range(n + i % 2):
                held[n] = held[n] * 1.5 + j
        total = sum(held[(n + i) % 4] * (5, 7, 11, 13)[n * i % 4] for n in range(4))
        ways = total + 1, total * 2, total - 3, -total, total
        assert out[i] == pytest.approx(ways[i % 5], rel=1e-14)


@needs_nvrtc
def test_lanes_add_to_one_word():
    text = """
extern "C" __global__ void k(int *counts, unsigned long long *most) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&counts[i % 3], i);
  atomicMax(most, (unsigned long long)i * 7 % 50);
}
"""
    counts, most = np.zeros(3, np.int32), np.zeros(1, np.uint64)
    started(text, [counts, most], 33, 2)
    assert counts.tolist() == [sum(range(n, 66, 3)) for n in range(3)]
    assert most[0] == 49


MISTAKES = {
    "shared memory before it is written": (
        "__shared__ int held[64]; if (i < 30) held[i] = i; __syncthreads(); out[i] = held[31 - i];",
        "a read of memory that was not written",
        "out[i] = held[31 - i]",
    ),
    "no barrier after a write": (
        "__shared__ int held[64]; held[i] = i; out[i] = held[(i + 1) % 32];",
        "a race: thread 1 wrote this without a barrier between",
        "held[(i + 1) % 32]",
    ),
    "no barrier before the next write": (
        "__shared__ int held[64]; held[i] = i; __syncthreads(); out[i] = held[31 - i];"
        " held[i] = 5;",
        "a race: thread 31 read this without a barrier between",
        "held[i] = 5",
    ),
    "a write of other values at once": (
        "__shared__ int held[4]; held[i % 4] = i; __syncthreads(); out[i] = held[0];",
        "a race: lanes write different values at once",
        "held[i % 4] = i",
    ),
    "a global word of another lane": (
        "out[i] = i; if (i > 3) out[i - 1] += 4;",
        "without a barrier between",
        "out[i - 1] += 4",
    ),
    "beyond an array": (
        "out[i + 1] = i;",
        "an access outside all arrays: 4 bytes at 128 of the nearest, which has 128 bytes",
        "out[i + 1] = i",
    ),
    "before an array": ("out[i - 1] = i;", "4 bytes at -4 of the nearest", "out[i - 1] = i"),
    "beyond shared memory": (
        "__shared__ int held[31]; held[i] = i; __syncthreads(); out[i] = held[0];",
        "an access outside all shared variables",
        "held[i] = i",
    ),
    "a barrier for some threads": (
        "if (i < 7) return; __syncthreads(); out[i] = 1;",
        "a barrier that 7 of 32 threads do not reach: they ended",
        "__syncthreads()",
    ),
    "two barriers": (
        "if (i < 7) __syncthreads(); else { out[i] = 0; __syncthreads(); } out[i] = 1;",
        "a barrier where others wait at another one",
        "__syncthreads()",
    ),
    "an address between words": (
        "*(int *)((char *)out + 2 * i) = 1;",
        "an access of 4 bytes at",
        "2 * i",
    ),
    "a warp that is not whole": (
        "if (i < 16) out[i] = __shfl_xor_sync(0xffffffff, i, 1);",
        "thread 16 of its mask is not here",
        "__shfl_xor_sync",
    ),
    "a division by 0": ("out[i] = 5 / (i - 9);", "a division of integers by 0", "out[i] = 5"),
}


@needs_nvrtc
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    body, what, line = MISTAKES[name]
    text = 'extern "C" __global__ void k(int *out) {\n  int i = threadIdx.x;\n'
    text += "".join(f"  {part};\n" for part in re.split(r";\s*(?![^{]*})", body) if part) + "}\n"
    out = np.zeros(32, np.int32)
    with pytest.raises(KernelError) as caught:
        started(text, [out], 32)
    message = str(caught.value)
    assert what in message
    where = r"^k: .*; PTX line \d+: `\w.*`; CUDA line \d+: `.*`; block 0, thread \d+$"
    assert re.search(where, message)
    assert line in message.partition("CUDA line")[2]


@needs_nvrtc
@pytest.mark.parametrize("fences", [(), (1,), (2,), (1, 2)])
def test_blocks_see_each_other_between_fences(fences):
    """The last block adds up what all have written; it takes a fence before and after the count."""
    before, after = ("__threadfence();" if n in fences else "" for n in (1, 2))
    text = f"""
extern "C" __global__ void k(int *parts, unsigned int *count, int *total) {{
  __shared__ unsigned int ticket;
  if (threadIdx.x == 0) {{
    parts[blockIdx.x] = blockIdx.x + 1;
    {before}
    ticket = atomicAdd(count, 1);
    {after}
  }}
  __syncthreads();
  if (ticket < gridDim.x - 1 || threadIdx.x) return;
  for (int b = 0; b < gridDim.x; b++) *total += parts[b];
}}
"""
    parts, count, total = np.zeros(5, np.int32), np.zeros(1, np.uint32), np.zeros(1, np.int32)
    if fences == (1, 2):
        started(text, [parts, count, total], 8, 5)
        assert total[0] == 15
        return
    with pytest.raises(KernelError, match=r"thread 0 of block \d wrote this without a barrier"):
        started(text, [parts, count, total], 8, 5)


@needs_nvrtc
def test_the_same_value_may_be_written_by_many():
    text = """
extern "C" __global__ void k(int *out) {
  __shared__ int held[1];
  held[0] = 3;
  __syncthreads();
  out[threadIdx.x % 2] = held[0];
}
"""
    out = np.zeros(2, np.int32)
    started(text, [out], 64, 3)
    assert out.tolist() == [3, 3]


def test_a_loop_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr("ptx.machine._MOST_STEPS", 100)
    with pytest.raises(KernelError, match="k: no end after 101 basic blocks"):
        computed("$loop: add.u32 %r1, %r1, 1; bra $loop;", WORDS)


def test_an_unknown_instruction_is_an_error_with_its_line():
    with pytest.raises(PtxError, match=r"PTX line 14: no meaning is known for `wgmma.fence.sync`"):
        computed("wgmma.fence.sync;", WORDS)
    with pytest.raises(PtxError, match="fma.rz.f64"):
        computed("fma.rz.f64 %g1, %g1, %g1, %g1;", WORDS)


def test_arguments_are_those_of_the_kernel():
    out = np.zeros(1, np.uint64)
    text = HEAD + ENTRY.format(body="")
    with pytest.raises(ValueError, match="k: 1 arguments for 2"):
        started(text, [out], 1)
    with pytest.raises(ValueError, match="k_param_1: 4 bytes for 8"):
        started(text, [out], 1, 1, np.int32(1))
