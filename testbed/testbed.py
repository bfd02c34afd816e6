#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A multi-rail network testbed on one Linux machine: N hosts with K shaped rails each.

On the command line (`testbed --help`), and in pytest:

    with Testbed(hosts=4, rails={"eth0": "1gbit", "eth1": "1gbit"}) as bed:
        ranks = bed.start(["./job"], env={"JOB_OPTION": "1"})
        bed.cut(host=2, rail="eth1")
        for rank in ranks:
            rank.wait(timeout=30)

A host is a network namespace, a rail is a bridge in one more namespace (the switch), and a port
is a veth pair between them with a token bucket at both ends. Needs root; `testbed with` and
`testbed sandbox` make do with an ordinary user's own user namespace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import (
    NETNS_DIR,
    Echo,
    Process,
    end_all,
    end_sessions,
    finish,
    held_namespaces,
    namespace_members,
)
from rails import MGMT, MGMT_NETWORK, Rail, bits_per_second, check_rate, parse_rails
from system_tools import STEP_TIMEOUT, BedError, check_root, check_tools, command, tool

STATE_DIR = Path("/run/nezha-testbed")  # per testbed: PREFIX.json, PREFIX.hosts, PREFIX.shared
MAX_HOSTS = 250  # a host's number is the last byte of its addresses
WAYS_TO_CUT = ["carrier", "admin", "silent", "large", "refused", "reset"]
LARGE = 600  # bytes, more than handshakes and short messages need

# ---- taking down ------------------------------------------------------------------------------


