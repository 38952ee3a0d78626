"""The page of nnet3's language and `opscope nnet3 components` say what the parsers take."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from math import sqrt
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from component_lines import LINES as CONFIGS
from component_lines import from_config
from opscope import nnet3
from opscope.framework.base.errors import OpscopeError
from opscope.nnet3.components import COMPONENTS, new_component
from opscope.nnet3.language.config import REQUIRED, TYPES, ConfigLine, Key
from opscope.nnet3.language.descriptor_parse import parse_descriptor
from opscope.nnet3.language.forms import FORMS
from opscope.nnet3.language.nodes import LINES, nodes_from_lines
from opscope.nnet3.network.edits import DIRECTIVES
from opscope.nnet3.xconfig.configs import LayerNetwork
from opscope.nnet3.xconfig.inputs import SHORT_FORMS, Resolved, resolve
from opscope.nnet3.xconfig.layer import LAYER_TYPES, LayerType
from opscope.nnet3.xconfig.lines import read_lines
from opscope.nnet3.xconfig.meanings import MEANINGS as XCONFIG_MEANINGS
from opscope.python_api.cli.main import main
from package_copy import ROOT

TYPES_HERE = sorted(name for name, kind in COMPONENTS.items() if "opscope" in kind.__module__)


@pytest.fixture(scope="module")
def page() -> str:
    """The page as the site has it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        pages: ModuleType = import_module("reference_pages")
    finally:
        sys.path.pop(0)
    file = SimpleNamespace(file=SimpleNamespace(src_uri="reference/nnet3_language.md"))
    return pages.on_page_markdown((ROOT / "docs/reference/nnet3_language.md").read_text(), file)


