"""The block without garbage collection leaves things as they were."""

import gc

import pytest

from opscope.framework.base.python.gc_disabled import gc_disabled


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
