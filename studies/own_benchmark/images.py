"""CIFAR-10's images in memory: training images, some of them held out for validation, and test images; augmented batches."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from hwbench.core import schema
from hwbench.core.errors import UsageError

FOLDER = "cifar10_jpeg"
CLASSES, VALIDATION, SPLIT_SEED = 10, 5000, 10
"""So many training images are held out, the same number of every class, drawn by that seed."""
PADDING = 4
"""Pixels of black on every side, out of which crops of the image's size are cut."""
DESCRIBED = {
    "images": f"{FOLDER}: CIFAR-10 re-encoded as JPEG, 32 x 32",
    "held_out_for_validation": VALIDATION,
    "split_seed": SPLIT_SEED,
    "augmentation": f"crops of the image padded by {PADDING} black pixels, mirrored every other time",
}
"""For the card."""
Tensor: TypeAlias = torch.Tensor


@dataclass(frozen=True)
class Split:
    """Images as uint8[n, channels, side, side], and their classes."""

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _crops(self) -> np.ndarray:
        """Every crop of every padded image, as a view."""
        padded = np.pad(self.pixels, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        return np.lib.stride_tricks.sliding_window_view(padded, self.pixels.shape[2:], axis=(2, 3))

    def augmented(self, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A random crop of each image, every other one mirrored."""
        y, x = rng.integers(0, 2 * PADDING + 1, (2, len(chosen)))
        pixels = self._crops[chosen, :, y, x]
        mirrored = rng.random(len(chosen)) < 0.5
        pixels[mirrored] = pixels[mirrored][..., ::-1]
        return pixels


@dataclass(frozen=True)
class Data:
    """What is trained on, what a search may see, what only reports see."""

    train: Split
    validation: Split
    test: Split

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Mean and spread of every channel of the training images."""
        pixels = self.train.pixels
        mean = pixels.mean(axis=(0, 2, 3), dtype=np.float64)
        spread = np.sqrt((pixels.astype(np.float32) ** 2).mean(axis=(0, 2, 3), dtype=np.float64) - mean**2)
        first, second = (torch.tensor(each, dtype=torch.float32)[:, None, None] for each in (mean, spread))
        return first, second

    def scaled(self, pixels: np.ndarray) -> Tensor:
        """Zero mean and unit spread per channel, as networks take images."""
        mean, spread = self._scale
        return (torch.from_numpy(pixels).float() - mean) / spread

    def epoch(self, batch: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Every training image once, in random order, augmented; an incomplete last batch is left out."""
        order = rng.permutation(len(self.train))
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            yield self.scaled(self.train.augmented(chosen, rng)), torch.from_numpy(self.train.labels[chosen])

    def steps(self, batch: int) -> int:
        """Batches of an epoch."""
        return len(self.train) // batch


def read(folder: Path, tiny: bool = False) -> Data:
    """The data set from its Parquet files; a small part of it for a trial run.

    Raises:
        UsageError: a file is missing.
    """
    paths = [folder / FOLDER / f"{name}.parquet" for name in ("train", "test")]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} is missing; give the folder that holds {FOLDER} by --datasets or HWBENCH_DATASETS.")
    every, test = (_decoded(path, 640 if tiny else None) for path in paths)
    rng, held_out = np.random.default_rng(SPLIT_SEED), VALIDATION // 50 if tiny else VALIDATION
    chosen = np.concatenate([rng.permutation(np.flatnonzero(every.labels == c))[: held_out // CLASSES] for c in range(CLASSES)])
    left = np.setdiff1d(np.arange(len(every)), chosen)
    train, validation = (Split(every.pixels[rows], every.labels[rows]) for rows in (left, np.sort(chosen)))
    return Data(train, validation, test)


def _decoded(path: Path, most: int | None) -> Split:
    from PIL import Image

    rows = schema.read_table(path)
    labels = rows["label"].to_numpy().astype(np.int64)
    step = 1 if most is None else max(1, len(labels) // most)  # files are sorted by class
    jpegs = rows["jpeg"].to_pylist()[::step]
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in jpegs])
    return Split(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels[::step])
