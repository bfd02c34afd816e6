# SPDX-License-Identifier: Apache-2.0
"""Names for calls. Each member is its name as text, so that "sum" is ReduceOperation.SUM."""

from __future__ import annotations

import enum


class ReduceOperation(str, enum.Enum):
    """The ways in which elements are combined.

    Integers wrap around where they overflow. The average of integers is rounded towards zero. float16
    and bfloat16 are computed in float32, and each result is rounded.
    """

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AVERAGE = "average"


class Algorithm(str, enum.Enum):
    """The algorithms of collectives. A collective that lacks the chosen one raises InvalidArgument."""

    AUTO = "auto"
    RING = "ring"
    RECURSIVE_DOUBLING = "recursive-doubling"
    HALVING_DOUBLING = "halving-doubling"
    DIRECT = "direct"
    BCUBE = "bcube"
    BRUCK = "bruck"
    PAIRWISE = "pairwise"
    TREE = "tree"


class Plan(str, enum.Enum):
    """The ways in which one operation is spread over the rails."""

    STRIPE = "stripe"
    SLICE = "slice"
    AUTO = "auto"


class BalancePolicy(str, enum.Enum):
    """The ways in which the load balancer divides messages among rails."""

    MODEL = "model"
    PAPER = "paper"
    NONE = "none"
    SHUFFLE = "shuffle"


class Polling(str, enum.Enum):
    """The behaviour of a waiting caller while there is nothing to do: poll for a while, or sleep at once."""

    LATENCY_FIRST = "latency-first"
    CPU_FIRST = "cpu-first"


class DataType(str, enum.Enum):
    """The types of elements that can be reduced."""

    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"
    UINT32 = "uint32"
    INT32 = "int32"
    UINT64 = "uint64"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
