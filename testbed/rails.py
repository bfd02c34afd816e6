# SPDX-License-Identifier: Apache-2.0
"""The rails of a testbed, with their rates and their addresses."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Mapping

from system_tools import BedError

MGMT_NETWORK = 250  # 10.250.0.0/16 is the management network
MAX_RAILS = 100


@dataclasses.dataclass(frozen=True)
class Rail:
    name: str
    rate: str  # the rate at the start; set-rate changes the ports only
    network: int  # the index of the rail that began the network which this one is on
    place: int  # the number of rails of that network before this one
    bridge: str

    def address(self, host: int) -> str:
        return f"10.{self.network}.{self.place}.{host + 1}"

    def address6(self, host: int) -> str:
        return str(ipaddress.IPv6Address(f"fd{self.network:02x}::{self.place:x}:{host + 1:x}"))

    def port(self, host: int) -> str:
        """Returns the switch's end of a host's cable."""
        return f"{self.name}-h{host}"


MGMT = Rail("mgmt", "none", MGMT_NETWORK, 0, "br-mgmt")


def bits_per_second(rate: str) -> int:
    """Returns the bits per second of a rate as tc(8) writes it: 1gbit, 400mbit, 50mbps (bytes)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|bps|)", rate.lower())
    if not match or not float(match[1]):
        raise BedError(f"bad rate '{rate}': give one as in tc (1gbit, 400mbit), or 'none' for no shaping")
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}[match[2]]
    return round(float(match[1]) * scale * (8 if match[3] == "bps" else 1))


def check_rate(rate: str) -> None:
    if rate != "none":
        bits_per_second(rate)


def parse_rails(rails: Mapping[str, str]) -> list[Rail]:
    """Returns rails from {NAME: "RATE" or "RATE@OTHER"}; OTHER's network takes this rail, too."""
    parsed: dict[str, Rail] = {}
    for index, (name, value) in enumerate(rails.items()):
        rate, _, other = value.partition("@")
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", name) or name in ("lo", "mgmt"):
            raise BedError(f"'{name}' cannot name a rail: give up to 8 of a-z0-9, and not lo or mgmt")
        check_rate(rate)
        if not other:
            parsed[name] = Rail(name, rate, index, 0, f"br-{name}")
            continue
        if other not in parsed:
            raise BedError(f"rail '{name}': there is no rail '{other}' before it whose network it can share")
        network, bridge = parsed[other].network, parsed[other].bridge
        place = sum(rail.network == network for rail in parsed.values())
        parsed[name] = Rail(name, rate, network, place, bridge)
    if not 1 <= len(parsed) <= MAX_RAILS:
        raise BedError(f"a testbed has 1 to {MAX_RAILS} rails")
    return list(parsed.values())
