"""All special variable names are made and taken apart here, and nowhere else."""

from __future__ import annotations

GRAD_SUFFIX = "@GRAD"
ROWS_SUFFIX = "@ROWS"
_INNER = "@INNER@"
_SHARD = "@SHARD"
_AGAIN = "@AGAIN"
_STAGE = "stage:"
_MOST_DIGITS = 6
EMPTY = "@EMPTY@"
"""Stands in a slot that wants a variable where there is none (a gradient nothing needs)."""

SUM_OP = "sum"
FILL_OP = "fill_like"
CONCAT_OP = "concat"
DENSE_OP = "rows_to_dense"
COPY_OP = "assign"
MERGE_OP = "merge_rows"
CAST_OP = "cast"
SEED_OP = "loss_scale_seed"
CHECK_OP = "loss_scale_check"
RESCALE_OP = "loss_scale_update"
UNDO_OP = "loss_scale_undo"
COMMIT_OP = "loss_scale_commit"
SYNC_OP = "master_sync"
STORE_OP = "master_store"
ALL_REDUCE_OP = "all_reduce"
ALL_REDUCE_START_OP = "all_reduce_start"
ALL_REDUCE_WAIT_OP = "all_reduce_wait"
GATHER_ROWS_OP = "all_gather_rows"
SHARD_OP = "shard"
GATHER_SHARDS_OP = "all_gather_shards"
SCATTER_START_OP = "reduce_scatter_start"
SCATTER_WAIT_OP = "reduce_scatter_wait"
ALL_FINITE_OP = "all_finite"
SEND_OP = "send"
RECEIVE_OP = "receive"
COUNT_OP = "element_count"
TO_HOST_START_OP = "to_host_start"
TO_HOST_WAIT_OP = "to_host_wait"
FROM_HOST_START_OP = "from_host_start"
FROM_HOST_WAIT_OP = "from_host_wait"
BATCH_NORM_OP = "batch_norm"
BATCH_NORM_SUMS_OP = "batch_norm_sums"
BATCH_NORM_APPLY_OP = "batch_norm_apply"
"""Operators that the framework's own passes need: the registry must hold them."""

LOSS_SCALE = "optimizer@LOSS_SCALE"
"""The factor of a scaled loss."""
LOSS_SCALE_STEPS = "optimizer@LOSS_SCALE_STEPS"
"""Steps with finite gradients since the factor changed."""
UNSCALE = "optimizer@UNSCALE"
"""1 / the factor of this step."""
RANK_WEIGHT = "ranks@WEIGHT"
"""The weight of a rank's loss in the sum over all ranks."""
RANK_WEIGHT_TOTAL = "ranks@WEIGHT_TOTAL"
"""The sum of the weights of all ranks."""
FINITE = "optimizer@FINITE"
"""1 where all gradients of this step are finite, else 0; there only where steps can be skipped."""


def grad_name(name: str) -> str:
    """The gradient of the loss with respect to `name`."""
    return name + GRAD_SUFFIX


def grad_part_name(name: str, part: int) -> str:
    """One of several gradients of `name` that are summed afterwards."""
    return f"{name}{GRAD_SUFFIX}@RENAME@{part}"


def grad_version_name(name: str, version: int) -> str:
    """The gradient of a value of `name` that a later operator overwrote."""
    return f"{name}{GRAD_SUFFIX}@VERSION@{version}"


def rows_name(name: str) -> str:
    """The row numbers that belong to `name`, a gradient with rows for only a part of its table."""
    return name + ROWS_SUFFIX


def state_name(parameter: str, state: str) -> str:
    """An optimizer's state for one parameter: `w@ADAM_MOMENT1`, say."""
    return f"{parameter}@{state.upper()}"


def optimizer_name(what: str, number: int = 1) -> str:
    """What the updates of one optimizer share, `optimizer@LEARNING_RATE` say.

    `number`: which of the net's optimizers it is, from 1; later ones have it after their names.
    """
    return f"optimizer@{what.upper()}" + (f"@{number}" if number > 1 else "")


