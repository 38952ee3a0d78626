"""The actions of CNTK's commands, apart from training and the formats of write."""

import gc
import math
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.plot import dot
from opscope.cntk.actions.run import run_commands
from opscope.cntk.actions.words import class_numbers, count_words, most_frequent
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import read_model
from opscope.cntk.run.value_format import NodeWriter, WriteFormat, read_labels
from opscope.cntk.run.values import NodeValue
from opscope.framework.base.errors import FormatError, OpscopeError, RunError, VariableError
from opscope.framework.base.scope import Variable

NETWORK = """
    features = Input {3}
    labels = Input {2, tag = 'label'}
    h = Tanh (Parameter {9, 3, init = 'uniform', initValueScale = 20} * features)
    z = Parameter {2, 9, init = 'uniform', initValueScale = 20} * h
    ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
    err = ClassificationError (labels, z, tag = 'evaluation')
    out = Softmax (z, tag = 'output')
"""
READER = """reader = [ readerType = "CNTKTextFormatReader" ; file = "data.ctf" ; randomize = false
    input = [
        features = [ dim = 3 ; format = "dense" ]
        labels = [ dim = 2 ; format = "dense" ]
    ] ]
"""
SGD = "SGD = [ maxEpochs = 2 ; minibatchSize = 20 ; learningRatesPerSample = 0.05 ]"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run commands of a config in a folder with data; returns the log."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    points = rng.normal(loc=1.0, scale=3.0, size=(100, 3))
    side = (points[:, 0] > 1).astype(int)
    lines = [
        f"|features {' '.join(f'{x:.5f}' for x in point)} |labels {1 - c} {c}\n"
        for point, c in zip(points, side, strict=True)
    ]
    Path("data.ctf").write_text("".join(lines))

    def call(text, **top):
        top = {"traceLevel": "1", "modelPath": "m.dnn", "deviceId": "-1", **top}
        head = "".join(f"{name} = {value}\n" for name, value in top.items())
        log = []
        config = parse_config(f"{head}command = C\n{text}", "t.cntk")
        run_commands(config, Run(say=log.append))
        return "".join(log)

    return call


@pytest.fixture
def trained(run):
    run(command("train", f"BrainScriptNetworkBuilder = {{ {NETWORK} }}\n{READER}\n{SGD}"))
    return run


def command(action, text):
    return f"C = [ action = {action}\n{text} ]\n"


def criterion(log, name="ce"):
    return float(re.findall(rf"Final Results: .*?{name} = ([\d.]+)", log)[-1])


def variables(name):
    return sum(isinstance(one, Variable) and one.name == name for one in gc.get_objects())


def test_nothing_of_a_training_waits_for_the_collector_of_circles(run):
    gc.collect()
    gc.disable()
    try:
        before = variables("ce")
        run(command("train", f"BrainScriptNetworkBuilder = {{ {NETWORK} }}\n{READER}\n{SGD}"))
        assert variables("ce") == before
    finally:
        gc.enable()


class TestEvaluation:
    def test_results_do_not_depend_on_the_minibatch_size(self, trained):
        logs = [trained(command("test", f"{READER} minibatchSize = {n}")) for n in (7, 100)]
        assert "Final Results: Minibatch[1-15]: err = " in logs[0]
        assert criterion(logs[0]) == pytest.approx(criterion(logs[1]), rel=1e-6)
        assert criterion(logs[1]) < 0.69
        perplexity = float(re.search(r"perplexity = ([\d.]+)", logs[0])[1])
        assert perplexity == pytest.approx(math.exp(criterion(logs[0])), rel=1e-6)

    def test_nodes_by_name(self, trained):
        log = trained(command("eval", f"{READER} evalNodeNames = ce:nothing"))
        assert "No node named 'nothing'; skipping" in log
        assert "err =" not in log.split("Final Results")[1]
        with pytest.raises(OpscopeError, match="must have dimension 1x1"):
            trained(command("eval", f"{READER} evalNodeNames = z"))

    def test_the_best_of_several_models(self, trained):
        log = trained(command("cv", f"{READER} crossValidationInterval = 0:1:3"))
        assert "Model m.dnn.3 does not exist." in log
        best = re.findall(r"Based on Err\[(\d)\]: Best model = (\S+) with", log)
        assert [number for number, _ in best] == ["0", "1"]
        assert best[1][1] == "m.dnn"
        with pytest.raises(RunError, match="No model is evaluated"):
            trained(command("cv", f"{READER} crossValidationInterval = 7:1:8"), modelPath="x")


