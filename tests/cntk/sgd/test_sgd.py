"""Training by an SGD section: options, schedules, control of rates, checkpoints, statistics."""

import errno
import math
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.checkpoint import read_checkpoint
from opscope.cntk.models.v1 import read_model
from opscope.cntk.sgd.files import ModelFiles
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.report import Total, number_text, percent_digits
from opscope.framework.base.errors import (
    FormatError,
    GradientError,
    OpscopeError,
    RunError,
    SaveError,
    VariableError,
)

NETWORK = """
        features = Input {2}
        labels = Input {2, tag = 'label'}
        h = Tanh (Parameter {4, 2, init = 'uniform', initValueScale = 20} * features)
        z = Parameter {2, 4, init = 'uniform', initValueScale = 20} * h
        ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
        errs = ClassificationError (labels, z, tag = 'evaluation')
"""
READER = """[ readerType = "CNTKTextFormatReader" ; file = "train.ctf" ; randomize = false
    input = [
        features = [ dim = 2 ; format = "dense" ]
        labels = [ dim = 2 ; format = "dense" ]
    ] ]"""


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Run a train command with an SGD section; returns the log."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 2))
    side = (points.sum(1) > 0).astype(int)
    lines = [
        f"|features {x:.6f} {y:.6f} |labels {1 - c} {c}\n"
        for (x, y), c in zip(points, side, strict=True)
    ]
    Path("train.ctf").write_text("".join(lines))

    def run(sgd, network=NETWORK, more="", say=lambda line: None, **top):
        top = {
            "traceLevel": "1",
            "modelPath": "m.dnn",
            "makeMode": "false",
            "deviceId": "-1",
            **top,
        }
        text = "".join(f"{name} = {value}\n" for name, value in top.items())
        text += f"command = Train\nTrain = [ action = train\n{more}\nreader = {READER}\n"
        text += f"BrainScriptNetworkBuilder = {{ {network} }}\nSGD = [ {sgd} ] ]\n"
        log = []
        run_commands(
            parse_config(text, "t.cntk"), Run(say=lambda line: (log.append(line), say(line)))
        )
        return "".join(log)

    return run


def averages(log, name="ce"):
    found = re.findall(rf"\[Training\] .*?{name} = ([-\d.e+]+)", log)
    return [float(value) for value in found]


BASIC = "maxEpochs = 3 ; minibatchSize = 20 ; learningRatesPerSample = 0.02 ; momentumPerMB = 0.5"


class TestOptions:
    def of(self, text):
        return SgdOptions.of(parse_config(text))

    def test_rates_of_minibatches_are_divided_by_their_size(self):
        options = self.of("maxEpochs=3; minibatchSize=50:20; learningRatesPerMB=0.8:0.4")
        assert options.rate(0) == pytest.approx(0.016)
        assert options.rate(1) == options.rate(5) == pytest.approx(0.02)
        assert options.momentum(0) ** 50 == pytest.approx(0.9)
        assert options.momentum(2) ** 20 == pytest.approx(0.9)

    def test_momentum_of_a_sample_and_as_time_constant(self):
        rates = "maxEpochs=1; learningRatesPerSample=1;"
        assert self.of(f"{rates} momentumPerSample=0.98").momentum(0) == pytest.approx(0.98)
        options = self.of(f"{rates} momentumAsTimeConstant=0:300")
        assert options.momentum(0) == 0
        assert options.momentum(1) == pytest.approx(math.exp(-1 / 300))

    def test_sizes_are_lengths_in_truncated_training(self):
        options = self.of("maxEpochs=1; minibatchSize=15; learningRatesPerMB=0.6; truncated=true")
        assert options.rate(0, 4) == pytest.approx(0.01)
        assert options.momentum(0, 4) ** 60 == pytest.approx(0.9)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("maxEpochs = 1", "you must specify the learningRatesPerSample"),
            ("learningRatesPerMB = 1", "required parameter missing.*maxEpochs"),
            ("learningRatesPerMB=1; learningRatesPerSample=1", "You specified both"),
            ("momentumPerMB = 0.5 ; momentumPerSample = 0.5", "more than one of momentum"),
            ("momentumPerMB = 1", r"must be in \[0, 1\)"),
            ("maxEpochs=1; learningRatesPerMB=1; dropoutRate=0:1", "must be >= 0 and < 1"),
            ("maxEpochs=-1; learningRatesPerMB=1", "less than no epochs"),
            ("maxEpochs=1; learningRatesPerMB=1:nan", "a learning rate is a finite number"),
            ("maxEpochs=1; learningRatesPerSample=1e39", "a learning rate is a finite number"),
            ("learningRatesPerMB = 1 ; gradUpdateType = adam", "Invalid Gradient Updating Type"),
            ("learningRatesPerMB=1; minibatchSize=9; epochSize=5", "larger than mbsize"),
            ("learningRatesPerMB = 1 ; minibatchSize = 0", "at least one sample"),
            ("learningRatesPerMB = 1 ; gradientcheck = true", "precision = 'double'"),
            ("learningRatesPerMB = 1 ; adaptationRegType = l2", "Adaptation Regularization"),
            ("AutoAdjust = [ autoAdjustLR = up ]", "Invalid learning rate search type"),
            ("AutoAdjust = [ learnRateDecreaseFactor = 2 ]", "must be >= 1"),
        ],
    )
    def test_what_is_refused(self, text, message):
        with pytest.raises(FormatError, match=message):
            SgdOptions.of(parse_config(text))


