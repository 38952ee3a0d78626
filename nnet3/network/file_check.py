"""All problems of the file of a model at once; `Nnet.read` stops at the first.

A component that is damaged is passed over: the next one begins at the next `<ComponentName>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...framework.base.errors import OpscopeError, ShapeError, one_list
from ...framework.base.files.atomic import PathLike
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ..components import Component
from .config_check import NetworkCheck
from .model_check import ERROR, Problem, not_finite
from .model_file import check_priors
from .nnet import Nnet

_NETWORK = re.compile(rb"<Nnet3>\s")
_COMPONENT = re.compile(rb"<ComponentName>\s")
_END = re.compile(rb"</Nnet3>\s")


@one_list()
def model_problems(path: PathLike) -> list[Problem]:
    """What is wrong in a raw network or an acoustic model, in the order of the file.

    Raises:
        FormatError: the file cannot be read.
    """
    check = _ModelCheck(Reader(path))
    check.run()
    return check.problems


class _ModelCheck:
    """The parts of a file, as far as they can be understood."""

    def __init__(self, reader: Reader) -> None:
        self.problems: list[Problem] = []
        self._reader = reader
        self._lines = NetworkCheck()
        self._lines.all_components = False
        self._whole = False
        self._components: dict[str, Component] = {}

    def run(self) -> None:
        """Go through the file."""
        acoustic = self._reader.peek_token() == "<TransitionModel>"
        if acoustic:
            begin = self._reader.offset
            self._try(lambda: TransitionModel.read_from(self._reader))
            if not self._go_on(_NETWORK, begin):
                return
        begun = self._try(lambda: self._reader.expect_token("<Nnet3>"))
        if not begun or not self._try(self._read_lines):
            return
        damaged: list[Problem] = []
        lines = self.problems
        self.problems = damaged
        self._try(self._read_components)
        self.problems = [*lines, *self._lines.problems(self._reader.name, None), *damaged]
        nnet = Nnet()
        nnet.components = self._components
        self._tell(*(f"{self._reader.name}: {line}" for line in not_finite(nnet)))
        if self._whole and acoustic:
            self._try(self._read_end)

    def _tell(self, *messages: str) -> None:
        self.problems += [Problem(ERROR, message) for message in messages]

    def _try(self, read: Callable[[], object]) -> bool:
        """Whether a part can be read; what is wrong with it is reported."""
        try:
            read()
        except OpscopeError as error:
            self._tell(str(error))
            return False
        return True

    def _go_on(self, mark: re.Pattern[bytes], begin: int) -> bool:
        """Go to the next mark after a place; whether there is one."""
        match = mark.search(self._reader.data, begin)
        if match:
            self._reader.offset = match.start()
        return match is not None

    def _read_lines(self) -> None:
        """The lines of the nodes, and the empty one after them."""
        reader = self._reader
        number = bytes(reader.data[: reader.offset]).count(b"\n") + 1
        if reader.read_line().strip():
            raise reader.error("a line end was expected after <Nnet3>")
        while True:
            number += 1
            text = reader.read_line().strip()
            if not text:
                return
            if text.startswith("component "):
                self._tell(
                    f"{reader.name}:{number}: a model's components stand after its nodes: {text!r}"
                )
            else:
                self._lines.add(text, f"{reader.name}:{number}")

    def _read_components(self) -> None:
        """Read all components, to the end of the network."""
        reader = self._reader
        reader.expect_token("<NumComponents>")
        place = reader.offset
        count = reader.read_int32()
        seen = []
        while reader.peek_token() != "</Nnet3>":
            reader.expect_token("<ComponentName>")
            begin = reader.offset
            name = reader.read_token()
            if name in seen:
                self._tell(str(reader.error(f"two components are called {name!r}", begin)))
            seen.append(name)
            if self._try(lambda name=name: self._read_component(name)):
                continue
            self._lines.add_component(name, None, reader.name)
            if not self._go_on(_COMPONENT, begin) and not self._go_on(_END, begin):
                return
        if len(seen) != count:
            problem = f"<NumComponents> is {count}, and there are {len(seen)}"
            self._tell(str(reader.error(problem, place)))
        reader.expect_token("</Nnet3>")
        self._lines.all_components = True
        self._whole = True

    def _read_component(self, name: str) -> None:
        component = Component.read_new(self._reader)
        self._components[name] = component
        self._lines.add_component(name, component, self._reader.name)

    def _read_end(self) -> None:
        """What stands after the network of an acoustic model."""
        reader = self._reader
        reader.expect_token("<LeftContext>")
        reader.read_int32()
        reader.expect_token("<RightContext>")
        reader.read_int32()
        reader.expect_token("<Priors>")
        begin = reader.offset
        priors = reader.read_vector()
        if self._lines.output_dim("output") > 0:
            try:
                check_priors(priors, self._lines)
            except ShapeError as error:
                raise reader.error(str(error), begin) from error
