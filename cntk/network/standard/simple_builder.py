"""CNTK's SimpleNetworkBuilder: standard networks from a few sizes.

Source: SimpleNetworkBuilder.cpp.
"""

from __future__ import annotations

from ....framework.base.errors import FormatError, nearest
from ..network import Network
from .networks import BUILDERS, Builder
from .settings import SimpleNetworkSettings


def build_simple_network(settings: SimpleNetworkSettings, first_number: int = 1) -> Network:
    """The standard network of some settings, not validated.

    Args:
        settings: the kind of network and its sizes.
        first_number: unnamed nodes are AutoName1, AutoName2, ..., from this number on.

    Raises:
        FormatError: the settings do not go together.
    """
    if settings.rnn_type not in BUILDERS:
        raise FormatError(f"rnnType {settings.rnn_type!r}{nearest(settings.rnn_type, BUILDERS)}")
    if len(settings.layer_sizes) < 2:
        raise FormatError("layerSizes needs an input and an output size at least")
    builder = Builder(settings, first_number)
    BUILDERS[settings.rnn_type](builder)
    return builder.network
