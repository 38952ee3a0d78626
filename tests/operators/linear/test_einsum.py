"""einsum: every form of equation against NumPy, gradients, refusals, and speed."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.testing import Case, OpTest

EQUATIONS = [
    ("i->", (4,)),
    ("i->i", (4,)),
    ("i", (4,)),
    ("ij->ji", (2, 3)),
    ("ji", (2, 3)),
    ("ij->j", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("iijj->ij", (2, 2, 3, 3)),
    ("->", ()),
    ("...->...", (2, 3)),
    ("...ij->...ji", (2, 2, 3)),
    ("i...->...", (2, 3, 2)),
    ("...", (2, 3)),
    ("...i->i...", (2, 3, 4)),
    ("i,i", (4,), (4,)),
    ("i,j->ij", (4,), (3,)),
    ("i,j->ji", (4,), (3,)),
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ji,kj->ik", (3, 2), (4, 3)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,j->i", (2, 3), (3,)),
    ("ij,k->ik", (2, 3), (4,)),
    ("ij,->ij", (2, 3), ()),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    ("bij,bkj->bik", (2, 3, 4), (2, 2, 4)),
    ("bij,jk->bik", (2, 3, 4), (4, 2)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 2, 2, 4)),
    ("bhqk,bkhd->bqhd", (2, 2, 3, 2), (2, 2, 2, 4)),
    ("abcd,cdef->abef", (2, 3, 2, 2), (2, 2, 2, 3)),
    ("abcd,dcef->feab", (2, 3, 2, 2), (2, 2, 2, 3)),
    ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (3, 3, 2)),
    ("...ij,jk", (2, 2, 3), (3, 2)),
    ("i...,i...->...", (2, 3), (2, 4, 3)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("bi,bi->b", (1, 3), (2, 3)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("iij,ji->i", (3, 3, 2), (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("a,b,c->abc", (2,), (3,), (2,)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
]


class TestEinsum(OpTest):
    type = "einsum"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")
    tolerance16 = 1e-2

    def cases(self, rng):
        for equation, *shapes in EQUATIONS:
            yield Case({"x": [rng.normal(size=shape) for shape in shapes]}, {"equation": equation})

    def reference(self, inputs, attrs):
        return {"out": np.asarray(np.einsum(attrs["equation"].replace(" ", ""), *inputs["x"]))}

    def test_dots_that_the_result_leaves_out_are_summed(self):
        case = Case({"x": [np.ones((2, 3, 4))]}, {"equation": "...i->i"})
        np.testing.assert_array_equal(self.output(case)["out"], [6, 6, 6, 6])

    def test_capitals_come_first(self):
        x = np.arange(6.0).reshape(2, 3)
        out = self.output(Case({"x": [x]}, {"equation": "bA"}))["out"]
        np.testing.assert_array_equal(out, x.T)

    @pytest.mark.parametrize(
        ("match", "equation", "shapes"),
        [
            ("letters for 2 operands and is given 1", "i,j->ij", [(2,)]),
            ("1 letters for operand 0, which has 2 dimensions", "i->i", [(2, 3)]),
            ("3 letters for operand 0, which has 2", "ijk->i", [(2, 3)]),
            ("'3' among the letters of operand 0", "i3->i", [(2, 3)]),
            ("'>' among the letters", "ij>i", [(2, 3)]),
            ("'.' among the letters", "..ij->i", [(2, 3)]),
            ("an axis 'k', which no operand has", "ij->ik", [(2, 3)]),
            ("two axes 'i'", "ij->ii", [(2, 3)]),
            ("the axis 'j' the sizes 3 and 4", "ij,jk->ik", [(2, 3), (4, 2)]),
            ("an axis of `...` the sizes 2 and 3", "...i,...i->...", [(2, 3), (3, 3)]),
            ("a diagonal along 'i' of sizes 2 and 3", "ii->i", [(2, 3)]),
        ],
    )
    def test_refuses(self, match, equation, shapes):
        self.refuses(match, {"x": [np.zeros(shape) for shape in shapes]}, {"equation": equation})

    def test_refuses_dtypes(self):
        given = {"x": [np.zeros(2), np.zeros(2, int)]}
        self.refuses("one floating dtype", given, {"equation": "i,i"})
