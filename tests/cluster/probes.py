# SPDX-License-Identifier: Apache-2.0
"""Small programs on the hosts of a testbed that show which packets get through."""

from __future__ import annotations

import json

from system_tools import command, wait_until
from testbed import Testbed

PYTHON = "/usr/bin/python3"

# Answers datagrams on every rail, through the interface on which they arrived.
ECHO = """
import os, select, socket
sockets = []
for rail in os.environ["RAILS"].split():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, rail.encode())
    s.bind(("::", 7000))
    sockets.append(s)
print("ready", flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        try:
            data, sender = s.recvfrom(100)
            s.sendto(data, sender)
        except OSError:
            pass  # the rail is cut
"""

# Sends datagrams on DEVICE until ADDRESS has answered COUNT of them. Exits with 0 then, and with 1
# after PATIENCE seconds.
PING = """
import socket, sys, time
address, device, patience, count = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
s.settimeout(0.1)
deadline = time.monotonic() + patience
while count and time.monotonic() < deadline:
    try:
        s.sendto(b"x" * 100, (address, 7000))
        s.recv(100)
        count -= 1
    except OSError:
        time.sleep(0.02)
sys.exit(bool(count))
"""

# Sends COUNT datagrams to a port on which nobody listens, well below the rate of the rail.
SPRAY = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[2])):
    try:
        s.sendto(b"x" * 100, (sys.argv[1], 9))
    except OSError:
        pass  # refused, or the rail is cut
    time.sleep(0.0002)
"""

# Sends a datagram from the first address to the echo at the second.
SEND_FROM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.sendto(b"x", (sys.argv[2], 7000))
"""

# Accepts one TCP stream and prints the Mbit/s of its payload.
SINK = """
import socket, sys, time
listener = socket.create_server((sys.argv[1], 7001))
print("ready", flush=True)
stream = listener.accept()[0]
got = len(stream.recv(1 << 18))
start = time.monotonic()
while piece := stream.recv(1 << 18):
    got += len(piece)
print("mbit", got * 8e-6 / (time.monotonic() - start))
"""

SOURCE = """
import socket, sys
stream = socket.create_connection((sys.argv[1], 7001), timeout=20)
stream.sendall(bytes(int(sys.argv[2])))
"""


def start_echo(bed: Testbed) -> None:
    for server in bed.start([PYTHON, "-c", ECHO]):
        server.wait_for("ready")


def ping(
    bed: Testbed, host: int, address: str, by: str, patience: float = 5, count: int = 1
) -> bool:
    """Whether `address` answers `count` datagrams that the host sends on the interface `by`."""
    target = address if ":" in address else f"::ffff:{address}"
    cmd = [PYTHON, "-c", PING, target, by, str(patience), str(count)]
    return bed.exec(host, cmd, check=False).returncode == 0


def silence(bed: Testbed, host: int, address: str, by: str) -> bool:
    return not ping(bed, host, address, by, patience=0.4)


def megabits(bed: Testbed, source: int, sink: int, rail: str, size: int) -> float:
    """The payload rate of one TCP stream."""
    address = bed.rail(rail).address(sink)
    [server] = bed.start([PYTHON, "-c", SINK, address], on=[sink])
    server.wait_for("ready")
    bed.exec(source, [PYTHON, "-c", SOURCE, address, str(size)])
    return float(server.wait_for(r"mbit (\S+)", timeout=20)[1])


def drain(bed: Testbed) -> None:
    """Waits until no shaper holds any frames."""

    def is_drained() -> bool:
        shown = [
            command(["tc", "-n", bed.namespace(host), "-s", "-j", "qdisc", "show"])
            for host in (*range(bed.hosts), "sw")
        ]
        return not any(queue["qlen"] for text in shown for queue in json.loads(text))

    assert wait_until(is_drained, 5)


def received(bed: Testbed, source: int, sink: int, count: int) -> int:
    """The number of frames that reach `sink` when `source` sends it `count` on eth0."""
    before = bed.counters(sink, "eth0")["rx_packets"]
    bed.exec(source, [PYTHON, "-c", SPRAY, bed.rail("eth0").address(sink), str(count)])
    drain(bed)
    return bed.counters(sink, "eth0")["rx_packets"] - before
