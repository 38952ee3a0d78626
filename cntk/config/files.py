"""Reading configs: files, `include=` lines, and CNTK's command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import open_file, path_text, read_bounded
from ..base.text import Chain, Source, Text, join, located
from .parameters import ConfigParameters
from .scan import lines, refuse_nul, strip_comments
from .value import ConfigArray, ConfigValue
from .variables import resolve

LARGEST = 1 << 26  # bytes of a config file
INCLUDE = "include="
DEEPEST = 100  # files that include one another


def read_source(path: str | Path, chain: Chain = ()) -> Source:
    """A text file as a source. A file that another one names (see `chain`) is no pipe and
    no device: these need not end.

    Raises:
        FormatError: it cannot be opened, or is larger than a config can be.
    """
    try:
        data = _bytes_of(path_text(path), bool(chain))
    except FormatError as error:
        text = str(error)
        cause = error.__cause__
        if isinstance(cause, OSError):
            text = f"error opening file '{path}': {cause.strerror}"
        raise located(type(error), text, None, chain) from None
    try:
        return Source(str(path), data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Source(str(path), data.decode("latin-1"))


def _bytes_of(path: str, listed: bool) -> bytes:
    with open_file(path, pipes=not listed) as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise FormatError(f"{path}: more than {LARGEST} bytes")
        return read_bounded(file, path, LARGEST)


def find_file(name: str, folders: Sequence[str | Path] = ()) -> Path:
    """The path of a file named in a config: in the first of `folders` (else the current folder)
    that has it. Backslashes count as slashes where there is no such file with them."""
    for written in dict.fromkeys((name, name.replace("\\", "/"))):
        for folder in folders or (Path(),):
            if os.path.exists(Path(folder) / written):
                return Path(folder) / written
    return Path(name)


def read_config_text(path: str | Path, chain: Chain = ()) -> Text:
    """A config file without comments."""
    return strip_comments(read_source(path, chain).whole())


class Reader:
    """Reads the files of one config; each is included once.

    Attributes:
        folders: where files named in the config are looked for: the current folder, then the
            folders of the files read so far.
        name: the name of the last file, which error paths start with.
    """

    def __init__(self, name: str = "global") -> None:
        self.name = name
        self.folders: list[Path] = [Path()]
        self.files: list[str] = []
        self.skipped: list[str] = []

    def read(self, name: str, chain: Chain = ()) -> Text:
        """One file without its comments; `include=` lines are not followed yet."""
        path = find_file(name, self.folders)
        text = read_config_text(path, chain)
        self.name = path.name
        if path.parent not in self.folders:
            self.folders.append(path.parent)
        return text

    def read_list(self, names: str) -> Text:
        """The files of a list joined by `+`, in order.

        Raises:
            FormatError: a file is missing, or given twice.
        """
        texts = []
        for name in filter(None, names.split("+")):
            if name in self.files:
                raise FormatError(
                    f"Cannot specify same config file multiple times at the command line: {name}"
                )
            self.files.append(name)
            texts.append(self.read(name))
        return join(texts)

    def include(self, text: Text, chain: Sequence[tuple] = ()) -> Text:
        """`text` with each line `include=a.cntk+b.cntk` replaced by those files.

        A file that was read already is not read again; its name is kept in `skipped`.
        """
        if INCLUDE not in text.string:
            return text
        if len(chain) > DEEPEST:
            raise located(FormatError, f"more than {DEEPEST} nested includes", text.locate(), chain)
        pieces: list[Text | str] = []
        for line in lines(text):
            if not line.string.startswith(INCLUDE):
                pieces += [line, "\n"]
                continue
            names = line.string[len(INCLUDE) :]
            place = line.locate()
            if "$" in names:
                raise located(
                    FormatError,
                    'Variable usage (eg, "$varName$") not supported in "include" statements. '
                    "Explicit path to config file must be provided",
                    line.locate(len(INCLUDE) + names.index("$")),
                    chain,
                )
            for name in filter(None, names.strip().strip('"').split("+")):
                if name in self.files:
                    self.skipped.append(name)
                    continue
                self.files.append(name)
                here = [("included at", place), *chain]
                pieces.append(self.include(self.read(name, here), here))
        return join(pieces)


def load_config(names: str | Path, extra: Iterable[str] = ()) -> ConfigParameters:
    """The config of one file, or of several joined by `+`, with further `name=value` lines."""
    return parse_command_line([f"configFile={names}", *extra])


def parse_config(text: str, name: str = "<string>") -> ConfigParameters:
    """The config of a text, includes followed."""
    reader = Reader(name)
    whole = reader.include(strip_comments(Source(name, text).whole()))
    return ConfigParameters(whole, name)


def parse_command_line(arguments: Sequence[str]) -> ConfigParameters:
    """The config of a command line: `configFile=a.cntk+b.cntk name=value currentDirectory=...`.

    Later values replace or are merged into earlier ones. `currentDirectory` replaces the current
    folder in the search for later files; the folder of this process stays.
    """
    reader = Reader()
    pieces: list[Text | str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key.lower() == "configfile":
            pieces.append(reader.read_list(value))
            continue
        if equals and key.lower() == "currentdirectory":
            folder = Path(value)
            if not os.path.isdir(folder):
                raise FormatError(f"Failed to set the current directory to '{value}'")
            reader.folders[0] = folder
        written = Source("<command line>", argument).whole()
        refuse_nul(written)
        pieces += [written, "\n"]
    text = reader.include(join(pieces))
    config = ConfigParameters(text, reader.name)
    config.folders = reader.folders
    return config


def load_into(config: ConfigParameters, path: str | Path) -> None:
    """Insert the values of a file into a section; older values are replaced, or merged."""
    config.parse(read_config_text(path))


def load_array(path: str | Path) -> ConfigArray:
    """An array from a file with one value a line, or any other form that arrays have."""
    return ConfigArray(ConfigValue(read_config_text(path), Path(path).name))


def load_resolved(name: str, config: ConfigParameters) -> Text:
    """A file named in a config (NDL, MEL), its `$name$` replaced by the values of the section."""
    path = find_file(name, config.search_folders())
    return resolve(read_config_text(path), config)
