"""Statistics of the whole data, and normalisation with them."""

from __future__ import annotations

from .. import rules
from ._make import standard

standard("Mean", 1, rules.unary, precompute=True)
standard("InvStdDev", 1, rules.unary, precompute=True)
standard(
    "PerDimMeanVarNormalization",
    3,
    rules.unary,
    aliases=("PerDimMeanVarNormalizationNode",),
    ndl=("PerDimMVNorm",),
)
standard(
    "PerDimMeanVarDeNormalization",
    3,
    rules.unary,
    aliases=("PerDimMeanVarDeNormalizationNode",),
    ndl=("PerDimMVDeNorm",),
)
