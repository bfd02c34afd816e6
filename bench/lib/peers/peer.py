# SPDX-License-Identifier: Apache-2.0
"""The peers that bench/peers and bench/cores compare nezha with, and the commands that run them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from lib.shared import program
from lib.shared.collective import ALLREDUCE, COLLECTIVES
from lib.shared.results import Config, shaped_rates
from rails import MGMT, MGMT_NETWORK

PROGRAMS = program.BUILD / "bench"
TESTBED_SSH = program.ROOT / "bench" / "testbed-ssh"


@dataclasses.dataclass(frozen=True)
class Peer(Config):
    """A peer. `rails` are all rails, whichever it uses, because every peer is held to the same limit."""

    regime: str  # the way in which a rank waits
    launcher: list[str]  # the command that starts the ranks; if empty, each host runs `command`


@dataclasses.dataclass(frozen=True)
class Network:
    """Hosts and rails, and the collective that is run there."""

    hosts: int
    rates: Mapping[str, int | None]  # bits per second by rail, None if it is not shaped
    collective: str = ALLREDUCE
    streams: int = 1  # connections of nezha's on each rail

    @property
    def fastest(self) -> str:
        return max(self.rates, key=lambda name: self.rates[name] or math.inf)

    def without_others(self) -> Network:
        """Returns the network with the fastest rail alone."""
        return dataclasses.replace(self, rates={self.fastest: self.rates[self.fastest]})


# ---- programs on each host --------------------------------------------------------------------


def rails_of(network: Network) -> str:
    option = f"?streams={network.streams}" if network.streams > 1 else ""
    return ",".join(f"tcp:{name}{option}" for name in network.rates)


def nezha(network: Network) -> list[str]:
    return [str(PROGRAMS / "nezha-bench"), "--rails", rails_of(network)]


def nezha_cpu_first(network: Network) -> list[str]:
    return ["env", "NEZHA_POLLING=cpu-first", *nezha(network)]


def nezha_without_rail_threads(network: Network) -> list[str]:
    """Returns nezha's command with one connection on each rail, as nezha has without rail threads."""
    return ["env", "NEZHA_RAIL_THREADS=0", *nezha(dataclasses.replace(network, streams=1))]


def nezha_with_rail_threads(network: Network) -> list[str]:
    return ["env", "NEZHA_RAIL_THREADS=1", *nezha(network)]


def gloo(network: Network) -> list[str]:
    return [str(PROGRAMS / "gloo-bench"), "--tcp-device", network.fastest]


def gloo_by(algorithm: str) -> Callable[[Network], list[str]]:
    return lambda network: [*gloo(network), "--algorithm", algorithm]


def gloo_over_mptcp(network: Network) -> list[str]:
    return ["mptcpize", "run", *gloo(network)]


def gloo_over_mptcp_by(algorithm: str) -> Callable[[Network], list[str]]:
    return lambda network: [*gloo_over_mptcp(network), "--algorithm", algorithm]


def is_over_mptcp(peer: Peer) -> bool:
    return peer.command[0] == "mptcpize"


def gloo_contexts(network: Network) -> list[str]:
    return [str(PROGRAMS / "gloo-bench"), "--tcp-device", ",".join(network.rates)]


def gloo_over_nezha(*variables: str) -> Callable[[Network], list[str]]:
    """Returns the command of an unchanged gloo-bench, whose device the library replaces by nezha."""
    preload = f"LD_PRELOAD={program.path_of(program.GLOO_LIBRARY)}"

    def command(network: Network) -> list[str]:
        rails = f"NEZHA_RAILS={rails_of(network)}"
        return ["env", preload, rails, *variables, *gloo_contexts(network)]

    return command


def is_over_nezha(peer: Peer) -> bool:
    """Returns whether the peer is a program of Gloo's that should get its device from nezha."""
    return peer.key in (GLOO_DEVICE, GLOO_PRELOAD)


def weighted_gloo_contexts(network: Network) -> list[str]:
    return [*gloo_contexts(network), "--share", ",".join(map(str, network.rates.values()))]


def iperf3(network: Network) -> list[str]:
    return ["iperf3"]


def mpi(library: str) -> Callable[[Network], list[str]]:
    program = str(PROGRAMS / f"mpi-bench-{library}")
    return lambda network: [program, "--interfaces", ",".join(network.rates)]


# ---- launchers of MPI's ranks -----------------------------------------------------------------


def settings(option: str, values: Mapping[str, object]) -> list[str]:
    """Returns the words that set each value, such as --mca NAME VALUE."""
    return [word for name, value in values.items() for word in (option, name, str(value))]


def host_names(network: Network) -> str:
    return ",".join(f"h{host}" for host in range(network.hosts))


