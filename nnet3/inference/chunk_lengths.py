"""How long the chunks of an utterance are where its output does not depend on that.

Each chunk computes the network's context again, so long ones cost less; but each length is compiled
once, so there are only some lengths, which all utterances share.
"""

from __future__ import annotations

from functools import lru_cache

KALDIS_CHUNK = 50
"""Output frames of a chunk in Kaldi's programs, where no option says another number."""

_LONGEST = 32  # chunk, in shortest ones
_START = 30  # what a further chunk costs by itself, in input frames


@lru_cache(maxsize=4096)
def chunk_lengths(total: int, shortest: int, factor: int, context: int) -> tuple[int, ...]:
    """Lengths whose sum is at least `total`, at the least cost; longer ones first.

    Args:
        total: output frames of the utterance, counted after subsampling.
        shortest: output frames of the shortest chunk; the others are multiples of it.
        factor: input frames for one output frame.
        context: input frames that each chunk needs besides.
    """
    lengths = tuple(step * shortest for step in range(1, _LONGEST + 1))
    most = lengths[-1]
    whole = max(0, total // most - 1)
    return (most,) * whole + _best(total - whole * most, lengths, factor, context)[1]


@lru_cache(maxsize=4096)
def _best(
    total: int, lengths: tuple[int, ...], factor: int, context: int
) -> tuple[int, tuple[int, ...]]:
    """The least cost in input frames, and the lengths that have it."""
    choices: list[tuple[int, tuple[int, ...]]] = []
    alone = next((length for length in lengths if length >= total), None)
    if alone is not None and (alone - total) * factor < context + _START:
        # Several chunks cost more, even where their lengths fit exactly.
        return alone * factor + context + _START, (alone,)
    for length in lengths:
        cost = length * factor + context + _START
        if length >= total:
            choices.append((cost, (length,)))
            break
        if length * 6 >= total:
            smaller = tuple(one for one in lengths if one <= length)
            rest, others = _best(total - length, smaller, factor, context)
            choices.append((cost + rest, (length, *others)))
    return min(choices)


def of_programs(frames_per_chunk: int) -> int | None:
    """What a program computes with: its default is any length that gives the same."""
    return None if frames_per_chunk == KALDIS_CHUNK else frames_per_chunk


def rounded_up(count: int, most: int) -> int:
    """The next power of two, or one and a half of it, so that few lengths are to be compiled."""
    power = 1 << (count - 1).bit_length()
    return min(most, power * 3 // 4 if count <= power * 3 // 4 else power)
