"""Kaldi's nnet3: raw networks, acoustic models, configs and xconfigs, Vosk's folders."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, VariableError
from ...framework.editing.operations import Edit
from ...framework.ir.op_list import OpList
from ...kaldi.files.kaldi_io import Reader
from ...nnet3.network.dialect import DIALECT
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.network.vosk_folder import acoustic_model_of, subsampling_of
from .model import Asked, Feed, Model, Port, chosen


class Nnet3Model(Model):
    """A raw network.

    Attributes:
        nnet: the network. binary: whether its file is.
        subsampling: input frames for a row of output, where a Vosk model's folder says it.
    """

    family, what = "nnet3", "an nnet3 network"

    def __init__(
        self, nnet: Nnet, path: str = "", title: str = "nnet3 network", *, binary: bool = True
    ) -> None:
        super().__init__(path, title)
        self.nnet = nnet
        self.binary = binary
        self.subsampling: int | None = None

    @property
    def network(self) -> Nnet | AmNnetSimple:
        return self.nnet

    @property
    def desc(self) -> OpList:
        return self.nnet.to_desc()

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        return self.nnet.arrays()

    @property
    def summary(self) -> str:
        return self.nnet.summary()

    def picture(self) -> str:
        return self.nnet.to_svg()

    @property
    def facts(self) -> list[tuple[str, str | int]]:
        lines = [line.partition(" ") for line in self.summary.splitlines()]
        return [(name, text.strip()) for name, _, text in lines]

    @property
    def dialect(self) -> str:
        return DIALECT

    @property
    def inputs(self) -> list[Port]:
        return [Port(node.name, (node.dim,)) for node in self.nnet.inputs()]

    @property
    def outputs(self) -> list[Port]:
        dims = self.nnet.node_dims()
        return [Port(n.name, (dims[n.name],), str(n.objective)) for n in self.nnet.outputs()]

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """The outputs for one utterance as one chunk, as `nnet3-compute` gives them.

        Args:
            feed: `input`, [frames, columns], and where the network has it `ivector`, [columns].
            fetch: see `Model`.
        """
        from ...nnet3.inference.chunks import ChunkComputer
        from ...nnet3.inference.pieces import ChunkOptions
        from ...nnet3.network.for_inference import with_output

        inputs, outputs = ([port.name for port in ports] for ports in (self.inputs, self.outputs))
        if others := sorted({*inputs} - {"input", "ivector"}) or not inputs:
            taken = ", ".join(others) if isinstance(others, list) else "none"
            raise VariableError(
                f"{self.name}: the inputs are {taken}; only networks with 'input' and 'ivector' run"
            )
        names = chosen(self.name, feed, inputs, fetch, outputs)
        features = np.asarray(feed["input"])
        if features.ndim != 2:
            raise ShapeError(f"input is {list(features.shape)}; [frames, columns] is wanted")
        ivector = np.asarray(feed["ivector"]).reshape(-1) if "ivector" in feed else None
        options = ChunkOptions(
            frames_per_chunk=max(len(features), 1), frame_subsampling_factor=self.subsampling or 1
        )
        return {
            name: ChunkComputer(with_output(self.nnet, name), options).compute(features, ivector)
            for name in names
        }

    def copy(self) -> Nnet3Model:
        return Nnet3Model(self.nnet.copy(), self.path, self.title, binary=self.binary)

    def perform(self, edit: Edit) -> str:
        from ...nnet3.network.editing.perform import perform

        return perform(self.nnet, edit)

    def check(self) -> None:
        self.nnet.check()

    def save(self, path: str) -> None:
        if path.endswith(".pb"):
            from ...nnet3.inference.saved import save_nnet

            save_nnet(self.nnet, path)
        else:
            self.nnet.write(path, self.binary)


class AcousticModel(Nnet3Model):
    """An acoustic model: contexts follow the network, priors of another size are dropped."""

    what = "an nnet3 acoustic model"

    def __init__(self, whole: AmNnetSimple, path: str = "", title: str = "nnet3 network") -> None:
        super().__init__(whole.nnet, path, title, binary=whole.binary)
        self.whole = whole
        self._width: int | None = None
        self._priors = whole.priors.size

    @property
    def network(self) -> AmNnetSimple:
        return self.whole

    def copy(self) -> AcousticModel:
        copied = AcousticModel(copy.deepcopy(self.whole), self.path, self.title)
        copied._width = self._width or self.nnet.output_dim("output")
        copied._priors = self._priors
        return copied

    def check(self) -> None:
        super().check()
        width = self.nnet.output_dim("output")
        before = self._width
        self.whole.set_nnet(self.nnet)
        self.notes.clear()
        if before is not None and width != before:
            lost = self._priors and not self.whole.priors.size
            dropped = f", and {self._priors} priors are gone" if lost else ""
            self.notes.append(
                f"the output is {width} wide, not {before}: the transition model still belongs"
                f" to the old one{dropped}"
            )

    def save(self, path: str) -> None:
        self.whole.write(path)


def open_model(path: str, asked: Asked) -> Nnet3Model:
    """The model in a file of Kaldi's, or in the folder of a Vosk model.

    Raises:
        FormatError: it is damaged.
    """
    title = os.path.basename(path.rstrip("/"))
    is_vosk = asked.kind == "vosk"
    reader = Reader(acoustic_model_of(path) if is_vosk else path)
    model: Nnet3Model
    if reader.peek_token() == "<TransitionModel>":
        model = AcousticModel(AmNnetSimple.read_from(reader), path, title)
    else:
        nnet = Nnet.read_from(reader)
        model = Nnet3Model(nnet, path, title, binary=reader.binary)
    model.subsampling = subsampling_of(path) if is_vosk else None
    return model


def open_config(path: str, asked: Asked) -> Nnet3Model:
    """The network that a config or an xconfig describes, with parameters that are drawn."""
    from ...nnet3.programs.listing import read_network

    return Nnet3Model(read_network(path, asked.kind), path, os.path.basename(path))


def of_saved(net: OpList, arrays: Mapping[str, np.ndarray], path: str, title: str) -> Nnet3Model:
    """The network of a saved net in the dialect `nnet3`.

    Raises:
        FormatError, ShapeError: it is no network, or its parts do not fit together.
    """
    try:
        return Nnet3Model(Nnet.from_desc(net, arrays), path, title)
    except (FormatError, ShapeError) as error:
        raise (type(error)(f"{path}: {error}") if path else error) from error
