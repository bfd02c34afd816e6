# SPDX-License-Identifier: Apache-2.0
"""The reports of nezha on rails, of the load balancer, of the host and of the launcher."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RailStats:
    """The counters of one rail of this process so far. Contexts that share a rail share the counters."""

    name: str
    """The rail's name."""
    bytes_sent: int
    """Payload bytes written to the rail. Bytes that were sent again count again."""
    bytes_received: int
    """Payload bytes read from the rail."""
    segments_resent: int
    """Segments that other rails sent again because a link on this rail had died."""
    failures: int
    """Links to other ranks that died on this rail."""
    reconnections: int
    """Links that were made again after a link to the same rank had died."""
    last_failure: str
    """To which rank, and why, the last link died. Empty if none has."""
    rate: float
    """The learned rate of the rail's links, in bytes per second. 0 while nothing is known."""
    down_peers: int
    """How many ranks have the rail and exchange messages with this rank, but have no link to it now."""
    down_seconds: float
    """How long the rank among them that has had no link for longest has had none."""
    last_error: str
    """Which rank that is, and what went wrong last. Empty if `down_peers` is 0."""
    lossy_peers: int
    """To how many ranks the rail has a link that loses about 3% of its packets or more."""


@dataclasses.dataclass(frozen=True)
class SizeClassStats:
    """The division of the messages of one size class."""

    least_bytes: int
    """The class has messages of this many bytes to less than twice as many."""
    shares: list[float]
    """The part of a message that each lane of BalanceStats carries, from 0 to 1."""
    algorithm: str
    """The algorithm, if it is not the one that "auto" has by size and number of ranks. Else empty."""
    number: int
    """How often shares or algorithm have changed, counted from 1."""
    state: str
    """"searching", "cold", "hot" or "converged" at rank 0. Empty elsewhere, as all fields below are
    empty or 0."""
    is_trying: bool
    """Whether the shares are being tried for a few operations only."""
    lane_us: list[float]
    """The microseconds that each lane took in the last window that was no probe's. 0: it took no part."""
    windows: int
    """How many windows there were. One is up to ten operations."""
    bytes: int
    """The mean size of that window's messages."""
    history: str
    """A line for each of the latest changes, for people."""


@dataclasses.dataclass(frozen=True)
class BalanceStats:
    """The state of the load balancer."""

    lanes: list[str]
    """What carries parts of a message: rails by name, and "stripes" (all rails together). Empty until
    the balancer is under way."""
    classes: list[SizeClassStats]
    """The size classes that have occurred, the smallest first."""


@dataclasses.dataclass(frozen=True)
class NetworkInterface:
    """A network interface of this host, and what becomes of it where the rails are ["auto"]."""

    name: str
    """The kernel's name, such as eth0."""
    kind: str
    """What made it (veth, bridge, bond, vlan, ...). Empty for a NIC."""
    addresses: list[str]
    """With the length of the subnet's prefix: 10.0.0.1/16."""
    mtu: int
    """Bytes."""
    speed: int
    """Mbit/s, as the driver says. 0 if the driver does not say."""
    pci: str
    """The address on the PCI bus. Empty if there is none."""
    numa_node: int
    """-1 if it is not known."""
    uri: str
    """The rail that it becomes, for create(). Empty if it is left out."""
    reason: str
    """Why it is taken or left out."""


@dataclasses.dataclass(frozen=True)
class LaunchEnvironment:
    """This process's place in the job that a launcher has started."""

    launcher: str
    """Who started the process ("Open MPI", "Slurm", ...). Empty if no known launcher did."""
    rank: int
    """-1 if the launcher does not tell, as for all numbers here."""
    size: int
    """How many ranks the job has."""
    local_rank: int
    """The rank among the processes of this host."""
    local_size: int
    """How many of the job's ranks are on this host."""
    job: str
    """A name of this run of the job, the same on all ranks. Empty if the launcher gives none."""
