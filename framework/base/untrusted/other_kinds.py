"""Files that people take for a saved net, recognized by their first bytes."""

from __future__ import annotations

_BEGINNINGS = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF",
    b"\x93NUMPY": "an array of NumPy's (.npy)",
    b"PK\x03\x04": "a zip file, such as an .npz or what torch.save writes",
    b"\x1f\x8b": "a gzip file, to be unpacked first",
    b"\x89HDF": "an HDF5 file, such as Keras writes",
    **{bytes((0x80, n)): "a pickle, which opscope never loads" for n in range(2, 6)},
    b"\0B": "a binary file of Kaldi's",
    b"B\0C\0": "a model of CNTK's",
}
"""First bytes of files that people take for a net -> what they are."""


def other_kind(data: bytes) -> str:
    """What a file that is no net is instead, as far as its first bytes tell."""
    kind = next((kind for first, kind in _BEGINNINGS.items() if data.startswith(first)), "")
    text = data[:100].decode("utf-8", "replace").replace("\n", " ").replace("\t", " ")
    if text and text.isprintable() and "\ufffd" not in text:
        kind = "text"
    return f"it begins like {kind}; opscope.save writes nets" if kind else ""
