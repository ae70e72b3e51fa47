"""Counts equal texts by 64-bit hashes kept on disk, so that memory does not grow with the corpus."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterator

import numpy as np

_BUCKETS = 256  # files; one at a time is held in memory
_PENDING = 1 << 13  # hashes held before they are written


def text_hash(text: str) -> int:
    """Returns a 64-bit hash of a text: two different ones are equal with a chance of 2**-64."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


class DocumentHash:
    """The hash of a document, from those of its paragraphs in order, piece by piece."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=8)

    def add(self, paragraphs: np.ndarray) -> None:
        """Adds uint64 (n,) hashes of the next paragraphs."""
        self._digest.update(paragraphs.tobytes())

    def value(self) -> np.ndarray:
        """Returns uint64 (1,)."""
        return np.frombuffer(self._digest.digest(), "<u8")


class HashBag:
    """A bag of 64-bit hashes on disk, in files by their highest bits."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._pending: list[np.ndarray] = []
        self._held = 0

    def add(self, hashes: np.ndarray) -> None:
        """Adds uint64 (n,) hashes."""
        self._pending.append(hashes)
        self._held += len(hashes)
        if self._held >= _PENDING:
            self._flush()

    def _flush(self) -> None:
        hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *self._pending]))
        borders = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(56)
        pieces = np.split(hashes, np.searchsorted(hashes, borders[1:]))
        for bucket, piece in enumerate(pieces):
            if len(piece):
                with (self._folder / f"{bucket:03d}").open("ab") as file:
                    file.write(piece.tobytes())
        self._pending, self._held = [], 0

    def buckets(self) -> Iterator[np.ndarray]:
        """Yields the hashes, uint64, a bucket at a time: equal ones lie in the same."""
        self._flush()
        for bucket in range(_BUCKETS):
            path = self._folder / f"{bucket:03d}"
            yield np.fromfile(path, np.uint64) if path.exists() else np.empty(0, np.uint64)


def repeated(bag: HashBag) -> int:
    """Returns how many members have an equal one before them."""
    return sum(len(bucket) - len(np.unique(bucket)) for bucket in bag.buckets())


def shared(bag: HashBag, other: HashBag) -> int:
    """Returns how many members of `bag` occur in `other`."""
    pairs = zip(bag.buckets(), other.buckets(), strict=True)
    return sum(int(np.isin(mine, theirs).sum()) for mine, theirs in pairs)
