"""The campaign's readers of Kaldi's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from chain_graphs import random_hmm, random_supervision
from discriminative_cases import supervision
from kaldi_models import CONFIG, TRANSITIONS, one_state_model
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.context_dependency import ContextDependency
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.files.fst_io import read_fst, write_fst
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.discriminative.examples import (
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from opscope.nnet3.files import nnet2
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.saved import load_nnet, save_nnet
from opscope.nnet3.language.descriptor_parse import parse_descriptor
from opscope.nnet3.network.edits import apply_edits, parse_edits
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import xconfig_to_configs
from opscope.proto.net_pb2 import NetDesc

from ..inputs import Target
from .mutate import BYTES, TEXT, message

RECURRENT = """input-node name=input dim=4
component name=c type=LstmNonlinearityComponent cell-dim=3
component name=w type=LinearComponent input-dim=7 output-dim=12
component name=s type=StatisticsExtractionComponent input-dim=3 input-period=1 output-period=2
component name=p type=StatisticsPoolingComponent input-dim=7 input-period=2 left-context=4 \
  right-context=4 num-log-count-features=0 output-stddevs=true
component name=o type=TdnnComponent input-dim=6 output-dim=2 time-offsets=-2,0
component name=l type=LogSoftmaxComponent dim=2
component-node name=w component=w input=Append(input, IfDefined(Offset(h, -1)))
component-node name=c component=c input=Append(w, IfDefined(Offset(cell, -1)))
dim-range-node name=cell input-node=c dim-offset=0 dim=3
dim-range-node name=h input-node=c dim-offset=3 dim=3
component-node name=s component=s input=h
component-node name=p component=p input=s
component-node name=o component=o input=Round(p, 2)
component-node name=l component=l input=o
output-node name=output input=l objective=quadratic
"""
_DESCRIPTORS = (
    b"Append(Offset(input, -1), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))",
    b"Sum(Scale(0.5, a), Failover(b, Offset(c, 2)))",
    b"Append(Switch(a, Round(b, 3)), IfDefined(Offset(c, -3)))",
)
_XCONFIGS = (
    b"input dim=4 name=input\nrelu-batchnorm-layer name=t1 dim=6 input=Append(-1,0,1)\n"
    b"lstmp-layer name=l cell-dim=6 recurrent-projection-dim=2 non-recurrent-projection-dim=2 "
    b"delay=-3\noutput-layer name=output dim=3 input=l max-change=1.5\n",
    b"input dim=8 name=input\ntdnnf-layer name=f dim=8 bottleneck-dim=4 time-stride=1\n"
    b"attention-relu-batchnorm-layer name=a num-heads=1 value-dim=2 key-dim=2 time-stride=1 "
    b"num-left-inputs=1 num-right-inputs=1\noutput-layer name=output dim=3\n",
    b"input dim=8 name=input\nstats-layer name=s config=mean+stddev(-9:1:1:9) input=input\n"
    b"idct-layer name=i dim=8 cepstral-lifter=22 affine-transform-file=x\n"
    b"prefinal-layer name=p input=s big-dim=4 small-dim=2\noutput-layer name=output dim=3\n",
)
_EDITS = (
    b"set-learning-rate-factor name=a* learning-rate-factor=0.5\nremove-orphans\n",
    b"rename-node old-name=a new-name=z\nset-dropout-proportion name=* proportion=0.1\n"
    b"remove-output-nodes name=foo*\napply-svd name=a bottleneck-dim=2\n",
)
_REQUESTS = (
    b"input input 0,0,0 0,1,0 0,2,0\noutput output has_deriv=true 0,1,0\n"
    b"need_model_derivative=true\nstore_component_stats=false\n",
)
_TREE = (
    b"ContextDependency 3 1 ToPdf TE 1 3 ( NULL SE 0 [ 1 ]\n{ CE 0 TE -1 2 ( CE 1 CE 2 ) }\n"
    b"CE 3 ) EndContextDependency "
)


def _written(value: Any, *binary: bool) -> list[bytes]:
    found = []
    for each in binary or (True, False):
        writer = Writer(each)
        value.write(writer)
        found.append(writer.getvalue())
    return found


def _reads(read: Callable[[Reader], object]) -> Callable[[Path], object]:
    return lambda path: read(Reader(path))


def _models(folder: Path) -> Sequence[bytes]:
    found = []
    for text in (CONFIG, RECURRENT):
        nnet = Nnet.from_config_text(text, 1)
        for binary in (True, False):
            nnet.write(folder / "m", binary=binary)
            found.append((folder / "m").read_bytes())
    return found


def _acoustic_models(folder: Path) -> Sequence[bytes]:
    model = AmNnetSimple(Nnet.from_config_text(CONFIG, 1), TRANSITIONS, binary=False)
    model.set_context()
    model.set_priors(np.full(5, 0.2))
    model.write(folder / "m", binary=False)
    return [(folder / "m").read_bytes()]


_AFFINE = "<LinearParams>  [\n  1 2 \n  3 4 ]\n<BiasParams>  [ 0.5 -1 ]\n"
_NNET2 = f"""<Nnet> <NumComponents> 5 <Components>
<SpliceComponent> <InputDim> 1 <LeftContext> 1 <RightContext> 0 <ConstComponentDim> 0
</SpliceComponent>
<FixedAffineComponent> {_AFFINE}</FixedAffineComponent>
<AffineComponentPreconditionedOnline> <LearningRate> 1 {_AFFINE}<Rank> 5 <UpdatePeriod> 1
<NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.075
</AffineComponentPreconditionedOnline>
<DropoutComponent> <Dim> 2 <DropoutScale> 0 <DropoutProportion> 0.5 </DropoutComponent>
<SoftmaxComponent> <Dim> 2 <ValueSum>  [ 1 2 ]
<DerivSum>  [ ]
<Count> 12.5 </SoftmaxComponent>
</Components> </Nnet>  [ 0.75 0.25 ]
"""


def _nnet2_models(_: Path) -> Sequence[bytes]:
    text = (one_state_model(2) + _NNET2).encode()
    writer = Writer(True)
    nnet2.Nnet2Model.read(Reader(text, binary=False)).write_to(writer)
    return [text, writer.getvalue()]


def _reads_nnet2(path: Path) -> None:
    """As nnet-am-copy does with its options for the network."""
    model = nnet2.Nnet2Model.read(Reader(str(path)))
    parts = nnet2.without_preconditioning(nnet2.without_dropout(model.components))
    parts = nnet2.scaled(parts, np.full(len(nnet2.rates_of(parts)), 0.5))
    replace(model, components=nnet2.collapsed(parts, match=False)).write_to(Writer(True))


def _dialect(folder: Path) -> Sequence[bytes]:
    save_nnet(Nnet.from_config_text(CONFIG, 1), folder / "seed")
    for name in ("nnet3 pb", "nnet3 pb bytes"):
        target = folder / f"{name}-last.safetensors"
        target.write_bytes((folder / "seed.safetensors").read_bytes())
    return [(folder / "seed.pb").read_bytes()]


def _table(kind: str, values: Sequence[Any]) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        found = []
        for form in ("ark", "ark,t"):
            with TableWriter(f"{form}:{folder}/t.ark", kind) as table:
                for number, value in enumerate(values):
                    table.write(f"k{number}", value)
            found.append((folder / "t.ark").read_bytes())
        return found

    return seeds


def _reads_table(kind: str) -> Callable[[Path], object]:
    return lambda path: list(read_table(f"ark:{path}", kind))


def example(seed: int | None = None) -> NnetExample:
    """Four frames of three columns: counted, or random."""
    indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    if seed is not None:
        features = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
    labels = SparseMatrix.from_dense(np.eye(4, 5))
    return NnetExample([NnetIo("input", indexes, features), NnetIo("output", indexes, labels)])


def chain_example() -> NnetChainExample:
    rng = np.random.default_rng(3)
    indexes = np.array([[0, 3 * t, 0] for t in range(3)], np.int32)
    supervision = NnetChainSupervision("output", indexes, random_supervision(rng), np.ones(3))
    return NnetChainExample([NnetIo("input", indexes, np.ones((3, 2), np.float32))], [supervision])


def discriminative_example() -> NnetDiscriminativeExample:
    indexes = np.array([[0, t, 0] for t in range(3)], np.int32)
    lattice = supervision(np.random.default_rng(3), 3, width=2)
    output = NnetDiscriminativeSupervision("output", indexes, lattice, np.ones(3))
    inputs = [NnetIo("input", indexes, np.ones((3, 2), np.float32))]
    return NnetDiscriminativeExample(inputs, [output])


def _scripts(folder: Path) -> Sequence[bytes]:
    with TableWriter(f"ark,scp:{folder}/s.ark,{folder}/s.scp", "matrix") as table:
        table.write("a", np.ones((4, 3)))
        table.write("b", np.zeros((2, 3)))
    plain = (folder / "s.scp").read_bytes()
    return [plain, plain.replace(b"\n", b"[0:1,1:2]\n")]


def _fsts(folder: Path) -> Sequence[bytes]:
    fst = random_hmm(np.random.default_rng(0))
    found = []
    for binary in (True, False):
        writer = Writer(binary)
        write_fst(fst, writer)
        found.append(writer.getvalue())
    return found


def _config(path: Path) -> object:
    return Nnet.from_configs([path], 0).info()


def _edits(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    nnet = Nnet.from_config_text(CONFIG, 1)
    apply_edits(nnet, parse_edits(text))
    nnet.info()


def _request(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return str(ComputationRequest.parse(text, str(path)))


def _descriptor(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return str(parse_descriptor(text, ["input", "ivector", "a", "b", "c"]))


_MATRICES = (np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((0, 0), np.float32))
_COMPRESSED = [CompressedMatrix.compress(_MATRICES[0], method) for method in (1, 2, 5)]
_POSTERIOR = Posterior.from_frames([[(3, 0.5), (4, 0.5)], [], [(1, 1.0)]])

TARGETS = (
    Target("raw model", ".raw", _models, _reads(lambda r: Nnet.read_any(r)), BYTES),
    Target("raw model text", ".raw", _models, _reads(lambda r: Nnet.read_any(r)), TEXT),
    Target("acoustic model", ".mdl", _acoustic_models, AmNnetSimple.read, (*BYTES, *TEXT)),
    Target("nnet2 model", ".mdl", _nnet2_models, _reads_nnet2, (*BYTES, *TEXT)),
    Target("nnet3 pb", ".pb", _dialect, load_nnet, (message(NetDesc),)),
    Target("nnet3 pb bytes", ".pb", _dialect, load_nnet, BYTES),
    Target("config", ".config", lambda _: [CONFIG.encode(), RECURRENT.encode()], _config, TEXT),
    Target("xconfig", ".xconfig", lambda _: _XCONFIGS, xconfig_to_configs, TEXT),
    Target("descriptor", ".txt", lambda _: _DESCRIPTORS, _descriptor, TEXT),
    Target("edits", ".edits", lambda _: _EDITS, _edits, TEXT),
    Target("request", ".txt", lambda _: _REQUESTS, _request, TEXT),
    Target(
        "matrices",
        ".ark",
        _table("matrix", _MATRICES),
        _reads_table("matrix"),
        (*BYTES, *TEXT),
    ),
    Target(
        "compressed matrices",
        ".ark",
        _table("compressed_matrix", _COMPRESSED),
        _reads_table("compressed_matrix"),
        BYTES,
    ),
    Target(
        "posteriors",
        ".ark",
        _table("posterior", [_POSTERIOR]),
        _reads_table("posterior"),
        (*BYTES, *TEXT),
    ),
    Target(
        "integer vectors",
        ".ark",
        _table("int_vector", [[4, 5], []]),
        _reads_table("int_vector"),
        (*BYTES, *TEXT),
    ),
    Target(
        "examples",
        ".egs",
        lambda _: _written(example()),
        _reads(lambda r: NnetExample.read(r)),
        (*BYTES, *TEXT),
    ),
    Target(
        "chain examples",
        ".egs",
        lambda _: _written(chain_example()),
        _reads(lambda r: NnetChainExample.read(r)),
        (*BYTES, *TEXT),
    ),
    Target(
        "discriminative examples",
        ".egs",
        lambda _: _written(discriminative_example()),
        _reads(lambda r: NnetDiscriminativeExample.read(r)),
        (*BYTES, *TEXT),
    ),
    Target(
        "transition model",
        ".mdl",
        lambda _: [TRANSITIONS],
        _reads(lambda r: TransitionModel.read_from(r)),
        (*TEXT, *BYTES),
    ),
    Target(
        "tree",
        ".tree",
        lambda _: [_TREE],
        _reads(lambda r: ContextDependency.read(r)),
        (*TEXT, *BYTES),
    ),
    Target("fst", ".fst", _fsts, _reads(lambda r: read_fst(r)), (*BYTES, *TEXT)),
    Target(
        "script file",
        ".scp",
        _scripts,
        lambda path: list(read_table(f"scp:{path}", "matrix")),
        TEXT,
    ),
)
