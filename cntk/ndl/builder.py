"""`NDLNetworkBuilder`: from a section of a config, or a file, to a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ...framework.base.errors import FormatError, VariableError, nearest
from ...framework.base.untrusted.opener import path_text
from ..base.text import Text, is_located, join, located
from ..config.files import load_resolved, read_config_text
from ..config.parameters import ConfigParameters
from ..config.value import ConfigValue
from ..network.network import Network
from ..network.validate import validate
from .evaluate import Evaluator
from .macros import Macros
from .numbering import Numbering
from .parse import parse_ndl
from .syntax import Script


@dataclass(frozen=True)
class NdlNetwork:
    """A network from NDL, with the warnings of its evaluation."""

    network: Network
    warnings: list[str]


def build_ndl_section(section: ConfigParameters, seeds: Iterator[int] | None = None) -> NdlNetwork:
    """The network that an `NDLNetworkBuilder` section describes, validated.

    `networkDescription` names a file, `ndlMacros` files of macros joined by `+`; `load` and `run`
    name the sections to use, in the file or, without a file, in the config. `seeds` counts the
    random parameters of all networks of a run; `randomSeedOffset` is added to each.

    Raises:
        OpscopeError: the text is no NDL, or the network is wrong; with the place of the fault.
    """
    offset = section.int("randomSeedOffset", 0)
    if offset:
        seeds = (seed + offset for seed in (seeds if seeds is not None else count(1)))
    macros = Macros()
    numbering = Numbering(macros)
    if "ndlMacros" in section:
        for script in load_macro_files(section["ndlMacros"], section, macros):
            numbering.script(script)
    name = section.string("networkDescription", "")
    if not name:
        return _built(_named(section, _chosen(section, section)), macros, seeds, numbering)
    if "+" in name:
        raise section["networkDescription"].error(
            '"+" not allowed in "networkDescription" value.  Multiple files cannot be specified '
            'via "networkDescription" parameter. In order to load multiple NDL files (eg, for '
            'loading several files of macros), use the "ndlMacros" parameter.'
        )
    try:
        text = load_resolved(name, section)
    except FormatError as error:
        if is_located(error):
            raise
        raise section["networkDescription"].error(str(error)) from None
    return _built(_scripts(text, Path(name).name, section), macros, seeds, numbering)


def build_ndl_file(path: str | Path) -> NdlNetwork:
    """The network of an NDL file that needs no config, validated.

    Returns:
        the network, and warnings about what CNTK does and one would not expect.

    Raises:
        OpscopeError: the file cannot be read, or its network is wrong; with the place.
    """
    scripts = _scripts(read_config_text(path), Path(path_text(path)).name, ConfigParameters())
    return _built(scripts, Macros())


def parse_ndl_file(
    text: Text, name: str = "<string>", errors: list[FormatError] | None = None
) -> list[Script]:
    """All scripts of an NDL file: of the sections that it loads and runs, or the whole text.

    Variables stay as they are. Sections that the file loads or runs but does not have are left out:
    they may be in another file. `errors`: as of `parse_ndl`.
    """
    sections = ConfigParameters(text, name)
    if "load" not in sections and "run" not in sections:
        return [parse_ndl(join(["[ ", text, " ]"]), errors=errors)]
    names = [str(n) for key in ("load", "run") if key in sections for n in sections.array(key)]
    return [parse_ndl(sections.raw(n), errors=errors) for n in names if sections.has(n)]


def load_macro_files(files: ConfigValue, config: ConfigParameters, macros: Macros) -> list[Script]:
    """Define the macros of the files of a list joined by `+`; the scripts of the files."""
    scripts: list[Script] = []
    for name in filter(None, str(files).split("+")):
        try:
            text = load_resolved(name, config)
        except FormatError as error:
            if is_located(error):
                raise
            raise files.error(str(error)) from None
        for script in parse_ndl_file(text, Path(name).name):
            for macro in script.macros:
                macros.define(macro)
            scripts.append(script)
    return scripts


def _scripts(text: Text, name: str, section: ConfigParameters) -> list[Script]:
    """The scripts of a description file; `load` and `run` of the config go before the file's."""
    sections = ConfigParameters(text, name)
    for key in ("load", "run"):
        if key in section:
            sections.insert(key, section[key])
    if "load" not in sections and "run" not in sections:
        return [parse_ndl(join(["[ ", text, " ]"]))]
    values = [sections[key] for key in ("load", "run") if key in sections]
    return _named(sections, [item for value in values for item in value.array()])


def _chosen(section: ConfigParameters, around: ConfigParameters) -> list[ConfigValue]:
    """The names of the sections that a config without a description file loads and runs."""
    if "run" not in section:
        raise located(
            FormatError,
            "In NDLNetworkBuilder section either a 'networkDescription=filename' or "
            "'run=sectionName' must exist.",
            around.text.locate(),
        )
    load = list(section.array("load")) if "load" in section else []
    return [*load, *section.array("run")]


def _named(sections: ConfigParameters, names: list[ConfigValue]) -> list[Script]:
    scripts = []
    for name in names:
        if str(name) not in sections:
            known = [known for around in sections.outwards() for known in around]
            raise name.error(
                f"the configuration parameter names '{name}', which is not another section in this "
                f"configuration file{nearest(str(name), known)}"
            )
        value = sections[str(name)]
        sections.record.leave(value.path)  # the names in it are nodes
        scripts.append(parse_ndl(value.text))
    return scripts


def _built(
    scripts: list[Script],
    macros: Macros,
    seeds: Iterator[int] | None = None,
    numbering: Numbering | None = None,
) -> NdlNetwork:
    evaluator = Evaluator(Network(), macros, seeds, numbering)
    evaluator.run(Script(tuple(statement for script in scripts for statement in script)))
    evaluator.connect()
    network = evaluator.network
    if not network.groups["feature"]:
        raise VariableError(
            "Invalid network node definition for 'featureNodes', nonexistant or wrong type: no "
            'input has tag="feature", and there is no FeatureNodes = (...)'
        )
    with evaluator.explained():
        validate(network)
    evaluator.finish()
    return NdlNetwork(network, evaluator.warnings)
