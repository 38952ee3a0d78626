"""The reference has an entry for every public name, and the navigation for every page."""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest

import opscope
from opscope.cntk.brainscript.build import TYPES
from opscope.cntk.brainscript.library import REDESIGNED, compiled_library
from opscope.cntk.brainscript.redesign.classes import CLASSES, KINDS, STREAM
from opscope.cntk.brainscript.redesign.objects import REDESIGNED_TYPES
from opscope.cntk.network.catalog import kind, operations
from opscope.cntk.readers.catalog import READERS, WRITERS
from opscope.framework.base.options.settings import SWITCHES
from opscope.framework.base.untrusted.limits import LIMITS
from opscope.framework.ir.registry import lookup, operator_types
from opscope.framework.passes.optimizer import optimizer_types
from opscope.python_api.builder.initializers import INITIALIZERS
from opscope.python_api.builder.methods import BUILDER_METHODS
from opscope.python_api.builder.operator_methods import method_types
from package_copy import ROOT

DOCS = ROOT / "docs"
QUESTIONS = (DOCS / "questions.md").read_text()
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)


def object_of(path: str) -> object:
    """The module, class or function of a dotted name."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        return getattr(object_of(owner), name)


@cache
def entries(pages: ModuleType) -> set[object]:
    """All that the reference pages explain: what they name, and what modules among it define."""
    found: set[object] = set()
    for page in (DOCS / "reference").glob("*.md"):
        for path in ENTRY.findall(filled(pages, page.stem)):
            entry = object_of(path)
            found.add(entry)
            if isinstance(entry, ModuleType):
                own = (value for key, value in vars(entry).items() if not key.startswith("_"))
                made = (one for one in own if inspect.isclass(one) or inspect.isfunction(one))
                found |= {one for one in made if one.__module__ == entry.__name__}
    return found


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The hook that fills pages while the site is built."""
    sys.path.insert(0, str(DOCS))
    try:
        return import_module("reference_pages")
    finally:
        sys.path.pop(0)


