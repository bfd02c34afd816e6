# SPDX-License-Identifier: Apache-2.0
"""Neural networks as their papers describe them: parameters and floating-point operations by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

FLOAT = 4  # bytes of a parameter


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a layer's input or output for one image."""

    channels: int
    side: int  # the width and the height

    @property
    def size(self) -> int:
        return self.channels * self.side**2


@dataclasses.dataclass(frozen=True)
class Conv:
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1  # a group sees only its part of the channels

    def output(self, given: Shape) -> Shape:
        side = (given.side + 2 * self.padding - self.kernel) // self.stride + 1
        return Shape(self.channels, side)

    def tensors(self, given: Shape) -> list[int]:
        """Returns the numbers of parameters of the weights and of the bias."""
        seen = given.channels // self.groups
        return [self.channels * seen * self.kernel**2, self.channels]

    def flops(self, given: Shape) -> int:
        """Returns the operations of one image's forward pass; a multiplication and an addition are two."""
        weights, _ = self.tensors(given)
        return 2 * weights * self.output(given).side ** 2


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pooling layer, which has no parameters, and hardly any operations."""

    kernel: int
    stride: int

    def output(self, given: Shape) -> Shape:
        return Shape(given.channels, (given.side - self.kernel) // self.stride + 1)

    def tensors(self, given: Shape) -> list[int]:
        return []

    def flops(self, given: Shape) -> int:
        return 0


@dataclasses.dataclass(frozen=True)
class Linear:
    """A fully connected layer."""

    outputs: int

    def output(self, given: Shape) -> Shape:
        return Shape(self.outputs, 1)

    def tensors(self, given: Shape) -> list[int]:
        return [given.size * self.outputs, self.outputs]

    def flops(self, given: Shape) -> int:
        return 2 * given.size * self.outputs


@dataclasses.dataclass(frozen=True)
class Work:
    """The parameters and the operations of a layer of a network."""

    tensors: list[int]  # the numbers of parameters
    flops: int  # the operations of one image's forward pass


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    image: Shape
    layers: Sequence[Conv | Pool | Linear]

    def work(self) -> list[Work]:
        """Returns the work of each layer, from the first to the last."""
        work = []
        given = self.image
        for layer in self.layers:
            work.append(Work(layer.tensors(given), layer.flops(given)))
            given = layer.output(given)
        return work

    def parameters(self) -> int:
        return sum(sum(layer.tensors) for layer in self.work())

    def flops(self) -> int:
        """Returns the operations of one image's forward pass."""
        return sum(layer.flops for layer in self.work())


def _vgg_block(*channels: int) -> list[Conv | Pool]:
    return [*(Conv(each, kernel=3, padding=1) for each in channels), Pool(2, stride=2)]


MODELS = {
    # A. Krizhevsky, I. Sutskever, G. Hinton, NIPS 2012. Its two groups ran on two GPUs. The paper gives
    # images with a side of 224, but its output of 55 for the first layer needs a side of 227.
    "alexnet": Model(
        "AlexNet",
        Shape(3, 227),
        [
            Conv(96, kernel=11, stride=4),
            Pool(3, stride=2),
            Conv(256, kernel=5, padding=2, groups=2),
            Pool(3, stride=2),
            Conv(384, kernel=3, padding=1),
            Conv(384, kernel=3, padding=1, groups=2),
            Conv(256, kernel=3, padding=1, groups=2),
            Pool(3, stride=2),
            *(Linear(outputs) for outputs in (4096, 4096, 1000)),
        ],
    ),
    # K. Simonyan, A. Zisserman, ICLR 2015: configuration A, of 11 layers with weights.
    "vgg11": Model(
        "VGG-11",
        Shape(3, 224),
        [
            *_vgg_block(64),
            *_vgg_block(128),
            *_vgg_block(256, 256),
            *_vgg_block(512, 512),
            *_vgg_block(512, 512),
            *(Linear(outputs) for outputs in (4096, 4096, 1000)),
        ],
    ),
}
