"""Names of Vosk's Python package besides recognizers: log level, GPUs, and what is not there.

Source: Vosk's `python/vosk/__init__.py`.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from ...framework.base.errors import OpscopeError

_log = logging.getLogger(__name__)
_PACKAGE = __name__.partition(".")[0]


def SetLogLevel(level: int) -> None:
    """How much is logged: below 0 warnings and errors, 0 (Vosk's default) news, above it details.

    Sets the level of the logger "opscope"; where messages go is up to the program's `logging`.
    """
    chosen = logging.DEBUG if level > 0 else logging.INFO if level == 0 else logging.WARNING
    logging.getLogger(_PACKAGE).setLevel(chosen)


def GpuInit() -> None:
    """Nothing, as in Vosk's packages without CUDA: recognizers compute on the CPU. It logs that."""
    _log.warning("GpuInit: recognizers compute on the CPU")


def GpuThreadInit() -> None:
    """Nothing; see `GpuInit`."""


def list_models() -> NoReturn:
    """The list of models is on Vosk's site.

    Raises:
        OpscopeError: always; nothing is downloaded here.
    """
    _not_downloaded("the list of models")


def list_languages() -> NoReturn:
    """The list of languages is on Vosk's site.

    Raises:
        OpscopeError: always; nothing is downloaded here.
    """
    _not_downloaded("the list of languages")


def _not_downloaded(what: str) -> NoReturn:
    raise OpscopeError(
        f"{what} is on Vosk's site, and nothing is downloaded here: unpack a model and give its"
        " path, or put it where model_name and lang look, the folder in VOSK_MODEL_PATH"
    )


class Processor:
    """Text normalization, which is not there.

    Raises:
        OpscopeError: always.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        raise OpscopeError("Processor: numbers and dates in words are not rewritten")
