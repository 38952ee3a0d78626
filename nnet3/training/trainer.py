"""NnetTrainer: one pass of stochastic gradient descent after another, minibatch by minibatch.

    trainer = NnetTrainer(NnetTrainerOptions(max_param_change=2.0), nnet)
    for key, example in read_table("ark:merged.egs", "example"):
        trainer.train(example)
    trainer.print_total_stats()
    trainer.store()                       # the parameters, back into `nnet`

Source: Kaldi's `nnet3/nnet-training.cc`.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...framework.base.backend import Place, on_device
from ...framework.base.communicator import Communicator, SingleCommunicator
from ...framework.base.context import OpContext
from ...framework.base.errors import FormatError, check_kind
from ...framework.base.python.bounded_cache import BoundedCache
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.base.scope import Scope
from ...framework.base.untrusted.records import AnyFloat, record
from ...framework.ir.desc import PARAMETER, STATE
from ...framework.ir.op_list import OpList
from ...framework.runtime.plans.memory import WorkspaceOwner
from ..cache.computations import CachingCompiler
from ..compiler.verbose import VERBOSE
from ..components import part_of, set_statistic
from ..components.base.lowering import FROZEN
from ..graph.request import ComputationRequest
from ..lower.spans import lower_with_spans
from ..lower.variables import first_value
from ..network.adjust import set_learning_rate
from ..network.nnet import Nnet
from .objectives import FrameObjectives, Objective
from .options import NnetTrainerOptions
from .progress import Log, MaxChangeStats, ObjectiveInfo, plain
from .step import Step, TracedParts
from .update_pass import (
    CHANGE,
    FACTORS,
    SCALARS,
    parts,
    rate_name,
    scalar_name,
    training_net,
    updatable,
    with_common_estimates,
)

_log = logging.getLogger(__name__)
_BACKSTITCH_SEED = 71341
"""The number that Kaldi draws on Linux with its default seed to choose backstitch minibatches."""


@dataclass(frozen=True)
class _Objective:
    """`ObjectiveInfo` in a file."""

    weight: AnyFloat
    objective: AnyFloat
    auxiliary: AnyFloat
    phase: int
    minibatches_this_phase: int
    weight_this_phase: AnyFloat
    objective_this_phase: AnyFloat
    auxiliary_this_phase: AnyFloat


@dataclass(frozen=True)
class _MaxChange:
    """`MaxChangeStats` in a file."""

    names: list[str]
    bounds: list[AnyFloat]
    applied: list[int]
    applied_globally: int
    minibatches: int

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.bounds) == len(self.applied):
            raise FormatError("'names', 'bounds' and 'applied' are of different lengths")


@dataclass(frozen=True)
class _State:
    """The state of a training in a file."""

    minibatches: int
    seed: int
    backstitch_turn: int
    objectives: dict[str, _Objective]
    max_change: _MaxChange
    random: dict[str, Any]
    statistics: list[str]


class NnetTrainer:
    """Trains a network.

    Args:
        options: see there.
        nnet: its parameters are where training starts. It is not changed before `store`, except its
            statistics if `zero_component_stats` is set.
        place: where to compute; the CPU by default.
        seed: of all that is random: dropout, self-repair, orthonormal constraints, and with which
            minibatches backstitch is made.
        log: takes the lines of progress; by default the logger of this module.
        objective: what to train for; by default the linear and quadratic ones of the output nodes.
        communicator: ranks that train together, each with minibatches of its own; None: this one
            alone. Gradients are added over ranks before `nnet3.parameter_delta`, so that bounds on
            changes, momentum and constraints see the sums, and parameters stay equal bit by bit.
            Each rank keeps the statistics of its own data: the matrices of the natural gradient,
            which scale its gradient before the sum, the statistics of self-repair and of batch
            normalization. All ranks train on as many minibatches, with the same outputs.
        sync_natural_gradient: the matrices of the natural gradient come from the samples of all
            ranks instead, so that these train as one process. It costs three short messages for
            each matrix, and minibatches of all ranks must have the same structure.

    Attributes:
        compiler: holds the compiled computations; see `computation_cache`.

    Raises:
        RanksError: the networks or options of the ranks differ.
    """

    def __init__(
        self,
        options: NnetTrainerOptions,
        nnet: Nnet,
        place: Place | None = None,
        seed: int = 0,
        log: Log | None = None,
        objective: Objective | None = None,
        communicator: Communicator | None = None,
        sync_natural_gradient: bool = False,
    ) -> None:
        check_kind(options, NnetTrainerOptions, "options")
        check_kind(nnet, Nnet, "the network")
        self.options = options
        self.nnet = nnet
        self.log = log or _log.info
        self.objective = objective or FrameObjectives()
        if options.zero_component_stats:
            for component in nnet.components.values():
                component.zero_stats()
        self.minibatches = 0
        self.objectives: dict[str, ObjectiveInfo] = {}
        components = updatable(nnet)
        self.max_change = MaxChangeStats(
            list(components), [float(c.max_change) for c in components.values()]
        )
        self._seed = seed
        self._ranks = communicator or SingleCommunicator()
        if self._ranks.size > 1:
            from ...framework.parallel.handshake import handshake

            settings = _described(nnet, options) | {"sync_natural_gradient": sync_natural_gradient}
            handshake(self._ranks, OpList(), settings=settings)
        self._sync_natural_gradient = sync_natural_gradient and self._ranks.size > 1
        self._context = OpContext(train=True, seed=seed, live_out=(), communicator=communicator)
        interval = options.backstitch_training_interval
        turn = np.array([(_BACKSTITCH_SEED + seed) % interval])
        self._ranks.broadcast(turn)  # ranks may have seeds of their own
        self._backstitch_turn = int(turn[0])
        self._shared = Scope(place)
        self._statistics: set[str] = set()
        self.compiler = CachingCompiler(
            nnet, options.optimize, options.use_shortcut, options.cache_capacity
        )
        self._workspaces = WorkspaceOwner()
        self._forget_steps()

    # Training

    def train(self, example: Any) -> None:
        """One step with a minibatch.

        Raises:
            FormatError, ShapeError: it does not fit the network.
            NotComputableError: outputs need inputs that it does not have.
        """
        step = self._step(example)
        step.feed(self.objective.values(self.nnet, example))
        self._context.renew()
        options = self.options
        examples = np.array([float(self.objective.count(example))])
        self._ranks.all_reduce(examples)
        l2 = float(examples[0]) * options.l2_regularize_factor
        stitch = options.backstitch_training_scale
        turn = self.minibatches % options.backstitch_training_interval == self._backstitch_turn
        if stitch > 0 and turn:
            # The same random masks in both: the second step corrects the first.
            self._seed_again()
            back = {"scale": -stitch, "bound_scale": stitch, "batchnorm_scale": 1.0}
            self._run(step, back, frozen=True)
            self._seed_again()
            forth = {
                "scale": 1.0 + stitch,
                "bound_scale": 1.0 + stitch,
                "l2_scale": l2 / (1.0 + stitch),
                "batchnorm_scale": options.batchnorm_stats_scale,
                "constrain": 0.0,
            }
            self._run(step, forth, suffix="_backstitch")
        else:
            scalars = {
                "scale": 1.0 - options.momentum,
                "l2_scale": l2,
                "batchnorm_scale": options.batchnorm_stats_scale,
            }
            self._run(step, scalars)
        self.minibatches += 1

    def _seed_again(self) -> None:
        """Begin a new series of random numbers, which depends on seed and minibatch alone."""
        seed = (self._seed * 1000003 + self.minibatches + 1) & 0x7FFFFFFF
        before = self._context
        self._context = OpContext(
            train=True,
            seed=seed,
            live_out=(),
            hooks=before.hooks,
            communicator=before.communicator,
        )

    def _run(
        self, step: Step, scalars: dict[str, float], frozen: bool = False, suffix: str = ""
    ) -> None:
        values = {**SCALARS, **scalars}
        del values["kept"]  # the step before sets it
        for name, value in values.items():
            self._fill(scalar_name(name), value)
        if FROZEN in self._shared:
            self._fill(FROZEN, float(frozen))
        step.run(self._context)
        interval = self.options.print_interval
        for output, *own in self.objective.outcomes(step.scope):
            whole = np.array(own)
            self._ranks.all_reduce(whole)
            sums = whole.tolist()
            name = output + suffix
            info = self.objectives.setdefault(name, ObjectiveInfo())
            info.update(name, interval, self.minibatches, *sums, log=self.log)
        if FACTORS in step.scope:
            self.max_change.add(
                step.scope.numpy(FACTORS),
                float(step.scope.numpy(CHANGE)[0]),
                float(self.options.max_param_change),
                values["bound_scale"],
                bool(self._shared.numpy(scalar_name("kept"))[0]),
                self.log,
            )

    def _fill(self, name: str, value: float) -> None:
        with on_device(self._shared.place):
            self._shared.get(name).array.fill(value)

    def _forget_steps(self) -> None:
        capacity = self.options.cache_capacity
        self._steps: BoundedCache[Hashable, Step] = BoundedCache(
            capacity, Step.nbytes, Step.release
        )

    def _step(self, example: Any) -> Step:
        """The compiled step for examples of this structure."""
        stats = self.options.store_component_stats
        request = self.objective.request(self.nnet, example, stats)
        return self._steps.get_or_make(request.key(), lambda: self._compile(request))

    @gc_disabled()
    def _compile(self, request: ComputationRequest) -> Step:
        options = self.options
        lowered, spans = lower_with_spans(self.compiler.compile(request), natural_gradient=True)
        desc = training_net(lowered, self.nnet, options, self.objective)
        listener = VERBOSE.get()
        trace = None
        if listener is not None and listener.tells_commands:
            trace = TracedParts.of(lowered, desc, spans, listener.log, self._size_of_parameters)
        self._statistics |= {
            var.name
            for var in desc.vars
            if var.kind == STATE and "/" in var.name and var.dtype == np.float64
        }
        if self._ranks.size > 1:
            # One message in the order of the components, whatever the structure of the examples.
            from ...framework.passes.ranks.all_reduce import InsertAllReduce

            desc = InsertAllReduce("sum", bucket_bytes=sys.maxsize, overlap=False).apply(desc)
        if self._sync_natural_gradient:
            desc = with_common_estimates(desc)
        if options.double_precision:
            from ...framework.passes.precision.to_dtype import ToFloat64

            desc = ToFloat64().apply(desc)
        self._adopt(desc)
        step = Step(desc, self._shared, trace, self._workspaces)
        # Ranks meet other structures at other times: what they have in common is compared before.
        self._ranks.agreed.add(step.net.version)
        return step

    def _size_of_parameters(self, name: str) -> float:
        """The root mean square of a component's parameters."""
        from ..run.trace import root_mean_square

        listed = parts(name, updatable(self.nnet)[name])
        fields = [field for _, _, fields in listed for field in fields]
        return root_mean_square(*(self._shared.numpy(f) for f in fields if f in self._shared))

    def _adopt(self, net: OpList) -> None:
        """Put the variables into the shared scope that a new computation is the first to read."""
        for var in net.vars:
            if var.kind not in (PARAMETER, STATE) or var.name in self._shared:
                continue
            if var.kind == PARAMETER:
                component, path = self._component(var.name)
                value = getattr(*part_of(component, path))
            else:
                value = first_value(var)
            self._shared.var(var.name).set(np.array(value), dtype=var.dtype)

    def _component(self, variable: str) -> tuple[Any, str]:
        component, _, path = variable.partition("/")
        return self.nnet.components[component], path

    # Results

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of all components from now on; each has its own factor."""
        set_learning_rate(self.nnet, rate)
        for name, component in updatable(self.nnet).items():
            for path, part, _ in parts(name, component):
                if rate_name(path) in self._shared:
                    self._fill(rate_name(path), part.learning_rate)

    def set_max_param_change(self, bound: float) -> None:
        """Set the bound on the change of the whole model from now on; steps are recompiled."""
        if bound != self.options.max_param_change:
            self.options = replace(self.options, max_param_change=bound)
            self._forget_steps()

    def set_dropout_proportion(self, proportion: float) -> None:
        """Set the dropout proportion of all components from now on; steps are recompiled."""
        changed = False
        for component in self.nnet.components.values():
            if getattr(component, "dropout_proportion", proportion) != proportion:
                setattr(component, "dropout_proportion", proportion)  # noqa: B010
                changed = True
        if changed:
            self._forget_steps()

    def store(self) -> None:
        """Put parameters and statistics back into the network."""
        for name, component in updatable(self.nnet).items():
            for _, _, fields in parts(name, component):
                for field in fields:
                    if field in self._shared:
                        target = part_of(*self._component(field))
                        setattr(*target, self._shared.numpy(field).astype(np.float32))
        for name in self._statistics:
            set_statistic(*self._component(name), self._shared.numpy(name))

    def print_total_stats(self) -> bool:
        """Report the whole training; whether anything was trained on."""
        for name in sorted(self.objectives):
            for line in self.objective.total_lines(name, self.objectives[name]):
                self.log(line)
        for line in self.max_change.lines():
            self.log(line)
        return any(info.weight for info in self.objectives.values())

    # State

    def arrays(self) -> dict[str, np.ndarray]:
        """All that changes in training, by variable."""
        return {name: self._shared.numpy(name).copy() for name in self._shared.names()}

    def state(self) -> dict[str, Any]:
        """The plain numbers and names that a resumed training needs besides `arrays`."""
        return {
            "minibatches": self.minibatches,
            "seed": self._seed,
            "backstitch_turn": self._backstitch_turn,
            "objectives": {name: plain(info) for name, info in self.objectives.items()},
            "max_change": plain(self.max_change),
            "random": self._context.random_state(),
            "statistics": sorted(self._statistics),
        }

    def restore(
        self, state: dict[str, Any], arrays: dict[str, np.ndarray], what: str = "the state"
    ) -> None:
        """Continue from the results of `state` and `arrays`; `what` names them, for messages.

        Raises:
            FormatError: it is not the state of such a trainer.
        """
        saved = record(state, _State, what)
        if saved.max_change.names != list(self.max_change.names):
            raise FormatError(f"{what}: 'max_change': 'names' are not the components of this net")
        self.minibatches = saved.minibatches
        self._seed = saved.seed
        self._backstitch_turn = saved.backstitch_turn
        self.objectives = {
            name: ObjectiveInfo(**vars(info)) for name, info in saved.objectives.items()
        }
        held = saved.max_change
        self.max_change = MaxChangeStats(
            held.names,
            held.bounds,
            np.array(held.applied, np.int64),
            held.applied_globally,
            held.minibatches,
        )
        self._context.set_random_state(saved.random)
        self._statistics = set(saved.statistics)
        for name, array in arrays.items():
            self._shared.var(name).set(array)


def _described(nnet: Nnet, options: NnetTrainerOptions) -> dict[str, str]:
    """What the networks and options of ranks must have in common."""
    values = hashlib.sha256()
    for name, component in updatable(nnet).items():
        for _, part, fields in parts(name, component):
            for field in fields:
                leaf = field.rpartition("/")[2].rpartition(".")[2]
                values.update(np.ascontiguousarray(getattr(part, leaf)).tobytes())
    return {
        "options": repr(options),
        "network": "\n".join(nnet.config_lines()),
        "parameters": values.hexdigest(),
    }