def check_prefix(prefix: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", prefix):
        raise BedError(f"bad prefix '{prefix}': a-z first, then a-z0-9_, up to 32 long")
    return prefix


def state_file(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.json"


def hosts_file(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.hosts"


def shared_folder(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.shared"


def namespaces_of(prefix: str) -> list[str]:
    names = os.listdir(NETNS_DIR) if NETNS_DIR.is_dir() else []
    return [name for name in names if re.fullmatch(rf"{prefix}-(sw|h\d+)", name)]


def take_down(prefix: str) -> None:
    """Ends what runs inside, deletes everything. Needs no state: names alone say what is ours."""
    names = namespaces_of(prefix)
    with held_namespaces(names) as namespaces:
        end_all(lambda: namespace_members(namespaces))
        try:
            lines = "".join(f"netns del {name}\n" for name in names)
            command(["ip", "-force", "-batch", "-"], lines)
        except BedError:
            if namespaces_of(prefix):  # else another process takes it down at the same time
                raise
        end_all(lambda: namespace_members(namespaces))  # one that was entering meanwhile
    shutil.rmtree(shared_folder(prefix), ignore_errors=True)
    hosts_file(prefix).unlink(missing_ok=True)
    state_file(prefix).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another testbed's state is there, or none ever was
        STATE_DIR.rmdir()


class Guard:
    """A process that takes the testbed down if its maker dies without a word.

    It reads from a pipe. The maker, and the build commands that could still be making namespaces
    after the maker was killed, hold the other end; an end of file without a byte means that all
    of them died.
    """

    def __init__(self, prefix: str) -> None:
        read_end, self.fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), prefix],
            stdin=read_end,
            cwd="/",
            start_new_session=True,  # out of reach of the terminal's signals
        )
        os.close(read_end)

    def dismiss(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.fd, b"x")
        os.close(self.fd)
        self._process.wait(STEP_TIMEOUT)


def _guard_main(prefix: str) -> None:
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    if not os.read(sys.stdin.fileno(), 1):
        take_down(prefix)


# ---- the testbed ------------------------------------------------------------------------------

_numbers = itertools.count()


def _unused_prefix() -> str:
    """Passes over a testbed left behind when all was killed, its guard too (a container's end)."""
    prefixes = (f"nz{os.getpid()}_{number}" for number in _numbers)
    return next(each for each in prefixes if not (namespaces_of(each) or state_file(each).exists()))


@dataclasses.dataclass(eq=False)
class Testbed:
    """N hosts with K shaped rails; `testbed --help` says what each setting means.

    `rails` is {NAME: "RATE"} or {NAME: "RATE@OTHER"}, `without` lists "HOST:RAIL" ports to leave
    out, `gso` and `burst` are bytes (gso None: off; burst None: automatic). A testbed made
    without a prefix gets one of its own, so that any number of them can be up at once.
    """

    __test__ = False  # pytest: a class whose name begins with Test, but none of tests

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
        self.prefix = check_prefix(self.prefix or _unused_prefix())
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
        self._guard: Guard | None = None
        self._started: list[Process] = []

    @staticmethod
    def attach(prefix: str) -> Testbed:
        """The testbed of this prefix, which another process has made."""
        try:
            state = json.loads(state_file(check_prefix(prefix)).read_text())
        except FileNotFoundError:
            raise BedError(f"no testbed '{prefix}' is up (-p names another)") from None
        return Testbed(**state)

    def __enter__(self) -> Testbed:
        self.up()
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    # -- up and down --

    def up(self, stay: bool = False) -> None:
        """Builds it, or leaves nothing. It goes when this process does, unless it is to stay."""
        check_root()
        check_tools()
        self._claim()
        try:
            self._guard = Guard(self.prefix)
            self._build()
        except BaseException:
            self.down()
            raise
        if stay:
            self._dismiss_guard()

    def down(self) -> None:
        # those not yet reaped: the number of another may be a stranger's by now
        end_sessions([process for process in self._started if process.returncode is None])
        self._started.clear()
        take_down(self.prefix)
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard:
            self._guard.dismiss()
            self._guard = None

    def _claim(self) -> None:
        """Makes the state file; of two that use one prefix at once, one fails here."""
        there = f"a testbed '{self.prefix}' is up already: 'testbed -p {self.prefix} down' ends it"
        if namespaces_of(self.prefix):
            raise BedError(there)
        STATE_DIR.mkdir(parents=True, exist_ok=True)
        try:
            with open(state_file(self.prefix), "x") as file:
                settings = dataclasses.fields(self)
                json.dump({field.name: getattr(self, field.name) for field in settings}, file)
        except FileExistsError:
            raise BedError(there) from None
        hosts_file(self.prefix).write_text(self._names())
        self.shared.mkdir(exist_ok=True)

    def _build(self) -> None:
        switch = self.namespace("sw")
        hosts = [self.namespace(host) for host in range(self.hosts)]
        self._make_room_for_neighbours()
        self._batch("ip", None, [f"netns add {name}" for name in (switch, *hosts)])
        self._set_sysctls(switch, ipv6=False)
        for name in hosts:
            self._set_sysctls(name, ipv6=self.ipv6)
        self._set_congestion_control(hosts)
        self._batch("ip", switch, self._bridge_lines())
        for host, name in enumerate(hosts):
            self._batch("ip", name, self._host_lines(host))
        self._batch("ip", switch, self._switch_port_lines())
        everywhere = [(rail, host) for rail in self._rails for host in self._hosts_on(rail)]
        self._shape({port: port[0].rate for port in everywhere})

    def _bridge_lines(self) -> list[str]:
        lines = ["link set dev lo up"]
        for bridge in {rail.bridge: None for rail in self._networks()}:
            lines += [
                f"link add name {bridge} mtu {self.mtu} type bridge"
                " stp_state 0 forward_delay 0 mcast_snooping 0",
                f"link set dev {bridge} up",
            ]
        if self.mgmt:
            lines.append(f"addr add 10.{MGMT_NETWORK}.0.254/16 dev {MGMT.bridge}")
        return lines

    def _host_lines(self, host: int) -> list[str]:
        lines = ["link set dev lo up"]
        for rail in self._networks():
            if host in self._hosts_on(rail):
                lines += self._interface_lines(rail, host)
        return lines

    def _interface_lines(self, rail: Rail, host: int) -> list[str]:
        lines = [
            f"link add name {rail.name} mtu {self.mtu} type veth"
            f" peer name {rail.port(host)} netns {self.namespace('sw')} mtu {self.mtu}",
            f"link set dev {rail.name} {self._gso_words()}",
        ]
        if self.ipv4 or rail is MGMT:
            lines.append(f"addr add {rail.address(host)}/16 dev {rail.name}")
        if self.ipv6 and rail is not MGMT:
            lines.append(f"addr add {rail.address6(host)}/64 dev {rail.name}")
        lines.append(f"link set dev {rail.name} up")
        return lines

    def _switch_port_lines(self) -> list[str]:
        return [
            self._switch_port_line(rail, host)
            for rail in self._networks()
            for host in self._hosts_on(rail)
        ]

    def _switch_port_line(self, rail: Rail, host: int) -> str:
        return f"link set dev {rail.port(host)} {self._gso_words()} master {rail.bridge} up"

    def _gso_words(self) -> str:
        return "gso_max_segs 1" if self.gso is None else f"gso_max_size {self.gso}"

    def _set_sysctls(self, namespace: str, ipv6: bool) -> None:
        """All before any interface is made, since those take the defaults then."""
        values = {"ipv4/tcp_no_metrics_save": 1}  # no connection learns from one before it
        for which in ("all", "default"):
            values |= {
                # two ports on one network: each answers for its own address, and asks with it
                f"ipv4/conf/{which}/arp_ignore": 1,
                f"ipv4/conf/{which}/arp_announce": 2,
                f"ipv4/conf/{which}/rp_filter": 0,
                f"ipv6/conf/{which}/disable_ipv6": int(not ipv6),
                f"ipv6/conf/{which}/accept_dad": 0,  # addresses are good at once
                f"ipv6/conf/{which}/accept_ra": 0,
                # an admin cut would otherwise lose the IPv6 addresses for good
                f"ipv6/conf/{which}/keep_addr_on_down": 1,
            }
        lines = [
            f"[ ! -e /proc/sys/net/{key} ] || echo {value} > /proc/sys/net/{key}"
            for key, value in values.items()
        ]
        # a switch has no firewall, and each frame would pass that of this machine's bridges
        for family in ("arp", "ip", "ip6"):
            path = f"/proc/sys/net/bridge/bridge-nf-call-{family}tables"
            lines.append(f"[ ! -e {path} ] || echo 0 2> /dev/null > {path} || true")
        self._make(self._inside(namespace, "sh", "-e"), "\n".join(lines))

    def _make_room_for_neighbours(self) -> None:
        """One table of the machine's holds those of all hosts; what it cannot take has no route."""
        needed = 2 * len(self._networks()) * self.hosts**2  # others may be on the machine too
        for family in ("ipv4", "ipv6"):
            for name in ("gc_thresh2", "gc_thresh3"):
                limit = Path(f"/proc/sys/net/{family}/neigh/default/{name}")
                with contextlib.suppress(OSError):  # not ours to write; few hosts may fit
                    if int(limit.read_text()) < needed:
                        limit.write_text(str(needed))

    def _set_congestion_control(self, namespaces: Sequence[str]) -> None:
        allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
        with contextlib.suppress(OSError):  # not ours to write; it may be allowed all the same
            names = allowed.read_text().split()
            # another one may not be chosen outside the machine's first network namespace
            if self.cc not in names:
                allowed.write_text(" ".join([*names, self.cc]))
        try:
            for name in namespaces:
                line = f"echo {self.cc} > /proc/sys/net/ipv4/tcp_congestion_control"
                self._make(self._inside(name, "sh"), line)
        except BedError:
            print(
                f"testbed: warning: may not choose TCP congestion control '{self.cc}' here; the"
                " hosts keep the kernel's default",
                file=sys.stderr,
            )

    # -- names and addresses --

    @property
    def shared(self) -> Path:
        """A folder that every host sees. It goes with the testbed, however its maker ends."""
        return shared_folder(self.prefix)

    def namespace(self, host: int | str) -> str:
        return f"{self.prefix}-sw" if host == "sw" else f"{self.prefix}-h{host}"

    def rails_of(self, host: int) -> list[Rail]:
        self._check_host(host)
        return [rail for rail in self._rails if host in self._hosts_on(rail)]

    def environment(
        self, host: int, local_rank: int = 0, ranks: int | None = None
    ) -> dict[str, str]:
        """What a command on this host is told."""
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

    def _names(self) -> str:
        """An /etc/hosts: hH-NAME is a rail's address, hH the mgmt or the first rail's."""
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

    def _networks(self) -> list[Rail]:
        return [MGMT, *self._rails] if self.mgmt else self._rails

    def _hosts_on(self, rail: Rail) -> list[int]:
        return [host for host in range(self.hosts) if (host, rail.name) not in self._absent]

    def _check_host(self, host: int) -> None:
        if not 0 <= host < self.hosts:
            raise BedError(f"no host {host} (there are 0 to {self.hosts - 1})")

    def rail(self, name: str) -> Rail:
        for rail in self._rails:
            if rail.name == name:
                return rail
        raise BedError(f"no rail '{name}' (there are: {' '.join(r.name for r in self._rails)})")

    def _parse_port(self, text: str) -> tuple[int, str]:
        match = re.fullmatch(r"(\d+):(\w+)", text)
        if not match:
            raise BedError(f"bad port '{text}': HOST:RAIL, as 2:eth1")
        self._check_host(int(match[1]))
        return int(match[1]), self.rail(match[2]).name

    def _ports(self, rail: str, host: int | None) -> list[tuple[Rail, int]]:
        """One host's port on a rail, or with host None all ports of it."""
        found = self.rail(rail)
        hosts = self._hosts_on(found)
        if host is None:
            return [(found, each) for each in hosts]
        self._check_host(host)
        if host not in hosts:
            raise BedError(f"host {host} has no port on rail '{rail}'")
        return [(found, host)]

    # -- running things --

    def start(
        self,
        cmd: Sequence[str],
        *,
        on: Iterable[int] | None = None,
        ranks_per_host: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        echo: Echo | None = None,
        raw: bool = False,
    ) -> list[Process]:
        """Starts the ranks of `cmd` on all hosts, or those of `on`; does not wait.

        `echo` is called, from other threads, with every line; with `raw` the ranks write to this
        process's own stdout and stderr.
        """
        if not cmd:
            raise BedError("no command to run")
        ranks = ranks_per_host or self.ranks_per_host
        pipe = None if raw else subprocess.PIPE
        hosts = range(self.hosts) if on is None else on
        started: list[Process] = []
        try:
            for host, local_rank in itertools.product(hosts, range(ranks)):
                variables = self.environment(host, local_rank, ranks) | dict(env or {})
                popen = subprocess.Popen(
                    self._on_host(host, variables, cmd),
                    stdin=subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    cwd=cwd,
                    start_new_session=True,  # so that all of it can be ended
                )
                started.append(Process(popen, host * ranks + local_rank, host, local_rank, echo))
        except BaseException:
            end_sessions(started, gently=False)
            raise
        self._started += started
        return started

    def run(
        self, cmd: Sequence[str], *, timeout: float = 60.0, check: bool = True, **options: Any
    ) -> list[Process]:
        """Runs `cmd` to its end, with the options of start(); the first failure ends the rest.

        With `check` a failure raises BedError with the output of all ranks.
        """
        processes = self.start(cmd, **options)

        def outputs() -> str:
            return "".join(f"\n--- {process}\n{process.output}" for process in processes)

        try:
            failed = finish(processes, timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}{outputs()}") from None
        if failed and check:
            raise BedError(f"{failed} failed ({failed.code}): {' '.join(cmd)}{outputs()}")
        return processes

    def exec(
        self, host: int | str, cmd: Sequence[str], *, timeout: float = 60.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs `cmd` on one host, or on the switch ("sw"), and returns its captured output."""
        done = subprocess.run(
            self.exec_argv(host, cmd),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            raise BedError(f"'{' '.join(cmd)}' on {host}: {done.returncode}\n{done.stderr}")
        return done

    def exec_argv(self, host: int | str, cmd: Sequence[str]) -> list[str]:
        if host == "sw":
            return self._inside(self.namespace("sw"), *cmd)
        return self._on_host(int(host), self.environment(int(host)), cmd)

    def _on_host(self, host: int, env: Mapping[str, str], cmd: Sequence[str]) -> list[str]:
        """Every step replaces the one before: the process that starts is the one of `cmd`.

        The variables come last, since one like LD_PRELOAD is not for the steps.
        """
        prepare = f'{tool("hostname")} "$0" && {tool("mount")} --bind "$1" /etc/hosts'
        return self._inside(
            self.namespace(host),
            *(tool("unshare"), "--uts", "sh", "-c", prepare + ' && shift && exec env "$@"'),
            *(f"h{host}", str(hosts_file(self.prefix))),
            *(f"{name}={value}" for name, value in env.items()),
            *cmd,
        )

    @staticmethod
    def _inside(namespace: str, *cmd: str) -> list[str]:
        return [tool("ip"), "netns", "exec", namespace, *cmd]

    # -- changing the weather --

    def set_rate(self, rail: str, rate: str, host: int | None = None) -> None:
        """Reshapes a rail, or one host's port on it, in both directions."""
        check_rate(rate)
        self._shape({port: rate for port in self._ports(rail, host)})

    def cut(self, host: int, rail: str, how: str = "carrier") -> None:
        """Cuts a host's cable; see `testbed cut --help` for the ways."""
        [(port, _)] = self._ports(rail, host)
        if how == "carrier":
            self._batch("ip", self.namespace("sw"), [f"link set dev {port.port(host)} down"])
        elif how == "admin":
            self._batch("ip", self.namespace(host), [f"link set dev {rail} down"])
        elif how == "silent":
            self._filter([self._drop("cut", port, host, "ingress", "egress")])
        elif how == "large":
            # what leaves the switch has its Ethernet header already
            limits = {"ingress": LARGE, "egress": LARGE + 14}
            matches = {hook: f"meta length > {limit}" for hook, limit in limits.items()}
            self._filter([self._drop("cut", port, host, *limits, match=matches)])
        elif how == "refused":
            self._refuse(port, host, "iifname", "tcp flags & (syn | ack) == syn")
        elif how == "reset":
            self._reset(port, host)
        else:
            raise BedError(f"no such cut '{how}': {', '.join(WAYS_TO_CUT)}")

    def _refuse(self, rail: Rail, host: int, by: str = "", what: str = "") -> None:
        """What the host's own firewall resets; without a match nothing."""
        table = f"inet refused_{rail.name}"
        lines = [f"add table {table}", f"delete table {table}"]
        if by:
            lines += [
                f"add table {table}",
                f"add chain {table} input {{ type filter hook input priority 0; }}",
                f'add rule {table} input {by} "{rail.name}" {what} counter reject with tcp reset',
            ]
        nft = self._inside(self.namespace(host), tool("nft"), "-f", "-")
        command(nft, "\n".join(lines) + "\n")

    def _reset(self, rail: Rail, host: int) -> None:
        own = f"( src {rail.address(host)} or src [{rail.address6(host)}] )"
        done = self.exec(host, ["ss", "-HKtn", "state", "established", own])
        if not done.stdout.strip():
            raise BedError(
                f"none of host {host}'s connections by {rail.name} was ended: it has none, or this"
                " kernel lacks INET_DIAG_DESTROY"
            )

    def heal(self, host: int, rail: str) -> None:
        """Undoes any cut."""
        [(port, _)] = self._ports(rail, host)
        self._filter([self._drop("cut", port, host)])
        self._refuse(port, host)
        self._batch("ip", self.namespace("sw"), [f"link set dev {port.port(host)} up"])
        self._batch("ip", self.namespace(host), [f"link set dev {rail} up"])

    def renew(self, host: int, rail: str) -> None:
        """Deletes the host's interface and makes another of its name, as a driver's reload does.

        It has the rate that the rail was built with, and no filter of the old one's.
        """
        [(port, _)] = self._ports(rail, host)
        self._filter([self._drop(kind, port, host) for kind in ("cut", "loss")])
        self._batch("ip", self.namespace(host), [f"link del {rail}"])
        self._batch("ip", self.namespace(host), self._interface_lines(port, host))
        self._batch("ip", self.namespace("sw"), [self._switch_port_line(port, host)])
        self._shape({(port, host): port.rate})

    def loss(
        self, rail: str, percent: float, host: int | None = None, to: int | None = None
    ) -> None:
        """Drops this part of the frames that a rail's hosts, or one of them, send; 0 ends it.

        With `to` those by IPv4 that go to this host alone.
        """
        if not 0 <= percent <= 100:
            raise BedError("loss is a percentage, 0 to 100")
        millionths = round(percent * 10000)
        # nft refuses a comparison that always holds
        match = "" if percent == 100 else f"numgen random mod 1000000 < {millionths}"
        hooks = ["ingress"] if millionths else []
        ports = self._ports(rail, host)
        if to is not None:
            [(port, _)] = self._ports(rail, to)
            match = f"ip daddr {port.address(to)} {match}"
        self._filter([self._drop("loss", port, each, *hooks, match=match) for port, each in ports])

    def counters(self, host: int, rail: str) -> dict[str, int]:
        """The host's interface statistics: rx_bytes, tx_bytes, rx_packets, tx_dropped, ..."""
        self._ports(rail, host)
        text = command(["ip", "-n", self.namespace(host), "-s", "-j", "link", "show", "dev", rail])
        directions = json.loads(text)[0]["stats64"]
        return {
            f"{direction}_{name}": value
            for direction, values in directions.items()
            for name, value in values.items()
        }

    def status(self) -> str:
        """Hosts, rails, rates, addresses, and what the shapers and filters have counted."""
        gso = "off" if self.gso is None else self.gso
        lines = [
            f"testbed {self.prefix}: {self.hosts} hosts, mtu {self.mtu}, gso {gso},"
            f" burst {self.burst or 'auto'}, queue {self.queue_ms:g} ms, cc {self.cc}"
        ]
        switch = self._queue_lines("sw")
        queues = {host: self._queue_lines(host) for host in range(self.hosts)}
        for rail in self._networks():
            lines.append(f"rail {rail.name} {rail.rate} on {rail.bridge}")
            for host in self._hosts_on(rail):
                addresses = [rail.address(host)] if self.ipv4 or rail is MGMT else []
                if self.ipv6 and rail is not MGMT:
                    addresses.append(rail.address6(host))
                lines += [
                    f"  h{host} {' '.join(addresses)} {self._operstate(host, rail)}",
                    f"    up   {queues[host].get(rail.name, 'unshaped')}",
                    f"    down {switch.get(rail.port(host), 'unshaped')}",
                ]
        rules = command(self._inside(self.namespace("sw"), tool("nft"), "list", "ruleset"))
        return "\n".join([*lines, *rules.splitlines()])

    def _operstate(self, host: int, rail: Rail) -> str:
        show = ["ip", "-n", self.namespace(host), "-j", "link", "show", "dev", rail.name]
        return str(json.loads(command(show))[0]["operstate"]).lower()

    def _queue_lines(self, host: int | str) -> dict[str, str]:
        """Of each shaped port: its rate, and what its queue has passed and dropped."""
        text = command(["tc", "-n", self.namespace(host), "-s", "-j", "qdisc", "show"])
        return {
            queue["dev"]: f"{queue['options']['rate'] * 8 / 1e6:g} mbit, sent {queue['bytes']} B"
            f" in {queue['packets']} packets, dropped {queue['drops']}"
            for queue in json.loads(text)
            if queue["kind"] == "tbf"
        }

    def _shape(self, rates: Mapping[tuple[Rail, int], str]) -> None:
        switch = []
        for host in range(self.hosts):
            own = []
            for (rail, port_host), rate in rates.items():
                if port_host == host:
                    own.append(self._shaper(rail.name, rate))
                    switch.append(self._shaper(rail.port(host), rate))
            if own:
                self._batch("tc", self.namespace(host), own)
        self._batch("tc", self.namespace("sw"), switch)

    def _shaper(self, device: str, rate: str) -> str:
        if rate == "none":
            return f"qdisc replace dev {device} root noqueue"
        bits = bits_per_second(rate)
        burst = self.burst
        if burst is None:
            # one packet (a train counts its headers too), and what a timer 50 us late must not lose
            train = 0 if self.gso is None else self.gso + self.gso // 16
            burst = train + self.mtu + 100 + bits // 8 // 20000
        return (
            f"qdisc replace dev {device} root tbf rate {bits}bit burst {burst}"
            f" latency {self.queue_ms}ms"
        )

    @staticmethod
    def _drop(kind: str, rail: Rail, host: int, *hooks: str, match: str | Mapping[str, str] = "") -> str:
        """An nft script: at these hooks of a switch port drop what matches; without hooks nothing.

        Adding a table before deleting it is nft's way to delete one that may not be there.
        """
        table = f"netdev {kind}_{rail.name}_h{host}"
        lines = [f"add table {table}", f"delete table {table}"]
        if hooks:
            lines.append(f"add table {table}")
        for hook in hooks:
            device = f'device "{rail.port(host)}"'
            lines += [
                f"add chain {table} {hook} {{ type filter hook {hook} {device} priority 0; }}",
                f"add rule {table} {hook} {match if isinstance(match, str) else match[hook]}"
                " counter drop",
            ]
        return "\n".join(lines) + "\n"

    def _filter(self, scripts: Sequence[str]) -> None:
        command(self._inside(self.namespace("sw"), tool("nft"), "-f", "-"), "".join(scripts))

    # -- batches --

    def _batch(self, name: str, namespace: str | None, lines: Sequence[str]) -> None:
        where = ["-n", namespace] if namespace else []
        self._make([name, *where, "-batch", "-"], "\n".join(lines) + "\n")

    def _make(self, argv: Sequence[str], text: str) -> None:
        command(argv, text, keep_fds=[self._guard.fd] if self._guard else [])


if __name__ == "__main__":  # Guard's way in, and nobody else's
    _guard_main(sys.argv[1])
