# SPDX-License-Identifier: Apache-2.0
"""The communication of a training step with Horovod. Gradients become ready from the last layer to the
first, and the gradients of a cycle are fused into buffers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from lib.training.models import FLOAT, Model

FUSION_THRESHOLD = 64 << 20  # bytes: HOROVOD_FUSION_THRESHOLD's default
CYCLE = 1000.0  # microseconds: HOROVOD_CYCLE_TIME's default
BACKWARD = 2  # forward passes; the backward pass computes gradients of the inputs and of the weights


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A gradient."""

    ready: float  # microseconds since the step began
    size: int  # bytes


@dataclasses.dataclass(frozen=True)
class Operation:
    """An allreduce of a trace."""

    gap: float  # microseconds of computation since the operation before began
    size: int  # bytes


def step_flops(model: Model, batch: int) -> int:
    """Returns the floating-point operations of one rank's step, forward and backward."""
    return (1 + BACKWARD) * batch * model.flops()


def gradients(model: Model, computation: float, scale: int) -> list[Tensor]:
    """Returns the gradients in the order in which they become ready.

    `computation` is the microseconds of the step's computation. A tensor has 1 / scale of its elements, but
    at least one.
    """
    per_flop = computation / step_flops(model, 1)
    now = per_flop * model.flops()
    tensors = []
    for layer in reversed(model.work()):
        now += per_flop * BACKWARD * layer.flops
        tensors += [Tensor(now, FLOAT * math.ceil(each / scale)) for each in layer.tensors]
    return tensors


def fused(sizes: Sequence[int], threshold: int) -> list[int]:
    """Returns the sizes of the buffers in which tensors that are ready at once are sent, in their order.

    As in Horovod, a buffer also takes tensors from behind one that does not fit. A tensor beyond the
    threshold goes alone.
    """
    left = list(sizes)
    buffers = []
    while left:
        total, skipped = left[0], []
        for size in left[1:]:
            if total + size <= threshold:
                total += size
            else:
                skipped.append(size)
        buffers.append(total)
        left = skipped
    return buffers


def operations_of(tensors: Sequence[Tensor], threshold: int, cycle: float) -> list[Operation]:
    """Returns the operations that begin at the ends of cycles of `cycle` microseconds."""
    by_cycle: dict[int, list[int]] = {}
    for tensor in tensors:
        by_cycle.setdefault(math.ceil(tensor.ready / cycle), []).append(tensor.size)
    operations = []
    before = 0.0
    for number, sizes in by_cycle.items():
        for size in fused(sizes, threshold):
            operations.append(Operation(number * cycle - before, size))
            before = number * cycle
    return operations


def after_computation(operations: Sequence[Operation]) -> list[Operation]:
    """Returns the same operations with all of the computation before the first one."""
    total = sum(each.gap for each in operations)
    return [Operation(0 if i else total, each.size) for i, each in enumerate(operations)]


def trace_text(operations: Sequence[Operation], comment: str) -> str:
    """Returns the trace in the form that `nezha-bench replay` reads."""
    lines = [f"# {comment}", *(f"{each.gap:.1f} {each.size}" for each in operations)]
    return "\n".join(lines) + "\n"
