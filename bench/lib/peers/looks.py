# SPDX-License-Identifier: Apache-2.0
"""The colour and the marker of each peer in the pictures, as in figure.LOOKS.

A family of peers has one colour in several shades.
"""

LOOKS = {
    "nezha": ("#0b4f8a", "s"),
    "nezha-cpu": ("#5a9bd4", "<"),
    "nezha-off": ("#8fb8de", "h"),
    "nezha-on": ("#2f78b7", "8"),
    "gloo": ("#e08214", ">"),
    "gloo-ring": ("#e08214", "^"),
    "gloo-bcube": ("#f0b462", "v"),
    "mptcp": ("#c51b1b", ">"),
    "mptcp-ring": ("#c51b1b", "^"),
    "mptcp-bcube": ("#e88a8a", "v"),
    "gloo-parts": ("#9c3d10", "D"),
    "gloo-weights": ("#6b5a2e", "d"),
    "gloo-device": ("#17a0a0", "H"),
    "gloo-preload": ("#1f3d7a", "H"),
    "ompi": ("#1b7837", "o"),
    "ompi-one": ("#0f4d24", "8"),
    "ompi-ring": ("#5aae61", "p"),
    "ompi-weights": ("#a6c96a", "h"),
    "ompi-spin": ("#00c2a0", "P"),
    "ucx": ("#762a83", ">"),
    "ucx-ring": ("#762a83", "X"),
    "mpich": ("#b48ac9", "*"),
    "iperf3": ("#222222", "_"),
}
