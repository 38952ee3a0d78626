"""The macros of NDL, which all scripts of a run share."""

from __future__ import annotations

from ...framework.base.errors import VariableError
from ..base.text import located
from ..network.catalog import ndl_function
from .syntax import Macro, place

DEEPEST = 60  # macros inside one another


class Macros:
    """The macros that all scripts of a run share; each may be defined once."""

    def __init__(self) -> None:
        self._macros: dict[str, Macro] = {}

    def define(self, macro: Macro) -> None:
        """Add a macro. The same one twice does no harm: files of macros repeat each other.

        Raises:
            VariableError: another one has its name, or a node function has.
        """
        name = macro.name.string
        old = self._macros.get(name.lower())
        if old is not None and _text(old) == _text(macro):
            return
        if old is not None or ndl_function(name) is not None:
            chain = [("it is defined at", old.name.locate())] if old is not None else []
            what = "function" if old is not None else "node function"
            raise located(
                VariableError, f"{what} '{name}' already defined", macro.name.locate(), chain
            )
        parameters = macro.names()
        for parameter, text in zip(parameters, macro.parameters, strict=True):
            if ndl_function(parameter) is not None:
                raise located(
                    VariableError,
                    f"Macro {name} includes a parameter {parameter}, which is also the name of a "
                    "function",
                    place(text),
                )
        self._macros[name.lower()] = macro
        for inner in macro.body.macros:
            self.define(inner)

    def find(self, name: str) -> Macro | None:
        return self._macros.get(name.lower())

    def names(self) -> list[str]:
        return [macro.name.string for macro in self._macros.values()]

    def __len__(self) -> int:
        return len(self._macros)


def _text(macro: Macro) -> tuple[list[str], str]:
    return [str(parameter) for parameter in macro.parameters], str(macro.body)
