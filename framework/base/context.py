"""How a run is executed: phase, random state, hooks, and the values to be read afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from .backend import CPUPlace, Place, random_generator
from .communicator import Communicator
from .errors import OpscopeError


class Hook:
    """Watches a run without touching operators. Override what you need; any hook slows the loop.

    `frame` is the bound plan, a `Frame` of runtime/executor.py. The operators of step `index` are
    `frame.plan.steps[index].operators`, several where they are fused; `frame.array(name)` is the
    value of a variable, None inside a fused kernel.
    """

    def before_run(self, frame: Any) -> None: ...

    def before_op(self, frame: Any, index: int) -> None: ...

    def after_op(self, frame: Any, index: int) -> None: ...

    def after_run(self, frame: Any) -> None: ...


class OpContext:
    """The execution environment of operators.

    Args:
        device: place to run on; None means the scope's place.
        train: phase: true while training, false when testing (dropout, batch normalization). None
            leaves it to what runs: a net trains, unless it was loaded to predict.
        seed: of the random state; None draws one from the system.
        hooks: see `Hook`.
        live_out: names of temporaries that must be readable after the run. None means all that
            operators outside the run's range may still read, as partial runs need them.
        stream: a CuPy stream; None means the current one.
        communicator: the ranks that run the same operators together; None means this one alone.

    Raises:
        OpscopeError: a seed that is none, or another argument of a wrong type.
    """

    def __init__(
        self,
        device: Place | None = None,
        *,
        train: bool | None = None,
        seed: int | None = None,
        hooks: Sequence[Hook] = (),
        live_out: Iterable[str] | None = None,
        stream: Any = None,
        communicator: Communicator | None = None,
    ) -> None:
        if not (device is None or isinstance(device, Place)):
            raise OpscopeError(
                f"OpContext: device is CPUPlace() or GPUPlace(0), or None, not {device!r}; the seed"
                " is given by name: seed=0"
            )
        if not (train is None or isinstance(train, bool)):
            raise OpscopeError(f"OpContext: train is True, False or None, not {train!r}")
        if not isinstance(hooks, Iterable):
            raise OpscopeError(f"OpContext: hooks is a list, hooks=[hook], not {hooks!r}")
        if not (communicator is None or isinstance(communicator, Communicator)):
            raise OpscopeError(
                "OpContext: communicator is MpiCommunicator() or another Communicator, or None, not"
                f" {communicator!r}"
            )
        self.device = device
        self.communicator = communicator
        self.phase = train  # what was said: None is nothing
        self.hooks = list(hooks)
        # A bare name would otherwise become the set of its letters.
        if isinstance(live_out, str):
            live_out = (live_out,)
        self.live_out = None if live_out is None else frozenset(live_out)
        self.stream = stream
        # Each run makes a context, and isinstance of typing.SupportsIndex takes some microseconds.
        if seed is not None and not (hasattr(seed, "__index__") and seed.__index__() >= 0):
            raise OpscopeError(f"seed: want a whole number from 0 on, or None, not {seed!r}")
        self.seed = seed
        self._generators: dict[str, Any] = {}

    @property
    def train(self) -> bool:
        """The phase of a run that nothing else decides: training, unless testing was said."""
        return self.phase is not False

    @train.setter
    def train(self, train: bool | None) -> None:
        self.phase = train

    def derive(self, *, train: bool, live_out: Iterable[str] | None) -> OpContext:
        """The same device, hooks, stream and random state for another phase or other results."""
        other = OpContext(
            self.device,
            train=train,
            seed=self.seed,
            live_out=live_out,
            stream=self.stream,
            communicator=self.communicator,
        )
        other.hooks = self.hooks
        # Shared, not copied: numbers drawn in one phase must not come again in the other.
        other._generators = self._generators
        return other

    def generator(self, place: Place) -> Any:
        """The random generator of a place: a `numpy.random.Generator` or CuPy's.

        A GPU's generator gets a seed from the CPU's generator.
        """
        key = str(place)
        generator = self._generators.get(key)
        if generator is None:
            seed = self.seed
            if place.kind != "cpu":
                # Checkpoints hold the CPU's state alone, so a GPU's state must follow from it.
                seed = int(self.generator(CPUPlace()).integers(1 << 62))
            generator = self._generators[key] = random_generator(place, seed)
        return generator

    def random_state(self) -> dict[str, Any]:
        """The state of the CPU's generator as plain numbers, for checkpoints.

        A GPU's generator cannot be read: a new one is made here, and when a run resumes.
        """
        # Before the state is read: the next GPU generator draws its seed from it in this process as
        # well, so that going on and resuming give the same numbers.
        self.renew()
        return self.generator(CPUPlace()).bit_generator.state

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Continue from a state of `random_state`.

        Raises:
            OpscopeError: `state` is no such state.
        """
        try:
            self.generator(CPUPlace()).bit_generator.state = state
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise OpscopeError(f"no random state: {error}") from None
        self.renew()

    def renew(self) -> None:
        """Replace generators of GPUs: their next numbers follow only from the CPU's state.

        Who trains calls it before each minibatch, so that training resumes exactly.
        """
        own = str(CPUPlace())
        for key in [key for key in self._generators if key != own]:
            del self._generators[key]


# A generator shared by threads would give numbers that depend on their timing.
_local = threading.local()


def default_context() -> OpContext:
    """This thread's context for runs that name none."""
    context = getattr(_local, "context", None)
    if context is None:
        context = _local.context = OpContext()
    return context
