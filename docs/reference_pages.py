"""Fills reference pages while mkdocs builds, from what the package says of itself."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # mkdocs loads a hook by its path
import cntk_pages  # noqa: E402
import coming_from_pages  # noqa: E402
import conformance_page  # noqa: E402
import evidence_page  # noqa: E402
import notebooks  # noqa: E402
import operator_pages  # noqa: E402
import site_html  # noqa: E402
import source_pages  # noqa: E402
from cntk_pages import table  # noqa: E402

EXPLAINED = {
    "NetDesc": "A net as a protobuf message; [the saved format](../format.md).",
    "OpDesc": "An operator of a `NetDesc`: type, slots, attributes, role, source line.",
    "VarDesc": "A variable of a `NetDesc`: name, dtype, dimensions, kind, initializer.",
    "bridges": "What stands above all front ends: ONNX, PyTorch, what a file is, pages of nets.",
    "cntk": "CNTK's configs, networks, readers; see the section CNTK.",
    "framework": "Scopes, nets, operators' registry, files; see the pages below.",
    "metrics": "Metrics that are counted over a whole pass; see [training](training.md).",
    "nnet3": "Kaldi's networks; see [nnet3](nnet3.md).",
    "operators": "The operators; see [their page](operators.md).",
    "proto": "`net.proto` and what is generated from it.",
    "python_api": "NetBuilder, training, generation, the command line.",
    "scale": "Work on many machines: jobs, recipes, scoring, planning for many ranks.",
    "speech": "From audio to words: features, iVectors, FSTs, decoding, recognizers.",
}
"""Names of the face without a docstring of their own that tells enough, and without an entry."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the page's text, followed by what is generated for it."""
    fill = FILLED.get(page.file.src_uri)
    text = "\n\n".join([markdown, *fill()]) if fill else markdown
    first = text.find("\n## ")
    first = len(text) if first < 0 else first
    # Entries are headings of level 3; those before the first section come right below the title.
    return _ENTRY.sub(r"\g<0>\n    options:\n      heading_level: 2", text[:first]) + text[first:]


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the text as HTML; tutorials and entries of the reference get their links."""
    name = page.file.src_uri.removesuffix(".md")
    if name in notebooks.tutorials():
        return notebooks.linked(html, name)
    if not page.file.src_uri.startswith("reference/"):
        return html
    return source_pages.linked(html, source_pages.works(Path(__file__).parent))


def on_post_build(config: Any, **_: Any) -> None:
    """mkdocs hook: the site is written; the pages of source and the notebooks follow."""
    source_pages.write(Path(config.site_dir))
    notebooks.write(Path(config.site_dir))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the whole page, with what the theme leaves out."""
    html = site_html.improved(output)
    return site_html.confined(html) if page.file.src_uri == site_html.CONFINED else html


_ENTRY = re.compile(r"^::: \S+$", re.MULTILINE)


def _face() -> Iterator[str]:
    """A row for each public name of `opscope`, with a link to its entry."""
    import opscope

    rows = ["| name | |", "|---|---|"]
    for name in sorted(opscope.__all__, key=str.lower):
        if name in EXPLAINED:
            rows.append(f"| `{name}` | {EXPLAINED[name]} |")
            continue
        found = getattr(opscope, name)
        module = inspect.ismodule(found)
        target = found.__name__ if module else f"{found.__module__}.{found.__qualname__}"
        rows.append(f"| [`{name}`][{target}] | {_sentence(found)} |")
    yield "\n".join(rows)


def _builder() -> Iterator[str]:
    """An entry for each function that is a method of NetBuilder, by the module it is written in."""
    from opscope.framework.ir.registry import lookup
    from opscope.python_api.builder.methods import BUILDER_METHODS
    from opscope.python_api.builder.operator_methods import method_types

    operators = {*method_types()}
    modules: dict[str, list[str]] = {}
    for name, function in sorted(BUILDER_METHODS.items()):
        modules.setdefault(function.__module__, []).append(name)
    for module, names in sorted(modules.items(), key=lambda entry: entry[0].rpartition(".")[2]):
        title = module.rpartition(".")[2].replace("_", " ").capitalize()
        yield f"## {title}"
        for name in names:
            yield f"::: {module}.{name}"
            if name in operators:
                yield from operator_pages.example(lookup(name))


def _switches() -> Iterator[str]:
    """A row for each environment switch, with the option that it sets."""
    from opscope.framework.base.options.settings import SWITCHES

    rows = ["| variable | option | default | values | what it does |", "|---|---|---|---|---|"]
    for switch in SWITCHES.values():
        values = ", ".join(f"`{choice}`" for choice in switch.choices) or "text"
        default = f"`{switch.default}`" if switch.default else "empty"
        option = f"`{switch.option}`" if switch.option else ""
        rows.append(f"| `{switch.name}` | {option} | {default} | {values} | {switch.doc} |")
    yield "\n".join(rows)


