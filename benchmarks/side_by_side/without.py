"""Less of a machine: the switches with which our side computes as if something were not there.

Peers keep all of it, unless `both` is among what is left out. Libraries of others follow their own
switches where they have one: MKL and OpenBLAS take the instructions of a processor with AVX2, and
so do NumPy's own loops, PyTorch and oneDNN. ONNX Runtime has no such switch.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_AVX512 = {
    "OPSCOPE_CPU": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}
LACKING: dict[str, dict[str, str]] = {
    "amx": {"OPSCOPE_AMX": "0", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "avx512": _NO_AVX512,
    "mkl": {"OPSCOPE_LIBRARIES": "packed,direct,native,blas,xp"},
    "compiler": {"OPSCOPE_CC": "none"},
    "both": {},
}
JOINED = "+"


def unknown(without: str) -> list[str]:
    """The parts of `mkl+compiler` that are not in the table."""
    return [one for one in without.split(JOINED) if one and one not in LACKING]


def settings(without: str) -> Mapping[str, str]:
    """The environment of a side; "" changes nothing, `mkl+compiler` is without both."""
    found: dict[str, str] = {}
    for one in filter(None, without.split(JOINED)):
        found |= LACKING[one]
        if one == "avx512":
            found |= {"NPY_DISABLE_CPU_FEATURES": _features_of_numpy()}
    return found


def held(without: str) -> str:
    """What peers are without: `both` holds them to what our side lacks."""
    return without if "both" in without.split(JOINED) else ""


def _features_of_numpy() -> str:
    """The loops of NumPy that have instructions beyond AVX2; their names follow its version."""
    import numpy as np

    umath = getattr(np, "_core", None) or np.core
    there = umath._multiarray_umath.__cpu_dispatch__
    return " ".join(one for one in there if one.startswith("AVX512") or one == "X86_V4")