def open_mpi_launcher(network: Network, spins: bool = False) -> list[str]:
    parameters = {
        # A batch job around mpirun has nodes of its own, which the testbed's hosts are not.
        "plm": "rsh",
        "ras": "^slurm,gridengine,tm,lsf,alps,loadleveler",
        # mpirun runs on none of the hosts, and its resolver knows none of them.
        "if_base_do_not_resolve": 1,
        "plm_rsh_agent": TESTBED_SSH,
        "plm_rsh_no_tree_spawn": 1,
        # Daemons that leave their parents would count as other people's processes.
        "orte_leave_session_attached": 1,
        "oob_tcp_if_include": f"10.{MGMT_NETWORK}.0.0/16",
        "mpi_yield_when_idle": int(not spins),
    }
    return [
        *("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"),
        *("-np", str(network.hosts), "--host", host_names(network)),
        *settings("--mca", parameters),
    ]


def open_mpi(network: Network, spins: bool = False) -> list[str]:
    """Returns the launcher of Open MPI over its own TCP."""
    transport = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": ",".join(network.rates)}
    return [*open_mpi_launcher(network, spins), *settings("--mca", transport)]


RING = {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": 4}


def open_mpi_ring(network: Network) -> list[str]:
    return [*open_mpi(network), *settings("--mca", RING)]


def weighted_open_mpi(network: Network) -> list[str]:
    """Returns the launcher of Open MPI with parts as the rates.

    An allreduce runs as a ring, whose messages are long enough to be divided.
    """
    rates = shaped_rates(network.rates)
    assert rates  # unequal() admits no network with a rail that is not shaped
    megabits = {f"btl_tcp_bandwidth_{name}": rate // 10**6 for name, rate in rates.items()}
    ring = RING if network.collective == ALLREDUCE else {}
    return [*open_mpi(network), *settings("--mca", ring | megabits)]


def ucx_variables(network: Network) -> dict[str, object]:
    return {
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": ",".join(network.rates),
        "UCX_MAX_RNDV_RAILS": len(network.rates),
        "LD_PRELOAD": PROGRAMS / "yield-when-idle",
    }


def open_mpi_over_ucx(network: Network) -> list[str]:
    transport = {
        "pml": "ucx",
        "osc": "^ucx",
        "btl": "^openib",
        # Without these, Open MPI does not use UCX where UCX has only TCP.
        "opal_common_ucx_tls": "any",
        "opal_common_ucx_devices": "any",
    }
    variables = [f"{name}={value}" for name, value in ucx_variables(network).items()]
    return [
        *open_mpi_launcher(network),
        *settings("--mca", transport | (RING if network.collective == ALLREDUCE else {})),
        *(word for variable in variables for word in ("-x", variable)),
    ]


def mpich(network: Network) -> list[str]:
    return [
        *("mpirun.mpich", "-n", str(network.hosts), "-ppn", "1", "-hosts", host_names(network)),
        *("-iface", MGMT.bridge, "-launcher", "ssh", "-launcher-exec", str(TESTBED_SSH)),
        *settings("-genv", ucx_variables(network)),
    ]


# ---- all of them ------------------------------------------------------------------------------

Fits = Callable[[Network], bool]


def always(network: Network) -> bool:
    return True


def several(network: Network) -> bool:
    return len(network.rates) > 1


def unequal(network: Network) -> bool:
    return len(set(network.rates.values())) > 1 and None not in network.rates.values()


def has_data(network: Network) -> bool:
    return COLLECTIVES[network.collective].has_data


def of_allreduce(network: Network) -> bool:
    """Returns whether the collective is an allreduce, for which alone an algorithm is chosen by name."""
    return network.collective == ALLREDUCE


def of_others(network: Network) -> bool:
    return network.collective != ALLREDUCE


def all_of(*conditions: Fits) -> Fits:
    return lambda network: all(fits(network) for fits in conditions)


@dataclasses.dataclass(frozen=True)
class Kind:
    label: str
    regime: str
    command: Callable[[Network], list[str]]
    launcher: Callable[[Network], list[str]] = lambda network: []
    fits: Fits = always
    by_default: bool = True


BLOCKING = "blocking"
YIELDING = "yielding"
YIELDING_BY_PRELOAD = "yielding, by preload"
AS_NEZHA = "yielding, then blocking"

NEZHA = "nezha"
NEZHA_CPU_FIRST = "nezha-cpu"
NEZHA_OFF = "nezha-off"
NEZHA_ON = "nezha-on"
NEZHAS = [NEZHA, NEZHA_CPU_FIRST, NEZHA_OFF, NEZHA_ON]
GLOO_RING = "gloo-ring"
GLOO_PARTS = "gloo-parts"
OPEN_MPI = "ompi"
GLOO_DEVICE = "gloo-device"
GLOO_PRELOAD = "gloo-preload"
IPERF3 = "iperf3"
KINDS = {
    NEZHA: Kind("nezha", AS_NEZHA, nezha),
    NEZHA_CPU_FIRST: Kind(
        "nezha, CPU first",
        "yielding in short operations, else blocking",
        nezha_cpu_first,
        by_default=False,
    ),
    NEZHA_OFF: Kind(
        "nezha, no threads for rails", AS_NEZHA, nezha_without_rail_threads, by_default=False
    ),
    NEZHA_ON: Kind(
        "nezha, a thread for each rail", AS_NEZHA, nezha_with_rail_threads, by_default=False
    ),
    "gloo": Kind("Gloo, fastest rail", BLOCKING, gloo, fits=of_others),
    GLOO_RING: Kind("Gloo ring, fastest rail", BLOCKING, gloo_by("ring"), fits=of_allreduce),
    "gloo-bcube": Kind("Gloo bcube, fastest rail", BLOCKING, gloo_by("bcube"), fits=of_allreduce),
    "mptcp": Kind(
        "Gloo over MPTCP",
        BLOCKING,
        gloo_over_mptcp,
        fits=all_of(several, of_others),
    ),
    "mptcp-ring": Kind(
        "Gloo ring over MPTCP",
        BLOCKING,
        gloo_over_mptcp_by("ring"),
        fits=all_of(several, of_allreduce),
    ),
    "mptcp-bcube": Kind(
        "Gloo bcube over MPTCP",
        BLOCKING,
        gloo_over_mptcp_by("bcube"),
        fits=all_of(several, of_allreduce),
        by_default=False,
    ),
    GLOO_PARTS: Kind(
        "a Gloo context for each rail, equal parts",
        BLOCKING,
        gloo_contexts,
        fits=all_of(several, has_data),
    ),
    "gloo-weights": Kind(
        "a Gloo context for each rail, parts as the rates",
        BLOCKING,
        weighted_gloo_contexts,
        fits=all_of(unequal, has_data),
    ),
    GLOO_DEVICE: Kind(
        "Gloo's algorithms over nezha's device",
        AS_NEZHA,
        gloo_over_nezha("NEZHA_GLOO_COLLECTIVES=gloo"),
        by_default=False,
    ),
    GLOO_PRELOAD: Kind(
        "a program of Gloo's, taken over by nezha",
        AS_NEZHA,
        gloo_over_nezha(),
        by_default=False,
    ),
    OPEN_MPI: Kind("Open MPI", YIELDING, mpi("openmpi"), open_mpi),
    "ompi-one": Kind(
        "Open MPI, fastest rail",
        YIELDING,
        lambda network: mpi("openmpi")(network.without_others()),
        lambda network: open_mpi(network.without_others()),
        fits=several,
    ),
    "ompi-ring": Kind(
        "Open MPI, ring", YIELDING, mpi("openmpi"), open_mpi_ring, fits=of_allreduce
    ),
    "ompi-weights": Kind(
        "Open MPI, parts as the rates (allreduce: ring)",
        YIELDING,
        mpi("openmpi"),
        weighted_open_mpi,
        fits=all_of(unequal, has_data),
    ),
    "ompi-spin": Kind(
        "Open MPI that never yields",
        "spinning",
        mpi("openmpi"),
        lambda network: open_mpi(network, spins=True),
        by_default=False,
    ),
    "ucx": Kind(
        "Open MPI over UCX",
        YIELDING_BY_PRELOAD,
        mpi("openmpi"),
        open_mpi_over_ucx,
        fits=of_others,
    ),
    "ucx-ring": Kind(
        "Open MPI, ring, over UCX",
        YIELDING_BY_PRELOAD,
        mpi("openmpi"),
        open_mpi_over_ucx,
        fits=of_allreduce,
    ),
    "mpich": Kind("MPICH over UCX", YIELDING_BY_PRELOAD, mpi("mpich"), mpich),
    IPERF3: Kind("iperf3, from each host to the next", BLOCKING, iperf3, fits=has_data),
}
DEFAULT = [key for key, kind in KINDS.items() if kind.by_default]


def make_peers(keys: list[str], network: Network) -> list[Peer]:
    """Returns the peers that fit the network and the collective."""
    peers = []
    for key in keys:
        kind = KINDS[key]
        if kind.fits(network):
            command, launcher = kind.command(network), kind.launcher(network)
            rails = list(network.rates)
            peers.append(Peer(key, kind.label, key, rails, command, kind.regime, launcher))
    return peers


def programs_of(peers: list[Peer]) -> list[str]:
    """Returns the programs that have to be built."""
    words = [word.rpartition("=")[2] for peer in peers for word in peer.launcher + peer.command]
    paths = set(map(Path, words))
    programs = {path.name for path in paths if path.parent == PROGRAMS}
    library = program.GLOO_LIBRARY
    return sorted(programs | ({library} if program.path_of(library) in paths else set()))


# The groups of tools/packages, by the program that starts a peer.
PACKAGES = {
    "mpirun.openmpi": "openmpi",
    "mpirun.mpich": "mpich",
    "mptcpize": "mptcp",
    "iperf3": "iperf",
}


def packages_of(peers: list[Peer]) -> list[str]:
    """Returns the groups that have to be installed, beside those of nezha and Gloo."""
    first = [(peer.launcher + peer.command)[0] for peer in peers]
    return sorted({PACKAGES[word] for word in first if word in PACKAGES})