class TestLines:
    def test_numbers_as_c_prints_them(self):
        assert number_text(0.25, 0, 8) == "0.25000000"
        assert number_text(1e-6, 0, 8) == "1.00000000e-06"
        assert Total(1.5, 6).text("ce") == "ce = 0.25000000 * 6"
        assert Total(1.5, 6).text("errs") == "errs = 25.000% * 6"
        assert Total(0.0, 0).text("ce") == "ce = 0.00000000 * 0"
        assert percent_digits(20, 1) == 2
        assert percent_digits(1e6, 1) == 4

    def test_progress(self, train):
        log = train(BASIC + " ; numMBsToShowResult = 2 ; firstMBsToShowResult = 1")
        lines = [line.split(":")[0] for line in log.splitlines() if "Epoch[ 2" in line]
        assert lines[:-1] == [
            f" Epoch[ 2 of 3]-Minibatch[{first:4d}-{last:4d}, {percent:2.2f}%]"
            for first, last, percent in (
                (1, 1, 50 / 3),
                (2, 2, 100 / 3),
                (3, 4, 200 / 3),
                (5, 6, 100),
            )
        ]
        assert "Training 16 parameters in 2 out of 2 parameter tensors" in log
        assert "effective momentum = 0.500000  momentum as time constant = 28.9 samples" in log


