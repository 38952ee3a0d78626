"""The pages about CNTK that are made from its catalogs: every name has its row."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import opscope
from opscope.cntk.actions.run import ACTIONS
from opscope.cntk.config.commands import ACTIONS as KNOWN_ACTIONS
from opscope.cntk.mel.commands import COMMANDS, command_names
from opscope.cntk.network.nodes.kind import KINDS, NDL
from opscope.cntk.programs.library import library_functions
from opscope.cntk.readers.catalog import DESERIALIZERS, READERS, WRITERS
from opscope.framework.ir.registry import operator_types
from package_copy import ROOT

DOCS = ROOT / "docs"

# Of CNTK's Python package, January 2017: its operations, layers, learners and what runs them.
PYTHON = """
    combine as_block as_composite alias cosine_distance binary_cross_entropy plus minus times
    weighted_binary_cross_entropy cross_entropy_with_softmax squared_error lambda_rank ndcg_at_1
    classification_error convolution roipooling pooling unpooling less equal greater greater_equal
    not_equal less_equal element_times element_divide log_add_exp times_transpose floor ceil round
    clip relu sigmoid tanh sin cos softmax hardmax exp log sqrt square abs negate reciprocal
    element_select future_value past_value optimized_rnnstack reshape transpose slice splice
    reduce_sum reduce_log_sum reduce_mean reduce_max reduce_min random_sample input_variable
    random_sample_inclusion_frequency output_variable placeholder_variable parameter constant
    per_dim_mean_variance_normalize Dense Embedding Convolution Deconvolution MaxPooling
    AveragePooling GlobalMaxPooling GlobalAveragePooling MaxUnpooling Recurrence Delay Dropout
    BatchNormalization LayerNormalization default_options Stabilizer LSTM Sequential LayerStack
    learning_rate_schedule momentum_schedule momentum_as_time_constant_schedule sgd momentum_sgd
    nesterov adagrad adam_sgd rmsprop MinibatchSource CTFDeserializer ImageDeserializer
    StreamConfiguration StreamDef sequence_to_cntk_text_format Trainer train_minibatch
    test_minibatch save_checkpoint restore_from_checkpoint training_session cpu gpu best
    load_model save_model restore_model UserFunction find_by_name find_all_with_name clone
""".split()

# Of CNTK's library of BrainScript, functions and records at its top.
CORE = """
    LinearLayer DenseLayer EmbeddingLayer ConvolutionalLayer DeconvLayer MaxPoolingLayer
    AveragePoolingLayer MaxUnpoolingLayer RecurrentLSTMLayer RecurrentLSTMLayerStack DelayLayer
    Dropout BatchNormalizationLayer LayerNormalizationLayer StabilizerLayer FeatureMVNLayer
    LogPriorLayer Sequential Parallel MergeBinary LayerStack ParameterTensor Parameter
    LearnableParameter Constant ConstantTensor ConstantFromString Input SparseInput ImageInput
    SparseImageInput EnvironmentInput DynamicAxis Splice ReduceSum ReduceMax RowSlice RowStack
    SplitDimension FlattenDimensions ReshapeDimension CastAs TimeReverse Trace OptimizedRNNStack
    RNNStack BFF SBFF MeanVarNorm LogPrior Print Debug Format Replace Substr Chr Fail Length Repeat
    BS.Sequences.Gather BS.Loop.Previous BS.RNNs.LSTMBlock BS.RNNs.RecurrentLSTMP BS.Boolean.If
    BS.Seq2Seq.BeamSearchSequenceDecoderFrom BS.Network.Load BS.Network.CloneFunction
    BS.Constants.None BS.Parameters.Stabilize CNTK2.Identity CNTK2.CrossEntropyWithSoftmax
""".split()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages as the site has them, by path."""
    sys.path.insert(0, str(DOCS))
    try:
        hook = import_module("reference_pages")
    finally:
        sys.path.pop(0)
    found = {}
    names = ("commands", "nodes", "readers")
    for path in ("cntk_names.md", *(f"reference/cntk_{name}.md" for name in names)):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=path))
        found[path] = hook.on_page_markdown((DOCS / path).read_text(), page)
    return found


