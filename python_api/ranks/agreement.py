"""The ranks of a training: what they agree on, and what the first one does for all.

Every rank runs the same loop over the same steps. The first one leads: it measures, evaluates,
writes files and tells the others what follows. Of one rank alone nothing is asked here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...framework.base.backend import default_place
from ...framework.base.communicator import Communicator, SingleCommunicator
from ...framework.base.context import OpContext
from ...framework.base.errors import GradientError, OpscopeError, RanksError
from ...framework.base.options.settings import switch
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.files.saved import persistent_values
from ...framework.ir.names import RANK_WEIGHT
from ...framework.ir.op_list import OpList
from ...framework.ir.registry import lookup
from ...framework.parallel.handshake import handshake
from ...framework.parallel.launched import launched_ranks
from ...framework.passes.accumulate import AccumulateGradients
from ...framework.passes.pipeline import Pass, run_passes
from ...framework.passes.ranks.all_reduce import InsertAllReduce
from ...framework.passes.ranks.stages import has_stages
from ...framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from ...framework.passes.ranks.zero import ShardTraining
from ...framework.runtime.initialize import Owner
from ...framework.runtime.plain_net import PlainNet
from ...framework.training.history import PipelineRun
from .pipeline import OFF, ONE_F_ONE_B, Pipeline
from .sharded import ShardedValues
from .shards import Joining, Shards, pack, unpack
from .staged import StagedValues

MPI = "mpi"
_of_process: list[Communicator] = []  # the ranks of this MPI program, once they are asked for


def find_communicator(given: Any, context: OpContext | None) -> Communicator:
    """The communicator that `train` means.

    Args:
        given: a Communicator; "mpi"; None: from the context, or from `OPSCOPE_COMMUNICATOR`, which
            `opscope launch` sets, else this process alone.

    Raises:
        OpscopeError: it is something else, or mpi4py is not installed.
    """
    if isinstance(given, Communicator):
        return given
    if given is None and context is not None and context.communicator is not None:
        return context.communicator
    named = switch("OPSCOPE_COMMUNICATOR") if given is None else given
    if named == MPI:
        return _ranks_of_process()
    if given is not None:
        raise OpscopeError(f"train: communicator is a Communicator, {MPI!r} or None, not {given!r}")
    started = launched_ranks()
    if started > 1:
        warnings.warn(
            f"this is one of {started} processes, and trains alone, as each of them does: say"
            " communicator='mpi', or start them by `opscope launch`; SingleCommunicator() if that"
            " is meant",
            stacklevel=4,
        )
    return SingleCommunicator()


def _ranks_of_process() -> Communicator:
    """All processes of the MPI program; they end with it, and serve every training until then."""
    if not _of_process:
        from ...framework.parallel.mpi import MpiCommunicator

        _of_process.append(_between_gpus(MpiCommunicator()))
    return _of_process[0]


def _between_gpus(ranks: Communicator) -> Communicator:
    """NCCL's communicator where each rank has a GPU of its own, as `opscope launch` gives them."""
    place = default_place()
    if place.kind == "cpu" or ranks.size == 1 or switch("OPSCOPE_SHARED_GPUS"):
        return ranks
    nccl = getattr(place.xp.cuda, "nccl", None)
    has = bool(getattr(nccl, "available", False))
    # All or none: NCCL waits for every rank while it starts.
    if all(ranks.exchange(b"1" if has else b"")):
        from ...framework.parallel.nccl import NcclCommunicator

        return NcclCommunicator(ranks, place)
    if ranks.rank == 0:
        warnings.warn(
            "gradients go through the host, as CuPy has no NCCL on some rank: install"
            " nvidia-nccl-cu12 (or -cu13) beside it",
            stacklevel=6,
        )
    return ranks


