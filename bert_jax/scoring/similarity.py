"""Sentence pairs: how alike their vectors are, and how that goes with gold scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from etils import epath

from bert_jax.scoring.vectors import Embedder, cosines
from bert_jax.tasks import scores, tables

Pair = tuple[str, str, float | None]


def read(path: epath.Path, first: str, second: str, gold: str) -> list[Pair]:
    """Returns (first, second, gold) of each row of a table.

    Raises:
      ValueError: a column, a text or a number is not there, or no row is.
    """
    columns = [first, second, *[gold] * bool(gold)]
    pairs = [
        (
            tables.text(row, first, empty=True),
            tables.text(row, second, empty=True),
            tables.number(row, gold) if gold else None,
        )
        for row in tables.rows(path, columns)
    ]
    if not pairs:
        raise ValueError(f"{path}: no pair in it")
    return pairs


def of_pairs(embedder: Embedder, pairs: list[Pair]) -> np.ndarray:
    """Returns the (N, P) cosines of pairs, for each of the embedder's poolings."""
    made = embedder.vectors(text for pair in pairs for text in pair[:2])
    return np.array([cosines(a, next(made)) for a in made])


def table(poolings: tuple[str, ...], pairs: list[Pair], found: np.ndarray) -> str:
    """Returns the lines of the summary."""
    gold = np.array([pair[2] for pair in pairs], float)
    lines = [f"{'pooling':<16}{'Pearson':>9}{'Spearman':>10}"]
    for name, values in zip(poolings, found.T, strict=True):
        both = scores.correlations(gold, values)
        lines.append(f"{name:<16}{100 * both['pearson']:>9.2f}{100 * both['spearman']:>10.2f}")
    return "\n".join(
        [*lines, f"{len(pairs)} pairs; correlations of the cosine with the gold score, times 100"]
    )


def values(poolings: tuple[str, ...], pairs: list[Pair], found: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yields what is written of each pair."""
    for (first, second, gold), row in zip(pairs, found, strict=True):
        cosine = {name: round(float(value), 6) for name, value in zip(poolings, row, strict=True)}
        yield {
            "first": first,
            "second": second,
            **({} if gold is None else {"gold": gold}),
            "cosine": cosine,
        }
