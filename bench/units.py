"""Sizes and times as people write and read them."""

import argparse

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of float32: 4, 1K, 64M."""
    digits, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    size = int(digits) * unit if digits.isdigit() else 0
    if size == 0 or size % 4:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no size in bytes, a multiple of 4, plain or with a capital K, M or G"
        )
    return size


def size_text(size: float) -> str:
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size:g} B"


def time_text(microseconds: float) -> str:
    for name, unit in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= unit:
            return f"{microseconds / unit:.3g} {name}"
    return f"{microseconds:.3g} µs"
