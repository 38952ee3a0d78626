"""The error function for whole arrays: NumPy has none.

erfc(z) for z >= 0 is exp(-z * z) * t * P(2t - 1) with t = 3 / (3 + z); P approximates
exp(z * z) * erfc(z) / t on the whole half-line. erf(x) for |x| <= 1 is x * Q(2 * x * x - 1).
Polynomials from least squares at Chebyshev nodes; relative errors against scipy.special: P 3e-15
(2.5e-8 the short one), Q 2e-15 (5e-8). Form after W. H. Press et al., Numerical Recipes, 6.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...framework.fusion.scalars.array_calls import ArrayHost
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call

# Highest power first.
_ERFC_SHORT = (
    2.2609878566328104e-05,
    7.030988922153615e-05,
    -0.00016928352625676982,
    -0.0009911235674990523,
    -0.00041079034714231664,
    0.008933907198399186,
    0.0398441002301964,
    0.10349057075352103,
    0.19674265853470396,
    0.2944647446798004,
    0.3580023041045045,
)
_ERFC_LONG = (
    -3.069260084174243e-10,
    1.2533639985821383e-09,
    4.821044280273206e-10,
    -1.2707486786202797e-08,
    1.2748892267869814e-08,
    7.137689045116911e-08,
    -1.320697185137427e-07,
    -3.2669983036294695e-07,
    9.18340361762982e-07,
    1.5791466404659817e-06,
    -5.821607388549816e-06,
    -1.0131116276858596e-05,
    3.585315242283474e-05,
    9.225886354325427e-05,
    -0.0001827697477135643,
    -0.0010113539343316958,
    -0.0004041388953039731,
    0.00894241153584018,
    0.039842587097122024,
    0.10348908730039472,
    0.1967427857013264,
    0.29446481772329325,
    0.3580023023627803,
)
_ERF_SHORT = (
    -1.7669080810872625e-05,
    0.00021935945001784555,
    -0.0022854195288931865,
    0.019851804925181838,
    -0.14053609728153693,
    0.9654687771263069,
)
_ERF_LONG = (
    8.364308719279336e-14,
    -3.1604632264670387e-13,
    8.950727150405063e-12,
    -2.0367986936750808e-10,
    4.116065423627096e-09,
    -7.51155604379324e-08,
    1.22338258160436e-06,
    -1.753716948472024e-05,
    0.00021751715608655378,
    -0.002285485561140611,
    0.01985249668897844,
    -0.1405360890227168,
    0.9654687386698679,
)


def _horner(xp: Any, u: Any, coefficients: Sequence[float], out: Any) -> list[Call]:
    """Calls that put the polynomial of `u` into `out`, another array."""
    first, second, *rest = (u.dtype.type(value) for value in coefficients)
    calls = [partial(xp.multiply, u, first, out), partial(xp.add, out, second, out)]
    for value in rest:
        calls += [partial(xp.multiply, out, u, out), partial(xp.add, out, value, out)]
    return calls


def erfc_call(k: ArrayHost, x: Any, out: Any) -> Call:
    """A call that puts erfc(x) into `out`, which may not be `x`."""
    xp = k.xp
    real = x.dtype.type
    z, t, u = (k.scratch(x.shape, x.dtype) for _ in range(3))
    negative = k.scratch(x.shape, bool)
    coefficients = _ERFC_LONG if x.dtype.itemsize == 8 else _ERFC_SHORT
    return in_order(
        partial(xp.absolute, x, z),
        partial(
            xp.minimum, z, real(100), out=z
        ),  # infinity / infinity is no number; erfc is 0 by then
        partial(xp.add, z, real(3), t),
        partial(xp.divide, real(3), t, t),
        partial(xp.add, t, t, u),
        partial(xp.subtract, u, real(1), u),
        *_horner(xp, u, coefficients, out),
        partial(xp.multiply, out, t, out),
        partial(xp.multiply, z, z, z),
        partial(xp.negative, z, z),
        partial(xp.exp, z, z),
        partial(xp.multiply, out, z, out),
        # erfc(-z) = 2 - erfc(z), chosen by arithmetic as masked copies are slow: |0 - e| is e.
        partial(xp.less, x, real(0), negative),
        partial(xp.multiply, negative, real(2), z),
        partial(xp.subtract, z, out, out),
        partial(xp.absolute, out, out),
    )


def erf_call(k: ArrayHost, x: Any, out: Any) -> Call:
    """A call that puts erf(x) into `out`, which may be `x`."""
    xp = k.xp
    real = x.dtype.type
    far, near, u, inner = (k.scratch(x.shape, x.dtype) for _ in range(4))
    outside = k.scratch(x.shape, bool)
    coefficients = _ERF_LONG if x.dtype.itemsize == 8 else _ERF_SHORT
    return in_order(
        erfc_call(k, x, far),
        # Near 0 this difference cancels, which is why a polynomial of its own serves there.
        partial(xp.subtract, real(1), far, far),
        # Clamped to where the polynomial was fitted; what lies outside takes `far` below.
        partial(xp.minimum, x, real(1), out=inner),
        partial(xp.maximum, inner, real(-1), out=inner),
        partial(xp.not_equal, x, inner, outside),
        partial(xp.multiply, inner, inner, u),
        partial(xp.add, u, u, u),
        partial(xp.subtract, u, real(1), u),
        *_horner(xp, u, coefficients, near),
        partial(xp.multiply, inner, near, near),
        # near + outside * (far - near)
        partial(xp.subtract, far, near, far),
        partial(xp.multiply, far, outside, far),
        partial(xp.add, near, far, out),
    )
