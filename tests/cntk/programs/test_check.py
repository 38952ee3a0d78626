"""Checks without data, the layout of texts, and the parameters that CNTK knows."""

import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntk_data import FOLDER, need
from mistakes.cntk import redesigned
from opscope.cntk.actions.checks.config import warnings_of
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.experiment import run_experiment
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import load_config, parse_config
from opscope.cntk.config.formatter import format_text
from opscope.cntk.programs.check import ERROR, WARNING, check_file
from opscope.cntk.readers import catalog
from opscope.framework.base.errors import FormatError, OpscopeError

CASES = sorted(path.name for path in FOLDER.glob("*_*") if (path / "case.cntk").exists())
CONFIG = """command = Train ; own = 0
Train = [
    action = train
    NDLNetworkBuilder = [ run = Net ]
    SGD = [ maxEpochs = 3 ; AutoAdjust = [ loadBestModel = true ] ; traceLevel = $own$
        modelPath = m ; learningRatesPerMB = 0.1 ]
    reader = [ file = d.ctf ; input = [ features = [ dim = 2 ; format = dense ] ] ]
]
Net = [
    features = Input(2, tag=feature)
    W = Parameter(2, 2)
    y = Times(W, features, tag=output)
    mse = SquareError(features, y, tag=criterion)
]
"""


def problems(folder, name, text, **options):
    (folder / name).write_text(text)
    (folder / "d.ctf").write_text("|features 1 2\n")
    if name.endswith(".cntk"):
        options["extra"] = [f"currentDirectory={folder}", *options.get("extra", [])]
    return check_file(folder / name, **options).problems


