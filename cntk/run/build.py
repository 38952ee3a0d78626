"""The network that a section of a config describes, by whichever builder it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ..base.text import is_located, located
from ..brainscript.build import build_section
from ..config.parameters import ConfigParameters
from ..ndl.builder import build_ndl_section
from ..network.network import Network
from ..network.standard.settings import SimpleNetworkSettings
from ..network.standard.simple_builder import build_simple_network

# In the order in which CNTK looks for them.
BUILDERS = (
    "SimpleNetworkBuilder",
    "NDLNetworkBuilder",
    "BrainScriptNetworkBuilder",
    "ExperimentalNetworkBuilder",
)


@dataclass
class Seeds:
    """Numbers of the random parameters of a run: NDL and BrainScript count each on their own, over
    all networks; SimpleNetworkBuilder starts again."""

    ndl: Iterator[int] = field(default_factory=lambda: count(1))
    brainscript: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True)
class Built:
    """A validated network, its builder's name, and the warnings of its making."""

    network: Network
    builder: str
    warnings: list[str]


def builder_of(section: ConfigParameters) -> str | None:
    """The builder that a section, or one around it, names."""
    return next((name for name in BUILDERS if name in section), None)


def build_section_network(
    section: ConfigParameters,
    seeds: Seeds | None = None,
    load_model: Callable[[str], Network] | None = None,
    say: Callable[[str], None] | None = None,
) -> Built:
    """Build and validate the network of a command's section.

    `seeds` counts the random parameters of all networks of a run; `load_model` gives the network of
    a model file's name instead of reading it; `say` takes the lines of BrainScript's Print.

    Raises:
        OpscopeError: there is no builder, or its network is wrong; with the place.
    """
    seeds = seeds if seeds is not None else Seeds()
    name = builder_of(section)
    if name is None:
        hints = (nearest(key, BUILDERS) for key in section)
        raise located(
            FormatError,
            "No network builder found in the config file. NDLNetworkBuilder, SimpleNetworkBuilder, "
            f"or BrainScriptNetworkBuilder must be specified{next(filter(None, hints), '')}",
            section.text.locate(),
        )
    warnings: list[str] = []
    if name == "NDLNetworkBuilder":
        built = build_ndl_section(section.section(name), seeds.ndl)
        network, warnings = built.network, built.warnings
        network.precision = section.string("precision", "float")
    elif name == "SimpleNetworkBuilder":
        network = _simple(section.section(name))
    else:
        network = build_section(
            section,
            load_model=load_model,
            seeds=seeds.brainscript,
            say=say,
            warn=warnings.append,
        )
        network.validate()
    return Built(network, name, warnings)


def _simple(section: ConfigParameters) -> Network:
    section.only_if(False, "layerSizes says it; convertdbn alone takes it", "outputLayerSize")
    try:
        network = build_simple_network(SimpleNetworkSettings.from_config(section))
        network.validate()
    except OpscopeError as error:
        if is_located(error):
            raise
        raise located(type(error), str(error), section.text.locate()) from None
    return network
