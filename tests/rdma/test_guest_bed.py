# SPDX-License-Identifier: Apache-2.0
"""The guest itself: its RDMA devices carry data, and its networks can be cut, healed and shaped."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import job
import pytest
from guest_bed import PORTS, WAYS_TO_CUT, GuestBed

MIB = 1 << 20
NETWORKS = {"h": "10.9.0", "t": "10.10.0"}
PERFTEST_PORT = 18515


@pytest.fixture
def bed() -> Iterator[GuestBed]:
    with GuestBed() as bed:
        yield bed


def devices() -> dict[str, tuple[str, str]]:
    """The state of the port and the interface, by device."""
    done = subprocess.run(["rdma", "-j", "link"], check=True, capture_output=True, text=True)
    return {each["ifname"]: (each["state"], each["netdev"]) for each in json.loads(done.stdout)}


def test_devices(bed: GuestBed) -> None:
    assert bed.hosts == 4
    assert devices() == {f"rxe{host}": ("ACTIVE", f"h{host}") for host in range(4)}


# ---- perftest -----------------------------------------------------------------------------------


def perftest(bed: GuestBed, program: str, options: str) -> list[float]:
    """The numbers in perftest's last line, from host 1 to host 0."""
    command = f"exec {program} --gid-index 1 --ib-dev rxe$HOST {options}"
    [server] = bed.start(["sh", "-c", command], on=[0])

    def listens() -> bool:
        assert server.returncode is None, server.output
        sockets = ["ss", "--no-header", "--listening", "--tcp", "--numeric"]
        return f":{PERFTEST_PORT} " in subprocess.run(sockets, capture_output=True, text=True).stdout

    job.await_that(f"{program} listens", listens)
    [client] = bed.start(["sh", "-c", f"{command} 10.9.0.1"], on=[1])
    for process in (client, server):
        assert process.wait(job.PATIENCE) == 0, client.output + server.output
    rows = [line.split() for line in client.stdout.splitlines() if line[:1] == " " and line.split()]
    return [float(word) for word in rows[-1]]


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_read_bw --events"])
def test_bandwidth(bed: GuestBed, program: str) -> None:
    """A guest that emulates the wrong instructions would be several times slower."""
    size, _, _, average, _ = perftest(bed, program, "--size 65536 --iters 300")
    print(f"{program}, {size / 1024:g} KiB: {average} MiB/s")
    assert average > 50


def test_latency(bed: GuestBed) -> None:
    size, _, _, _, typical, *_ = perftest(bed, "ib_send_lat --events", "--size 8 --iters 300")
    print(f"ib_send_lat --events, {size:g} B: {typical} us")
    assert typical < 100


# ---- the networks -------------------------------------------------------------------------------


def connect(port: str, source: int, target: int, listener: socket.socket) -> socket.socket:
    addresses = [f"{NETWORKS[port]}.{host + 1}" for host in (source, target)]
    where = (addresses[1], listener.getsockname()[1])
    return socket.create_connection(where, timeout=0.5, source_address=(addresses[0], 0))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("", 0)) as listener:
        yield listener


def reaches(port: str, source: int, target: int, listener: socket.socket) -> bool:
    try:
        connect(port, source, target, listener).close()
    except OSError:
        return False
    listener.accept()[0].close()
    return True


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("how", WAYS_TO_CUT)
def test_cut_and_heal(bed: GuestBed, listener: socket.socket, how: str, port: str) -> None:
    """The other network and the other hosts are not affected."""
    [other] = [each for each in PORTS if each != port]
    assert reaches(port, 0, 1, listener)
    bed.cut(1, port, how)
    if how == "gone":
        bed.await_deletion(1, port)
    assert not reaches(port, 0, 1, listener)
    assert reaches(port, 0, 2, listener)
    assert reaches(other, 0, 1, listener)
    assert ("rxe1" in devices()) == ((how, port) != ("gone", "h"))
    bed.heal(1, port)
    assert reaches(port, 0, 1, listener)
    assert reaches(port, 1, 0, listener)
    assert devices()["rxe1"] == ("ACTIVE", "h1")


def seconds_to_send(port: str, size: int, listener: socket.socket) -> float:
    """The time to send `size` bytes from host 1 to host 0."""

    def receive() -> None:
        with contextlib.closing(listener.accept()[0]) as connection:
            left = size
            while left:
                left -= len(connection.recv(MIB))
            connection.sendall(b"x")

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    with connect(port, 1, 0, listener) as connection:
        connection.settimeout(job.PATIENCE)
        start = time.monotonic()
        connection.sendall(bytes(size))
        assert connection.recv(1) == b"x"
        return time.monotonic() - start


@pytest.mark.parametrize("port", PORTS)
def test_shape(bed: GuestBed, listener: socket.socket, port: str) -> None:
    """Sends 4 MiB at 80 Mbit/s."""
    bed.shape("80mbit", port, 1)
    assert 0.3 < seconds_to_send(port, 4 * MIB, listener) < 0.7
    bed.shape("none", port, 1)
    assert seconds_to_send(port, 4 * MIB, listener) < 0.2
