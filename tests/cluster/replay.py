# SPDX-License-Identifier: Apache-2.0
"""Replays what the ranks' channels logged (NEZHA_LOG=trace) against the rules of channel.pml.

A line of transport/trace.h is a step, then its fields:

  up LINK RAIL INBOX OUTBOX                         the link is up; both ends use this number for it
  down LINK                                         the link is fenced: it reads and writes no more
  submit LINK NUMBER OFFSET LENGTH ATTEMPT CHARGED  a segment of a message is given to the link
  acked LINK NUMBER OFFSET LENGTH                   the acknowledgement of a segment has come
  granted OUTBOX NUMBER                             the grant of a message has come
  copied OUTBOX NUMBER OFFSET LENGTH                from now on, a segment is sent from a copy
  settled OUTBOX NUMBER                             the sender may use the memory of the message
  placed INBOX NUMBER OFFSET LENGTH                 the payload of the segment in the next line
                                                    goes to the receiver's memory
  segment LINK NUMBER OFFSET LENGTH ATTEMPT         the header of a segment has come
  dropped LINK NTH                                  from now on, the NTH segment in flight is not
                                                    stored; 0 is the oldest
  landed LINK                                       the payload of the oldest segment is complete
  received INBOX NUMBER OFFSET LENGTH               bytes are final in the receiver's memory
  completed INBOX NUMBER BYTES                      all bytes of a message are final; its memory is
                                                    given back
  cancelled INBOX NUMBER                            the memory of a message is given back, because
                                                    nobody waits for the rest of it
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator

Segment = tuple[int, int, int]  # number, offset, length


class Broken(Exception):
    """A log shows what no correct channel does."""


@dataclasses.dataclass
class Link:
    """One end of a link."""

    inbox: str
    outbox: str
    is_up: bool = True
    submitted: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    acked: int = 0  # the number of submitted segments that are acknowledged
    begun: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    landed: int = 0  # the number of begun segments that have landed
    # For each segment in flight, oldest first: the receiver's memory that it writes to, if any.
    writes_to: list[Segment | None] = dataclasses.field(default_factory=list)

    def writes(self, segment: Segment) -> bool:
        return any(overlap(each, segment) for each in self.writes_to)


@dataclasses.dataclass
class Sent:
    """A segment that was given to links."""

    link: Link
    attempt: int
    acked: bool = False


class Rank:
    """Replays the log of one rank."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.links: dict[str, Link] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self._inboxes: dict[str, list[Link]] = collections.defaultdict(list)
        # The keys are an outbox or inbox, and the number of a message.
        self._sent: dict[tuple[str, int], dict[Segment, Sent]] = collections.defaultdict(dict)
        self._copied: dict[tuple[str, int], set[Segment]] = collections.defaultdict(set)
        self._received: dict[tuple[str, int], list[Segment]] = collections.defaultdict(list)
        self._granted: set[tuple[str, int]] = set()
        self._settled: set[tuple[str, int]] = set()
        self._closed: set[tuple[str, int]] = set()
        self._placed: tuple[str, Segment] | None = None
        for number, line in enumerate(lines, 1):
            said = re.search(r" trace \[[^]]*\]: (.+)", line)
            if not said:
                continue
            step = said[1]
            name, *fields = step.split()
            self.counts[name] += 1
            try:
                take = getattr(self, "_on_" + name, None)
                check(take is not None, "there is no such step")
                assert take
                take(*fields)
            except Broken as broken:
                raise Broken(f"line {number}, '{step.strip()}': {broken}") from None

    def _live(self, name: str) -> Link:
        link = self.links.get(name)
        check(link is not None and link.is_up, "the link is not up")
        assert link
        return link

    def _on_up(self, name: str, _rail: str, inbox: str, outbox: str) -> None:
        check(name not in self.links, "a link of that number was there before")
        self.links[name] = link = Link(inbox, outbox)
        self._inboxes[inbox].append(link)

    def _on_down(self, name: str) -> None:
        link = self._live(name)
        link.is_up = False
        self._inboxes[link.inbox].remove(link)

    # -- sending --

    def _on_submit(self, name: str, *fields: str) -> None:
        number, offset, length, attempt, charged = map(int, fields)
        link = self._live(name)
        link.submitted.append((number, offset, length, attempt))
        if not length:
            return
        message, segment = (link.outbox, number), (number, offset, length)
        before = self._sent[message].get(segment)
        if before:
            check(not before.acked, "it was acknowledged before")
            check(not before.link.is_up, "it is sent again before the fence of its link")
            check(attempt == before.attempt + 1, "an attempt is not counted")
            self.counts["resent"] += 1
        else:
            check(attempt == 0, "it counts an attempt that was none")
        check(bool(charged) or message in self._granted, "it is neither charged nor granted")
        if message in self._settled:
            check(segment in self._copied[message], "it is sent from memory that was given back")
        self._sent[message][segment] = Sent(link, attempt)

    def _on_acked(self, name: str, *fields: str) -> None:
        segment = as_segment(fields)
        link = self._live(name)
        due = link.submitted[link.acked : link.acked + 1]
        check([sent[:3] for sent in due] == [segment], "it was another one's turn")
        link.acked += 1
        if segment[2]:
            self._sent[link.outbox, segment[0]][segment].acked = True

    def _on_granted(self, outbox: str, number: str) -> None:
        self._granted.add((outbox, int(number)))

    def _on_copied(self, outbox: str, *fields: str) -> None:
        segment = as_segment(fields)
        self._copied[outbox, segment[0]].add(segment)

    def _on_settled(self, outbox: str, number: str) -> None:
        message = (outbox, int(number))
        self._settled.add(message)
        for segment, sent in self._sent[message].items():
            is_safe = sent.acked or segment in self._copied[message]
            check(is_safe, f"the only copy of {segment} is given back")

    # -- receiving --

    def _on_placed(self, inbox: str, *fields: str) -> None:
        segment = as_segment(fields)
        self._check_open(inbox, segment)
        for link in self._inboxes[inbox]:
            check(not link.writes(segment), "two links write to the same memory")
        self._placed = (inbox, segment)

    def _on_segment(self, name: str, *fields: str) -> None:
        link = self._live(name)
        header = tuple(map(int, fields))
        link.begun.append(header)
        if self._placed:
            check(self._placed == (link.inbox, header[:3]), "another one was placed")
        link.writes_to.append(self._placed[1] if self._placed else None)
        self._placed = None

    def _on_dropped(self, name: str, nth: str) -> None:
        link = self._live(name)
        check(int(nth) < len(link.writes_to), "there was none")
        link.writes_to[int(nth)] = None

    def _on_landed(self, name: str) -> None:
        link = self._live(name)
        check(link.landed < len(link.begun), "there was none")
        link.landed += 1
        link.writes_to.pop(0)

    def _on_received(self, inbox: str, *fields: str) -> None:
        segment = as_segment(fields)
        self._check_open(inbox, segment)
        bisect.insort(self._received[inbox, segment[0]], segment)

    def _on_completed(self, inbox: str, number: str, total: str) -> None:
        received = self._received[inbox, int(number)]
        count = sum(length for _, _, length in received)
        check(count == int(total), f"{count} bytes were received")
        self._on_cancelled(inbox, number)

    def _on_cancelled(self, inbox: str, number: str) -> None:
        message = (inbox, int(number))
        check(message not in self._closed, "it was closed before")
        for link in self._inboxes[inbox]:
            writes = any(each and each[0] == message[1] for each in link.writes_to)
            check(not writes, "a link still writes to its memory")
        self._closed.add(message)
        self._received.pop(message, None)

    def _check_open(self, inbox: str, segment: Segment) -> None:
        message = (inbox, segment[0])
        check(message not in self._closed, "its memory was given back")
        received = self._received[message]  # sorted
        place = bisect.bisect(received, segment)
        for other in received[max(0, place - 1) : place + 1]:
            check(not overlap(other, segment), f"it landed before, in {other}")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def as_segment(fields: Iterable[str]) -> Segment:
    number, offset, length = map(int, fields)
    return number, offset, length