class Ranks:
    """The ranks of one training, seen from one of them.

    Args:
        shard: whether every rank is given whole minibatches, of which it takes its part; else each
            is given its own.
        zero: what they share out beside minibatches: 0 nothing, 1 to 3 as `ShardTraining` says.
        accumulate: minibatches before each update.
        schedule: of a net that says its stages, `pipeline.SCHEDULES`.

    Attributes:
        alone: whether there is one rank only. leads: whether this is the first.
        pipeline: this rank's stage of the net, where ranks have one each.
        synchronized: the net that was prepared, with batch normalization as it was asked for.
    """

    def __init__(
        self,
        communicator: Communicator,
        shard: bool,
        zero: int = 0,
        accumulate: int = 1,
        schedule: str = ONE_F_ONE_B,
    ) -> None:
        self.communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.size
        self.alone = self.size == 1
        self.leads = self.rank == 0
        self._shard = shard
        self._zero = zero
        self.accumulate = accumulate
        self.pipeline: Pipeline | None = None
        self._schedule = schedule
        self._weighted = False
        self._sharded: ShardedValues | StagedValues | None = None
        self._passes: list[Pass] = []
        self.synchronized: OpList | None = None

    def prepare(
        self, net: OpList, sync_batch_norm: bool, steps: int | None, settings: Mapping[str, Any]
    ) -> PlainNet:
        """The net with sums over ranks, and all ranks' word that they run the same.

        A net that exchanges values already, by operators that the user has put there, stays.

        Raises:
            GradientError: it is not known how the ranks' losses combine to the total loss.
            RanksError: the ranks differ; the message says in what.
        """
        staged = has_stages(net) and not self.alone and self._schedule != OFF
        self._shards = Shards(net, self.rank, self.size)
        own = any(lookup(op.type).world for op in net.ops)
        if sync_batch_norm:
            net = run_passes(net, [SyncBatchNorm()])
        self.synchronized = net
        # A stage's sums are over some of the ranks, which begin and end a sum at once.
        exchange: Pass = InsertAllReduce(overlap=not staged)
        if own and (staged or (self._zero and not self.alone)):
            what = "a net with stages" if staged else f"zero={self._zero}"
            raise GradientError(
                f"train: {what} gets its own exchanges, and the net holds some already: give the"
                " net without them"
            )
        if staged and not self._shard:
            raise RanksError(
                "train: shard=False gives each rank minibatches of its own, and the stages of a net"
                f" want the same ones: leave it out, or say pipeline={OFF!r}",
                on_all=True,
            )
        if self._zero and not self.alone:
            if staged:
                raise GradientError(
                    f"train: zero={self._zero} shares out what the stages of a pipeline share out"
                    f" already: zero=0, or pipeline={OFF!r} for ranks that have all stages"
                )
            exchange = ShardTraining(stage=self._zero, ranks=self.size)
        try:
            self._passes += [] if own else [exchange]
            self._passes += [AccumulateGradients()] if self.accumulate > 1 or staged else []
            net_of_rank = run_passes(net, self._passes)
        except GradientError as error:
            if self._zero or self.accumulate > 1 or staged:
                raise
            raise GradientError(
                f"{error}; then train PlainNet(InsertAllReduce(weight=...).apply(net.op_list))"
            ) from None
        self._joining = Joining(net_of_rank)
        weights = [var for var in net_of_rank.vars if var.name == RANK_WEIGHT]
        self._weighted = bool(weights) and not staged
        if self.alone:
            return PlainNet(net_of_rank, check=False)
        if self._zero:
            self._sharded = ShardedValues(self.communicator, net, net_of_rank)
        settings = {"shard": self._shard, "size": self.size, "zero": self._zero, **settings}
        settings |= {"accumulate": self.accumulate, "pipeline": self._schedule}
        handshake(self.communicator, net_of_rank, steps=steps, settings=settings)
        if not staged:
            return PlainNet(net_of_rank, check=False)
        self.pipeline = one = Pipeline(self.communicator, net_of_rank, self._schedule)
        self._shards = Shards(net, one.replica, one.replicas)
        self._sharded = StagedValues(self.communicator, net, one.stages, one.stage)
        return one.net

    def finish(self, net: OpList, packed: bool) -> PlainNet:
        """A net with what `prepare` has put into the one that it was given.

        Args:
            packed: see `PlainNet`.
        """
        return PlainNet(run_passes(net, self._passes), check=False, packed=packed)

    @property
    def fetch(self) -> list[str]:
        """What must be read after each run, beside what is measured."""
        return [RANK_WEIGHT] if self._weighted else []

    # -- what the ranks tell each other ----------------------------------------------------------

    def of_first(self, value: Any) -> Any:
        """What the first rank gives, as JSON has it."""
        if self.alone:
            return value
        data = json.dumps(value).encode() if self.leads else b""
        return json.loads(self.communicator.exchange(data)[0])

    def of_all(self, value: Any) -> list[Any]:
        """What all ranks give, as JSON has it."""
        if self.alone:
            return [value]
        return [json.loads(one) for one in self.communicator.exchange(json.dumps(value).encode())]

    def pipeline_run(self) -> PipelineRun | None:
        """How the ranks have run the stages of the net; None where they had no stages."""
        one = self.pipeline
        if one is None:
            return None
        bubble = one.bubble(self.accumulate)
        waited = tuple(self.of_all(one.waited))
        return PipelineRun(
            one.stages.count, one.replicas, one.schedule, self.accumulate, bubble, waited
        )

    @property
    def all_evaluate(self) -> bool:
        """Whether every rank must run an evaluation, as each holds a part of the parameters."""
        return self._sharded is not None and self._sharded.parameters

    def takes(self, name: str) -> bool:
        """Whether it is a state of which no rank holds the whole; see `share_values`."""
        return self._sharded is not None and self._sharded.takes(name)

    def hold_back(self, scope: Scope) -> None:
        """Keep states that are shared out from being initialized whole."""
        if self._sharded is not None:
            self._sharded.hold_back(scope)

    def share_values(
        self,
        net: OpList,
        scope: Scope,
        context: OpContext,
        owner: Owner | None,
        given: Mapping[str, np.ndarray],
    ) -> None:
        """Give all ranks the first one's parameters and states, or to each its part of them.

        Args:
            given: states that the first rank has from a checkpoint, where they are shared out.
        """
        if self._sharded is None:
            self.share_whole(net, scope)
        else:
            self.share_whole(self._sharded.unsharded(net), scope)
            self._sharded.cut(scope, context, owner, given)

    def join_values(self, scope: Scope) -> None:
        """Let all ranks hold whole parameters and states again."""
        if self._sharded is not None:
            self._sharded.join(scope)
            self._sharded = None

    def forget(self, scope: Scope) -> None:
        """Leave no part of a gradient in the scope of a training that has failed."""
        if self._sharded is not None:
            self._sharded.forget(scope)

    def whole_values(self, net: OpList, scope: Scope) -> dict[str, np.ndarray]:
        """Parameters and states on the host of the first rank; all ranks must ask for them."""
        if self._sharded is not None:
            return self._sharded.whole_values(net, scope)
        return persistent_values(net, scope) if self.leads else {}

    def share_whole(self, net: OpList, scope: Scope) -> None:
        """Give all ranks the first one's parameters and states."""
        if self.alone:
            return
        for name, array in persistent_values(net, scope).items():
            value = np.array(array)
            self.communicator.broadcast(value)
            if not self.leads:
                variable = scope.get(name)
                owner = variable.origin
                variable.set(value)
                variable.origin = owner

    def share_random(self, context: OpContext, states: list[Any]) -> None:
        """Let each rank draw numbers of its own: its state of before, or one from the first's.

        Args:
            states: of the ranks that wrote the checkpoint, where there was one; of as many ranks as
                there are now they go on, of others they do not.
        """
        if self.alone:
            return
        first = self.of_first(context.random_state())
        if self.leads:
            return
        if len(states) == self.size:
            context.set_random_state(states[self.rank])
        else:
            text = json.dumps([first, self.rank], sort_keys=True).encode()
            seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
            context.set_random_state(OpContext(seed=seed).random_state())

    # -- steps -----------------------------------------------------------------------------------

    def parts(
        self,
        batches: Iterator[Mapping[Any, Any]],
        where: Callable[[], str],
        stopping: Callable[[], bool],
        *,
        whole: bool = False,
    ) -> Iterator[list[Mapping[Any, Any]] | None]:
        """This rank's parts of the minibatches, in the groups that it runs before it hears of the
        others: in a pipeline all of an update, else single ones; None where a rank wants to stop.

        Args:
            where: names the step, for messages.
            stopping: whether this rank wants to stop; asked after each step.
            whole: the minibatches are evaluated: by all ranks in step (`all_evaluate`), or by this
                one alone; they are not cut.

        Raises:
            RanksError: the ranks' data have different numbers of minibatches, or differ.
            ShapeError: a minibatch cannot be cut.
        """
        if self.alone or (whole and not self.all_evaluate):
            for batch in batches:
                yield [batch]
                if stopping():
                    yield None
            return
        cuts = self._shard and not whole
        # Stages of one net read the same minibatches, also of an evaluation.
        compares = cuts or self.pipeline is not None
        first = True
        while True:
            group = list(itertools.islice(batches, self.accumulate if self.pipeline else 1))
            mark = _mark(group[0]) if first and compares and group else 0
            said = self.of_all([len(group), mark, stopping()])
            if any(stop for _, _, stop in said):
                yield None
            has = [one[0] for one in said]
            if len(set(has)) > 1:
                fewest, most = has.index(min(has)), has.index(max(has))
                raise RanksError(
                    f"{where()}: rank {fewest} has no more minibatches, and rank {most} has: all"
                    " ranks must run equal numbers of steps",
                    on_all=True,
                )
            if not group:
                return
            marks = [one[1] for one in said]
            if len(set(marks)) > 1:
                other = next(n for n, one in enumerate(marks) if one != marks[0])
                raise RanksError(
                    f"{where()}: rank {other} is given another minibatch than rank 0: ranks share"
                    " minibatches, so that all must be given the same (is an order drawn without a"
                    " seed?); shard=False if each has its own",
                    on_all=True,
                )
            first = False
            yield [self._shards.part(batch, where()) for batch in group] if cuts else group

    def joined(
        self, values: dict[str, np.ndarray], rows: int, scope: Scope
    ) -> tuple[dict[str, np.ndarray], int]:
        """The values and rows of the whole minibatch, from this rank's part."""
        if self.alone:
            return values, rows
        weight = float(scope.numpy(RANK_WEIGHT)) if self._weighted else None
        parts = self.communicator.exchange(pack(values, rows, weight))
        return self._joining.join([unpack(part) for part in parts])


def _mark(batch: Mapping[Any, Any]) -> int:
    """A number that tells minibatches apart."""
    mark = 0
    if not isinstance(batch, Mapping):
        return mark  # cutting it refuses it
    for name in sorted(batch, key=str):
        value = batch[name]
        if isinstance(value, Sequences):
            value = value.data
        parts = value if isinstance(value, (list, tuple)) else [value]
        mark = zlib.crc32(str(name).encode(), mark)
        for part in parts:
            if isinstance(part, np.ndarray):
                mark = zlib.crc32(np.ascontiguousarray(part).tobytes(), mark)
    return mark
