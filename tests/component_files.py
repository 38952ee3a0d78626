"""Components as bytes of files, and back."""

from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.components import Component


def as_bytes(component, binary):
    writer = Writer(binary)
    component.write(writer)
    return writer.getvalue()


def from_bytes(data):
    return Component.read_new(Reader(data))


def retyped(text, binary=False):
    """A component read from text."""
    return Component.read_new(Reader(text.encode(), binary=binary))