class TestRuns:
    def test_it_learns_and_leaves_models_of_all_epochs(self, train):
        values = averages(train(BASIC))
        assert values[2] < values[1] < values[0]
        assert sorted(p.name for p in Path().glob("m.dnn*")) == [
            "m.dnn", "m.dnn.0", "m.dnn.1", "m.dnn.2", "m.dnn.ckp",
        ]  # fmt: skip

    @pytest.mark.parametrize("learner", ["none", "adagrad", "rmsProp", "fsAdaGrad"])
    def test_stopped_after_an_epoch_it_goes_on_as_if_nothing_was(self, train, learner):
        sgd = f"{BASIC} ; gradUpdateType = {learner} ; epochSize = 50 ; keepCheckPointFiles = true"
        train(sgd)
        whole = Path("m.dnn").read_bytes()
        for file in ("m.dnn", "m.dnn.ckp", "m.dnn.2", "m.dnn.2.ckp"):
            os.unlink(file)
        log = train(sgd, makeMode="true")
        assert "Starting from checkpoint. Loading network from 'm.dnn.1'" in log
        assert Path("m.dnn").read_bytes() == whole
        assert "No further training is necessary" in train(sgd, makeMode="true")

    @pytest.mark.parametrize(
        "adjust",
        [
            "autoAdjustLR = searchBeforeEpoch ; numSamples4Search = 40 ; numPrevLearnRates = 2",
            "autoAdjustLR = adjustAfterEpoch ; learnRateAdjustInterval = 2 ; continueReduce = true"
            " ; reduceLearnRateIfImproveLessThan = 0.3 ; loadBestModel = false",
        ],
    )
    def test_stopped_after_an_epoch_rates_are_controlled_as_if_nothing_was(self, train, adjust):
        network = NETWORK.replace("Tanh (", "BatchNormalizationLayer {} (")
        sgd = BASIC.replace("maxEpochs = 3", "maxEpochs = 6").replace("0.02", "0.01")
        sgd += f" ; epochSize = 50 ; keepCheckPointFiles = true ; AutoAdjust = [ {adjust} ]"
        train(sgd, network)
        whole = Path("m.dnn").read_bytes()
        for done in (5, 4, 3, 2, 1):
            for file in ("m.dnn", *(f"m.dnn.{n}" for n in range(done + 1, 6))):
                Path(file).unlink(missing_ok=True)
            train(sgd, network, makeMode="true")
            assert Path("m.dnn").read_bytes() == whole, done

    @pytest.mark.parametrize("crash", range(6))
    def test_a_crash_at_any_write_loses_one_epoch_at_most(self, train, monkeypatch, crash):
        """Model and checkpoint of an epoch are two files: it may end before, between, or after."""
        sgd = f"{BASIC} ; epochSize = 50"
        train(sgd)
        whole = Path("m.dnn").read_bytes()
        for file in Path().glob("m.dnn*"):
            file.unlink()

        class Crash(BaseException):
            pass

        from opscope.framework.base.files import atomic

        written = []
        take_place = atomic._take_place

        def counting(*given):
            if len(written) == crash:
                raise Crash
            written.append(given)
            take_place(*given)

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_take_place", counting)
            with pytest.raises(Crash):
                train(sgd)
        log = train(sgd, makeMode="true")
        done = max(crash - 1, 0) // 2  # the first write is the initial model
        assert len(averages(log)) == 3 - done
        assert Path("m.dnn").read_bytes() == whole

    def test_a_disk_is_waited_for_while_the_training_goes_on(self, train, monkeypatch):
        from opscope.framework.base.files import atomic

        epochs = []
        flushed = threading.Event()
        flush = atomic._flush

        def slow(file):
            assert flushed.wait(200), "the first epoch has not ended while the disk was waited for"
            flush(file)

        def say(line):
            if line.startswith("Finished Epoch[ 1"):
                epochs.append(Path("m.dnn.0").exists())
                flushed.set()

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_flush", slow)
            train(BASIC, say=say)
        assert epochs == [False] and Path("m.dnn.0").exists() and Path("m.dnn").exists()

    def test_a_model_that_cannot_be_flushed_is_told(self, train, monkeypatch):
        from opscope.framework.base.files import atomic

        def full(file):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_flush", full)
            with pytest.raises(SaveError, match=r"m\.dnn.*No space left"):
                train(BASIC)
        assert not list(Path().glob("m.dnn*")) and not list(Path().glob(".m.dnn*"))

    def test_parts_of_files_do_not_stay(self, train):
        left = [Path(f".m.dnn{n}.0123456789ab.tmp") for n in ("", ".2", ".2.ckp")]
        other = Path(".m.dnn.tmp")
        for path in (*left, other):
            path.write_text("")
        train(BASIC)
        assert not any(path.exists() for path in left) and other.exists()

    def test_a_full_disk_leaves_the_last_epoch(self, train, monkeypatch):
        from opscope.cntk.sgd import files

        def full(targets):
            raise SaveError(f"{targets[0][0]}: cannot be written: No space left on device")

        train(f"{BASIC} ; keepCheckPointFiles = true")
        os.unlink("m.dnn")
        with monkeypatch.context() as patch:
            patch.setattr(files, "begin_together", full)
            with pytest.raises(SaveError, match=r"m\.dnn\.ckp.*No space"):
                train(BASIC, makeMode="true")
        assert len(averages(train(BASIC, makeMode="true"))) == 1

    def test_a_checkpoint_that_cannot_be_removed_is_told(self, train, monkeypatch):
        def unlink(path, missing_ok=False):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(SaveError, match=r"cannot remove .*\.ckp: Read-only file system"):
            train(BASIC)

    def test_a_lost_checkpoint_is_told(self, train):
        train(BASIC)
        os.unlink("m.dnn")
        assert "Checkpoint file is missing" in train(BASIC, makeMode="true")

    def test_a_checkpoint_of_another_learner_is_refused(self, train):
        train(BASIC + " ; keepCheckPointFiles = true ; gradUpdateType = fsAdaGrad")
        os.unlink("m.dnn")
        with pytest.raises(FormatError, match="holds a matrix of 4 x 4 .*, 4 x 2 expected"):
            train(BASIC, makeMode="true")

    def test_minibatches_in_parts_give_the_same(self, train):
        whole = averages(train(BASIC))
        for part in ("numSubminibatches = 3", "maxSamplesInRAM = 7"):
            assert averages(train(f"{BASIC} ; {part}")) == pytest.approx(whole, rel=1e-5)

    def test_nodes_that_are_not_there(self, train):
        with pytest.raises(VariableError, match="evalCriterionNodeName: .* 'err' .*mean errs"):
            train(f"{BASIC} ; evalCriterionNodeName = err")

    def test_a_folder_that_cannot_be_made(self, train):
        Path("file").write_text("")
        with pytest.raises(SaveError, match="cannot write file/models/m.dnn.0"):
            train(BASIC, modelPath="file/models/m.dnn")

    def test_no_number_stops_it(self, train):
        with pytest.raises(RunError, match="not a number"):
            train("maxEpochs = 2 ; minibatchSize = 20 ; learningRatesPerSample = 1e30",
                  network=NETWORK.replace("Tanh (", "Exp ("))  # fmt: skip

    def test_a_rate_below_the_smallest_ends_it(self, train):
        log = train(BASIC.replace("0.02", "0.02:1e-12"))
        assert "is less than minLearningRatePerSample" in log
        assert len(averages(log)) == 1

    def test_penalties_make_parameters_smaller(self, train):
        sizes = []
        for penalty in ("L2RegWeight = 0", "L2RegWeight = 0.1", "L1RegWeight = 0.1"):
            train(f"{BASIC} ; {penalty}")
            values = [n.value for n in read_model("m.dnn").nodes.values() if n.is_parameter]
            sizes.append(sum(float(np.abs(value).sum()) for value in values))
        assert sizes[1] < sizes[0] and sizes[2] < sizes[0]

    def test_noise_and_dropout_are_drawn_alike_each_time(self, train):
        network = NETWORK.replace("* h", "* Dropout (h)")
        sgd = f"{BASIC} ; dropoutRate = 0:0.5 ; gaussianNoiseInjectStd = 0.01"
        log = train(sgd, network)
        assert "Setting dropout rate to 0.5." in log
        assert averages(log) == averages(train(sgd, network))
        assert averages(log)[0] != averages(train(BASIC, network))[0]

    def test_statistics_of_the_data_come_first(self, train):
        network = NETWORK.replace("* features", "* MeanVarNorm (features)")
        log = train(BASIC, network)
        assert "Precomputing --> 2 PreCompute nodes found." in log
        model = read_model("m.dnn.0")
        data = np.array([line.split()[1:3] for line in open("train.ctf")], float)
        for node in model.nodes.values():
            if node.operation in ("Mean", "InvStdDev"):
                wanted = data.mean(0) if node.operation == "Mean" else 1 / data.std(0)
                np.testing.assert_allclose(node.value, wanted, rtol=1e-5, atol=1e-7)

    def test_gradients_are_checked(self, train, monkeypatch):
        sgd = f"{BASIC} ; gradientcheck = true ; sigFigs = 4"
        log = train(sgd, precision="double")
        assert log.count("###### dz.TimesArgs[0]######") == 8 * 18
        from opscope.cntk.sgd import gradient_check

        monkeypatch.setattr(gradient_check, "_agree", lambda *given: False)
        with pytest.raises(GradientError, match="cannot pass gradient checker"):
            train(sgd, precision="double")


