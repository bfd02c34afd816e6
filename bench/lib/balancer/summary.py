# SPDX-License-Identifier: Apache-2.0
"""The tables at the end of bench/balancer."""

from lib.balancer.balance import (
    FAR,
    LEARNING,
    MODES,
    TRYING,
    WINDOW,
    Balance,
    Mode,
    Phase,
    lost,
    probe_operations,
    rails_used,
    settled_after,
)
from lib.shared.results import megabytes_per_second
from lib.shared.summary import columns
from lib.shared.units import size_text

NEVER = "never"
# The paper's results, with which the tables are compared.
PAPER = [
    "Nezha (the paper): two TCP networks are cold up to 128 KB on 2 nodes and 512 KB on 6, and in",
    "the hot state 34% to 84% better than one on 4 nodes (§V-B, Fig. 5); on two equal networks each",
    "carries half (§V-B1, Fig. 6). §IV-C has the policy; how fast it converges it does not say.",
]


def table(results: Balance) -> str:
    return "\n".join(
        [
            "",
            f"{results.title()}; {results.machine['cores']} cores",
            f"the change: {results.change_text()}",
            "",
            *_phases(results),
            "",
            *_starts(results),
            "",
            *PAPER,
            *("\n    ".join([f"{f['what']}: failed", *f["errors"]]) for f in results.failures),
        ]
    )


def _phases(results: Balance) -> list[str]:
    rail = results.change.rail
    names = ["phase", "", "settled", "near best", "lost", "ops", "probing", "slowest op", "final"]
    rows = [[*names, "MB/s", "of best", f"{rail} carries", "state"]]
    for name in ("start", "changed", "back"):
        best = results.best_of(name)
        for mode in results.measured():
            phase = next((each for each in results.phases(mode) if each.name == name), None)
            if phase:
                rows.append([name, *_row(results, mode, phase, best)])
        if best:
            share = best["shares"][list(results.rails).index(rail)]
            rate = megabytes_per_second(results.size, best["us"])
            empty = ["-"] * 6
            text = [f"{best['us'] / 1e3:.2f} ms", f"{rate:.1f}", "1.000", f"{share}%", ""]
            rows.append([name, "best fixed split", *empty, *text])
    return [
        *_lines("through the change", rows),
        "",
        "settled: how many operations it took until they were within 3% of the phase's final time; near",
        "best: until they were within 5% of the best fixed split's time; both by the medians of the next",
        f"{WINDOW} and {FAR} operations. lost: how many operations more the final speed would have done.",
        "final: the median of the last quarter. carries: the rail's part of what rank 0 sent. A change",
        f"takes {_change_time(results)} ms to make.",
    ]


def _row(results: Balance, mode: Mode, phase: Phase, best: dict | None) -> list[str]:
    settled = settled_after(phase.times, phase.final_us(), 0.03)
    near = settled_after(phase.times, best["us"], 0.05) if best else None
    final = phase.final_us()
    return [
        mode.label,
        NEVER if settled is None else str(settled),
        NEVER if near is None else str(near),
        f"{lost(phase.times):.0f}",
        str(len(phase.operations)),
        str(probe_operations(phase.operations)) if mode.key in LEARNING else "-",
        f"{max(phase.times[1:]) / 1e3:.1f} ms",
        f"{final / 1e3:.2f} ms",
        f"{megabytes_per_second(results.size, final):.1f}",
        f"{best['us'] / final:.3f}" if best else "-",
        f"{100 * phase.final_share(results.change.rail):.1f}%",
        phase.final_state() or "-",
    ]


def _change_time(results: Balance) -> str:
    times = [end - begin for run in results.runs.values() for begin, end in run["changes"]]
    return f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f}" if times else "?"


def _starts(results: Balance) -> list[str]:
    """Returns the table of the sizes that start from nothing: their final times and divisions."""
    sizes = sorted({start["bytes"] for start in results.starts})
    head = ["size"] + [f"{name} (µs)" for name in results.fixed]
    rows = [head + [text for key in LEARNING for text in (f"{key} (µs)", "carry %")]]
    for size in sizes:
        row = [size_text(size)] + [f"{times[size]:.0f}" for times in results.fixed.values()]
        for key in LEARNING:
            start = _start(results, key, size)
            row += [f"{start['us']:.0f}", _carried(start)] if start else ["-", "-"]
        rows.append(row)
    hot = [f"{mode.key} from {hot_from(results, mode)}" for mode in MODES if mode.key in LEARNING]
    return [
        *_lines("each size from nothing", rows),
        "",
        f"Over several rails: {', '.join(hot)}. The fastest rail and the fixed split learn nothing,",
        "the algorithm neither.",
    ]


def _lines(heading: str, rows: list[list[str]]) -> list[str]:
    lines = columns(heading, [list(column) for column in zip(*rows)])
    return [line.rstrip() for line in lines]


def _start(results: Balance, key: str, size: int) -> dict | None:
    found = (each for each in results.starts if each["mode"] == key and each["bytes"] == size)
    return next(found, None)


def _carried(start: dict) -> str:
    """Returns the state and the percentage that each rail carries, such as "cold 100/0"."""
    words = [word for word in start["learned"].split() if word != TRYING]
    state, lane = [*words, "", ""][:2]
    name = lane if lane == "stripes" else ""
    parts = "/".join(f"{100 * part:.0f}" for part in start["carried"])
    return " ".join(word for word in (state, name, parts) if word)


def hot_from(results: Balance, mode: Mode) -> str:
    """Returns the least size from which on all sizes go over several rails."""
    starts = [start for start in results.starts if start["mode"] == mode.key]
    least = None
    for start in sorted(starts, key=lambda start: start["bytes"], reverse=True):
        if rails_used(start["carried"]) < 2:
            break
        least = start["bytes"]
    return size_text(least) if least else "no size"