def _limits() -> Iterator[str]:
    """A row for each limit of what files may ask for."""
    from opscope.framework.base.untrusted.limits import LIMITS

    rows = ["| limit | default | of | what it holds for |", "|---|---|---|---|"]
    for limit in LIMITS.values():
        default = limit.shown_default or f"{limit.default:,}".replace(",", " ")
        rows.append(f"| `{limit.name}` | {default} | {limit.unit} | {limit.doc} |")
    yield "\n".join(rows)


def _initializers() -> Iterator[str]:
    """A row for each initializer that has a name, and the operators that fill besides."""
    from opscope.framework.ir.registry import operator_types
    from opscope.python_api.builder.initializers import INITIALIZERS

    rows = ["| name | operator | attributes |", "|---|---|---|"]
    for name, (operator, attrs) in INITIALIZERS.items():
        told = ", ".join(f"{key}={value!r}" for key, value in attrs.items())
        rows.append(f'| `"{name}"` | `{operator}` | {told} |')
    yield "\n".join(rows)
    fillers = [name for name in operator_types() if name.endswith("_random")]
    yield "Operators that fill: " + ", ".join(f"`{name}`" for name in fillers) + "."


def _programs() -> Iterator[str]:
    """The help of each program of Kaldi's."""
    import click

    from opscope.python_api.cli.main import kaldi_programs, main

    wanted = {*kaldi_programs(), "nnet3", "nnet3-compile", "nnet3-xconfig-to-config", "links"}
    context = click.Context(main, info_name="opscope")
    for name in main.list_commands(context):
        if name not in wanted:
            continue
        command = main.get_command(context, name)
        if hasattr(command, "usage"):
            text = command.usage()
        else:
            with click.Context(command, context, name) as inner:
                text = command.get_help(inner)
        yield f"## {name}\n\n```text\n{text}\n```"


def _language() -> Iterator[str]:
    """The lines of nnet3's configs and xconfigs, descriptors, edits, and all component types."""
    from opscope.nnet3.components import COMPONENTS
    from opscope.nnet3.language.config import TYPES
    from opscope.nnet3.language.forms import FORMS
    from opscope.nnet3.language.nodes import LINES
    from opscope.nnet3.network.edits import DIRECTIVES
    from opscope.nnet3.xconfig.configs import layer_type_of, layer_types
    from opscope.nnet3.xconfig.inputs import SHORT_FORMS
    from opscope.python_api.cli import nnet3_language as told

    yield "## Types of values"
    yield table(("type", "what a value is"), ((f"`{n}`", t.doc) for n, t in TYPES.items()))
    yield "## Config lines"
    for word, line in LINES.items():
        yield f"### {word}\n\n{line.doc}"
        yield _keys(line.keys)
    yield _DESCRIPTORS
    rows = []
    for name, form in FORMS.items():
        rows.append((f"`{name}({form.arguments})`", form.doc, form.edge))
    yield table(("form", "meaning", "where rows are not there"), rows)
    yield _EDGES
    rows = []
    for example in ("in", *(form.example for form in FORMS.values())):
        rows.append((f"`{example}`", *(f"{value}" for value in _rows_of(example))))
    yield table(("descriptor", *(f"t = {t}" for t in _TIMES)), rows)
    yield _XCONFIG
    shorts = ((f"`{k}`", f"`{v[0]}`", f"`{v[1]}`", v[2]) for k, v in SHORT_FORMS.items())
    yield table(("form", "example", "stands for", "meaning"), shorts)
    yield _LAYERS
    alike: dict[tuple[str, Any], list[str]] = {}
    for name in layer_types():
        layer = layer_type_of(name)
        alike.setdefault((layer.doc, layer.keys), []).append(name)
    for (doc, keys), names in alike.items():
        yield f"### {', '.join(names)}\n\n{doc}"
        yield _keys(keys)
    yield _EDITS
    for name, directive in DIRECTIVES.items():
        yield f"### {name}\n\n{directive.doc}"
        yield _keys(directive.keys)
    yield "## Component types"
    for family, names in told.component_families().items():
        yield f"### {family}"
        for name in names:
            yield f"#### {name}\n\n{told.component_text(name)}"
            yield _keys(COMPONENTS[name].keys)


_DESCRIPTORS = """## Descriptors of configs

The value of `input=` is the name of a node, or a form. A node is an input node, a component
node or a dim-range node. Forms nest freely where the result can be brought into the order that
Kaldi computes: `Append` outermost, within it `Sum`, `Failover`, `IfDefined` and `Const`, within
these the others, and `Scale` innermost. What has no such order is an error."""
_EDGES = """### At the edges

The input `in` has one column and rows for t = 0 to 4, which hold 1 to 5. This is what rows of an
output hold; `-` where the output cannot be computed. The table is computed while this page is
made."""
_XCONFIG = """## Descriptors of xconfig lines

The value of `input=` of an xconfig line is a form of the table above, or one of these, which may
also stand within forms. Names refer to earlier layers. The examples stand after
`affine-layer name=affine` and `lstm-layer name=lstm`. A line without `input=` reads `[-1]`. At the
edges these mean what they stand for."""
_LAYERS = """## xconfig layers

A line of an xconfig is a layer type, `name=` and other keys. Layer types with the same keys stand
together. "The component's" as a default: the key is written to the config only where it is
given. `opscope nnet3-xconfig-to-config` shows what a layer becomes, and
`opscope nnet3 xconfig-layers TYPE` prints what stands here about a type."""
_EDITS = """## Edit directives

`nnet3-copy --edits="set-learning-rate name=tdnn* learning-rate=0.001; remove-orphans" 1.raw 2.raw`
changes a network; `nnet3-am-copy` and others take the same options, and `nnet3.apply_edits` is for
Python. Directives are carried out in their order, with `;` between them; a file for
`--edits-config` has one on each line. `opscope nnet3 edits` prints what stands here."""
_TIMES = range(-1, 6)


