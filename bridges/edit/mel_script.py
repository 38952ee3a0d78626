"""MEL over a network of any kind: its commands make edits, which the network carries out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from ...cntk.base.text import Source, Text, located
from ...cntk.mel import run_script
from ...cntk.mel.parse import parse_mel_file
from ...cntk.mel.session import Model, Session
from ...cntk.mel.syntax import Inline
from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...framework.base.errors import VariableError
from ...framework.editing.operations import Edit
from ..model.model import Model as Target


def run_mel(target: Target, text: str, name: str) -> list[str]:
    """Carry out the commands of a script; what was done.

    Args:
        target: is changed, also where an error comes later.

    Raises:
        OpscopeError: with line and column.
    """
    scripts, script = parse_mel_file(Source(name, text).whole(), name)
    is_cntk = target.family == "cntk"
    session = CntkSession(target, target.network) if is_cntk else OtherSession(target)
    for ndl in scripts:
        for macro in ndl.macros:
            session.macros.define(macro)
        session.numbering.script(ndl)
    run_script(session, script)
    if is_cntk:
        session.settle(session.mine)
    target.notes.extend(session.warnings)
    return session.done


def _refuse(*_: Any) -> NoReturn:
    raise VariableError(
        "the editor writes the result, so a script does not: leave this command out"
    )


class _Session(Session):
    """A session over one network, the default model, which writes no files.

    Attributes:
        mine: the model of the network that is edited.
        done: what was done.
    """

    def __init__(self, target: Target, network: Network) -> None:
        super().__init__(write=_refuse, write_text=_refuse)
        self.target = target
        self.done: list[str] = []
        self.open("net", network)
        assert self.default is not None
        self.mine = self.default

    def perform(self, model: Model, edit: Edit) -> None:
        if model is not self.mine:
            raise VariableError(
                f"{model.name} is another model than the one that is edited, which no command loads"
            )
        self.done.append(self.target.perform(edit))


class CntkSession(_Session):
    """A session over a network of CNTK's; other models may be loaded to copy from."""


class OtherSession(_Session):
    """A session over another kind of network, whose names stand for themselves."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, Network())

    def split(self, symbol: Text) -> tuple[Model, str]:
        return self.mine, symbol.string

    def names(self, symbol: Text) -> tuple[Model, tuple[str, ...]]:
        return self.mine, (symbol.string,)

    def settle(self, model: Model) -> Network:
        return model.network

    def perform(self, model: Model, edit: Edit) -> None:
        own = {"source": None} if hasattr(edit, "source") else {}
        super().perform(model, replace(edit, must_match=True, **own))

    def find(self, symbol: Text) -> tuple[Model, list[Node]]:
        raise self._foreign("this command", symbol)

    def load(self, file: Text) -> Network:
        raise self._foreign("a model of CNTK's", file)

    def snippet(self, file: Text, section: str | None) -> Network:
        raise self._foreign("NDL", file)

    def run_inline(self, statement: Inline) -> None:
        raise self._foreign("NDL", statement.text)

    def _foreign(self, what: str, text: Text) -> Exception:
        return located(
            VariableError,
            f"{what} is for networks of CNTK's, and this is {self.target.what}",
            text.locate(),
        )