class TestAdapt:
    @pytest.mark.parametrize("weight", [0.5, 1.0])
    def test_it_stays_near_to_the_model_it_began_with(self, trained, weight):
        """With weight 1 the labels do not matter: the criterion is least where it began."""
        before = read_model("m.dnn")
        moved = []
        for kind in ("none", "kl"):
            sgd = SGD[:-1] + f"; adaptationRegType = {kind} ; adaptationRegWeight = {weight} ]"
            more = "origModelFileName = m.dnn ; refNodeName = out ; modelPath = a.dnn"
            trained(command("adapt", f"{READER} {sgd} {more} ; makeMode = false"))
            after = read_model("a.dnn")
            moved.append(
                sum(
                    float(np.abs(node.value - after.find(node.name).value).sum())
                    for node in before.nodes.values()
                    if node.is_parameter
                )
            )
        assert moved[1] < (1e-4 if weight == 1 else 0.9) * moved[0]

    def test_the_reference_needs_a_node(self, trained):
        sgd = SGD[:-1] + "; adaptationRegType = kl ; adaptationRegWeight = 0.5 ]"
        more = "origModelFileName = m.dnn ; modelPath = a.dnn"
        with pytest.raises(VariableError, match="refNodeName"):
            trained(command("adapt", f"{READER} {sgd} {more}"))
        for name, shape in (("h", "9"), ("ce", "1")):
            message = rf"the outputs of {name} \[{shape}\] are not like the labels labels \[2\]"
            with pytest.raises(FormatError, match=message):
                trained(command("adapt", f"{READER} {sgd} {more} ; refNodeName = {name}"))

    @pytest.mark.parametrize("action", ["train", "adapt", "cv"])
    def test_a_model_has_a_name(self, trained, action):
        more = f"{READER} {SGD} crossValidationInterval = 0:1:2 ; origModelFileName = m.dnn"
        for path in (".", "/"):
            with pytest.raises(OpscopeError, match=rf"names a file, which '{path}' is not"):
                trained(command(action, f"{more} ; modelPath = {path}"))


