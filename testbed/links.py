# SPDX-License-Identifier: Apache-2.0
"""The lines for ip and tc that make a testbed's bridges, cables and shapers."""

from __future__ import annotations

from layout import Layout
from rails import MGMT, MGMT_NETWORK, Rail, bits_per_second


def bridge_lines(bed: Layout) -> list[str]:
    lines = ["link set dev lo up"]
    for bridge in {rail.bridge: None for rail in bed.networks()}:
        lines += [
            f"link add name {bridge} mtu {bed.mtu} type bridge"
            " stp_state 0 forward_delay 0 mcast_snooping 0",
            f"link set dev {bridge} up",
        ]
    if bed.mgmt:
        lines.append(f"addr add 10.{MGMT_NETWORK}.0.254/16 dev {MGMT.bridge}")
    return lines


def host_lines(bed: Layout, host: int) -> list[str]:
    lines = ["link set dev lo up"]
    for rail in bed.networks():
        if host in bed.hosts_on(rail):
            lines += interface_lines(bed, rail, host)
    return lines


def interface_lines(bed: Layout, rail: Rail, host: int) -> list[str]:
    lines = [
        f"link add name {rail.name} mtu {bed.mtu} type veth"
        f" peer name {rail.port(host)} netns {bed.namespace('sw')} mtu {bed.mtu}",
        f"link set dev {rail.name} {_gso_words(bed)}",
    ]
    if bed.ipv4 or rail is MGMT:
        lines.append(f"addr add {rail.address(host)}/16 dev {rail.name}")
    if bed.ipv6 and rail is not MGMT:
        lines.append(f"addr add {rail.address6(host)}/64 dev {rail.name}")
    lines.append(f"link set dev {rail.name} up")
    return lines


def switch_port_lines(bed: Layout) -> list[str]:
    return [
        switch_port_line(bed, rail, host)
        for rail in bed.networks()
        for host in bed.hosts_on(rail)
    ]


def switch_port_line(bed: Layout, rail: Rail, host: int) -> str:
    return f"link set dev {rail.port(host)} {_gso_words(bed)} master {rail.bridge} up"


def _gso_words(bed: Layout) -> str:
    return "gso_max_segs 1" if bed.gso is None else f"gso_max_size {bed.gso}"


def shaper_line(bed: Layout, device: str, rate: str) -> str:
    if rate == "none":
        return f"qdisc replace dev {device} root noqueue"
    bits = bits_per_second(rate)
    burst = bed.burst
    if burst is None:
        # The burst takes one packet (a train's headers count, too), and the bytes of 50 us, which a late
        # timer must not lose.
        train = 0 if bed.gso is None else bed.gso + bed.gso // 16
        burst = train + bed.mtu + 100 + bits // 8 // 20000
    return (
        f"qdisc replace dev {device} root tbf rate {bits}bit burst {burst}"
        f" latency {bed.queue_ms}ms"
    )
