"""Alignments of one model as those of another."""

from __future__ import annotations

import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.phone_segments import PhoneSplitter
from opscope.nnet3.chain.supervisions.converted_alignments import AlignmentConverter
from phone_models import Trained

PHONES = [1, 2, 1, 1]
FRAMES = [[2, 1], [1, 3], [1, 1], [3, 2]]


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("was", [True, False])
def test_every_frame_keeps_its_state(was, reorder):
    old, new = Trained(2, 1), Trained(2, 3)
    convert = AlignmentConverter(old.model, new.model, new.tree, reorder=reorder).convert
    found = convert(old.alignment(PHONES, FRAMES, was))
    assert found.tolist() == new.alignment(PHONES, FRAMES, reorder).tolist()
    assert not len(convert(found[:0]))


def test_phones_that_become_others():
    old, new = Trained(2, 1), Trained(3, 4)
    ids = old.alignment(PHONES, FRAMES, reorder=True)
    found = AlignmentConverter(old.model, new.model, new.tree, {1: 3, 2: 1}).convert(ids)
    assert found.tolist() == new.alignment([3, 1, 3, 3], FRAMES, reorder=True).tolist()
    for mapped, told in (({1: 1}, "phone 2 is not in the phone map"), ({1: 7}, "no phone 7")):
        with pytest.raises(FormatError, match=told):
            AlignmentConverter(old.model, new.model, new.tree, mapped).convert(ids)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("reorder", [True, False])
def test_fewer_frames(reorder, skips):
    """Whole phones of the wanted lengths, drawn where states are not known."""
    old, new = Trained(2, 1), Trained(2, 3, skips)
    convert = AlignmentConverter(old.model, new.model, new.tree, reorder=reorder).convert
    splitter = PhoneSplitter(new.model)
    ids = old.alignment(PHONES, [[9, 1], [1, 1], [1, 1], [3, 2]], reorder=True)  # 10, 2, 2, 5
    found = convert(ids, 2)  # 19 frames are 10, the first and every second one
    segments = splitter.split(found)
    assert segments.whole and segments.phones.tolist() == PHONES
    # 5, 1, 1, 3: states that cannot be skipped need a second frame, of the phone that is nearest
    wanted = [5, 1, 1, 3] if skips else [4, 2, 2, 2]
    assert segments.frames.tolist() == wanted
    pdfs = new.model.transitions().pdf[found]
    expected = new.model.transitions().pdf[new.alignment(PHONES, [[1, 1]] * 4, reorder=True)]
    assert set(pdfs.tolist()) <= set(expected.tolist())
    repeated = convert(ids, 2, repeat=True)
    assert len(repeated) == len(ids)
    for shift in range(2):
        assert splitter.split(repeated[shift::2]).whole


def test_alignments_that_cannot_be_converted():
    old, new = Trained(2, 1), Trained(2, 3)
    convert = AlignmentConverter(old.model, new.model, new.tree).convert
    ids = old.alignment(PHONES, FRAMES, reorder=True)
    with pytest.raises(ShapeError, match="begins or ends within a phone"):
        convert(ids[:-2])
    with pytest.raises(ShapeError, match="5 frames are too few for 4 phones"):
        convert(ids, 3)
    with pytest.raises(FormatError, match="a transition-id is none of 1 to 8"):
        convert(ids + 4)