class TestWrite:
    def test_node_files(self, trained):
        trained(command("write", f"{READER} outputPath = o/x ; outputNodeNames = out:h"))
        rows = np.loadtxt("o/x.out")
        assert rows.shape == (100, 2) and np.allclose(rows.sum(1), 1, atol=1e-5)
        assert np.loadtxt("o/x.h").shape == (100, 9)

    def test_nothing_is_left_where_data_are_wrong(self, trained):
        with open("data.ctf", "a") as file:
            file.write("|features a |labels 0 1\n")
        with pytest.raises(FormatError, match=r"data\.ctf:101"):
            trained(command("write", f"{READER} outputPath = o/x ; minibatchSize = 10"))
        assert os.listdir("o") == []

    def test_what_is_missing(self, trained):
        with pytest.raises(FormatError, match="either 'writer'or 'outputPath'"):
            trained(command("write", READER))
        with pytest.raises(FormatError, match="type must be"):
            trained(command("write", f"{READER} outputPath = o ; format = [ type = hex ]"))
        for precision in ("x", "99999", ".2147483648"):
            form = f"format = [ precisionFormat = {precision} ]"
            with pytest.raises(FormatError, match="no precision"):
                trained(command("write", f"{READER} outputPath = o ; {form}"))

    @pytest.mark.parametrize("size", ["0", "-1"])
    def test_minibatches_of_no_samples(self, trained, size):
        with pytest.raises(FormatError, match="a minibatch has at least one sample"):
            trained(command("write", f"{READER} outputPath = o ; minibatchSize = {size}"))

    def test_through_a_writer(self, trained):
        Path("tags").write_text("no\nyes\n")

        def best(name, more=""):
            writer = f"""writer = [ writerType = LUSequenceWriter ; outputNodeNames = {name}
                {more} ; {name} = [ file = best.txt ; token = tags ] ]"""
            trained(command("write", f"{READER} outputNodeNames = out ; {writer}"))
            return [word == "yes" for word in Path("best.txt").read_text().split()]

        rows = np.array([line.split()[1:4] for line in open("data.ctf")], float)
        assert np.mean(best("out") == (rows[:, 0] > 1)) > 0.7
        given = best("features", "; unittest = true")  # the inputs instead of the outputs
        assert given == list(rows[:, 1] > rows[:, 0])
        with pytest.raises(FormatError, match="the node 'ouu' is none of those.*mean out"):
            best("ouu")

    def test_data_are_not_overwritten(self, trained):
        os.rename("data.ctf", "data.out")
        reader = READER.replace("data.ctf", "../" + Path.cwd().name + "/data.out")
        before = Path("data.out").read_text()
        with pytest.raises(
            FormatError, match=r"data\.out would be overwritten while 'file' is read"
        ):
            trained(command("write", f"{reader} outputPath = data"))
        text = f"BrainScriptNetworkBuilder = {{ {NETWORK} }}\n{reader}\n{SGD}"
        with pytest.raises(FormatError, match="would be overwritten"):
            trained(command("train", text), modelPath="data.out", makeMode="false")
        assert Path("data.out").read_text() == before

    @pytest.mark.parametrize(
        ("action", "text"),
        [
            ("dumpNode", "outputFile = ../{folder}/m.dnn"),
            ("plot", "outputDotFile = m.dnn"),
            ("writeWordAndClass", "inputFile = data.ctf ; outputVocabFile = data.ctf"
             " ; vocabSize = 9 ; beginSequence = a ; endSequence = b"),
        ],
    )  # fmt: skip
    def test_other_actions_overwrite_nothing_that_they_read(self, trained, action, text):
        before = Path("m.dnn").read_bytes(), Path("data.ctf").read_bytes()
        with pytest.raises(FormatError, match="would be overwritten while '(modelPath|inputFile)'"):
            trained(command(action, f"modelPath = m.dnn ; {text.format(folder=Path.cwd().name)}"))
        assert (Path("m.dnn").read_bytes(), Path("data.ctf").read_bytes()) == before

    def test_labels_of_a_file(self, tmp_path):
        path = tmp_path / "labels"
        path.write_text("a\nb\n")
        assert read_labels(str(path)) == ["a", "b"]
        path.write_text("a\n\nb\n")
        with pytest.raises(FormatError, match="labels:2"):
            read_labels(str(path))

    def test_values(self):
        rows = np.array([[0.0, 2.5, -0.0], [1.0, 0.5, 1.0]])
        value = NodeValue(rows, np.array([0, 2]), None, (3,))

        def text(**options):
            return NodeWriter("n", (3,), WriteFormat(**options)).text(value, 7)

        assert text(precision=".1") == "0.0 2.5 0.0\n1.0 0.5 1.0\n"
        assert text(precision=".1", transpose=False) == "0.0 1.0\n2.5 0.5\n0.0 1.0\n"
        assert text(kind="category") == "1\n2\n"  # the last of equal ones
        assert text(kind="category", labels=["a", "b", "c"]) == "b\nc\n"
        assert text(kind="sparse", sample_separator=" ", precision=".1") == (
            "[0;1] 2.5[1;0] 0.5[1;1] [2;1]\n"
        )
        assert text(sequence_prologue="%s %n %x %d\\t", precision=".0", kind="category") == (
            "n 7 3 2 0\t1\n2\n"
        )


