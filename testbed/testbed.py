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

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import links
from cuts import LARGE, WAYS_TO_CUT, drop_rules, refusal_rules
from guard import Guard
from kernel import allow_congestion_control, make_room_for_neighbours, network_settings
from layout import Layout
from processes import Echo, Process, end_sessions, finish
from rails import MGMT, Rail, check_rate
from state import STATE_DIR, check_prefix, hosts_file, namespaces_of, state_file, take_down
from system_tools import BedError, check_root, check_tools, command, tool


class Testbed(Layout):
    """A layout that is built from namespaces; Layout describes the settings."""

    __test__ = False  # For pytest: the class's name begins with Test, but it has no tests.

    def __post_init__(self) -> None:
        super().__post_init__()
        self._guard: Guard | None = None
        self._started: list[Process] = []

    @staticmethod
    def attach(prefix: str) -> Testbed:
        """Returns the testbed of this prefix, which another process has made."""
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
        """Builds the testbed, or leaves nothing. It goes when this process ends, unless it should stay."""
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
        # Only processes that are not reaped yet are ended, because the number of another may belong to a
        # foreign process by now.
        end_sessions([process for process in self._started if process.returncode is None])
        self._started.clear()
        take_down(self.prefix)
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard:
            self._guard.dismiss()
            self._guard = None

    def _claim(self) -> None:
        """Makes the state file; if two processes use one prefix at once, one of them fails here."""
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
        hosts_file(self.prefix).write_text(self.hosts_text())
        self.shared.mkdir(exist_ok=True)

    def _build(self) -> None:
        switch = self.namespace("sw")
        hosts = [self.namespace(host) for host in range(self.hosts)]
        make_room_for_neighbours(self)
        self._batch("ip", None, [f"netns add {name}" for name in (switch, *hosts)])
        for name in (switch, *hosts):
            script = network_settings(ipv6=self.ipv6 and name != switch)
            self._make(self._inside(name, "sh", "-e"), script)
        self._set_congestion_control(hosts)
        self._batch("ip", switch, links.bridge_lines(self))
        for host, name in enumerate(hosts):
            self._batch("ip", name, links.host_lines(self, host))
        self._batch("ip", switch, links.switch_port_lines(self))
        everywhere = [(rail, host) for rail in self._rails for host in self.hosts_on(rail)]
        self._shape({port: port[0].rate for port in everywhere})

    def _set_congestion_control(self, namespaces: Sequence[str]) -> None:
        allow_congestion_control(self.cc)
        try:
            for name in namespaces:
                line = f"echo {self.cc} > /proc/sys/net/ipv4/tcp_congestion_control"
                self._make(self._inside(name, "sh"), line)
        except BedError:
            print(
                f"testbed: warning: the hosts may not choose TCP congestion control '{self.cc}', so they keep"
                " the kernel's default",
                file=sys.stderr,
            )

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
                    start_new_session=True,  # All of the session can be ended.
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
        """Returns the command that runs `cmd` on a host.

        Every step replaces the one before, so that the process that starts becomes that of `cmd`. The
        variables come last, because one like LD_PRELOAD is not for the steps.
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

    # -- changing the network --

    def set_rate(self, rail: str, rate: str, host: int | None = None) -> None:
        """Reshapes a rail, or one host's port on it, in both directions."""
        check_rate(rate)
        self._shape({port: rate for port in self.ports(rail, host)})

    def cut(self, host: int, rail: str, how: str = "carrier") -> None:
        """Cuts a host's cable; see `testbed cut --help` for the ways."""
        [(port, _)] = self.ports(rail, host)
        if how == "carrier":
            self._batch("ip", self.namespace("sw"), [f"link set dev {port.port(host)} down"])
        elif how == "admin":
            self._batch("ip", self.namespace(host), [f"link set dev {rail} down"])
        elif how == "silent":
            self._filter([drop_rules("cut", port, host, "ingress", "egress")])
        elif how == "large":
            # Frames that leave the switch have their Ethernet header already.
            limits = {"ingress": LARGE, "egress": LARGE + 14}
            matches = {hook: f"meta length > {limit}" for hook, limit in limits.items()}
            self._filter([drop_rules("cut", port, host, *limits, match=matches)])
        elif how == "refused":
            self._refuse(port, host, "iifname", "tcp flags & (syn | ack) == syn")
        elif how == "reset":
            self._reset(port, host)
        else:
            raise BedError(f"there is no cut '{how}' (there are {', '.join(WAYS_TO_CUT)})")

    def _refuse(self, rail: Rail, host: int, by: str = "", what: str = "") -> None:
        nft = self._inside(self.namespace(host), tool("nft"), "-f", "-")
        command(nft, refusal_rules(rail, by, what))

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
        [(port, _)] = self.ports(rail, host)
        self._filter([drop_rules("cut", port, host)])
        self._refuse(port, host)
        self._batch("ip", self.namespace("sw"), [f"link set dev {port.port(host)} up"])
        self._batch("ip", self.namespace(host), [f"link set dev {rail} up"])

    def renew(self, host: int, rail: str) -> None:
        """Deletes the host's interface and makes another of its name, as a driver's reload does.

        The new interface has the rate that the rail was built with, and no filters of the old one.
        """
        [(port, _)] = self.ports(rail, host)
        self._filter([drop_rules(kind, port, host) for kind in ("cut", "loss")])
        self._batch("ip", self.namespace(host), [f"link del {rail}"])
        self._batch("ip", self.namespace(host), links.interface_lines(self, port, host))
        self._batch("ip", self.namespace("sw"), [links.switch_port_line(self, port, host)])
        self._shape({(port, host): port.rate})

    def loss(
        self, rail: str, percent: float, host: int | None = None, to: int | None = None
    ) -> None:
        """Drops this part of the frames that a rail's hosts, or one of them, send; 0 ends it.

        With `to` it drops only frames by IPv4 that go to this host.
        """
        if not 0 <= percent <= 100:
            raise BedError("loss must be a percentage from 0 to 100")
        millionths = round(percent * 10000)
        # nft refuses a comparison that always holds.
        match = "" if percent == 100 else f"numgen random mod 1000000 < {millionths}"
        hooks = ["ingress"] if millionths else []
        ports = self.ports(rail, host)
        if to is not None:
            [(port, _)] = self.ports(rail, to)
            match = f"ip daddr {port.address(to)} {match}"
        self._filter([drop_rules("loss", port, each, *hooks, match=match) for port, each in ports])

    def counters(self, host: int, rail: str) -> dict[str, int]:
        """Returns the host's interface statistics: rx_bytes, tx_bytes, rx_packets, tx_dropped, ..."""
        self.ports(rail, host)
        text = command(["ip", "-n", self.namespace(host), "-s", "-j", "link", "show", "dev", rail])
        directions = json.loads(text)[0]["stats64"]
        return {
            f"{direction}_{name}": value
            for direction, values in directions.items()
            for name, value in values.items()
        }

    def status(self) -> str:
        """Returns hosts, rails, rates, addresses, and what the shapers and filters have counted."""
        gso = "off" if self.gso is None else self.gso
        lines = [
            f"testbed {self.prefix}: {self.hosts} hosts, mtu {self.mtu}, gso {gso},"
            f" burst {self.burst or 'auto'}, queue {self.queue_ms:g} ms, cc {self.cc}"
        ]
        switch = self._queue_lines("sw")
        queues = {host: self._queue_lines(host) for host in range(self.hosts)}
        for rail in self.networks():
            lines.append(f"rail {rail.name} {rail.rate} on {rail.bridge}")
            for host in self.hosts_on(rail):
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
        """Returns a text for each shaped port: its rate, and what its queue has passed and dropped."""
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
                    own.append(links.shaper_line(self, rail.name, rate))
                    switch.append(links.shaper_line(self, rail.port(host), rate))
            if own:
                self._batch("tc", self.namespace(host), own)
        self._batch("tc", self.namespace("sw"), switch)

    def _filter(self, scripts: Sequence[str]) -> None:
        command(self._inside(self.namespace("sw"), tool("nft"), "-f", "-"), "".join(scripts))

    # -- batches --

    def _batch(self, name: str, namespace: str | None, lines: Sequence[str]) -> None:
        where = ["-n", namespace] if namespace else []
        self._make([name, *where, "-batch", "-"], "\n".join(lines) + "\n")

    def _make(self, argv: Sequence[str], text: str) -> None:
        command(argv, text, keep_fds=[self._guard.fd] if self._guard else [])
