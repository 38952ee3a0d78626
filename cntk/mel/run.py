"""Runs scripts of MEL."""

from __future__ import annotations

from ...framework.base.errors import OpscopeError
from ..base.text import is_located, located
from .commands import run_command
from .session import Session
from .syntax import Embedded, Inline, MelScript


def run_script(session: Session, script: MelScript) -> None:
    """Execute the statements of a script in order.

    Raises:
        OpscopeError: with the place of the statement.
    """
    for statement in script:
        try:
            if isinstance(statement, Inline):
                session.run_inline(statement)
            elif isinstance(statement, Embedded):
                network = session.evaluate(statement.script)
                session.open(statement.name.string, network)
            else:
                run_command(session, statement)
        except OpscopeError as error:
            if is_located(error):
                raise
            raise located(type(error), str(error), statement.text.locate()) from None