class TestModels:
    def test_dump(self, trained):
        trained(command("dumpNode", "outputFile = all.txt"))
        trained(
            command("dumpNode", 'outputFile = h.txt ; nodeNameRegex = "h.*" ; printValues=false')
        )
        assert "ce=CrossEntropyWithSoftmax" in Path("all.txt").read_text()
        assert "ce=" not in Path("h.txt").read_text()
        with pytest.raises(FormatError, match="nothing to dump"):
            trained(command("dumpNode", "printValues = false ; printMetadata = false"))
        with pytest.raises(FormatError, match="no regular expression"):
            trained(command("dumpNode", 'nodeNameRegex = "(("'))

    @pytest.mark.parametrize("share", [0.5, 1.0])
    def test_matrices_as_products(self, trained, share):
        more = f'outputmodelPath = s.dnn ; NodeNameRegex = "h.*" ; KeepRatio = {share}'
        log = trained(command("SVD", f"{more} ; AlignedSize = 1"))
        kept = int(re.search(r"keep +(\d+) svd values", log)[1])
        assert kept == 3 if share == 1 else kept < 3
        model = read_model("s.dnn")
        left, right = (model.find(f"h.z.TimesArgs[0]_{part}").value for part in "UV")
        assert left.shape == (9, kept) and right.shape == (kept, 3)
        scores = [
            criterion(trained(command("test", READER), modelPath=path))
            for path in ("m.dnn", "s.dnn")
        ]
        if share == 1:
            assert scores[1] == pytest.approx(scores[0], rel=1e-5)

    def test_plot(self, trained, monkeypatch):
        with pytest.raises(FormatError, match=r"'touch evil'.*OPSCOPE_PIPES=files"):
            trained(command("plot", 'outputDotFile = p.dot ; renderCmd = "touch evil"'))
        assert not Path("evil").exists() and not Path("p.dot").exists()
        monkeypatch.setenv("OPSCOPE_PIPES", "files")
        script = Path("draw.py")
        script.write_text("import sys, shutil; shutil.copy(sys.argv[1], sys.argv[2])")
        render = f'outputFile = p.png ; renderCmd = "{sys.executable} draw.py <IN> <OUT>"'
        trained(command("plot", f"outputDotFile = p.dot ; {render}"))
        text = Path("p.dot").read_text()
        assert text == dot(read_model("m.dnn")) == Path("p.png").read_text()
        assert '"h" -> "z.TimesArgs' in text or '"h" -> "z"' in text
        with pytest.raises(RunError, match="exit status"):
            trained(command("topo", 'renderCmd = "false"'))
        with pytest.raises(FormatError, match="also need a renderCmd"):
            trained(command("plot", "outputFile = p.png"))

    def test_running_statistics_are_computed_anew(self, run):
        network = NETWORK.replace("Tanh (", "BatchNormalizationLayer {} (").replace(
            "* features)", "* features)"
        )
        text = f"BrainScriptNetworkBuilder = {{ {network} }}\n{READER}\n"
        run(command("train", text + SGD))
        run(
            command(
                "bnstat", f"{READER} minibatchSize = 50 ; itersPerNode = 2 ; newModelPath = b.dnn"
            )
        )
        before, after = read_model("m.dnn"), read_model("b.dnn")
        norm = next(n for n in after.nodes.values() if n.operation == "BatchNormalization")
        assert norm.attributes["samplesSeen"] == 100
        assert math.isinf(norm.attributes["normalizationTimeConstant"])
        data = np.array([line.split()[1:4] for line in open("data.ctf")], float)
        weights = before.find(norm.inputs[0].name).inputs[0].value
        np.testing.assert_allclose(norm.inputs[3].value.ravel(), weights @ data.mean(0), rtol=1e-3)

    def test_edit_leaves_what_is_there(self, run):
        text = f"BrainScriptNetworkBuilder = {{ {NETWORK} }} ; outputModelPath = e.dnn"
        assert "Model with 10 nodes saved as 'e.dnn'" in run(command("edit", text))
        assert "'e.dnn' exists, skipping" in run(command("edit", text))


