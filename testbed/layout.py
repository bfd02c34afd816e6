# SPDX-License-Identifier: Apache-2.0
"""The hosts, rails and ports of a testbed, with their names and addresses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rails import MGMT, Rail, parse_rails
from state import check_prefix, shared_folder, unused_prefix
from system_tools import BedError

MAX_HOSTS = 250  # a host's number plus 1 is the last byte of its IPv4 addresses


@dataclasses.dataclass(eq=False)
class Layout:
    """N hosts with K shaped rails; `testbed --help` says what each setting means.

    `rails` is {NAME: "RATE"} or {NAME: "RATE@OTHER"}, `without` lists "HOST:RAIL" ports to leave
    out, `gso` and `burst` are bytes (gso None: off; burst None: automatic). A testbed made
    without a prefix gets one of its own, so that any number of them can be up at once.
    """

    hosts: int
    rails: Mapping[str, str]
    _: dataclasses.KW_ONLY
    prefix: str = ""
    without: Sequence[str] = ()
    ranks_per_host: int = 1
    ipv4: bool = True
    ipv6: bool = False
    mgmt: bool = False
    mtu: int = 1500
    gso: int | None = 32768
    burst: int | None = None
    queue_ms: float = 10
    cc: str = "cubic"

    def __post_init__(self) -> None:
        self.prefix = check_prefix(self.prefix or unused_prefix())
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise BedError(f"a testbed has 1 to {MAX_HOSTS} hosts")
        if self.ranks_per_host < 1:
            raise BedError("a host has at least one rank")
        if not (self.ipv4 or self.ipv6):
            raise BedError("rails need IPv4 or IPv6 addresses")
        if not re.fullmatch(r"[a-z0-9_]+", self.cc):
            raise BedError(f"'{self.cc}' cannot name a congestion control")
        self._rails = parse_rails(self.rails)
        self._absent = {self._parse_port(port) for port in self.without}

    @property
    def shared(self) -> Path:
        """A folder that every host sees. It goes with the testbed, however its maker ends."""
        return shared_folder(self.prefix)

    def namespace(self, host: int | str) -> str:
        return f"{self.prefix}-sw" if host == "sw" else f"{self.prefix}-h{host}"

    def rails_of(self, host: int) -> list[Rail]:
        self.check_host(host)
        return [rail for rail in self._rails if host in self.hosts_on(rail)]

    def environment(
        self, host: int, local_rank: int = 0, ranks: int | None = None
    ) -> dict[str, str]:
        """Returns the variables that a command on this host gets."""
        ranks = ranks or self.ranks_per_host
        rails = self.rails_of(host)
        env = {
            "RANK": str(host * ranks + local_rank),
            "SIZE": str(self.hosts * ranks),
            "HOST": str(host),
            "LOCAL_RANK": str(local_rank),
            "RAILS": " ".join(rail.name for rail in rails),
            "NRAILS": str(len(rails)),
            "TESTBED_PREFIX": self.prefix,
        }
        for index, rail in enumerate(rails):
            env[f"RAIL{index}_NAME"] = rail.name
            if self.ipv4:
                env[f"RAIL{index}_ADDR"] = rail.address(host)
            if self.ipv6:
                env[f"RAIL{index}_ADDR6"] = rail.address6(host)
        if self.mgmt:
            env |= {
                "MGMT_NAME": MGMT.name,
                "MGMT_ADDR": MGMT.address(host),
                "MGMT_ADDR0": MGMT.address(0),
            }
        return env

    def hosts_text(self) -> str:
        """Returns an /etc/hosts: hH-NAME is a rail's address, and hH the mgmt's or the first rail's."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for host in range(self.hosts):
            entries = [(MGMT.address(host), f"h{host}")] if self.mgmt else []
            for rail in self.rails_of(host):
                names = f"h{host}-{rail.name}" + ("" if entries else f" h{host}")
                if self.ipv4:
                    entries.append((rail.address(host), names))
                if self.ipv6:
                    entries.append((rail.address6(host), names))
            lines += [f"{address} {names}" for address, names in entries]
        return "\n".join(lines) + "\n"

    def networks(self) -> list[Rail]:
        return [MGMT, *self._rails] if self.mgmt else self._rails

    def hosts_on(self, rail: Rail) -> list[int]:
        return [host for host in range(self.hosts) if (host, rail.name) not in self._absent]

    def check_host(self, host: int) -> None:
        if not 0 <= host < self.hosts:
            raise BedError(f"there is no host {host} (there are 0 to {self.hosts - 1})")

    def rail(self, name: str) -> Rail:
        for rail in self._rails:
            if rail.name == name:
                return rail
        raise BedError(f"no rail '{name}' (there are: {' '.join(r.name for r in self._rails)})")

    def _parse_port(self, text: str) -> tuple[int, str]:
        match = re.fullmatch(r"(\d+):(\w+)", text)
        if not match:
            raise BedError(f"bad port '{text}': give HOST:RAIL, such as 2:eth1")
        self.check_host(int(match[1]))
        return int(match[1]), self.rail(match[2]).name

    def ports(self, rail: str, host: int | None) -> list[tuple[Rail, int]]:
        """Returns one host's port on a rail, or all ports of the rail if host is None."""
        found = self.rail(rail)
        hosts = self.hosts_on(found)
        if host is None:
            return [(found, each) for each in hosts]
        self.check_host(host)
        if host not in hosts:
            raise BedError(f"host {host} has no port on rail '{rail}'")
        return [(found, host)]
