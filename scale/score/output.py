"""Where scores go: shards in a folder with a list over all, or one table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...framework.base.errors import FormatError, OpscopeError, SaveError
from ...framework.base.files.atomic import check_writable, write_atomically
from ...framework.base.untrusted.opener import open_file, real_path
from ...kaldi.tables.specifiers import WriteSpecifier, is_specifier
from ...kaldi.tables.tables import TableWriter
from .folder import Finished, Manifest, ScoreFolder, Written, digests

_LIST = "scores.scp"


class Output:
    """What the user named as the output.

    Args:
        text: a wspecifier such as `ark,scp:out.ark,out.scp`, or a folder.
        work: the folder for shards; empty: beside the table, or the output itself.

    Attributes:
        work: the folder of the scoring. binary: the form of the scores.

    Raises:
        FormatError: it is no output. OpscopeError: nothing says where shards can lie meanwhile.
    """

    def __init__(self, text: str, work: str) -> None:
        self.text = text
        self.binary = True
        self.work = work
        self._table: WriteSpecifier | None = None
        if is_specifier(text):
            self._table = WriteSpecifier.parse(text)
            self.binary = self._table.binary
            name = self._table.archive or self._table.script or ""
            if not work and (name in ("", "-") or name.startswith("|")):
                raise OpscopeError(f"{text!r} is no file: name a folder for shards with --work")
            self.work = work or f"{name}.score"
            return
        if text.endswith((".ark", ".scp")) or os.path.isfile(text):
            raise FormatError(f"{text}: for one archive write ark:{text}; else name a folder")
        if work:
            raise OpscopeError(f"--work: {text} is a folder, in which the shards lie")
        self.work = text

    @property
    def _files(self) -> list[str]:
        """The plain files that the table is written to."""
        if self._table is None or self._table.archive is None:
            return []
        names = [self._table.archive, self._table.script]
        return [name for name in names if name and name != "-" and not name.startswith("|")]

    def check(self, inputs: Iterable[str]) -> None:
        """Find out before any work whether the output can be written.

        Args:
            inputs: paths of files that are read.

        Raises:
            SaveError: it cannot, or would replace an input.
        """
        read = {real_path(path): path for path in inputs}
        for name in self._files:
            if real_path(name) in read:
                raise SaveError(f"cannot write {name}: {read[real_path(name)]} is read")
            check_writable(name)

    def is_complete(self, manifest: Manifest | None) -> bool:
        """Whether a table is there as this manifest says it was written."""
        known = None if manifest is None else manifest.output
        files = self._files
        if manifest is None or known is None or known.name != self.text or not files:
            return False
        sizes = [one.bytes or 0 for one in manifest.shards]
        if digests(files[0], sizes) != [one.sha256 for one in manifest.shards]:
            return False
        return known.script == _digest_of(files[1:])

    def write(self, folder: ScoreFolder, records: Sequence[Finished]) -> Written:
        """Make the output of the shards; returns what the manifest says of it.

        Raises:
            SaveError: it cannot be written; what was there before is untouched.
        """
        if self._table is None:
            self._write_list(folder, records)
            return Written(self.text, _digest_of([folder.at(_LIST)]))
        with TableWriter(self.text, "matrix") as writer:
            for number, record in enumerate(records, 1):
                with open_file(folder.archive(number)) as file:
                    if self._table.archive is not None:
                        entries = ((key, offset) for key, offset, _ in record.entries)
                        writer.append_archive(file, entries)
                        continue
                    for key, offset, size in record.entries:
                        file.seek(offset)
                        writer.write_encoded(key, file.read(size))
        return Written(self.text, _digest_of(self._files[1:]))

    @property
    def keeps_shards(self) -> bool:
        """Whether shards are needed when the output is written: in a folder they are the output,
        and what went through a pipe cannot be looked up again."""
        return not self._files

    def _write_list(self, folder: ScoreFolder, records: Sequence[Finished]) -> None:
        lines = [
            f"{key} {folder.archive(number)}:{offset}\n"
            for number, record in enumerate(records, 1)
            for key, offset, _ in record.entries
        ]
        write_atomically(folder.at(_LIST), "".join(lines).encode("utf-8", "surrogateescape"))


def _digest_of(paths: Sequence[str]) -> str:
    """SHA-256 of the one file, if there is one."""
    return "".join(one for path in paths for one in digests(path))
