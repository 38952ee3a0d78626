"""Attention over a memory sequence: where in it to look, decided anew by each query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from .variable import Var

KINDS = ("dot", "additive")


class Attention:
    """Attention of NetBuilder, which provides what it stands on."""

    if TYPE_CHECKING:
        dtype: np.dtype
        fc: Callable[..., Var]
        matmul: Callable[..., Var]
        reduce_sum: Callable[..., Var]
        sequence_expand: Callable[..., Var]
        sequence_pool: Callable[..., Var]
        sequence_softmax: Callable[..., Var]
        tanh: Callable[..., Var]
        parameter: Callable[..., Var]
        unique_name: Callable[[str], str]
        shape_of: Callable[[str], tuple[int, ...] | None]

    def attention(
        self,
        query: Var | str,
        memory: Var | str,
        *,
        keys: Var | str | None = None,
        kind: str = "dot",
        size: int = 0,
        scale: float = 1.0,
        init: Any = "xavier",
        lr_factor: float | None = None,
        name: str = "",
    ) -> tuple[Var, Var]:
        """Attention of each query over its own sequence of the memory.

            dot:       e_t = scale (query . keys_t)
            additive:  e_t = tanh(query w_q + keys_t) . v
            a = softmax of e over the sequence,    context = sum_t a_t memory_t

        Inside a step the query is a state and the memory a static variable, such as the outputs of
        an encoder: then compute `keys` outside of the step, once.

        Args:
            query: [sequences, Q], a row for each sequence of the memory.
            memory: sequences [rows, M].
            keys: sequences [rows, A] like the memory. By default dot takes the memory itself, and
                additive memory w_k.
            kind: "dot", where Q = A, or "additive".
            size: additive: width A; may be left away where `keys` are given.
            init, lr_factor: of the parameters `name.q.w` [Q, A], `name.v` [A, 1], `name.k.w`.

        Returns:
            context [sequences, M], and the weights a, sequences [rows, 1].

        Source: D. Bahdanau, K. Cho and Y. Bengio, Neural machine translation by jointly learning to
        align and translate; M.-T. Luong, H. Pham and C. D. Manning, Effective approaches to
        attention-based neural machine translation.
        """
        if kind not in KINDS:
            raise AttributeTypeError(f"attention: kind is one of {', '.join(KINDS)}, not {kind!r}")
        name = name or self.unique_name("attention")
        shared = {"init": init, "lr_factor": lr_factor}
        if kind == "dot":
            looked_at = memory if keys is None else keys
            self._check_dot(name, query, looked_at)
            spread = self.sequence_expand(query, looked_at)
            scores = self.reduce_sum(spread * looked_at, axes=[1], keepdims=True)
            scores = scores if scale == 1.0 else scores * scale
        else:
            if keys is None:
                if size < 1:
                    raise AttributeTypeError(f"attention {name!r}: additive wants `keys` or a size")
                keys = self.fc(memory, size=size, bias=False, name=f"{name}.k", **shared)
            known = self.shape_of(str(keys))
            width = known[-1] if known else -1
            if width < 1 or size not in (0, width):
                raise ShapeError(
                    f"attention {name!r}: keys {str(keys)!r} {format_shape(known)} do not have the"
                    f" width {size or 'that the parameters need'}"
                )
            asked = self.fc(query, size=width, bias=False, name=f"{name}.q", **shared)
            v = self.parameter(f"{name}.v", [width, 1], init, lr_factor=lr_factor)
            scores = self.matmul(self.tanh(self.sequence_expand(asked, keys) + keys), v)
        weights = self.sequence_softmax(scores, name=f"{name}.weights")
        return self.sequence_pool(weights * memory, pool_type="sum", name=name), weights

    def _check_dot(self, name: str, query: Any, keys: Any) -> None:
        one, two = self.shape_of(str(query)), self.shape_of(str(keys))
        if one and two and one[-1] != two[-1] and min(one[-1], two[-1]) >= 0:
            raise ShapeError(
                f"attention {name!r} (dot): query {str(query)!r} {format_shape(one)} and keys"
                f" {str(keys)!r} {format_shape(two)} have different widths"
            )
