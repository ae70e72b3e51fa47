"""T-TA: every token predicted in one pass, none seeing itself (Shin et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data import masking
from bert_jax.objectives.tokens import Unigram, token_sums, with_ends


class TransformerTextAutoencoder:
    """Predicts the tokens of an unchanged text, the two end tokens included.

    The loss is a mean over real tokens; the released code divides by padding too.
    """

    name = "tta"

    def __init__(self, config: ConfigDict, tokenizer: Any, seq_len: int, unigram: np.ndarray):
        self.weight = config.weight
        self.rate = config.rate
        self.capacity = seq_len if self.rate >= 1 else masking.capacity(config.rate, seq_len, "bernoulli")
        # The end tokens are predicted too, one each a text, and the baseline must know of them.
        self.unigram = Unigram(with_ends(unigram, [tokenizer.cls_id, tokenizer.sep_id], seq_len))

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns `tta_labels` and `tta_weights`: (B, S) at rate 1, else (B, M) with `tta_positions`."""
        tokens, real = batch["tokens"], batch["segment_ids"] > 0
        if self.rate >= 1:
            return {"tta_labels": tokens, "tta_weights": real.astype(np.float32)}
        chosen = masking.choose(real, generators, rate=self.rate, capacity=self.capacity, choice="bernoulli")
        positions, labels, weights = masking.gather(tokens, chosen, self.capacity)
        return {"tta_positions": positions, "tta_labels": labels, "tta_weights": weights}

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens a batch predicts."""
        return jnp.sum(batch["tta_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        return token_sums(outputs["tta_logits"], batch["tta_labels"], batch["tta_weights"])

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the sums of the guess without context."""
        return self.unigram.sums(batch["tta_labels"], batch["tta_weights"])
