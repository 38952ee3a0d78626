"""What the top level of a config says about a run: log, progress, what is obsolete or not used."""

import re
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.checks.config import warnings_of
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.actions.settings import stamped
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import read_model
from opscope.framework.base.cpu.cores import usable_cores
from opscope.framework.base.cpu.threads import get_threads
from opscope.framework.base.errors import FormatError, SaveError

NDL = """NDLNetworkBuilder = [ run = Net ; {options}
    Net = [
        x = Input(2, tag = feature) ; y = Input(2, tag = label)
        W = Parameter(2, 2, init = uniform) ; b = Parameter(2, 1, init = uniform)
        ce = CrossEntropyWithSoftmax(y, Plus(Times(W, x), b), tag = criterion)
    ] ]"""
READER = """reader = [ readerType = CNTKTextFormatReader ; file = data.ctf ; {options}
    input = [ x = [ dim = 2 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ] ]"""
SGD = "SGD = [ maxEpochs = 2 ; minibatchSize = 2 ; learningRatesPerSample = 0.1 ; {options} ]"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.ctf").write_text("|x 1 2 |y 0 1\n|x 2 1 |y 1 0\n|x 0 1 |y 0 1\n|x 1 0 |y 1 0\n")

    def call(top="", ndl="", reader="", sgd="", log=True):
        lines = []
        text = f"""command = T ; modelPath = m ; deviceId = -1 ; makeMode = false
            {top}
            T = [ action = train
                {NDL.format(options=ndl)}
                {READER.format(options=reader)}
                {SGD.format(options=sgd)} ]"""
        run_commands(parse_config(text), Run(say=lines.append) if log else None)
        return "".join(lines)

    return call


class TestLog:
    def test_without_trace_only_what_matters(self, run):
        assert "Commands: T" in run("traceLevel = 1")
        log = run()
        assert "Commands:" not in log and "precision" not in log

    def test_an_error_is_the_last_line_of_the_file(self, run):
        with pytest.raises(FormatError):
            run("stderr = log", reader="file = none.ctf", log=False)
        assert "\nEXCEPTION occurred: none.ctf: No such file" in Path("log").read_text()

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
    def test_a_full_disk(self, run):
        with pytest.raises(SaveError, match="/dev/full: cannot be written: No space left"):
            run("stderr = /dev/full", log=False)

    def test_stamps(self, run):
        run("stderr = log ; timestamping = true", log=False)
        lines = Path("log_T.log").read_text().splitlines()
        stamp = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: ")
        assert all(stamp.match(line) for line in lines if line)
        assert lines[-1].endswith(": __COMPLETED__")

    def test_a_line_in_parts_has_one_stamp(self):
        found = []
        say = stamped(found.append)
        for text in ("a", "b\n\nc", "\n"):
            say(text)
        assert re.fullmatch(r"\S+ \S+ ab\n\n\S+ \S+ c\n", "".join(found))

    def test_warnings_of_readers_are_lines_of_it(self, run):
        lines = ["0 |x 1 2 |y 0 1\n", "1 |x 1 2 |y 0 1\n", "1 what\n", "2 |x 1 2 |y 1 0\n"]
        Path("data.ctf").write_text("".join(lines))
        log = run(reader="maxErrors = 9")
        told = re.findall(r"WARNING: data.ctf:(.*) \((\d) of 9\)", log)
        assert told[0] == ("3:3: '|' and the name of a stream were expected, but this is 'w'; "
                           "passed over", "1")  # fmt: skip
        assert [count for _, count in told] == ["1", "2", "3"]

    def test_the_file_at_the_end(self, run):
        run("doneFile = out/done")
        text = Path("out/done").read_text()
        assert re.fullmatch(r"Successfully finished at \S+ \S+ on \S+\n", text)

    def test_progress_goes_to_standard_output(self, run, capsys):
        log = run("progressTracing = true")
        assert "CNTKCommandTrainInfo: T : 2\n" in log
        assert "CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : 2\n" in log
        assert log.index("CNTKCommandTrainBegin: T") < log.index("CNTKCommandTrainEnd: T")
        loss = re.findall(r"\[Training\] ce = (\S+)", log)[-1]
        out = capsys.readouterr().out.splitlines()
        assert out[0] == "PROGRESS: 100.00%"
        assert float(out[1][9:-1]) == pytest.approx(float(loss), abs=1e-6)

    def test_progress_within_an_epoch(self, run, capsys, monkeypatch):
        monkeypatch.setattr("opscope.cntk.sgd.job._SECONDS", -1.0)
        run("progressTracing = true", sgd="numMBsToShowResult = 1 ; epochSize = 4")
        shown = re.findall(r"PROGRESS: (\S+)%", capsys.readouterr().out)
        assert shown == ["25.00", "50.00", "75.00", "100.00", "100.00"]


class TestParameters:
    def test_those_not_used_are_told(self, run):
        log = run(
            "parallelTrain = true ; hyperCompressMemory = false ; shareNodeValueMatrices = true",
            reader="keepDataInMemory = true",
            sgd="ParallelTrain = [ parallelizationMethod = DataParallelSGD ] ; learnRate = 1",
        )
        told = re.findall(r":(\w+) is not used: (.*)", log)
        assert [name for name, _ in told] == [
            "shareNodeValueMatrices",
            "keepDataInMemory",
        ]
        assert told[0][1] == "memory is planned from the op list"
        assert re.search(r"WARNING: .*unknown parameter .*:SGD:learnRate ", log)

    @pytest.mark.parametrize(("given", "used"), [("1", 1), ("1000", 0), ("-1000", 1)])
    def test_cpu_threads(self, run, given, used):
        before = get_threads()
        log = run(f"numCPUThreads = {given}")
        assert f"Using {used or usable_cores()} CPU threads." in log
        assert get_threads() == before

    def test_names_of_nodes_are_no_parameters(self):
        config = parse_config(
            "command = T\nT = [ NDLNetworkBuilder = [ verbosity = 3 ] ; verbosity = 3 ]"
        )
        (told,) = map(str, warnings_of(config))
        assert "<string>:T:verbosity is not used: " in told

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"top": "type = double"}, "it is called 'precision' now"),
            ({"reader": "truncated = true"}, "setting Truncated only in reader section"),
        ],
    )
    def test_what_is_obsolete(self, run, arguments, message):
        with pytest.raises(FormatError, match=message):
            run(**arguments)

    def test_truncated_in_both_sections(self, run):
        run(reader="truncated = true", sgd="truncated = true")
        run("truncated = true")


class TestSeeds:
    def values(self, **options):
        return {name: read_model("m.0").find(name).value.ravel(order="F") for name in "Wb"}

    def test_an_offset_is_added(self, run):
        run()
        plain = self.values()
        run(ndl="randomSeedOffset = 1")
        moved = self.values()
        np.testing.assert_array_equal(moved["W"][:2], plain["b"])  # drawn from seed 2

    def test_one_seed_for_all(self, run):
        run("forceConstantRandomSeed = true")
        held = self.values()
        np.testing.assert_array_equal(held["W"][:2], held["b"])

    def test_the_nodes_as_text(self, run):
        run(ndl="dumpFileName = nodes.txt")
        assert "W=LearnableParameter" in Path("nodes.txt").read_text()
