"""The campaign's reader that tells what any file is: damaged files of all kinds, without names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.open.opening import open as open_any

from ..inputs import Target
from . import cntk_file_targets, cntk_model_targets, nnet3_targets, own_targets
from .mutate import BYTES, TEXT
from .onnx_targets import graphs, layers

_TEXTS = (
    b'#!MLF!#\n"a.lab"\n0 100 x\n100 200 y\n.\n',
    b"VERSION=1.0\nN=2 L=1\nI=0 t=0\nI=1 t=1\nJ=0 S=0 E=1 a=-1 l=0\n",
    b"0\t1\t3\t3\t0.5\n1\t2\t4\t5\n2\t0.25\n",
    b"0 |x 1 2 |y 3:1\n1 |x 2 1\n",
    b"a=b.fea[0,12]\n",
    b"--beam=10\n--frame-subsampling-factor=3\n",
    b"key  [\n 1 2\n 3 4 ]\n",
    b'm = LoadModel("a", format=cntk)\nSetDefaultModel(m)\nCopyNode(m.a, m.b)\n',
    b'run = net\nnet = [\n x = Input(2)\n w = Parameter(2, 2)\n y = Times(w, x, tag="output")\n]\n',
    b'command = a\na = [\n action = "train"\n NDLNetworkBuilder = [ run = net ]\n]\n',
    b"f(x) = {\n y = x + 1\n}\nz = f(2)\n",
    b"input dim=4 name=input\nrelu-layer name=a dim=3\noutput-layer name=output dim=2\n",
    b"input-node name=input dim=3\noutput-node name=output input=input\n",
    b"ContextDependency 3 1 ToPdf SE 0 [ 1 ]\n{ CE 0 CE 1 } EndContextDependency ",
    b"<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones> <State> 0 <PdfClass> 0 <Transition> 0"
    b" 0.5 <Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> </Topology> ",
)


def _of(*names: str) -> Callable[[Path], Sequence[bytes]]:
    """The whole files of other readers."""
    modules = (nnet3_targets, cntk_model_targets, cntk_file_targets, own_targets)
    targets = {target.name: target for module in modules for target in module.TARGETS}

    def seeds(folder: Path) -> Sequence[bytes]:
        found: list[bytes] = []
        for name in names:
            place = folder / name.replace(" ", "-")
            place.mkdir()
            found += targets[name].seeds(place)
        return found

    return seeds


def _models(folder: Path) -> Sequence[bytes]:
    return [model_bytes(layers()), model_bytes(graphs())]


TARGETS = (
    Target("open text", ".dat", lambda _: _TEXTS, open_any, (*TEXT, *BYTES)),
    Target("open Kaldi", ".dat", _of("raw model", "acoustic model", "fst"), open_any, BYTES),
    Target("open ONNX", ".dat", _models, open_any, BYTES),
    Target("open CNTK", ".dat", _of("CNTK versions", "CNTK checkpoint"), open_any, BYTES),
    Target("open HTK", ".dat", _of("HTK kinds"), open_any, BYTES),
    Target("open net", ".pb", _of("net"), open_any, BYTES),
    Target("open safetensors", ".safetensors", _of("safetensors"), open_any, BYTES),
)