class TestCheck:
    def test_a_clean_config(self, tmp_path):
        assert problems(tmp_path, "a.cntk", CONFIG) == []
        report = check_file(tmp_path / "a.cntk", extra=[f"currentDirectory={tmp_path}"])
        assert len(report.networks["Train"]) == 4
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cntk", "d.ctf"]

    def test_misspelt_parameters_get_a_suggestion(self, tmp_path):
        text = CONFIG.replace("maxEpochs = 3", "maxEpochs = 3 ; maxEpoch = 3")
        text = text.replace("loadBestModel", "loadBestModl")
        found = problems(tmp_path, "a.cntk", text)
        assert [severity for severity, _ in found] == [WARNING, WARNING]
        assert "a.cntk:Train:SGD:maxEpoch (did you mean maxEpochs?)" in found[0][1]
        assert ":5:29: unknown parameter" in found[0][1]
        assert "a.cntk:Train:SGD:AutoAdjust:loadBestModl (did you mean loadBestModel" in found[1][1]

    def test_every_error_of_a_script_is_told_once(self, tmp_path):
        text = "f = Input(2)\na = Foo(f)\nb = Plus(a, f)\nc = Tanh(q)\nd = Sigmoid(f"
        found = problems(tmp_path, "n.ndl", text + ", tag=nothing)\nd = 5\n")
        shown = [text.split(": ", 1)[1].split("\n")[0] for _, text in found]
        assert [text[:30] for text in shown] == [
            "Undefined function or macro 'F",
            "Parameter name could not be re",
            "Invalid group tag 'nothing', m",
            "Symbol 'd' currently assigned ",
        ]

    def test_every_node_that_does_not_fit_is_told(self, tmp_path):
        text = """D(in) = [ W = Parameter(4, 5) ; t = Times(W, in) ]
x = Input(2, tag=feature)
y = Input(3)
first = D(x)
second = Plus(x, y)
follows = Tanh(second)
third = ErrorPrediction(x, second, tag=eval)
"""
        found = problems(tmp_path, "n.ndl", text)
        assert [error.split("\n")[0].split(": ")[1].split()[0] for _, error in found] == [
            "first.t",
            "second",
        ]
        assert "macro" in found[0][1] or "D(" in found[0][1]

    def test_syntax_errors_do_not_end_the_reading(self, tmp_path):
        found = problems(tmp_path, "n.ndl", "a =\nfoo\nb = ()\n= 3\nc = Input(2)")
        assert len(found) == 3
        found = problems(tmp_path, "e.mel", "foo\nm = LoadModel(x)\n= 3\nSave")
        assert len(found) == 3

    def test_commands_of_mel_are_checked_without_models(self, tmp_path):
        text = "m = LoadModel(x)\nSetInput(a, 1)\nRenam(a, b)\nCopy(a, b, copy=no)\nFoo(x)"
        found = [text for _, text in problems(tmp_path, "e.mel", text)]
        assert [message.split("e.mel:")[1][0] for message in found] == ["2", "4", "5"]

    def test_variables_of_a_script_may_be_given(self, tmp_path):
        text = "f = Input($dim$, tag=feature)"
        assert "No variable found with the name dim" in problems(tmp_path, "n.ndl", text)[0][1]
        assert problems(tmp_path, "n.ndl", text, extra=["dim=3"]) == []

    def test_every_member_of_a_brainscript_network_that_is_wrong_is_told(self, tmp_path):
        text = """command = Edit
Edit = [ action = edit ; outputModelPath = m ; BrainScriptNetworkBuilder = {
    x = Input {3}
    a = Sigmiod (x)
    b = Tanh (y)
    c = Plus (x, 3, 4)
    follows = Tanh (a)
    f (u) = u + q
    d = f (x)
} ]
"""
        found = [text for _, text in problems(tmp_path, "a.cntk", text)]
        assert [error.split("a.cntk:")[1].split(":")[0] for error in found] == ["4", "5", "6", "8"]
        assert "did you mean Sigmoid?" in found[0]
        assert "in f (...), called at" in found[3]

    def test_a_misspelt_group_of_nodes_gets_a_suggestion(self, tmp_path):
        text = """command = Edit
Edit = [ action = edit ; outputModelPath = m ; BrainScriptNetworkBuilder = {
    x = Input {3} ; y = Tanh (x)
    outputNods = (y)
    outputNods2 = (x:y)
} ]
"""
        ((severity, found),) = problems(tmp_path, "a.cntk", text)
        assert severity == WARNING
        assert "a.cntk:5" in found
        assert "(did you mean outputNodes?)" in found

    def test_every_syntax_error_of_brainscript_is_told(self, tmp_path):
        text = "command=A\nA = [ BrainScriptNetworkBuilder = {\n a = * 2\n b = )\n } ]"
        assert problems(tmp_path, "b.cntk", text)[0][0] == ERROR
        text = text.replace("b = )", "b = 3 4\n c = 5")
        assert len(problems(tmp_path, "b.cntk", text, parse_only=True)) == 2

    def test_parse_only_builds_nothing(self, tmp_path):
        text = CONFIG.replace("Times(W", "Foo(W")
        assert problems(tmp_path, "a.cntk", text, parse_only=True) == []
        assert problems(tmp_path, "a.cntk", text)[0][0] == ERROR

    def test_scripts_inside_a_config_are_parsed(self, tmp_path):
        text = CONFIG.replace("y = Times", "y =\n z Times")
        assert "n.cntk:12:" in problems(tmp_path, "n.cntk", text, parse_only=True)[0][1]
        text = "command=A\nA = [ BrainScriptNetworkBuilder = [ a = * ] ]"
        assert problems(tmp_path, "n.cntk", text, parse_only=True)[0][0] == ERROR

    def test_files_are_looked_for_beside_the_config(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "n.ndl").write_text("x = Input(2, tag=feature)")
        (tmp_path / "sub" / "a.cntk").write_text(
            "command=A\nA=[action=dumpNode;modelPath=n.ndl;printValues=$x$]\ninclude=b.cntk"
        )
        (tmp_path / "sub" / "b.cntk").write_text("x=true")
        [(severity, found)] = check_file("sub/a.cntk").problems
        assert "error opening file 'n.ndl'" in found
        assert "there is sub/n.ndl, for a run in another folder" in found

    def test_a_file_in_the_redesigned_language(self, tmp_path):
        assert problems(tmp_path, "a.bs", "actions = nothing")[0][0] == ERROR
        assert problems(tmp_path, "a.bs", "actions = nothing", parse_only=True) == []
        assert problems(tmp_path, "b.bs", "f(x) = x + 1 ; y = f(2)") == []

    def test_a_model_and_a_missing_file(self, tmp_path):
        assert check_file(tmp_path / "no.cntk").problems[0][0] == ERROR
        model = need("01_simplebuilder_dnn", "final.model")
        assert len(check_file(model).networks["final"]) == 25


