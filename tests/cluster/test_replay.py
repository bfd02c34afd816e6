# SPDX-License-Identifier: Apache-2.0
"""The checker of channels' logs finds errors."""

from __future__ import annotations

import pytest
from replay import Broken, replay

# Rank 0 sends message 7 in two segments: the first by link a, which dies, and the second by link b.
# Then it sends a message without credit.
SENDER = """
up a 0 in0 out0
up b 1 in0 out0
submit a 7 0 100 0 1
submit b 7 100 50 0 1
acked b 7 100 50
down a
submit b 7 0 100 1 1
copied out0 7 0 100
settled out0 7
acked b 7 0 100
granted out0 8
submit b 8 0 10 0 0
acked b 8 0 10
settled out0 8
"""
# Rank 1 still reads the first segment from link a when link b delivers it, too. Message 8 comes
# before rank 1 asks for it.
RECEIVER = """
up a 0 in1 out1
up b 1 in1 out1
placed in1 7 0 100
segment a 7 0 100 0
placed in1 7 100 50
segment b 7 100 50 0
landed b
received in1 7 100 50
dropped a 0
placed in1 7 0 100
segment b 7 0 100 1
landed b
received in1 7 0 100
completed in1 7 150
landed a
down a
segment b 8 0 10 0
landed b
received in1 8 0 10
completed in1 8 10
"""


PREFIX = "2026-01-01 00:00:00.000 nezha"
WHO = "[rank 0 of 2, host h0, pid 7]"


def log(steps: str) -> list[str]:
    return [f"{PREFIX} trace {WHO}: {step}" for step in steps.split("\n") if step]


def test_good_logs() -> None:
    others = [f"{PREFIX} info {WHO}: the link to rank 1 of 2 on eth0 is up", "chaos: words"]
    counts = replay([others + log(SENDER), log(RECEIVER) + others])
    assert counts["resent"] == 1
    assert counts["landed"] == 4


@pytest.mark.parametrize(
    ("line", "instead", "otherwise"),
    [
        ("down a", "", "before the fence"),
        ("submit b 7 0 100 1 1", "submit b 7 0 100 0 1", "an attempt is not counted"),
        ("submit a 7 0 100 0 1", "submit a 7 0 100 1 1", "it counts an attempt that was none"),
        ("submit b 7 0 100 1 1", "submit a 7 0 100 1 1", "the link is not up"),
        ("submit b 7 0 100 1 1", "submit b 7 100 50 1 1", "it was acknowledged before"),
        ("copied out0 7 0 100", "", "the only copy of (7, 0, 100) is given back"),
        ("settled out0 7", "settled out0 7\nsubmit b 7 150 9 0 1", "memory that was given back"),
        ("acked b 7 100 50", "acked b 7 0 100", "another one's turn"),
        ("granted out0 8", "", "neither charged nor granted"),
        ("settled out0 8", "settled out0 8\nup b 1 in0 out0", "was there before"),
        ("segment b 7 0 100 1", "segment b 7 0 99 1", "another one was placed"),
        ("dropped a 0", "", "two links write to the same memory"),
        ("dropped a 0", "dropped a 1", "there was none"),
        ("received in1 7 0 100", "received in1 7 0 100\nreceived in1 7 20 1", "it landed before"),
        ("received in1 7 0 100", "", "50 bytes were received"),
        ("completed in1 7 150", "completed in1 7 150\nreceived in1 7 0 100", "its memory was given back"),
        ("completed in1 7 150", "completed in1 7 150\nplaced in1 7 0 100", "its memory was given back"),
        ("completed in1 7 150", "completed in1 7 150\ncancelled in1 7", "it was closed before"),
        ("segment a 7 0 100 0", "segment a 7 0 100 0\ncancelled in1 7", "a link still writes"),
        ("landed a", "landed a\nlanded a", "there was none"),
        ("segment b 8 0 10 0", "segment b 8 0 10 0\nsegment b 8 0 10 0", "not what was sent"),
        ("down a", "down a\nlanded a", "the link is not up"),
        ("segment b 8 0 10 0", "segment b 8 0 11 0", "not what was sent"),
        ("segment b 8 0 10 0\nlanded b", "", "3 acknowledged, 2 landed"),
    ],
)
def test_corrupt_log(line: str, instead: str, otherwise: str) -> None:
    """One line of a log is changed, and the error names the rule that it breaks."""
    in_receiver = line in RECEIVER and not (line == "down a" and not instead)
    sender = SENDER if in_receiver else SENDER.replace(line, instead, 1)
    receiver = RECEIVER.replace(line, instead, 1) if in_receiver else RECEIVER
    assert (sender, receiver) != (SENDER, RECEIVER)
    with pytest.raises(Broken, match=otherwise.replace("(", r"\(").replace(")", r"\)")):
        replay([log(sender), log(receiver)])


UNDER_WAY = """
up a 0 in1 out1
placed in1 7 0 100
segment a 7 0 100 0
placed in1 7 100 50
segment a 7 100 50 0
segment a 8 0 10 0
landed a
received in1 7 0 100
"""


def test_several_under_way() -> None:
    """The checker knows what a link still writes, from the order of the segments."""
    replay([log(UNDER_WAY + "dropped a 0\nlanded a\ncancelled in1 7\nlanded a")])
    for dropped in ("", "dropped a 1\n"):
        with pytest.raises(Broken, match="a link still writes"):
            replay([log(UNDER_WAY + dropped + "cancelled in1 7")])
    with pytest.raises(Broken, match="same memory"):
        replay([log(UNDER_WAY + "up b 1 in1 out1\nplaced in1 7 120 10")])


def test_unknown_step() -> None:
    with pytest.raises(Broken, match="line 1, 'jumps a': there is no such step"):
        replay([log("jumps a")])
