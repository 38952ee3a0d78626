"""The generated module of net.proto is loaded when something of it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import opscope
from opscope.framework.base.dtypes import WIRE_VALUES
from opscope.proto import net_pb2 as pb

LATE = """
import sys
sys.path.insert(0, {root!r})
from opscope.proto import net_pb2 as pb
from opscope.framework.ir import desc
assert "google.protobuf" not in sys.modules
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as team:
    found = set(team.map(lambda _: id(pb.NetDesc), range(64)))
from opscope.proto.net_pb2 import NetDesc
assert found == {{id(NetDesc)}} and desc.NetDesc is NetDesc and pb.NetDesc(name="a").name == "a"
try:
    pb.Nothing
except AttributeError as error:
    print(error)
"""


def test_it_is_loaded_on_use_by_any_number_of_threads():
    root = str(Path(opscope.__file__).resolve().parent.parent)
    command = [sys.executable, "-P", "-c", LATE.format(root=root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "net_pb2' has no attribute 'Nothing'" in done.stdout


def test_wire_values_of_dtypes_are_those_of_the_proto():
    wanted = {name.lower(): value for name, value in pb.DataType.items() if value}
    assert wanted == WIRE_VALUES