@pytest.mark.parametrize(
    "text",
    [
        "a=[" * 190 + "]" * 190,
        "a=[" * 190,
        "command=a\n" + "SGD=[" * 150 + "x=1" + "]" * 150,
        "a=$a$\ncommand=$b$",
    ],
)
def test_deep_configs_are_reported_in_time(text, tmp_path):
    start = time.process_time()
    problems(tmp_path, "a.cntk", text)
    assert time.process_time() - start < 2


@settings(max_examples=60, deadline=20000)
@given(st.binary(max_size=80), st.sampled_from(["cntk", "ndl", "mel", "bs", "model"]))
def test_random_bytes_are_reported(tmp_path_factory, data, suffix):
    path = tmp_path_factory.mktemp("bytes") / f"a.{suffix}"
    path.write_bytes(data)
    check_file(path)


@pytest.mark.parametrize("suffix", ["cntk", "ndl", "mel", "bs"])
def test_truncated_real_files_are_reported_in_time(suffix, tmp_path):
    need("01_simplebuilder_dnn")
    rng = random.Random(0)
    for path in sorted(FOLDER.glob(f"*/*.{suffix}")):
        data = path.read_bytes()
        short = tmp_path / path.name
        for length in (rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)):
            short.write_bytes(data[:length])
            start = time.process_time()
            check_file(short, parse_only=suffix == "cntk" and rng.random() < 0.7)
            assert time.process_time() - start < 2


def unknown(text):
    """What a run warns of: path and hint of each unknown name."""
    config = parse_config(f"command = T\n{text}", "f")
    lines = [str(warning).split("\n")[0] for warning in warnings_of(config)]
    return [line.split("unknown parameter ")[1] for line in lines]


def test_parameters_of_readers_from_elsewhere_are_their_own():
    text = "T = [ reader = [ readerType = {} ; frobnicate = 1 ; f = [ dim = 2 ; pitch = 2 ] ] ]"
    assert unknown(text.format("ucifastReader")) == [
        "f:T:reader:frobnicate",
        "f:T:reader:f:pitch",
    ]
    catalog.add_reader("NoiseReader", print)  # which is not called
    try:
        assert unknown(text.format("NoiseReader")) == []
    finally:
        catalog.READERS.plugins.remove("NoiseReader")


def test_names_that_inner_sections_know_are_known():
    text = "T = [ SGD = [ loadBestModel = true ; AutoAdjust = [ autoAdjustLR = none ] ; foo = 1 ] ]"
    assert unknown(text) == ["f:T:SGD:foo"]
    assert unknown("T = [ SGD = [ loadBestModel = true ] ]") == [
        "f:T:SGD:loadBestModel (it belongs in f:T:SGD:AutoAdjust)"
    ]


def test_parameters_of_readers():
    text = (
        "T = [ reader = [ randomized = false ; file = x ; input = [ x = [ dim = 2 ; dims = 3"
        " ; format = dense ] ] ] ]"
    )
    assert unknown(text) == [
        "f:T:reader:randomized (did you mean randomize, randomizationWindow?)",
        "f:T:reader:input:x:dims (did you mean dim?)",
    ]


