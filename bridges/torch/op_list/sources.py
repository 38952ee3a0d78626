"""Source of what modules of op lists are made of."""

from __future__ import annotations

from typing import Final

from ..helpers import STEPS

SOURCES: Final[dict[str, str]] = {
    "loop": '''def loop(step, states, rows, backward=False):
    """Run a loop over T: rows, a list of [N, T, ...], to the last states and what its steps give.

    A step takes and gives states [N, ...] and rows [N, ...].
    """
    rows = [(x.flip(1) if backward else x).transpose(0, 1) for x in rows]
'''
    + STEPS.replace("_, found = scan", "states, found = scan")
    + """    found = [x.transpose(0, 1) for x in found]
    return states, [x.flip(1) if backward else x for x in found]
""",
    "chained": '''def chained(x, delay):
    """Rows [N, T, C] as `delay` sequences for each of N: row t follows row t - delay.

    They have a step more than they need: torch.export takes the first one for a constant.
    """
    steps = torch.arange(0, x.shape[1] + delay, delay, device=x.device)
    blocks = steps[:, None] + torch.arange(delay, device=x.device)
    x = F.pad(x, (0, 0, 0, 2 * delay - 1))
    return x[:, blocks].permute(2, 0, 1, 3).flatten(0, 1)
''',
    "unchained": '''def unchained(x, delay, like):
    """What `chained` has made sequences of, as [N, C, T]; like has as many rows."""
    times = torch.arange(like.shape[2], device=x.device)
    x = x.unflatten(0, (delay, like.shape[0]))
    return x[times % delay, :, times // delay].permute(1, 2, 0)
''',
    "attention": '''def attention(query, key, value, scale, causal, *masks):
    """Dot products of queries and keys weigh values; where nothing is seen, the result is 0."""
    weights = query @ key.mT * scale
    if causal:
        seen = torch.ones(weights.shape[-2:], dtype=torch.bool, device=query.device).tril()
        masks = (seen, *masks)
    for mask in masks:
        if mask.dtype == torch.bool:
            weights = weights.masked_fill(~mask, -torch.inf)
        else:
            weights = weights + mask
    edge = weights.amax(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).min)
    powers = (weights - edge).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1.0) @ value
''',
    "padded": '''def padded(x, axis, before, after, mode):
    """x with copies of its own entries at both ends of an axis."""
    size = x.shape[axis]
    places = torch.arange(-before, size + after, device=x.device)
    if mode == "edge":
        places = places.clamp(0, size - 1)
    elif mode == "wrap":
        places = places % size
    else:
        turns = (places % (2 * size - 2)) if size > 1 else places * 0
        places = torch.where(turns < size, turns, 2 * size - 2 - turns)
    return x.index_select(axis, places)
''',
    "running": '''def running(x, axis, function, exclusive, backward, start):
    """Running sums or products along an axis; `start` is the sum or product of nothing."""
    x = x.flip(axis) if backward else x
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), start)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    found = function(x, axis)
    return found.flip(axis) if backward else found
''',
    "rotary": '''def rotary(x, angles, interleaved):
    """Pairs of columns of x turned by angles [..., columns / 2]."""
    sines, cosines = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    if interleaved:
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, -1)
    pairs = first * cosines - second * sines, first * sines + second * cosines
    return torch.stack(pairs, -1).flatten(-2) if interleaved else torch.cat(pairs, -1)
''',
    "angles": '''def angles(positions, width, base):
    """Positions times rates, [..., width / 2], in float64."""
    rates = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions.double().unsqueeze(-1) * base ** (-rates / width)
''',
    "context": '''def context(x, left, right, edge):
    """Rows of x [N, T, C] from `left` before to `right` after each, side by side."""
    t = x.shape[1]
    places = torch.arange(t, device=x.device)
    parts = []
    for by in range(-left, right + 1):
        part = x[:, (places + by).clamp(0, t - 1)]
        inside = ((places + by >= 0) & (places + by < t)).unsqueeze(-1)
        parts.append(part if edge else part * inside)
    return torch.cat(parts, 2)
''',
    "shifted": '''def shifted(x, by, start):
    """x [N, T, ...] as it was `by` rows before, or after where below 0; else `start`."""
    edge = torch.as_tensor(start, dtype=x.dtype, device=x.device)
    edge = edge.expand(x.shape[0], abs(by), *x.shape[2:])
    if by > 0:
        return torch.cat([edge, x], 1)[:, : x.shape[1]]
    return torch.cat([x, edge], 1)[:, -by:]
''',
    "scattered": '''def scattered(x, axis, ids, updates, add):
    """x with updates at the places `ids` along an axis; sizes of 1 are stretched."""
    shape = list(torch.broadcast_shapes(ids.shape, updates.shape))
    shape = [own if k == axis else x.shape[k] for k, own in enumerate(shape)]
    ids, updates = ids.expand(shape), updates.expand(shape).to(x.dtype)
    return x.scatter_add(axis, ids, updates) if add else x.scatter(axis, ids, updates)
''',
}
"""Name -> class or function."""


def needed(names: set[str]) -> list[str]:
    """Helpers, in their order."""
    return [name for name in SOURCES if name in names]
