"""The block without garbage collection leaves things as they were."""

import gc
import subprocess
import sys

import pytest

from opscope.framework.base.python import gc_disabled as module
from opscope.framework.base.python.gc_disabled import gc_disabled


class Circle:
    def __init__(self):
        self.own = self


@pytest.fixture
def many(monkeypatch):
    """A thousand objects are many; the tests have frozen what was there before."""
    monkeypatch.setattr(module, "_MANY", 1000)
    yield
    gc.freeze()


@pytest.mark.parametrize("on", [True, False])
def test_collection_goes_on_as_before(on):
    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with gc_disabled(), gc_disabled():
            assert not gc.isenabled()
        assert gc.isenabled() == on
        with pytest.raises(KeyError):
            gc_disabled()(dict().__getitem__)("missing")
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()


def run(text):
    """Run statements in a process of their own, in which few objects are searched."""
    text = f"import gc, weakref\nfrom {module.__name__} import gc_disabled\n" + text
    text += "\n"
    subprocess.run([sys.executable, "-P", "-c", text], check=True)


CIRCLES = """
import opscope.framework.base.python.gc_disabled as module
module._MANY = 1000
module._COUNTED = 10000

class Circle:
    def __init__(self):
        self.own = self
"""


def test_many_objects_go_to_the_oldest_generation():
    run(
        CIRCLES
        + """
with gc_disabled():
    made = [Circle() for _ in range(2000)]
assert gc.get_count()[0] < 1000
last = weakref.ref(made.pop())
gc.collect(0)
assert last() is not None
gc.collect()
assert last() is None
"""
    )


def test_garbage_of_a_program_does_not_grow_with_its_blocks():
    """Few objects are made between the blocks, too few for Python to search all by itself."""
    run(
        CIRCLES
        + """
garbage = []
for number in range(200):
    garbage.append(weakref.ref(Circle()))
    made = None
    with gc_disabled():
        made = [[] for _ in range(2000)]
        del made[1500:]
present = len(gc.get_objects())
blocks = present // 1500 + 2  # of which as many objects are moved as there are
left = sum(one() is not None for one in garbage)
assert left <= 2 * blocks < 150, (left, blocks)
assert gc.get_stats()[2]["collections"] <= 200 * 2000 // (present // 2)
"""
    )


def test_what_was_frozen_stays_so(many):
    """Others may end while the block runs, as with a thread's last frame: these live on."""
    kept = [Circle() for _ in range(2000)]
    gc.freeze()
    with gc_disabled():
        made = [Circle() for _ in range(2000)]
    assert made and gc.get_freeze_count() >= len(kept)


def test_objects_that_last_are_moved_where_they_are_few_and_start_no_search():
    run(
        CIRCLES
        + """
searches = gc.get_stats()[2]["collections"]
kept = []
for _ in range(20):
    with gc_disabled(lasting=True):
        kept.append([[] for _ in range(5000)])
    assert all(one is not kept[-1] for one in gc.get_objects(0))
assert gc.get_stats()[2]["collections"] == searches
assert not gc.get_freeze_count()
"""
    )


def test_names_that_are_looked_up_late_are_imported_without_a_search():
    code = """
import gc
from opscope import nnet3
searches = []
gc.callbacks.append(lambda phase, info: searches.append(info["generation"]))
nnet3.NnetComputer
assert not searches, searches
assert gc.isenabled()
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