def all_ranks_name(name: str) -> str:
    """What all ranks have of `name` together."""
    return f"{name}@RANKS"


def shard_name(name: str) -> str:
    """What one rank holds of `name`, where each has a part."""
    return name + _SHARD


def whole_name(shard: str) -> str:
    """The variable of which `shard` is a rank's part; "" where it is none."""
    return shard.removesuffix(_SHARD) if shard.endswith(_SHARD) else ""


def accumulated_name(name: str) -> str:
    """The sum of `name` over the minibatches since the last update."""
    return f"{name}@ACCUMULATED"


def scattered_name(bucket: int, what: str) -> str:
    """What is on its way of a bucket of gradients that are summed and scattered."""
    return f"ranks@SCATTERED@{bucket}@{what.upper()}"


def ticket_name(bucket: int) -> str:
    """The ticket of a sum over ranks that was started, of a bucket of gradients."""
    return f"ranks@TICKET@{bucket}"


def sent_name(stage: int, role: int) -> str:
    """The ticket of what operators of a role send to a stage."""
    return f"ranks@SENT@{stage}@{role}"


def single_name(name: str) -> str:
    """`name`, of half precision, as an operator reads it that wants float32."""
    return f"{name}@SINGLE"


def unscaled_name(grad: str) -> str:
    """A gradient as updates read it: of the loss without its scale, for masters in float32."""
    return f"{grad}@UNSCALED"


def again_name(name: str) -> str:
    """`name`, computed a second time for the gradients."""
    return name + _AGAIN


def first_name(again: str) -> str:
    """The variable that is computed a second time as `again`; "" where it is none."""
    return again.removesuffix(_AGAIN) if again.endswith(_AGAIN) else ""


def primal_name(name: str) -> str:
    """The variable of whose gradient `name` is the whole, a part or a sum; "" where it is none."""
    primal, gradient, _ = name.partition(GRAD_SUFFIX)
    return primal if gradient else ""


def stage_device(stage: int) -> str:
    """The device of an operator that belongs to a stage of a pipeline."""
    return f"{_STAGE}{stage}"


def stage_of_device(device: str) -> int | None:
    """The stage of a pipeline that a device is; None where it is none."""
    number = device.removeprefix(_STAGE)
    is_stage = device.startswith(_STAGE) and number.isascii() and number.isdecimal()
    return int(number) if is_stage and len(number) <= _MOST_DIGITS else None


def like_name(name: str) -> str:
    """An input that has the shape of `name`, which another rank computes."""
    return f"{name}@LIKE"


def kept_name(name: str) -> str:
    """The variable that `name` holds a second time, see `again_name`; `name` itself if none."""
    return name.removesuffix(again_name(""))


def host_name(name: str, what: str) -> str:
    """What serves a copy of `name` that waits on the host."""
    return f"{name}@HOST@{what.upper()}"


def next_name(name: str) -> str:
    """What an update that may be skipped has computed for `name`."""
    return f"{name}@NEXT"


def inner_name(outer: str, part: str) -> str:
    """A variable inside the expansion of a composite operator, named after its output `outer`."""
    return f"{outer}{_INNER}{part}"


def outer_name(name: str) -> str:
    """The variable that an operator is expanded for, of a variable inside it; else ""."""
    outer, inner, _ = name.partition(_INNER)
    return outer if inner else ""


def delayed_name(previous: str, steps: int, *, copied: bool = False) -> str:
    """A memory's state of `steps` steps before, on the way to a `previous` that lies further back.

    `copied`: as the state that is handed on.
    """
    return f"{previous}@DELAY@{steps}" + ("@STATE" if copied else "")


def steps_name(net: str) -> str:
    """The variable for the values that a run of a recurrent net saves for its gradient."""
    return f"{net}@STEPS"


def carry_name(previous: str) -> str:
    """In the gradient of a step net: what arrives from later steps for the state of a memory."""
    return f"{previous}@CARRY"


def linked_grad_name(inner: str, link: int) -> str:
    """In the gradient of a step net: what arrives through an out-link."""
    return f"{inner}@LINK@{link}"