def overlap(one: Segment | None, other: Segment) -> bool:
    if one is None or one[0] != other[0]:
        return False
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


def replay(logs: Iterable[Iterable[str]]) -> collections.Counter[str]:
    """Counts the steps of all ranks, and the segments that were sent again, as "resent". Raises
    Broken if the logs break a rule."""
    ranks = []
    for rank, log in enumerate(logs):
        try:
            ranks.append(Rank(log))
        except Broken as broken:
            raise Broken(f"rank {rank}, {broken}") from None
    for name, sender, receiver in ends(ranks):
        came = receiver.begun
        if came != sender.submitted[: len(came)]:
            raise Broken(f"link {name}: what came is not what was sent, in its order")
        if sender.acked > receiver.landed:
            raise Broken(f"link {name}: {sender.acked} acknowledged, {receiver.landed} landed")
    return sum((rank.counts for rank in ranks), collections.Counter())


def ends(ranks: list[Rank]) -> Iterator[tuple[str, Link, Link]]:
    """Yields each direction of each link."""
    by_name = collections.defaultdict(list)
    for rank in ranks:
        for name, link in rank.links.items():
            by_name[name].append(link)
    for name, links in by_name.items():
        if len(links) == 2:
            yield name, links[0], links[1]
            yield name, links[1], links[0]
