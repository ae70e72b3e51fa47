"""What left-to-right objectives share: which positions predict the token after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data import masking
from bert_jax.objectives.tokens import Unigram, token_sums, with_ends


class NextToken:
    """Cross-entropy of the token at i + 1 under the logits at i, both of one unit.

    The end of a unit, [SEP], is predicted too, and its start, [CLS], never. A subclass names the objective
    and says which of the positions count.

    Attributes:
      capacity: M, the positions of a row that logits are computed at: S - 1 at rate 1, where they are all
        but the last; below 1 as many as fewer than 1 in 10,000 full rows exceed.
    """

    name: str

    def __init__(self, config: ConfigDict, tokenizer: Any, seq_len: int, unigram: np.ndarray):
        """Fits M to the rate and the row.

        Args:
          config: the objective's group: `weight` and `rate`, the share of the tokens that is predicted.
          tokenizer: of `bert_jax.data.tokenizer`.
          seq_len: S.
          unigram: (V,) counts of the training tokens.
        """
        self.weight, self.rate = config.weight, config.rate
        self.capacity = seq_len - 1
        if self.rate < 1:
            self.capacity = min(self.capacity, masking.capacity(self.rate, seq_len, "bernoulli"))
        self.unigram = Unigram(with_ends(unigram, [tokenizer.sep_id], seq_len))

    def targets(
        self, batch: Mapping[str, np.ndarray], may: np.ndarray, generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns `NAME_positions`, `_labels` and `_weights`, (B, M).

        Args:
          batch: `tokens` (B, S).
          may: (B, S) bool: positions whose next token may be predicted; never the last of a row.
          generators: one a row; not used at rate 1.
        """
        following = np.roll(batch["tokens"], -1, axis=1)
        if self.rate >= 1:
            # The same positions in every row, so that the model's gather is a slice.
            positions = np.tile(np.arange(self.capacity, dtype=np.int32), (len(may), 1))
            labels, weights = following[:, :-1] * may[:, :-1], may[:, :-1].astype(np.float32)
        else:
            chosen = masking.choose(
                may, generators, rate=self.rate, capacity=self.capacity, choice="bernoulli"
            )
            positions, labels, weights = masking.gather(following, chosen, self.capacity)
        return {
            f"{self.name}_positions": positions,
            f"{self.name}_labels": labels,
            f"{self.name}_weights": weights,
        }

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens a batch predicts."""
        return jnp.sum(batch[f"{self.name}_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        logits = outputs[f"{self.name}_logits"]
        return token_sums(logits, batch[f"{self.name}_labels"], batch[f"{self.name}_weights"])

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the sums of the guess without context."""
        return self.unigram.sums(batch[f"{self.name}_labels"], batch[f"{self.name}_weights"])


def has_next(segment_ids: np.ndarray) -> np.ndarray:
    """Returns (B, S) bool: positions with a next token in the same unit; segment_ids is 0 for padding."""
    result = segment_ids > 0
    result[:, :-1] &= segment_ids[:, 1:] == segment_ids[:, :-1]
    result[:, -1] = False
    return result
