"""What a model said of a few rows at an evaluation, for the page of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_ROWS, _TOKENS = 8, 80  # rows that are shown, and tokens of each


def of_tokens(batch: Mapping[str, np.ndarray], name: str, tokenizer: Any) -> list[list[str | dict[str, Any]]]:
    """Returns rows of pieces: text as it was read, or what was asked for and guessed there.

    Args:
      batch: a batch of an objective that predicts tokens, with its `<name>_positions`, `_labels`, `_weights`,
        and, (B, M) too, `_guesses`, the likeliest token at each position, and `_shares`, its probability.
      name: of the objective.
      tokenizer: of `bert_jax.data.tokenizer`.
    """
    guesses, shares = batch[f"{name}_guesses"], batch[f"{name}_shares"]
    rows = []
    for row in range(min(_ROWS, len(guesses))):
        asked = {
            int(batch[f"{name}_positions"][row, m]): m
            for m in np.flatnonzero(batch[f"{name}_weights"][row]).tolist()
        }
        if not asked:
            continue
        pieces: list[str | dict[str, Any]] = []
        plain: list[int] = []
        length = min(int(np.sum(batch["segment_ids"][row] > 0)), _TOKENS)
        for place in range(length):
            # A left-to-right model's guess at a position is of the token behind it.
            m = asked.get(place if name in ("mlm", "tta") else place - 1)
            if m is None:
                plain.append(int(batch["tokens"][row, place]))
                continue
            if plain:
                pieces.append(tokenizer.decode(plain))
                plain = []
            gold, guess = int(batch[f"{name}_labels"][row, m]), int(guesses[row, m])
            pieces.append({
                "gold": tokenizer.token(gold),
                "guess": tokenizer.token(guess) if guess < tokenizer.vocab_size else "",
                "probability": round(float(shares[row, m]), 4),
            })  # fmt: skip
        if plain:
            pieces.append(tokenizer.decode(plain))
        rows.append(pieces)
    return rows


def confusion(gold: np.ndarray, guesses: np.ndarray, labels: tuple[str, ...]) -> dict[str, Any]:
    """Returns how often each class, (N,) int, was taken for which; nothing of more than 30 classes."""
    if not 2 <= len(labels) <= 30:
        return {}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (gold, guesses), 1)
    return {"labels": list(labels), "counts": counts.tolist()}