@cache  # examples run while a page is filled
def filled(pages: ModuleType, name: str) -> str:
    """A page as the site has it."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri=f"reference/{name}.md"))
    return pages.on_page_markdown((DOCS / f"reference/{name}.md").read_text(), page)


@pytest.mark.parametrize(
    "package",
    [opscope, opscope.cntk, opscope.nnet3, opscope.speech],
    ids=lambda found: found.__name__,
)
def test_public_names(package: ModuleType, pages: ModuleType) -> None:
    known = entries(pages)
    missing = [
        name
        for name in package.__all__
        if name not in pages.EXPLAINED and getattr(package, name) not in known
    ]
    assert not missing
    assert all(inspect.getdoc(found) for found in known)


def test_the_list_of_names(pages: ModuleType) -> None:
    text = filled(pages, "face")
    for name in opscope.__all__:
        assert f"| [`{name}`][opscope." in text or f"| `{name}` | " in text
    assert set(pages.EXPLAINED) <= set(opscope.__all__)


def test_methods_of_the_builder(pages: ModuleType) -> None:
    known = entries(pages)
    own = [value for key, value in vars(opscope.NetBuilder).items() if key[0] != "_"]
    assert opscope.NetBuilder in known
    assert all(inspect.getdoc(method) for method in own if inspect.isfunction(method))
    assert not [name for name, function in BUILDER_METHODS.items() if function not in known]


def test_operators(pages: ModuleType) -> None:
    text = filled(pages, "operators")
    updates = [name for name in operator_types() if "param_out" in lookup(name).output_slots]
    ours = [name for name in (*method_types(), *updates) if ".operators." in lookup(name).module]
    assert len(ours) > 150
    missing = [
        name
        for name in ours
        if lookup(name).module.startswith("opscope.operators.") and f"\n### {name}\n" not in text
    ]
    assert not missing
    assert "\n## math\n" in text and "\n## optim\n" in text
    # The examples have run when the page is filled: each shows what it prints.
    examples = import_module("operator_examples")
    shown = [name for name in ours if lookup(name).module.startswith("opscope.operators.")]
    for name in shown:
        section = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        at_work = examples.ELSEWHERE.get(name, "\nprint(")
        assert 'Source: <a href="../../source/operators/' in section and at_work in section, name
    softmax = text.partition("\n### softmax\n")[2].partition("\n### ")[0]
    assert "array([[0.09  , 0.2447, 0.6652]], dtype=float32)" in softmax
    assert "| `x` | any shape | yes, by `softmax_grad` |" in softmax
    assert "| yes: `x_grad = out > 0 ? out_grad : 0` |" in text  # of relu, by its expression
    assert "| no: its result is a position |" in text


def test_entries_link_to_their_source_and_to_where_they_work(pages: ModuleType) -> None:
    heading = '<h2 id="opscope.framework.base.scope.Scope" class="doc doc-heading">Scope</h2>'
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/framework.md"))
    html = pages.on_page_content(heading, page)
    assert re.search(r'href="../../source/framework/base/scope.py.html#line-\d+"', html)
    assert re.search(r'at work: <a href="../../\w+/(#[\w-]+)?">', html)


def test_switches_and_initializers(pages: ModuleType) -> None:
    text = filled(pages, "switches")
    for switch in SWITCHES.values():
        assert f"| `{switch.name}` | " in text and switch.doc in text
    text = filled(pages, "limits")
    for limit in LIMITS.values():
        assert f"| `{limit.name}` | " in text and limit.doc in text
    text = filled(pages, "initializers")
    assert all(f'| `"{name}"` | ' in text for name in INITIALIZERS)
    assert "`orthogonal_random`" in text


def test_promises_and_limits_say_the_same() -> None:
    text = " ".join((DOCS / "promises.md").read_text().split())
    gib, mib = LIMITS["fill"].default / (1 << 30), LIMITS["carried"].default / (1 << 20)
    assert f"describes without containing them take at most {gib:g} GiB" in text
    assert f"end after {LIMITS['rounds'].default:,} iterations (`rounds`)" in text
    assert f"or {mib:g} MiB (`carried`)" in text
    assert f"asks before it takes more than {LIMITS['run'].shown_default} (the limit `run`)" in text


def test_programs(pages: ModuleType) -> None:
    text = filled(pages, "nnet3_programs")
    assert "## nnet3-compute\n" in text and "--frames-per-chunk" in text
    assert "## nnet3-compile\n" in text and "--kaldi" in text


def test_optimizers_and_schedules() -> None:
    text = (DOCS / "training.md").read_text()
    optimizers = [name for name in optimizer_types() if "." not in name]
    schedules = [name[3:] for name in operator_types() if name.startswith("lr_")]
    assert not [name for name in (*optimizers, *schedules) if f"`{name}`" not in text]


def test_classes_and_functions_of_brainscript(pages: ModuleType) -> None:
    text = filled(pages, "brainscript")
    made = {**TYPES, **REDESIGNED_TYPES}
    records = "AutoAdjust ParallelTrain DataParallelSGD ModelAveragingSGD BlockMomentumSGD"
    records += " DataParallelASGD AdjustLearningRateAtBeginning"
    told = {*CLASSES} - {STREAM, *records.split()}
    assert told == {*made}
    for name, found in CLASSES.items():
        rows = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert found.doc in rows
        for setting in found.settings.values():
            assert f"| `{setting.name}` | {setting.kind} | {setting.default} |" in rows
            assert setting.kind in KINDS or setting.kind in CLASSES
    functions = {member.name for member, _ in compiled_library(REDESIGNED)}
    functions = {name for name in functions if not name.startswith("_")}
    missing = [name for name in functions if not re.search(rf"`{name}\b", text)]
    assert len(functions) > 150 and not missing
    assert "`Format (fmt, val)` | One value as sprintf writes it" in text
    assert '`Sigmoid (_, tag = "")` | A node of the kind Sigmoid. |' in text


def test_readers_of_cntk() -> None:
    text = (DOCS / "cntk_readers.md").read_text()
    for name in {*READERS.own, *WRITERS.own} - {"CompositeDataReader"}:
        assert f"| `{name}` |" in text


def test_nodes_of_cntk(pages: ModuleType) -> None:
    text = filled(pages, "cntk_nodes")
    for name in operations():
        found = kind(name)
        assert f"\n### {name}\n\n`{name} (" in text and found.doc in text
        for row in found.attributes:
            assert f"| `{row}` | " in text
    assert '- BrainScript: `Tanh (z, tag = "")`\n' in text and "\n- Operators: `tanh`" in text


def test_navigation() -> None:
    """Every page has one place, and the top entries fit one row of 1280 pixels."""
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": (\S+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    assert named[0] == "index.md"
    top = re.findall(
        r"^  - ([\w ]+):", text[text.index("nav:") : text.index("exclude_docs")], re.MULTILINE
    )
    assert len(top) <= 7 and sum(map(len, top)) <= 50


def test_forty_questions_have_an_answer() -> None:
    """Each row of the page leads to one heading; the strict build follows the links."""
    rows = re.findall(r"^\| (.+\?) \| \[.+\]\(\S+\.md#[\w-]+\) \|$", QUESTIONS, re.MULTILINE)
    every = QUESTIONS.count("\n| ") - QUESTIONS.count("\n| question ")
    assert len(rows) == len(set(rows)) == every == 40
