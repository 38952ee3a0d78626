"""CTC in one kernel that goes over all steps, a block for each sequence (library "cuda")."""

from __future__ import annotations

import numpy as np

from ....framework.base.sequence import lengths_of
from ....framework.fusion.cuda.device_kernels import by_blocks, cuda_text, takes
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ...loss.ctc import ctc_loss, label_check, row_offsets
from ...sequence.sequences import offsets_in


def _ctc_loss(k: KernelArgs) -> Call | None:
    xp, x, label, out, slope = k.xp, k["x"], k["label"], k["out"], k.get("slope")
    rows, labels = row_offsets(k), offsets_in(k, "label")
    steps, counts = lengths_of(rows), lengths_of(labels)
    takes_all = x.size and label.size and x.dtype == out.dtype and takes(x, label, out, slope)
    if not takes_all or label.dtype.name not in ("int32", "int64"):
        return None
    classes, sequences = x.shape[-1], len(counts)
    cells = np.concatenate([[0], np.cumsum(steps * (2 * counts + 1))])
    shares = np.maximum(counts, 1) if k.attrs["per_label"] else np.ones(sequences)
    zero = k.attrs["zero_infinity"]
    starts = (xp.asarray(one.astype(np.int64)) for one in (rows, labels, cells[:-1]))
    states = 2 * len(label) + sequences
    doubles = int(rows[-1]) * classes, int(cells[-1]), 2 * states
    given = (
        *(x, label, *starts, xp.asarray(shares.astype(np.float64)), out, slope),
        *(k.scratch((size,), np.float64) for size in doubles),
        *(k.scratch((states,), np.int64), np.int64(classes), np.int64(k.attrs["blank"])),
        *(np.float64(0.0 if zero else np.inf), np.float64(0.0 if zero else np.nan)),
    )
    text = cuda_text("ctc").replace("LABEL", label.dtype.name)
    call = by_blocks(xp, text, "ctc_loss", x.dtype, sequences, given)
    return in_order(label_check(k, classes), call)


ctc_loss.kernel(_ctc_loss, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
