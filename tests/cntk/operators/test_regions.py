"""Max pooling of regions, beside loops over their parts."""

import numpy as np

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.testing import Case, OpTest


def rounded(value):
    """As C does: halves away from zero."""
    return int(np.trunc(value + np.copysign(0.5, value)))


class TestRegionPool(OpTest):
    type = "cntk.region_pool"
    grad = ("x",)

    def cases(self, rng):
        x = rng.permutation(2 * 3 * 6 * 8).reshape(2, 3, 6, 8) / 10
        regions = np.array(
            [
                [[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.5], [0.0625, 0.25, 0.3125, 0.25]],
                [[0.5, 0, 0.25, 0.375], [0.75, 0.5, 1, 0.75], [1, 0.25, 0.5, 0.5]],
            ]
        )
        for rows, cols in ((2, 2), (3, 1), (2, 5)):
            yield Case({"x": x, "regions": regions}, {"rows": rows, "cols": cols})

    def reference(self, inputs, attrs):
        x, regions, parts = inputs["x"], inputs["regions"], (attrs["rows"], attrs["cols"])
        height, width = x.shape[2:]
        shape = (len(x), regions.shape[1], x.shape[1], *parts)
        out, where = np.zeros(shape), np.full(shape, -1)
        for image, region, row, col in np.ndindex(len(x), regions.shape[1], *parts):
            left, top, wide, high = regions[image, region]
            places = []
            for first, length, part, count, size in (
                (top, high, row, parts[0], height),
                (left, wide, col, parts[1], width),
            ):
                step = max(rounded(length * size), 1) / count
                begin = rounded(first * size) + int(np.floor(part * step))
                end = rounded(first * size) + int(np.ceil((part + 1) * step))
                places.append(range(min(begin, size), min(end, size)))
            held = x[image][:, places[0]][:, :, places[1]].reshape(
                x.shape[1], len(places[0]) * len(places[1])
            )
            if held.size:
                out[image, region, :, row, col] = held.max(1)
                y, across = divmod(held.argmax(1), len(places[1]))
                at = np.array(places[0])[y] * width + np.array(places[1])[across]
                where[image, region, :, row, col] = at
        return {"out": out, "where": where}

    def test_equal_elements(self):
        """The first one, row by row."""
        case = next(self.cases(np.random.default_rng(0)))
        case = Case({**case.inputs, "x": np.zeros((2, 3, 6, 8))}, case.attrs)
        where = self.output(case)["where"]
        assert np.array_equal(where, self.reference(case.inputs, case.attrs)["where"])

    def test_refuses(self):
        x, regions = np.zeros((2, 3, 6, 8)), np.zeros((2, 1, 4))
        attrs = {"rows": 1, "cols": 1}
        self.refuses("rows of x and regions", {"x": x, "regions": regions[:1]}, attrs)
        self.refuses("numbers of a region", {"x": x, "regions": regions[..., :3]}, attrs)