class TestWords:
    def test_counts_and_classes(self, tmp_path):
        path = tmp_path / "text"
        path.write_text("a b a\n</s> a c </s>\n")
        counts = count_words(str(path), "</s>", "</s>")
        assert counts == {"a": 3, "b": 1, "c": 1, "</s>": 2}
        assert most_frequent(counts, 3, "<unk>") == [("a", 3), ("</s>", 2), ("<unk>", 2)]
        assert class_numbers([16, 4, 1, 1], 2) == [0, 1, 1, 1]
        assert class_numbers([4, 4, 4, 4], 2) == [0, 0, 1, 1]

    def test_files(self, run):
        Path("text").write_text("a b a\na c d\n")
        more = (
            "inputFile = text ; beginSequence = <s> ; endSequence = </s> ; cutoff = 0"
            " ; outputVocabFile = o/vocab ; outputWord2Cls = o/w2c ; outputCls2Index = o/c2i"
            " ; outputMappingFile = o/map"
        )
        run(command("writeWordAndClass", f"{more} ; vocabSize = 5 ; nbrClass = 2"))
        lines = [line.split() for line in Path("o/vocab").read_text().splitlines()]
        assert [int(line[0]) for line in lines] == list(range(5))
        assert lines[0][1:3] == ["3", "a"]
        assert Path("o/w2c").read_text().split() == [line[3] for line in lines]
        assert Path("o/map").read_text().split() == [line[2] for line in lines]
        log = run(command("writeWordAndClass", f"{more} ; vocabSize = 5 ; nbrClass = 2"))
        assert "All output files up to date." in log
        Path("text").write_bytes(b"a \xe9\n")  # no UTF-8: the bytes are kept
        run(
            command(
                "writeWordAndClass", f"{more} ; vocabSize = 5 ; nbrClass = 2 ; makeMode = false"
            )
        )
        assert b"\xe9" in Path("o/vocab").read_bytes()
        with pytest.raises(FormatError, match="No word remained"):
            run(command("writeWordAndClass", f"{more.replace('cutoff = 0', 'cutoff = 9')}"
                        " ; vocabSize = 5 ; makeMode = false"))  # fmt: skip


class TestLabelMap:
    READER = """Train = [ reader = [ readerType = "UCIFastReader" ; file = "table"
        miniBatchMode = "partial" ; randomize = "none" ; features = [ dim = 1 ; start = 0 ]
        labels = [ start = 1 ; dim = 1 ; labelDim = 2 ; labelMappingFile = "map" ] ] ]
    """

    def test_labels_in_the_order_of_the_data(self, run):
        Path("table").write_text("0.5 yes\n0.25 no\n0.75 yes\n")
        log = run(command("createLabelMap", "section = Train") + self.READER)
        assert "read 3 labels and produced map" in log
        assert sorted(Path("map").read_text().split()) == ["no", "yes"]
        log = run(command("createLabelMap", "section = Train") + self.READER)
        assert "already exists, no work to do" in log

    def test_a_file_is_needed(self, run):
        Path("table").write_text("0.5 yes\n")
        reader = self.READER.replace('labelMappingFile = "map"', "")
        with pytest.raises(FormatError, match="No labelMappingFile defined"):
            run(command("createLabelMap", "section = Train") + reader)


CRF = """
    SimpleNetworkBuilder = [ rnnType = CRF ; layerSizes = 3:4:2 ; recurrentLayer = 1
        trainingCriterion = crf ; evalCriterion = crf ; initValueScale = 1 ]
    SGD = [ maxEpochs = 8 ; minibatchSize = 12 ; learningRatesPerSample = 0.3
            momentumPerMB = 0 ]
"""


def test_a_conditional_random_field_learns(run):
    """Of SimpleNetworkBuilder, over an LSTM."""
    lines = Path("data.ctf").read_text().splitlines()
    Path("data.ctf").write_text("".join(f"{n // 4} {x}\n" for n, x in enumerate(lines)))
    log = run(command("train", READER + CRF), precision="double")
    found = re.findall(r"\[Training\] CRFTrainCriterion = ([\d.]+) ", log)
    assert len(found) == 8 and float(found[-1]) < 0.7 * float(found[0]), found
    assert "outputs" in {node.name for node in read_model("m.dnn").groups["output"]}


class TestRun:
    def test_the_log_goes_to_a_file(self, trained):
        config = f'stderr = "log/x" ; command = C ; modelPath = m.dnn\n{command("test", READER)}'
        run_commands(parse_config(config))
        assert Path("log/x").read_text().endswith("COMPLETED.\n")

    def test_the_log_overwrites_no_data(self, trained):
        config = parse_config(f"stderr = data.ctf ; command = C\n{command('test', READER)}")
        before = Path("data.ctf").read_bytes()
        with pytest.raises(FormatError, match="would be overwritten while 'file' is read"):
            run_commands(config)
        assert Path("data.ctf").read_bytes() == before

    def test_what_is_not_there(self, run):
        with pytest.raises(FormatError, match="devtest.*tests of CNTK's own"):
            run(command("devtest", ""))

    def test_devices(self, trained):
        with pytest.raises(FormatError, match="deviceId is a number"):
            trained(command("test", READER), deviceId="here")
        with pytest.raises(FormatError, match="Invalid precision"):
            trained(command("test", READER), precision="half")
