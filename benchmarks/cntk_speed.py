"""Samples per second of CNTK configs, as the log's own lines tell them.

    python benchmarks/cntk_speed.py DATA [--snapshot CNTK]

DATA is the folder with `cntk/` (ATIS, Simple2d) and `speech/htk/`. The training commands of
examples/atis and examples/speech_htk run for one epoch, and with a snapshot of CNTK its Simple2d
test, beside the speed in the log that CNTK recorded for it. Files are read, shuffled and packed
while training goes on; the figures include that.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_command_line

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_SPEED = re.compile(r"\* (\d+)(?:;.*)?; time = ([\d.]+)s; samplesPerSecond")
_SIMPLE2D = Path("Tests", "EndToEndTests", "Simple2d")


def speed(lines: str) -> float:
    """Samples per second of the minibatches that a log tells of; NaN where it tells none."""
    told = [(int(m[1]), float(m[2])) for m in _SPEED.finditer(lines)]
    seconds = sum(time for _, time in told)
    return sum(samples for samples, _ in told) / seconds if seconds else float("nan")


def run(config: Path, *arguments: str) -> float:
    """The speed of a config's commands, in a folder of its own."""
    lines: list[str] = []
    run_commands(parse_command_line([f"configFile={config}", *arguments]), Run(say=lines.append))
    return speed("".join(lines))


def main() -> None:
    """Run the configs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--snapshot", type=Path)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.snapshot:
            test = arguments.snapshot.resolve() / _SIMPLE2D
            sgd = "Simple_Demo_Train=[SGD=[maxEpochs=3]]"
            ours = run(
                test / "OneHidden.cntk",
                *(f"RootDir={folder}", f"DataDir={test / 'Data'}", "DeviceId=-1", sgd),
                "command=Simple_Demo_Train",
            )
            theirs = speed((test / "OneHidden" / "baseline.cpu.txt").read_text(errors="replace"))
            print(f"Simple2d      {ours:10.0f} samples/s    {theirs:10.0f} in CNTK's recorded log")
        ours = run(
            EXAMPLES / "atis" / "atis.cntk",
            *(f"DataDir={data / 'cntk'}", f"ModelDir={folder}", "command=Train"),
            "Train=[SGD=[maxEpochs=1 ; numMBsToShowResult=50]]",
        )
        print(f"ATIS          {ours:10.0f} samples/s")
        for command in ("TrainDnn", "TrainLstm"):
            ours = run(
                EXAMPLES / "speech_htk" / "speech.cntk",
                *(f"DataDir={data / 'speech' / 'htk'}", f"ModelDir={folder}"),
                *(f"command={command}", f"{command}=[SGD=[maxEpochs=1 ; numMBsToShowResult=50]]"),
            )
            print(f"{command:13} {ours:10.0f} samples/s")


if __name__ == "__main__":
    main()