@pytest.fixture(scope="module")
def words(pages: dict[str, str]) -> ModuleType:
    return import_module("opscope.python_api.coming_from.cntk_words")


@pytest.fixture(scope="module")
def rows(pages: dict[str, str]) -> dict[str, list[str]]:
    """The rows of the page of names, by the names in their first cell; each has what follows."""
    found: dict[str, list[str]] = {}
    for line in pages["cntk_names.md"].splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.replace("\\|", "").strip("| ").split(" | ")]
        for name in re.findall(r"`([^`]+)`", cells[0]):
            for part in re.split(r"[, ]+", name.replace("(", " ").replace(")", " ")):
                found.setdefault(part.rpartition("Function.")[2], []).append(" | ".join(cells[1:]))
    return found


def missing(rows: dict[str, list[str]], names: Iterable[str]) -> list[str]:
    """The names that have no row, or one that says nothing."""
    return [name for name in names if not all(rows.get(name, [""]))]


def test_every_name_of_the_catalogs_has_a_row(rows: dict[str, list[str]]) -> None:
    ndl = [name for function in NDL.values() for name in function.names]
    assert not missing(rows, ndl) and len(ndl) > 90
    assert not missing(rows, KINDS)
    assert not missing(rows, library_functions())
    assert not missing(rows, command_names())
    assert not missing(rows, KNOWN_ACTIONS)
    assert not missing(rows, [*READERS.own, *WRITERS.own, *DESERIALIZERS.own])
    learners = [name for name in operator_types() if name.startswith("cntk.")]
    told = re.findall(r"the operator `(cntk\.\w+)`", " ".join(" ".join(r) for r in rows.values()))
    assert set(told) <= set(learners) and len(set(told)) == 5


def test_names_of_cntk_are_there(rows: dict[str, list[str]]) -> None:
    assert not missing(rows, PYTHON)
    assert not missing(rows, CORE)
    evaluation = "GetEvalF IEvaluateModel CreateNetwork Evaluate ForwardPass GetNodeDimensions Init"
    evaluation += (
        " StartEvaluateMinibatchLoop StartForwardEvaluation ResetState Destroy ValueBuffer"
    )
    assert not missing(rows, [*evaluation.split(), "GetInputSchema", "GetOutputSchema"])
    absent = "devtest Kaldi2Reader ParallelTrain UserDefinedV2Function"
    assert not missing(rows, [*absent.split(), "SparsePCReader", "TimeReverse"])


def test_no_row_is_left_of_what_is_gone(words: ModuleType) -> None:
    assert set(words.ACTIONS) == set(ACTIONS)
    assert set(words.MEL) == {spec.names[0] for spec in COMMANDS}
    library = import_module("opscope.python_api.coming_from.cntk_library_words").LIBRARY
    assert set(library) <= set(library_functions())
    single = {name for name in library if library_functions()[name].operation in KINDS}
    assert not single, "their node says what they are"


def test_what_rows_name_is_there(words: ModuleType) -> None:
    builder = opscope.NetBuilder("names")
    told = [*words.PROGRAMS, *words.EVALUATION, *words.LIBRARY2]
    text = " ".join([*(row[1] for row in told), *words.MEL.values()])
    found = re.findall(r"`((?:cntk|opscope|b)(?:\.\w+)+)`", text)
    assert len(found) > 100
    starts = {"cntk": opscope.cntk, "opscope": opscope, "b": builder}
    for name in found:
        first, *rest = name.split(".")
        value = starts[first]
        for number, part in enumerate(rest):
            if isinstance(value, ModuleType) and not hasattr(value, part):
                import_module(f"{value.__name__}.{part}")
            if not hasattr(value, part) and number:  # an attribute that an instance has
                assert part in vars(value).get("__annotations__", {}) or part == "groups", name
                break
            value = getattr(value, part)


