"""What can be edited: networks of nnet3, networks of CNTK, nets of operators; opened and saved."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from ...framework.base.errors import FormatError, VariableError
from ...framework.base.scope import Scope
from ...framework.editing.operations import Edit
from ...framework.files.checkpoint import SUFFIX
from ...framework.files.saved import HasOpList, load_parts, op_list_of, put_values, save
from ...framework.ir.op_list import OpList
from ...framework.passes.verify.verifier import verify
from ..recognise.kinds import KINDS
from ..recognise.recognising import acoustic_model_of, known_kind
from . import op_nets
from .op_net import OpNet

if TYPE_CHECKING:
    from ...cntk.network.network import Network
    from ...nnet3.network.model import AmNnetSimple
    from ...nnet3.network.nnet import Nnet


class Target(Protocol):
    """A network of some kind that is edited.

    Attributes:
        kind: what errors call it.
    """

    kind: str

    @property
    def notes(self) -> list[str]:
        """What edits did besides, a line each; the list itself."""
        ...

    def copy(self) -> Target:
        """Another one, which edits of this one do not change."""
        ...

    def perform(self, edit: Edit) -> str:
        """Carry out an edit; see `nnet3.network.editing.perform`."""
        ...

    def check(self) -> None:
        """Refuse shapes and connections that do not fit together."""
        ...

    def desc(self) -> tuple[OpList, Mapping[str, np.ndarray]]:
        """The network as an op list, and its arrays."""
        ...

    def save(self, path: str) -> None:
        """Write it in the format that it was read in."""
        ...

    def net(self) -> Any:
        """The network itself."""
        ...


class NnetTarget:
    """A raw network of nnet3."""

    kind = "an nnet3 network"

    def __init__(self, nnet: Nnet, binary: bool = True) -> None:
        self.nnet, self.binary = nnet, binary
        self.notes: list[str] = []

    def copy(self) -> NnetTarget:
        return NnetTarget(self.nnet.copy(), self.binary)

    def perform(self, edit: Edit) -> str:
        from ...nnet3.network.editing.perform import perform

        return perform(self.nnet, edit)

    def check(self) -> None:
        self.nnet.check()

    def desc(self) -> tuple[OpList, Mapping[str, np.ndarray]]:
        return self.nnet.to_desc(), self.nnet.arrays()

    def save(self, path: str) -> None:
        if path.endswith(".pb"):
            from ...nnet3.inference.saved import save_nnet

            save_nnet(self.nnet, path)
        else:
            self.nnet.write(path, self.binary)

    def net(self) -> Nnet:
        return self.nnet


class ModelTarget(NnetTarget):
    """An acoustic model: contexts follow the network, priors of another size are dropped."""

    kind = "an nnet3 acoustic model"

    def __init__(self, model: AmNnetSimple) -> None:
        super().__init__(model.nnet, model.binary)
        self.model = model
        self.width, self.priors = model.nnet.output_dim("output"), model.priors.size

    def copy(self) -> ModelTarget:
        made = ModelTarget(copy.deepcopy(self.model))
        made.width, made.priors = self.width, self.priors
        return made

    def check(self) -> None:
        super().check()
        width = self.nnet.output_dim("output")
        self.model.set_nnet(self.nnet)
        self.notes.clear()
        if width != self.width:
            lost = self.priors and not self.model.priors.size
            dropped = f", and {self.priors} priors are gone" if lost else ""
            self.notes.append(
                f"the output is {width} wide, not {self.width}: the transition model is still that"
                f" of the old one{dropped}"
            )

    def save(self, path: str) -> None:
        self.model.write(path)

    def net(self) -> Any:
        return self.model


class CntkTarget:
    """A network of CNTK's."""

    kind = "a network of CNTK's"

    def __init__(self, network: Network, notes: list[str] | None = None) -> None:
        self.network = network
        self.notes: list[str] = notes or []

    def copy(self) -> CntkTarget:
        return CntkTarget(copy.deepcopy(self.network))

    def perform(self, edit: Edit) -> str:
        from ...cntk.network.editing.perform import perform

        return perform(self.network, edit)

    def check(self) -> None:
        self.network.validate()

    def desc(self) -> tuple[OpList, Mapping[str, np.ndarray]]:
        from ...cntk.network.dialect import parameter_arrays, to_desc

        return to_desc(self.network), parameter_arrays(self.network)

    def save(self, path: str) -> None:
        from ...cntk.models.v1 import write_model

        write_model(self.network, path)

    def net(self) -> Network:
        return self.network


