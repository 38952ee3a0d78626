"""How a list of utterances is cut into shards.

Utterances that are computed together give the same bits only where they stay together: the sums of
a matrix product can depend on its size. So utterances are put into groups first, by the list alone,
as one process would compute them; a shard is a run of whole groups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from .listing import Entry

Group = list[Entry]


def grouped(entries: Sequence[Entry], rows_together: int) -> list[Group]:
    """Utterances that are computed together: until they have `rows_together` rows.

    An utterance whose rows are not known is a group of its own.
    """
    groups: list[Group] = []
    waiting: Group = []
    rows = 0
    for entry in entries:
        if entry.rows < 0 and waiting:
            groups.append(waiting)
            waiting = []
            rows = 0
        waiting.append(entry)
        rows += entry.rows
        if entry.rows < 0 or rows >= rows_together:
            groups.append(waiting)
            waiting = []
            rows = 0
    return [*groups, waiting] if waiting else groups


def cut_into_shards(groups: Sequence[Group], count: int) -> list[list[Group]]:
    """At most `count` runs of groups with nearly equal rows, or utterances where rows are unknown.

    No shard is empty: of fewer groups there are fewer shards.
    """
    count = min(count, len(groups))
    known = all(entry.rows >= 0 for group in groups for entry in group)
    weights = [sum(entry.rows for entry in group) if known else len(group) for group in groups]
    ends = list(accumulate(weights))
    cuts = [0]
    for number in range(1, count):
        wanted = ends[-1] * number / count
        after = bisect_left(ends, wanted)  # the group in which the part ends
        before = ends[after - 1] if after else 0
        nearest = after + 1 if ends[after] - wanted <= wanted - before else after
        cuts.append(min(max(nearest, cuts[-1] + 1), len(groups) - (count - number)))
    cuts.append(len(groups))
    return [list(groups[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