class TestControl:
    def test_rates_fall_where_nothing_is_gained_and_models_come_back(self, train):
        sgd = (
            "maxEpochs = 6 ; minibatchSize = 20 ; learningRatesPerSample = 5 ; momentumPerMB = 0"
            " ; AutoAdjust = [ autoAdjustLR = adjustAfterEpoch ; learnRateDecreaseFactor = 0.1"
            " ; reduceLearnRateIfImproveLessThan = 0.01 ]"
        )
        log = train(sgd)
        rates = [float(r) for r in re.findall(r"learningRatePerSample = ([\d.e-]+);", log)]
        assert rates[0] == 5 and rates[-1] < 1
        # Rounding decides whether six epochs are done before the rate is too small to go on.
        last = max(int(n) for n in re.findall(r"Finished Epoch\[ *(\d+) of 6\]", log))
        done = last - 1 if "is less than minLearningRatePerSample" in log else 6
        assert len(rates) == done + log.count("rolling back") > done

    def test_they_stop_at_the_second_small_gain_with_continue_reduce(self, train):
        sgd = (
            "maxEpochs = 20 ; minibatchSize = 20 ; learningRatesPerSample = 0.02"
            " ; AutoAdjust = [ autoAdjustLR = adjustAfterEpoch ; continueReduce = true"
            " ; reduceLearnRateIfImproveLessThan = 0.2 ; loadBestModel = false ]"
        )
        log = train(sgd)
        assert "Finished training and saved final model" in log
        assert len(averages(log)) < 20 and Path("m.dnn").exists()

    def test_a_rate_is_searched_before_an_epoch(self, train):
        sgd = (
            "maxEpochs = 2 ; minibatchSize = 20 ; momentumPerMB = 0 ; numMBsToShowResult = 1"
            " ; AutoAdjust = [ autoAdjustLR = searchBeforeEpoch ; numSamples4Search = 60 ]"
        )
        log = train(sgd)
        best = re.findall(r"Best learningRatePerSample = ([\d.e-]+)", log)
        used = re.findall(r"Starting Epoch \d: learning rate per sample = ([\d.]+)", log)
        assert len(best) == 2
        assert [float(u) for u in used] == pytest.approx([float(b) for b in best], abs=1e-6)
        assert "DetailBaseAdaptiveLearnRateSearch: Epoch[ 1 of 2]" in log

    def test_a_search_leaves_the_draws_of_dropout_alone(self, train):
        network = NETWORK.replace("Tanh (", "Dropout (")
        sgd = (
            "maxEpochs = 1 ; minibatchSize = 20 ; dropoutRate = 0.5"
            " ; AutoAdjust = [ autoAdjustLR = searchBeforeEpoch ; numSamples4Search = 60 ]"
        )
        train(sgd, network)
        drops = [n for n in read_model("m.dnn").nodes.values() if n.operation == "Dropout"]
        assert [node.attributes["rngOffset"] for node in drops] == [120 * 4]

    def test_minibatches_grow(self, train):
        sgd = (
            "maxEpochs = 3 ; minibatchSize = 64 ; epochSize = 960 ; learningRatesPerSample = 0.002"
            " ; AutoAdjust = [ autoAdjustMinibatch = true ; minibatchSizeTuningMax = 256"
            " ; numSamples4Search = 480 ; minibatchSearchCriterionErrorMargin = 50 ]"
        )
        log = train(sgd)
        assert "Search successful. New minibatchSize is 256" in log
        assert read_checkpoint("m.dnn.ckp").minibatch > 64

    def test_validation_is_what_counts(self, train):
        more = "cvReader = " + READER.replace("train.ctf", "other.ctf")
        with pytest.raises(OpscopeError, match=r"other\.ctf"):
            train(BASIC, more=more)
        Path("other.ctf").write_text(
            Path("train.ctf").read_text().replace("|labels 1 0", "|labels 0 1")
        )
        log = train(BASIC, more=more)
        assert log.count("[Validate] ce = ") == 3
        assert "Final Results: Minibatch[1-6]: ce = " in log


class TestFiles:
    @pytest.mark.parametrize("name", ["m.dnn.2", "m.dnn"])
    def test_another_training_writes_the_same_models(self, train, name):
        """It was faster, or wrote over what is left of a run before; its models stay."""

        def other(line):
            if line.startswith("Finished Epoch[ 1"):
                Path("new").write_text("another")
                os.replace("new", name)

        train(BASIC)
        train(BASIC)  # over the models of the one before
        Path("m.dnn.2").unlink(missing_ok=True)
        with pytest.raises(SaveError, match=rf"{name}: another program has written it since"):
            train(BASIC, say=other)
        assert Path(name).read_text() == "another"

    def test_where_training_starts(self, tmp_path):
        files = ModelFiles(tmp_path / "m", 3)
        assert files.start(True) == -1
        for done in (0, 1, 2):
            files.model(done).touch()
            os.utime(files.model(done), (done, done))
        assert files.start(True) == 2 and files.start(False) == -1
        os.utime(files.model(2), (0, 0))  # older than the one before it
        assert files.start(True) == 1
        files.path.touch()
        assert files.start(True) == 3