class OpNetTarget:
    """A net of operators with its arrays."""

    kind = "a net of operators"

    def __init__(self, net: OpNet) -> None:
        self.held = net

    @property
    def notes(self) -> list[str]:
        return self.held.notes

    def copy(self) -> OpNetTarget:
        return OpNetTarget(self.held.copy())

    def perform(self, edit: Edit) -> str:
        return op_nets.perform(self.held, edit)

    def check(self) -> None:
        self.held.settle()
        verify(self.held.net, "after the edits", undeclared=True)

    def desc(self) -> tuple[OpList, Mapping[str, np.ndarray]]:
        return self.held.net, self.held.arrays

    def save(self, path: str) -> None:
        save(self.held.net, self._scope(), path)

    def _scope(self) -> Scope:
        scope = Scope()
        put_values(self.held.arrays, scope)
        return scope

    def net(self) -> Any:
        from ...framework.files.saved import loaded

        return loaded(self.held.net.copy(), self.held.arrays, None, True)


def target_of(given: Any, scope: Scope | None = None) -> Target:
    """What is edited: the network in a file, or one that is given, which stays as it is.

    Raises:
        FormatError: the file is damaged, or of a kind that is not edited.
        VariableError: what is given is no network.
    """
    if isinstance(given, (str, os.PathLike)):
        return _of_file(os.fspath(given))
    from ...cntk.network.network import Network
    from ...nnet3.network.model import AmNnetSimple
    from ...nnet3.network.nnet import Nnet

    if isinstance(given, AmNnetSimple):
        return ModelTarget(copy.deepcopy(given))
    if isinstance(given, Nnet):
        return NnetTarget(given.copy())
    if isinstance(given, Network):
        return CntkTarget(copy.deepcopy(given))
    if isinstance(given, tuple) and len(given) == 2:  # what `load` gives: a net and its scope
        given, scope = given
    net = op_list_of(cast("HasOpList", given))
    if scope is None:
        raise VariableError("the numbers of a net are in a scope: opscope.edit(net, scope)")
    from ...framework.files.saved import persistent_values

    values = {name: np.array(array) for name, array in persistent_values(net, scope).items()}
    return _operators(net.copy(), values)


def _operators(net: OpList, arrays: dict[str, np.ndarray]) -> Target:
    dialect = net.metadata.get("dialect", "")
    if dialect == "nnet3":
        from ...nnet3.network.nnet import Nnet

        return NnetTarget(Nnet.from_desc(net, arrays))
    if dialect:
        raise VariableError(f"a net in the dialect {dialect!r} only describes; edit its source")
    if net.steps:
        raise VariableError("a net of steps is edited inside of the operator that holds it")
    return OpNetTarget(OpNet(net, arrays))


def _of_file(path: str) -> Target:
    kind = known_kind(path) if os.path.exists(path) else "net"
    if kind == "net" and not path.endswith(SUFFIX):
        return _operators(*load_parts(path))
    if kind == "vosk":
        path, kind = acoustic_model_of(path), "acoustic model"
    if kind == "acoustic model":
        from ...nnet3.network.model import AmNnetSimple

        return ModelTarget(AmNnetSimple.read(path))
    if kind == "nnet3":
        from ...nnet3.files.kaldi_io import Reader
        from ...nnet3.network.nnet import Nnet

        reader = Reader(path)
        return NnetTarget(Nnet.read_any(reader), reader.binary)
    if kind == "model":
        from ...cntk.models.open_model import open_model

        opened = open_model(path)
        is_other = "protobuf" in opened.format
        notes = [f"{path} is a {opened.format}; a CNTK binary model is written"] if is_other else []
        return CntkTarget(opened.network, notes)
    raise FormatError(
        f"{path}: {KINDS[kind].title}: edited are networks and models of nnet3, models of CNTK, and"
        " nets that opscope saved"
    )
