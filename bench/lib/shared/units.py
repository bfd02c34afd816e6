# SPDX-License-Identifier: Apache-2.0
"""Sizes and times as people write and read them."""

import argparse
import re

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Returns the bytes of float32 elements: 4, 1K, 64M; K may be k, Ki or ki, and so may the others."""
    digits, unit = text, 1
    match = re.fullmatch(r"(.*)([KMG])i?", text, re.IGNORECASE)
    if match:
        digits, unit = match[1], UNITS[match[2].upper()]
    size = int(digits) * unit if re.fullmatch(r"[0-9]+", digits) else 0
    if size == 0 or size % 4:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no size in bytes, a multiple of 4, plain or with K, M or G (or k, Ki and"
            " so on)"
        )
    return size


def size_text(size: float) -> str:
    if size == 0:
        return "no data"
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size:g} B"


def time_text(microseconds: float) -> str:
    for name, unit in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= unit:
            return f"{microseconds / unit:.3g} {name}"
    return f"{microseconds:.3g} µs"