def _rows_of(descriptor: str) -> Iterator[str]:
    """What each row of an output of this descriptor holds; see `_EDGES`."""
    import numpy as np

    from opscope import nnet3
    from opscope.framework.base.errors import OpscopeError

    net = f"input-node name=in dim=1\noutput-node name=out input={descriptor}"
    nnet = nnet3.Nnet.from_config_text(net)
    inputs = nnet3.IoSpecification("in", np.array([(0, t, 0) for t in range(5)]))
    for t in _TIMES:
        outputs = nnet3.IoSpecification("out", np.array([(0, t, 0)]))
        request = nnet3.ComputationRequest([inputs], [outputs])
        try:
            computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
        except OpscopeError:
            yield "-"
            continue
        computer.accept_input("in", np.arange(1.0, 6.0, dtype=np.float32)[:, None])
        computer.run()
        yield " ".join(f"{value:g}" for value in computer.get_output("out")[0])


def _keys(keys: Sequence[Any]) -> str:
    from opscope.python_api.cli.nnet3_language import key_rows

    if not keys:
        return "It has no keys."
    rows = ((f"`{name}`", kind, default, doc) for name, kind, default, doc in key_rows(keys))
    return table(("key", "type", "default", "meaning"), rows)


def _brainscript() -> Iterator[str]:
    """The classes of BrainScript and of its redesigned top level; the functions of the library."""
    from opscope.cntk.brainscript.redesign.classes import KINDS, SHARED_CLASSES, TOP_CLASSES

    yield "## Types of members"
    yield table(("type", "what a value is"), ((name, doc) for name, doc in KINDS.items()))
    for title, classes in (
        ("Classes of the redesigned top level", TOP_CLASSES),
        ("Classes of networks and values", SHARED_CLASSES),
    ):
        yield f"## {title}"
        for name, found in classes.items():
            yield f"### {name}\n\n{found.doc}"
            rows = ((f"`{s.name}`", s.kind, s.default, s.doc) for s in found.settings.values())
            yield table(("member", "type", "default", "meaning"), rows)
    yield from _library()


def _library() -> Iterator[str]:
    """The functions of BrainScript's library by topic."""
    from opscope.cntk.brainscript.library import STANDARD
    from opscope.cntk.brainscript.signatures import library_functions

    for name in (*STANDARD, "redesign"):
        yield f"## {_FILES[name]}"
        topics: dict[str, list[tuple[str, str]]] = {}
        for found in library_functions((name,)):
            shown = "<br>".join(f"`{signature}`" for signature in found.signatures)
            topics.setdefault(found.topic, []).append((shown, found.doc))
        for topic, rows in topics.items():
            if topic:
                yield f"### {topic[0].upper() + topic[1:]}"
            yield table(("function", "meaning"), rows)


_FILES = {
    "layers": "Functions: layers",
    "operations": "Functions: operations",
    "helpers": "Functions: values, texts and numbers",
    "namespaces": "Functions: the name space BS",
    "redesign": "Functions of the redesigned top level",
}


FILLED: dict[str, Callable[[], Iterator[str]]] = {
    "reference/brainscript.md": _brainscript,
    "reference/builder.md": _builder,
    "cntk_names.md": coming_from_pages.cntk,
    **coming_from_pages.PAGES,
    "conformance.md": conformance_page.claims,
    "evidence.md": evidence_page.evidence,
    "reference/cntk_commands.md": cntk_pages.commands,
    "reference/cntk_nodes.md": cntk_pages.nodes,
    "reference/cntk_readers.md": cntk_pages.readers,
    "reference/face.md": _face,
    "reference/switches.md": _switches,
    "reference/limits.md": _limits,
    "reference/initializers.md": _initializers,
    "reference/nnet3_language.md": _language,
    "reference/nnet3_programs.md": _programs,
    "reference/operators.md": operator_pages.operators,
}
"""The pages that are filled, and by what."""


def _sentence(found: object) -> str:
    """The first sentence of a docstring, as a cell of a table."""
    text = " ".join((inspect.getdoc(found) or "").split())
    return re.split(r"(?<=\.)\s", text)[0].replace("|", "\\|")
