"""Sentences that no run was trained on, the same for all."""

from __future__ import annotations

import hashlib
import heapq
import pathlib
import tempfile
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.data import holdout
from bert_jax.data.sentences import sentences


def draw(config: ConfigDict, count: int) -> list[str]:
    """Returns sentences of the held-out text, in its order.

    Which ones, a hash of their places says: none is likelier than another, and a sentence that stands twice
    in the text counts twice. Memory does not grow with the text.

    Args:
      config: of one of the runs.
      count: how many at most.
    """
    chosen = heapq.nsmallest(count, enumerate(_all(config)), key=lambda each: _hash(each[0]))
    return [text for _, text in sorted(chosen)]


def _hash(place: int) -> bytes:
    return hashlib.blake2b(str(place).encode(), digest_size=8).digest()


def _all(config: ConfigDict) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        lengths = pathlib.Path(folder) / "lengths"
        holdout.measure(config, lengths)
        for split, _, paragraph in holdout.assigned(config, lengths):
            if split == "eval":
                yield from sentences(paragraph)
