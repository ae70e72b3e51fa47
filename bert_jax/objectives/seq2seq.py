"""The answer to a source, each token from the source and the tokens before it."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.objective import Objective
from bert_jax.objectives.tokens import Unigram, token_sums


class SequenceToSequence(Objective):
    """Cross-entropy of `prefix_labels` (B, M) under `prefix_logits` (B, M, V), a sum over tokens a token.

    Attributes:
      capacity: M.
    """

    name = "task"
    weight = 1.0

    def __init__(self, capacity: int, unigram: np.ndarray) -> None:
        """Keeps what the loss is compared with.

        Args:
          capacity: M.
          unigram: (V,) counts of the tokens that the training data has in its targets.
        """
        self.capacity = capacity
        self.unigram = Unigram(unigram)

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens a batch predicts."""
        return jnp.sum(batch["prefix_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        return token_sums(outputs["prefix_logits"], batch["prefix_labels"], batch["prefix_weights"])

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the sums of the guess without context."""
        return self.unigram.sums(batch["prefix_labels"], batch["prefix_weights"])
