"""The wire form that is written without messages is that of protobuf."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.ir.desc import attr_bytes, encode_attr
from opscope.framework.ir.wire import Field, Pattern, delimited, varint
from opscope.proto import net_pb2 as pb

NAMES = st.text(max_size=200)
OPS, TYPE = pb.NetDesc.OPS_FIELD_NUMBER, pb.OpDesc.TYPE_FIELD_NUMBER
INPUTS, VARS = pb.OpDesc.INPUTS_FIELD_NUMBER, pb.OpDesc.Slot.VARS_FIELD_NUMBER


@given(st.integers(0, 2**40))
def test_varint(number):
    wire = pb.VarDesc(sequence_levels=number % 2**32).SerializeToString()
    assert wire.endswith(varint(number % 2**32)) or number % 2**32 == 0
    assert len(varint(number)) == max(1, -(-number.bit_length() // 7))


@settings(max_examples=50)
@given(NAMES, NAMES, NAMES)
def test_a_pattern_is_filled_with_strings_of_any_length(a, b, c):
    slot = Field(VARS, (1, b"/%s")), Field(VARS, (0,)), Field(VARS, (1,)), Field(VARS, (-1,))
    pattern = Pattern(Field(OPS, (delimited(TYPE, b"100% add"), Field(INPUTS, slot))))
    for strings in ((a, b, c), (c, a, b), (a, b, c)):
        net = pb.NetDesc.FromString(pattern.fill(tuple(name.encode() for name in strings)))
        assert net.ops[0].type == "100% add"
        first, second, last = strings
        assert list(net.ops[0].inputs[0].vars) == [second + "/%s", first, second, last]


@pytest.mark.parametrize(
    "value",
    [np.arange(6, dtype=np.int32).reshape(2, 3).T, np.zeros((0, 3)), np.float32(2), True, "x", [1]],
)
def test_attributes(value):
    assert pb.Attr.FromString(attr_bytes(value)) == encode_attr(value)