class TestLayout:
    def test_indentation_comments_and_blanks(self):
        text = (
            "# [ not a bracket\na=1   \n\n\n b = [ # one (\n"
            'x="["\n  c = [\ny = 2 ] ]\nz==1\nf(x)=>x\n'
        )
        assert format_text(text) == (
            '# [ not a bracket\na = 1\n\nb = [ # one (\n    x = "["\n    c = [\n        y = 2 ] ]\n'
            "z==1\nf(x)=>x\n"
        )

    def test_strings_and_comments_of_several_lines_stay(self):
        text = 'a = {\nb = "x\n  y {"\n/* {\n  c */\nd = 1\n}\n'
        assert format_text(text) == 'a = {\n    b = "x\n  y {"\n    /* {\n  c */\n    d = 1\n}\n'

    def test_too_many_closing_brackets(self):
        with pytest.raises(FormatError, match="f:2:1: ] closes nothing"):
            format_text("a = [ ]\n]\n", "f")

    @settings(max_examples=150, deadline=None)
    @given(st.text(alphabet='ab=[]{}"# /*\n\t', max_size=50))
    def test_only_blanks_change_and_twice_is_once(self, text):
        try:
            once = format_text(text)
        except OpscopeError:
            return
        assert "".join(once.split()) == "".join(text.split())
        assert format_text(once) == once

    @pytest.mark.parametrize("suffix", ["cntk", "ndl", "mel"])
    def test_real_files(self, suffix):
        need("01_simplebuilder_dnn")
        for path in FOLDER.glob(f"[0-9]*/*.{suffix}"):
            text = path.read_text()
            once = format_text(text, path.name)
            assert "".join(once.split()) == "".join(text.split())
            assert format_text(once, path.name) == once


def test_sections_in_braces_are_checked_too():
    braces = CONFIG.replace("SGD = [ maxEpochs", "SGD = { own2 = 1 ; maxEpochs")
    [problem] = warnings_of(parse_config(braces.replace("= 0.1 ]", "= 0.1 }"), "a.cntk"))
    assert "unknown parameter a.cntk:Train:SGD:own2" in str(problem)


HTK = """command = Write
Write = [ action = write ; modelPath = m ; outputPath = out ; reader = [ readerType = HTKMLFReader
    features = [ dim = 2 ; scpFile = list.scp ] ; action = write ] ]
"""


def test_the_first_file_of_a_list_is_looked_at(tmp_path):
    (tmp_path / "list.scp").write_text("x=x.htk[0,0]\nmissing=missing.htk[0,0]\n")
    (tmp_path / "x.htk").write_bytes(struct.pack(">iihhfff", 1, 100000, 12, 9, 1, 2, 3))
    found = [text.split("\n")[0] for _, text in problems(tmp_path, "a.cntk", HTK)]
    assert found == [
        f"{tmp_path / 'a.cntk'}:2:40: error opening file 'm': No such file or directory in"
        " a.cntk:Write:modelPath",
        "x.htk: frames of 3 numbers; 2, or an odd part of it, were expected for features",
    ]
    (tmp_path / "list.scp").write_text("x=no.htk[0,0]\n")
    assert any("no.htk" in text for _, text in problems(tmp_path, "a.cntk", HTK))


def test_large_data_are_not_read(tmp_path):
    bad = b"|features 1 x\n"
    text = CONFIG.replace("d.ctf", "e.ctf")
    (tmp_path / "e.ctf").write_bytes(bad)
    [(severity, told)] = problems(tmp_path, "a.cntk", text)
    assert severity == ERROR and "e.ctf:1:13" in told
    (tmp_path / "e.ctf").write_bytes(bad * 100_000)
    assert problems(tmp_path, "a.cntk", text) == []


