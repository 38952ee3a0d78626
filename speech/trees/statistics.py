"""Statistics of HMM states in phonetic context: what decision trees are grown of, and their files.

Source: Kaldi's `tree/build-tree-utils.cc`, `tree/event-map.cc`, `hmm/tree-accu.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...kaldi.files.context_dependency import PDF_CLASS, EventMap, Leaf, Split
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.phone_segments import PhoneSplitter
from ...kaldi.files.transition_model import TransitionModel

Event = tuple[tuple[int, int], ...]
"""A state in context: (key, value), keys rising; keys are places of the window, -1 the class."""
ABSENT = -1
"""The value of a key that an event does not have."""


@dataclass(frozen=True, eq=False)
class TreeStats:
    """Statistics by event.

    Attributes:
        events: sorted.
        rows: float64, [events, 1 + 2 * dim]: see `gaussians`.
        floor: least variance of clusters.
    """

    events: tuple[Event, ...]
    rows: np.ndarray
    floor: float

    @classmethod
    def of(cls, rows: Mapping[Event, np.ndarray], floor: float) -> TreeStats:
        """Statistics of rows by event, in any order."""
        events = tuple(sorted(rows))
        return cls(events, np.array([rows[event] for event in events]), floor)

    @classmethod
    def read(cls, reader: Reader) -> TreeStats:
        """Read Kaldi's file of statistics, such as `treeacc`.

        Raises:
            FormatError: it is damaged, empty, or holds different variance floors.
        """
        start = reader.offset
        reader.expect_token("BTS")
        count = reader.read_int(4, signed=False)
        reader.check_left(count, "events of a decision tree")
        found: dict[Event, np.ndarray] = {}
        floors: list[float] = []
        for _ in range(count):
            place = reader.offset
            event = _read_event(reader)
            if not reader.read_bool():
                raise reader.error("an event without statistics", place)
            reader.expect_token("GCL")
            frames = reader.read_double()
            floors.append(reader.read_double())
            row = np.append(frames, reader.read_matrix(np.float64).ravel())
            if (found and len(row) != len(next(iter(found.values())))) or not len(row) % 2:
                raise reader.error("statistics of another dimension", place)
            if event in found or not np.isfinite(row).all() or frames < 0:
                raise reader.error("an event twice, or statistics that are no numbers", place)
            found[event] = row
        if not floors or not same_floor(min(floors), max(floors)):
            raise reader.error("no statistics, or some with different variance floors", start)
        return cls.of(found, floors[0])

    def write_to(self, writer: Writer) -> None:
        """Write them as Kaldi does."""
        end = "" if writer.binary else "\n"
        writer.write_token("BTS")
        writer.write_int(len(self.events), signed=False)
        for event, row in zip(self.events, self.rows, strict=True):
            writer.write_token("EV")
            writer.write_int(len(event), signed=False)
            for key, value in event:
                writer.write_int32(key)
                writer.write_int32(value)
            writer.write_raw(end)
            writer.write_bool(True)
            writer.write_token("GCL")
            writer.write_double(row[0])
            writer.write_double(self.floor)
            writer.write_matrix(row[1:].reshape(2, -1))
        writer.write_raw(end)

    @property
    def counts(self) -> np.ndarray:
        """Frames of each event, float64, [events]."""
        return self.rows[:, 0]

    @property
    def frames(self) -> float:
        """Frames of all events."""
        return float(self.counts.sum())

    def values(self, key: int) -> np.ndarray:
        """The value that each event has for a key, or `ABSENT`: int64, [events]."""
        found = (dict(event).get(key, ABSENT) for event in self.events)
        return np.fromiter(found, np.int64, len(self.events))

    def chosen(self, which: np.ndarray) -> TreeStats:
        """The statistics of some events, which keep their order."""
        events = tuple(self.events[i] for i in np.arange(len(self.events))[which].tolist())
        return TreeStats(events, self.rows[which], self.floor)

    def required(self, key: int) -> np.ndarray:
        """As `values`. Raises FormatError: an event does not have the key."""
        values = self.values(key)
        if len(values) and values.min() < 0:
            event = self.events[int(values.argmin())]
            raise FormatError(f"the event {shown_event(event)} of the statistics has no key {key}")
        return values

    def shifted(self, shift: int, old_width: int, width: int) -> TreeStats:
        """Statistics whose places are moved by `shift`, those outside of a window left out.

        Events may become equal; they are not summed.
        """
        moved = (
            tuple(
                (key + shift, value) if 0 <= key < old_width else (key, value)
                for key, value in event
                if not 0 <= key < old_width or 0 <= key + shift < width
            )
            for event in self.events
        )
        return TreeStats(tuple(moved), self.rows, self.floor)


def same_floor(floor: float, other: float) -> bool:
    """Whether two variance floors are one, perhaps written as text with 7 digits."""
    return abs(floor - other) <= 1e-6 * abs(floor)


def _read_event(reader: Reader) -> Event:
    start = reader.offset
    reader.expect_token("EV")
    count = reader.read_int(4, signed=False)
    reader.check_left(count, "keys of an event")
    event = tuple((reader.read_int32(), reader.read_int32()) for _ in range(count))
    keys = [key for key, _ in event]
    if keys != sorted(set(keys)) or any(value < 0 for _, value in event):
        raise reader.error("an event whose keys do not rise, or with a negative value", start)
    return event


def shown_event(event: Event) -> str:
    """An event for messages: `key:value` each."""
    return " ".join(f"{key}:{value}" for key, value in event)


def leaves(tree: EventMap, stats: TreeStats) -> np.ndarray:
    """The leaf that each event comes to, int64, [events].

    Raises:
        FormatError: an event comes to none.
    """
    found = np.full(len(stats.events), -1, np.int64)
    values: dict[int, np.ndarray] = {}
    waiting: list[tuple[EventMap | None, np.ndarray]] = [(tree, np.arange(len(stats.events)))]
    while waiting:
        part, which = waiting.pop()
        if part is None or not len(which):
            continue
        if isinstance(part, Leaf):
            found[which] = part.answer
            continue
        if part.key not in values:
            values[part.key] = stats.values(part.key)
        own = values[part.key][which]
        known = own != ABSENT
        if isinstance(part, Split):
            yes = np.isin(own, list(part.values))
            waiting += [(part.yes, which[known & yes]), (part.no, which[known & ~yes])]
        else:
            waiting += [
                (part.children[value], which[own == value])
                for value in np.unique(own[known & (own < len(part.children))]).tolist()
            ]
    if len(found) and found.min() < 0:
        event = shown_event(stats.events[int(found.argmin())])
        raise FormatError(
            f"the tree has no leaf for the event {event}: check that --context-width and"
            " --central-position match the statistics, and that phones without context"
            " (--ci-phones) share no roots with others"
        )
    return found


class TreeAccumulator:
    """Collects the statistics of features with alignments.

    Args:
        model: of the transition-ids.
        width: phones in the window. central: the place of the phone that a frame belongs to.
        context_independent: phones whose neighbors are not looked at, after mapping.
        phone_map: the number of each phone by its old one; empty: as it is.
    """

    def __init__(
        self,
        model: TransitionModel,
        width: int,
        central: int,
        context_independent: Iterable[int] = (),
        phone_map: Mapping[int, int] | None = None,
    ) -> None:
        self._splitter = PhoneSplitter(model)
        self._classes = _classes(model)
        self._width = width
        self._central = central
        self._alone = frozenset(context_independent)
        self._map = dict(phone_map or {})
        self.rows: dict[Event, np.ndarray] = {}

    def accumulate(self, ids: np.ndarray, features: np.ndarray) -> bool:
        """Add an utterance; False: its alignment begins or ends within a phone, it is left out.

        Args:
            ids: transition-ids, [frames]. features: [frames, dim].

        Raises:
            FormatError: an id or a phone is unknown. ShapeError: another dimension than before.
        """
        segments = self._splitter.split(ids)
        if not segments.whole:
            return False
        rows = np.empty((len(features), 1 + 2 * features.shape[1]))
        rows[:, 0] = 1
        rows[:, 1 : 1 + features.shape[1]] = features
        rows[:, 1 + features.shape[1] :] = features.astype(np.float64) ** 2
        known = next(iter(self.rows.values()), rows[0] if len(rows) else None)
        if known is not None and len(known) != rows.shape[1]:
            raise ShapeError(f"{features.shape[1]} columns after features of {len(known) // 2}")
        phones = [self._mapped(phone) for phone in segments.phones.tolist()]
        bounds = np.append(0, np.cumsum(segments.frames)).tolist()
        classes = self._classes[ids]
        for number in range(len(phones)):
            begin, end = bounds[number], bounds[number + 1]
            window = self._window(phones, number)
            own = classes[begin:end]
            for pdf_class in np.unique(own).tolist():
                event = ((PDF_CLASS, pdf_class), *window)
                total = self.rows.setdefault(event, np.zeros(rows.shape[1]))
                # Kaldi adds frame by frame; other orders of sums differ in last digits.
                part = rows[begin:end][own == pdf_class]
                np.add.at(total[None], np.zeros(len(part), np.int64), part)
        return True

    def _mapped(self, phone: int) -> int:
        if not self._map:
            return phone
        if phone not in self._map:
            raise FormatError(f"the map of phones does not have phone {phone}")
        return self._map[phone]

    def _window(self, phones: Sequence[int], number: int) -> Event:
        """The phones around one, 0 beyond the utterance; of a phone without context it alone."""
        central = self._central
        if phones[number] in self._alone:
            return ((central, phones[number]),)
        places = range(number - central, number - central + self._width)
        return tuple((j, phones[i] if 0 <= i < len(phones) else 0) for j, i in enumerate(places))


def _classes(model: TransitionModel) -> np.ndarray:
    """The class of the output of each transition-id, int64; number 0 has none."""
    classes = [ABSENT]
    for phone, place, *_ in model.tuples.tolist():
        state = model.entries[model.entry_of[phone]][place]
        classes += [
            state.self_loop if target == place else state.forward for target, _ in state.transitions
        ]
    return np.array(classes, np.int64)