def keys_on(page: str, title: str) -> dict[str, tuple[str, str, str]]:
    """Type, default and meaning of each key in the table below a title."""
    text = page.split(f" {title}\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    return {name: (kind, default, doc) for name, kind, default, doc in rows}


class Recording(ConfigLine):
    """A line that notes which keys it is asked for."""

    def __init__(self, text: str) -> None:
        self.asked: set[str] = set()
        super().__init__(text)

    def get(self, key: str) -> str | None:
        self.asked.add(key)
        return super().get(key)


@pytest.mark.parametrize("type", TYPES_HERE)
def test_keys_are_those_that_the_parser_takes(type: str, page: str) -> None:
    line = Recording(CONFIGS[type][0])
    new_component(type).init_from_config(line, np.random.default_rng(0))
    told = set(keys_on(page, type))
    if "component1, component2 ..." in told:
        told |= {"component1", "component2"}
        told.remove("component1, component2 ...")
    assert told == line.asked


@pytest.mark.parametrize("word", LINES)
def test_keys_of_lines(word: str, page: str) -> None:
    assert set(keys_on(page, word)) == {key.name for key in LINES[word].keys}
    lines = {
        "input-node": "input-node name=i dim=2",
        "component-node": "component-node name=n component=c input=i",
        "dim-range-node": "dim-range-node name=r input-node=i dim=1 dim-offset=0",
        "output-node": "output-node name=o input=i",
    }
    if word in lines:
        line = Recording(lines[word])
        others = [ConfigLine(text) for other, text in lines.items() if other != word]
        nodes_from_lines([*others, line])
        assert line.asked == {key.name for key in LINES[word].keys}
    for key in LINES[word].keys:
        assert key.doc


def test_lines_without_a_key_or_with_a_wrong_one() -> None:
    for text, told in (
        ("input-node name=i", "dim= is missing"),
        ("input-node name=i dim=0", "dim=0: at least 1 is wanted"),
        ("output-node name=o inptu=i", "input= is missing .did you mean inptu"),
        ("input-node name=i dim=1 dmi=2", "dmi=2 is not used here"),
        ("component name=c typ=NoOpComponent dim=2", "type= is missing .did you mean typ"),
    ):
        with pytest.raises(OpscopeError, match=told):
            nnet3.Nnet.from_config_text(text)


def every_key() -> list[tuple[str, Key]]:
    """All keys of all types."""
    return [(type, key) for type in TYPES_HERE for key in COMPONENTS[type].keys]


def test_every_key_has_a_meaning_and_a_default_in_words(page: str) -> None:
    assert not [
        (type, key.name) for type, key in every_key() if not key.doc or key.type not in TYPES
    ]
    unclear = [k for _, k in every_key() if k.default is None and not k.unset and k.type != "str"]
    assert not unclear
    assert keys_on(page, "TdnnComponent")["param-stddev"] == (
        "float",
        "1 / sqrt(input-dim * offsets)",
        "standard deviation of random parameters",
    )
    assert keys_on(page, "BatchNormComponent")["epsilon"][1] == "0.001"
    assert keys_on(page, "DropoutComponent")["dropout-proportion"][1] == "required"


WIDE = {
    "LinearComponent": "input-dim=100 output-dim=200",
    "NaturalGradientAffineComponent": "input-dim=100 output-dim=200",
    "TdnnComponent": "input-dim=100 output-dim=200 time-offsets=-1,0,1",
    "TimeHeightConvolutionComponent": "num-filters-in=70 num-filters-out=200 height-in=2"
    " height-out=2 height-offsets=-1,0,1 time-offsets=-1,0,1 required-time-offsets=0",
}
"""Lines of types whose ranks have an upper limit."""


def value_in_words(words: str, line: ConfigLine) -> str | None:
    """The value that a default in words has for a line; None if it depends on more than that."""
    names = set(re.findall(r"[a-z](?:[a-z-]*[a-z])?", words)) - {"sqrt", "min"}
    known = {name: line.get(name) for name in names}
    if "offsets" in known:
        taps = len((line.get("time-offsets") or "0").split(","))
        known["offsets"] = str(taps * len((line.get("height-offsets") or "0").split(",")))
    if not all(value and re.match(r"[0-9]+\Z", value) for value in known.values()):
        return None
    for name in sorted(known, key=len, reverse=True):
        words = words.replace(name, str(known[name]))
    if words.startswith("min"):
        words = words.replace("/", "//")
    return repr(eval(words, {"sqrt": sqrt, "min": min}))


def test_defaults_in_words_are_true() -> None:
    """A component is the same where a computed default is left out and where it is written."""
    proved = set()
    lines = [(type, line[0]) for type, line in CONFIGS.items()] + list(WIDE.items())
    cases = [(type, text, key) for type, text in lines for key in COMPONENTS[type].keys]
    for type, text, key in cases:
        if not key.unset or key.name in ConfigLine(text).keys():
            continue
        value = value_in_words(key.unset, ConfigLine(text))
        if value is None or (type == "NormalizeComponent" and key.name != "block-dim"):
            continue  # of NormalizeComponent's dim= and input-dim= one must stand, and not both
        with_it, without = from_config(type, f"{text} {key.name}={value}"), from_config(type, text)
        assert with_it.info() == without.info(), (type, key)
        np.testing.assert_allclose(with_it.vectorize(), without.vectorize(), rtol=1e-5)
        proved.add((type, key.name))
    assert len(proved) > 25
    assert {name for _, name in proved} >= {"param-stddev", "rank-in", "rank-out", "block-dim"}


@pytest.mark.parametrize("type", TYPES_HERE)
def test_plain_defaults_are_true(type: str) -> None:
    """A component is the same where plain defaults are left out and where they are written."""
    line = ConfigLine(CONFIGS[type][0])
    given = [
        f"{key.name}={key.shown_default}"
        for key in COMPONENTS[type].keys
        if key.default not in (None, REQUIRED) and not key.unset and key.name not in line.keys()
    ]
    assert from_config(type, f"{CONFIGS[type][0]} {' '.join(given)}").info() == (
        from_config(type, CONFIGS[type][0]).info()
    )


def layers(name: str) -> Resolved:
    """A layer of 4 columns that is called so."""
    return Resolved(name, 4)


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_those_of_both_grammars(name: str, page: str) -> None:
    form = FORMS[name]
    assert f"| `{name}({form.arguments})` | {form.doc} | {form.edge} |" in page.replace("\\|", "|")
    assert name in form.example
    assert str(parse_descriptor(form.example)) == form.example
    assert resolve(form.example, ["in"], lambda name: Resolved(name, 1)).text.replace(
        "Const(10.0", "Const(10"
    ) == (form.example)
    for parse in (parse_descriptor, lambda text: resolve(text, ["in"], layers)):
        for text in (f"{name}()", f"{name}", f"{name}(in", form.example.lower()):
            with pytest.raises(Exception, match=r"expected|end|no layer|follows"):
                parse(text)


@pytest.mark.parametrize("form", SHORT_FORMS)
def test_short_forms_of_xconfig(form: str, page: str, tmp_path) -> None:
    example, meaning, doc = SHORT_FORMS[form]
    assert f"| `{form}` | `{example}` | `{meaning}` | {doc} |" in page
    path = tmp_path / "net.xconfig"
    path.write_text(
        "input name=input dim=4\naffine-layer name=affine dim=8\n"
        f"lstm-layer name=lstm cell-dim=8\noutput name=output input={example}\n"
    )
    assert f"output-node name=output input={meaning} " in nnet3.xconfig_to_config(path)


@pytest.mark.parametrize(
    ("descriptor", "rows"),
    [
        ("in", "- 1 2 3 4 5 -"),
        ("Offset(in, -1)", "- - 1 2 3 4 5"),
        ("IfDefined(Offset(in, -1))", "0 0 1 2 3 4 5"),
        ("Failover(Offset(in, -1), in)", "- 1 1 2 3 4 5"),
        ("Switch(in, Offset(in, -1))", "- 1 1 3 3 5 5"),
        ("Round(in, 3)", "- 1 1 1 4 4 4"),
        ("ReplaceIndex(in, t, 0)", "1 1 1 1 1 1 1"),
        ("Sum(in, Const(10, 1))", "- 11 12 13 14 15 -"),
    ],
)
def test_edges(descriptor: str, rows: str, page: str) -> None:
    assert f"| `{descriptor}` | {' | '.join(rows.split())} |" in page


def layer_keys(page: str, name: str) -> dict[str, tuple[str, str, str]]:
    """What the page tells of the keys of a layer type, which may share a table with others."""
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    return keys_on(page, next(found for found in headings if name in found.split(", ")))


LAYERS = sorted(LAYER_TYPES)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_xconfig(name: str, page: str) -> None:
    layer = LAYER_TYPES[name]
    told = layer_keys(page, name)
    assert list(told) == ["name", *layer.options]
    assert layer.doc.endswith(".") and f"\n\n{layer.doc}\n\n" in page
    assert not [key for key, (_, default, doc) in told.items() if not doc or not default]
    assert layer.meanings.keys() <= layer.options.keys()
    known = {"int", "float", "bool", "str"}
    assert {kind for kind, _, _ in told.values()} <= known


def test_a_key_without_a_meaning_is_found() -> None:
    layer = LayerType("x-layer", {"no-such-key": 1, "dim": 2}, lambda layer: None, "", {})
    assert [key.name for key in layer.keys if not key.doc] == ["no-such-key"]


def test_no_meaning_is_left_over() -> None:
    used = {key for layer in LAYER_TYPES.values() for key in layer.options}
    assert XCONFIG_MEANINGS.keys() <= used


GOLDEN_LINES = [
    (path.stem, number)
    for path in sorted((ROOT / "tests/golden/xconfig").glob("*.xconfig"))
    for number, line in enumerate(path.read_text().splitlines())
    if line.strip() and not line.startswith("#")
]


@pytest.mark.parametrize(
    ("case", "number"), GOLDEN_LINES, ids=[f"{case}:{number + 1}" for case, number in GOLDEN_LINES]
)
def test_defaults_of_layers_are_true(case: str, number: int) -> None:
    """A layer is the same where defaults are written, and an error without what is required."""
    lines = (ROOT / f"tests/golden/xconfig/{case}.xconfig").read_text().splitlines()
    text = "\n".join(lines) + "\n"
    [line] = read_lines(f"{lines[number]}\n")
    written, needed = [], []
    for key in LAYER_TYPES[line.type].keys:
        if key.name in line.values and key.default is REQUIRED:
            needed.append(key.name)
        elif key.name not in line.values and key.default is not REQUIRED:
            words = default_in_words(key, line.values, lines[:number])
            written += [f'{key.name}="{words}"'] if words else []
    again = [*lines[:number], f"{lines[number].split(' #')[0]} {' '.join(written)}"]
    again += lines[number + 1 :]
    assert same_numbers(nnet3.xconfig_to_config("\n".join(again) + "\n")) == (
        same_numbers(nnet3.xconfig_to_config(text))
    )
    for key in needed:
        if "noconv" in line.type and key in ("height-offsets", "time-offsets"):
            continue
        left = " ".join(f'{k}="{v}"' for k, v in line.values.items() if k != key)
        with pytest.raises(OpscopeError, match=f"{key}=.* missing|name= is missing|like mean"):
            nnet3.xconfig_to_config("\n".join([*lines[:number], f"{line.type} {left}", ""]))


def dim_of_input(given: dict[str, str], before: list[str]) -> int:
    """Columns of what a layer reads that stands behind these lines."""
    net = LayerNetwork({})
    for line in read_lines("\n".join([*before, ""])):
        net.add(line)
    return resolve(given.get("input", "[-1]"), list(net.layers), net.find).dim


def default_in_words(key: Key, given: dict[str, str], before: list[str]) -> str:
    """The value that stands for a default on the page; "" where none can be written."""
    none = "the component's", "height", "height-in and height-out"
    of_component = "num-left-inputs", "num-right-inputs"  # which is proved above
    if key.default == "" or key.unset in (*none, *of_component):
        return ""
    if key.unset == "columns of the input / height":
        return str(dim_of_input(given, before) // int(given["height"]))
    if key.unset == "the input's":
        return str(dim_of_input(given, before))
    if key.unset == "recurrent-projection-dim":
        return given.get(key.unset) or str(int(given["cell-dim"]) // 4)
    if key.unset == "cell-dim / 4, rounded down":
        return str(int(given["cell-dim"]) // 4)
    if key.unset == "1 / sqrt(key-dim)":
        return str(1 / sqrt(int(given["key-dim"])))
    if key.unset in given:
        return given[key.unset]
    return key.shown_default if not key.unset else str(key.default)


def same_numbers(config: str) -> list[str]:
    """The lines of a config, with one way to write numbers."""
    number = re.compile(r"=(-?[0-9.e-]+)(?= |$)")
    return [number.sub(lambda m: f"={float(m[1]):g}", line) for line in config.splitlines()]


KALDIS_EDITS = {
    *("convert-to-fixed-affine", "remove-orphan-nodes", "remove-orphan-components"),
    *("remove-orphans", "set-learning-rate", "set-learning-rate-factor", "rename-node"),
    *("remove-output-nodes", "set-dropout-proportion", "apply-svd", "reduce-rank"),
}
"""The directives of `ReadEditConfig` in Kaldi's nnet3/nnet-utils.cc."""


def test_edits_are_those_of_kaldi() -> None:
    assert DIRECTIVES.keys() == KALDIS_EDITS


@pytest.mark.parametrize("name", DIRECTIVES)
def test_edits(name: str, page: str) -> None:
    directive = DIRECTIVES[name]
    assert directive.doc.endswith(".") and f"### {name}\n\n{directive.doc}\n\n" in page
    assert keys_on(page, name).keys() == {key.name for key in directive.keys}
    assert not [key.name for key in directive.keys if not key.doc]
    code, out = run("edits", name)
    assert code == 0 and directive.doc in " ".join(out.split())
    for key, (kind, default, doc) in keys_on(page, name).items():
        known = default if default == "required" else f"default {default}"
        assert f" {key} {kind} {known}: {doc}" in " ".join(out.split())


@pytest.mark.parametrize("name", LAYERS)
def test_the_command_tells_of_layers(name: str, page: str) -> None:
    code, out = run("xconfig-layers", name)
    flat = " ".join(out.split())
    assert code == 0 and f"{name} name=NAME" in out and LAYER_TYPES[name].doc in flat
    assert max(map(len, out.splitlines())) <= 100
    for key, (kind, default, doc) in layer_keys(page, name).items():
        known = default if default == "required" else f"default {default}"
        assert f" {key} {kind} {known}: {doc}" in flat


def test_the_commands_list_all_names_and_offer_near_ones() -> None:
    for command, names, wrong, near in (
        ("xconfig-layers", LAYERS, "tdnn-layer", "did you mean tdnnf-layer"),
        ("edits", DIRECTIVES, "set-learning-rates", "did you mean set-learning-rate,"),
    ):
        code, out = run(command)
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == list(names)
        code, out = run(command, wrong)
        assert code == 1 and near in out and len(out.splitlines()) == 1


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["nnet3", *args])
    return result.exit_code, result.output


def test_the_command_lists_all_types() -> None:
    code, out = run("components")
    assert code == 0
    assert set(re.findall(r"^  (\w+Component) ", out, re.MULTILINE)) >= set(TYPES_HERE)
    assert "\nnonlinear\n" in out and max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("type", TYPES_HERE)
def test_the_command_tells_what_the_page_tells(type: str, page: str) -> None:
    code, out = run("components", type)
    assert code == 0
    flat, first = " ".join(out.split()), (COMPONENTS[type].__doc__ or "").split("\n")[0]
    assert f"#### {type}\n\n{first}" in page and first in out
    for name, (kind, default, doc) in keys_on(page, type).items():
        known = default if default == "required" else f"default {default}"
        assert f" {name} {kind} {known}: {doc}" in flat


def test_the_command_offers_the_nearest_names() -> None:
    code, out = run("components", "TdnComponent")
    assert code == 1 and "did you mean TdnnComponent" in out
