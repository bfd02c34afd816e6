# SPDX-License-Identifier: Apache-2.0
"""The settings that a testbed makes in the kernel."""

from __future__ import annotations

import contextlib
from pathlib import Path

from layout import Layout


def network_settings(ipv6: bool) -> str:
    """Returns a script that makes the settings of a namespace.

    It runs before any interface is made there, because an interface takes the defaults when it is made.
    """
    values = {"ipv4/tcp_no_metrics_save": 1}  # no connection learns from one before it
    for which in ("all", "default"):
        values |= {
            # If two ports are on one network, each answers and asks with its own address only.
            f"ipv4/conf/{which}/arp_ignore": 1,
            f"ipv4/conf/{which}/arp_announce": 2,
            f"ipv4/conf/{which}/rp_filter": 0,
            f"ipv6/conf/{which}/disable_ipv6": int(not ipv6),
            f"ipv6/conf/{which}/accept_dad": 0,  # addresses are good at once
            f"ipv6/conf/{which}/accept_ra": 0,
            # An admin cut would otherwise lose the IPv6 addresses for good.
            f"ipv6/conf/{which}/keep_addr_on_down": 1,
        }
    lines = [
        f"[ ! -e /proc/sys/net/{key} ] || echo {value} > /proc/sys/net/{key}"
        for key, value in values.items()
    ]
    # A switch has no firewall, but each frame would pass that of this machine's bridges.
    for family in ("arp", "ip", "ip6"):
        path = f"/proc/sys/net/bridge/bridge-nf-call-{family}tables"
        lines.append(f"[ ! -e {path} ] || echo 0 2> /dev/null > {path} || true")
    return "\n".join(lines)


def make_room_for_neighbours(bed: Layout) -> None:
    """Makes room for the neighbours of all hosts.

    One table of the machine holds them, and a neighbour that does not fit has no route.
    """
    needed = 2 * len(bed.networks()) * bed.hosts**2  # other testbeds may be on the machine, too
    for family in ("ipv4", "ipv6"):
        for name in ("gc_thresh2", "gc_thresh3"):
            limit = Path(f"/proc/sys/net/{family}/neigh/default/{name}")
            with contextlib.suppress(OSError):  # It may not be writable here; a few hosts may fit.
                if int(limit.read_text()) < needed:
                    limit.write_text(str(needed))


def allow_congestion_control(name: str) -> None:
    """Allows a congestion control, because only allowed ones work outside the machine's first namespace."""
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    with contextlib.suppress(OSError):  # It may not be writable here; the name may be allowed already.
        names = allowed.read_text().split()
        if name not in names:
            allowed.write_text(" ".join([*names, name]))