def test_options_of_training_have_their_fields(
    rows: dict[str, list[str]], words: ModuleType
) -> None:
    """Each option of the tables SGD and AutoAdjust, and each field that holds one."""
    told = import_module("cntk_option_words")
    for section, owner in (
        ("SGD", opscope.cntk.SgdOptions),
        ("AutoAdjust", opscope.cntk.AutoAdjust),
    ):
        pairs = dict(pair.split("=") for pair in words.FIELDS[section].split())
        (table,) = (one for one in told.COMMANDS if one.title == section)
        names = {row[0] for row in import_module("cntk_pages").option_rows(table)}
        assert set(pairs) == {name for name in names if not name.startswith("traceNode")}
        held = {field for among in pairs.values() for field in among.split(",")}
        assert held == {field.name for field in fields(owner)} - {"trace_level", "traced"}
        assert not missing(rows, pairs)


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    text = pages["cntk_names.md"]
    for path, anchor in set(re.findall(r"\]\(([\w/]+\.md)(?:#(\w+))?\)", text)):
        assert (DOCS / path).is_file(), path
        if path in pages and anchor:
            assert re.search(rf"^##+ {anchor}$", pages[path].lower(), re.MULTILINE), anchor


class TestOptions:
    """The tables of options against the code that looks them up."""

    @pytest.fixture
    def sections(self, pages: dict[str, str]) -> list[Any]:
        readers = import_module("cntk_reader_words").READERS
        return [*import_module("cntk_option_words").COMMANDS, *readers]

    def test_what_the_code_looks_up_is_told(self, sections: list[Any]) -> None:
        """Each option that a reader or an action looks up is in a table that names its source."""
        look_up = import_module("cntk_options").options_of
        common = import_module("cntk_option_words").COMMON.split()
        told: dict[str, set[str]] = {}
        for section in sections:
            names = {row[0].lower() for row in import_module("cntk_pages").option_rows(section)}
            for source in section.sources:
                told.setdefault(source.partition(" ")[0], set()).update(names)
        elsewhere = {name.lower() for name in common}
        for module, names in told.items():
            found = look_up(module)
            missing = [o.name for key, o in found.items() if key not in names | elsewhere]
            assert not missing, module
        folder = ROOT / "cntk" / "readers"
        modules = {".".join(p.relative_to(ROOT / "cntk").parts)[:-3] for p in folder.rglob("*.py")}
        untold = {module for module in modules - told.keys() if look_up(module)}
        assert not untold

    def test_what_is_told_is_looked_up(self, sections: list[Any]) -> None:
        code = " ".join(path.read_text().lower() for path in (ROOT / "cntk").rglob("*.py"))
        for section in sections:
            rows = list(import_module("cntk_pages").option_rows(section))
            assert len({row[0].lower() for row in rows}) == len(rows), section.title
            for row in rows:
                assert all(row), (section.title, row)
                assert row[0].lower() in code.replace("custom{n}", "customdecimalpoint"), row

    def test_every_reader_and_action_has_its_table(self, pages: dict[str, str]) -> None:
        text = pages["reference/cntk_readers.md"]
        known = {*READERS.own, *WRITERS.own} - {"CompositeDataReader"}
        assert not [name for name in known if f"\n## {name}\n" not in text]
        assert not [name for name in DESERIALIZERS.own if f"\n### {name}\n" not in text]
        text = pages["reference/cntk_commands.md"]
        same = {"trainRNN", "eval", "dumpNodes", "dumpnode", "topo"}
        titles = [name for name in ACTIONS if f"\n## {name}\n" not in text]
        assert set(titles) == same and not [name for name in same if f"`{name}`" not in text]

    def test_defaults_come_from_the_code(self, pages: dict[str, str]) -> None:
        text = pages["reference/cntk_commands.md"]
        assert "| `KeepRatio` | float | 0.4 | " in text
        assert "| `minibatchSize` | ints | 256 | " in text  # of SGD
        assert "| `minibatchSize` | ints | 40960 | " in text  # of test
        text = pages["reference/cntk_readers.md"]
        assert "| `chunkSizeInBytes` | int | 33554432 | " in text
        assert "| `file` | string | required | " in text