def test_a_model_of_an_earlier_command_is_known(tmp_path):
    text = CONFIG.replace("command = Train", "command = Train:Dump:Other")
    text += "Dump = [ action = dumpNode ; modelPath = m ; nodeName = y ]\n"
    text += "Other = [ action = dumpNode ; modelPath = m.7 ; nodeName = yy ]\n"
    [(severity, told)] = problems(tmp_path, "a.cntk", text)
    assert severity == WARNING
    assert "no node is called 'yy' (did you mean y?)" in told
    wrong = text.replace("Times(W", "Tmies(W")
    [(severity, told)] = problems(tmp_path, "a.cntk", wrong)
    assert severity == ERROR and "Tmies" in told  # what would follow from it is not told


def test_an_absent_file_is_told_once(tmp_path):
    text = CONFIG.replace("d.ctf", "no.ctf")
    text += text.split("Net = [")[0].split("\n", 1)[1].replace("Train = [", "More = [")
    text = text.replace("command = Train", "command = Train:More").replace("m ;", "m2 ;")
    report = check_file(_written(tmp_path, text), extra=[f"currentDirectory={tmp_path}"])
    assert [problem.file for problem in report.errors] == [str(tmp_path / "no.ctf")]


def _written(folder, text):
    (folder / "a.cntk").write_text(text)
    return folder / "a.cntk"


def test_nothing_is_written_or_executed(tmp_path, monkeypatch):
    text = CONFIG.replace("command = Train", "command = Train:Edit:Plot:Words ; stderr = log")
    text += """Edit = [ action = edit ; editPath = e.mel ]
Plot = [ action = plot ; modelPath = n ; outputFile = p.svg ; renderCmd = "touch executed" ]
Words = [ action = writeWordAndClass ; inputFile = d.ctf ; beginSequence = a ; endSequence = b
    outputVocabFile = v ; outputMappingFile = w ; vocabSize = 3 ]
"""
    (tmp_path / "e.mel").write_text(
        'm = LoadModel("m")\nDumpModel(m, "sub/text")\nSaveModel(m, "n")\n'
    )
    [(severity, told)] = problems(tmp_path, "a.cntk", text)
    assert severity == ERROR and "OPSCOPE_PIPES=files" in told
    monkeypatch.setenv("OPSCOPE_PIPES", "files")
    assert problems(tmp_path, "a.cntk", text) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cntk", "d.ctf", "e.mel"]


def test_a_run_tells_names_that_nobody_reads_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CONFIG.replace("maxEpochs = 3", "maxEpochs = 1 ; maxEpoch = 3 ; epochSzie = 3")
    text += "Net2 = [ x = Input(2) ]\ndimenson = 3\nextra = 1\ndimension = 2\n"
    text = text.replace("Input(2, tag=feature)", "Input($dimension$, tag=feature)")
    problems(tmp_path, "a.cntk", text)
    lines = []
    run_commands(load_config("a.cntk"), Run(say=lines.append))
    told = [line.split("\n")[0] for line in lines if line.startswith("WARNING: ")]
    assert [line.split("unknown parameter ")[1] for line in told] == [
        "a.cntk:Train:SGD:maxEpoch (did you mean maxEpochs?)",
        "a.cntk:Train:SGD:epochSzie (did you mean epochSize?)",
    ]
    assert lines.index([line for line in lines if "epochSzie" in line][0]) < 5


def test_a_run_of_the_redesigned_language_tells_them_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bs").write_text(redesigned(rates="0.8 ; rms_gamma = 0.5"))
    lines = []
    with pytest.raises(OpscopeError):  # there are no data
        run_experiment(["configFile=a.bs"], Run(say=lines.append))
    assert any("rms_gamma" in line for line in lines if line.startswith("WARNING: "))


@pytest.mark.parametrize("case", CASES)
def test_the_configs_of_the_reference_results(case, monkeypatch):
    need(case)
    monkeypatch.chdir(FOLDER / case)
    arguments = (FOLDER / case / "command.txt").read_text().split("\n")[0].split()[1:]
    problems = check_file("case.cntk", extra=arguments).problems
    errors = [text for severity, text in problems if severity == ERROR]
    assert len(errors) == case.startswith("bad_"), errors
