"""The block without garbage collection leaves things as they were."""

import gc
import weakref

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


def test_many_objects_go_to_the_oldest_generation(many):
    gc.unfreeze()
    gc.collect()
    with gc_disabled():
        made = [Circle() for _ in range(2000)]
    assert gc.get_count()[0] < 1000
    last = weakref.ref(made.pop())
    gc.collect(0)
    assert last() is not None
    gc.collect()
    assert last() is None


def test_what_was_frozen_stays_so(many):
    gc.freeze()
    count = gc.get_freeze_count()
    with gc_disabled():
        made = [Circle() for _ in range(2000)]
    assert made and gc.get_freeze_count() == count > 0
