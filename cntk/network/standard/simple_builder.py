"""CNTK's SimpleNetworkBuilder: standard networks from a few sizes.

Source: SimpleNetworkBuilder.cpp.
"""

from __future__ import annotations

from ....framework.base.errors import FormatError, nearest
from ..network import Network
from .networks import BUILDERS, Builder
from .settings import SimpleNetworkSettings


def build_simple_network(settings: SimpleNetworkSettings) -> Network:
    """The standard network of some settings, not validated.

    Unnamed nodes are AutoName1, AutoName2, ...

    Raises:
        FormatError: the settings do not go together.
    """
    if settings.rnn_type not in BUILDERS:
        raise FormatError(f"rnnType {settings.rnn_type!r}{nearest(settings.rnn_type, BUILDERS)}")
    if len(settings.layer_sizes) < 2:
        raise FormatError("layerSizes needs an input and an output size at least")
    builder = Builder(settings)
    BUILDERS[settings.rnn_type](builder)
    return builder.network
