# SPDX-License-Identifier: Apache-2.0
"""The ways to cut a cable, and nft's rules for these and for loss."""

from __future__ import annotations

from collections.abc import Mapping

from rails import Rail

WAYS_TO_CUT = ["carrier", "admin", "silent", "large", "refused", "reset"]
LARGE = 600  # bytes, more than handshakes and short messages need


def drop_rules(kind: str, rail: Rail, host: int, *hooks: str, match: str | Mapping[str, str] = "") -> str:
    """Returns an nft script that drops matching frames at these hooks of a switch port.

    Without hooks it drops nothing.

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


def refusal_rules(rail: Rail, by: str = "", what: str = "") -> str:
    """Returns an nft script by which a host's own firewall resets what matches; without a match nothing."""
    table = f"inet refused_{rail.name}"
    lines = [f"add table {table}", f"delete table {table}"]
    if by:
        lines += [
            f"add table {table}",
            f"add chain {table} input {{ type filter hook input priority 0; }}",
            f'add rule {table} input {by} "{rail.name}" {what} counter reject with tcp reset',
        ]
    return "\n".join(lines) + "\n"
