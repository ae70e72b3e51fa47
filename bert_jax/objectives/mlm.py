"""Masked language modelling (Devlin et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data import masking
from bert_jax.objectives.tokens import Unigram, token_sums


class MaskedLM:
    """Predicts chosen tokens, most of which are hidden behind [MASK], from all the others."""

    name = "mlm"

    def __init__(self, config: ConfigDict, tokenizer: Any, seq_len: int, unigram: np.ndarray):
        self.weight = config.weight
        self.config = config
        self.tokenizer = tokenizer
        self.capacity = masking.capacity(config.rate, seq_len, config.choice, config.max_predictions)
        self.random_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self.unigram = Unigram(unigram)

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns the corrupted `tokens` (B, S) and `mlm_positions`, `_labels`, `_weights` (B, M)."""
        tokens, segments, tok = batch["tokens"], batch["segment_ids"], self.tokenizer
        starts = None
        if self.config.unit == "word":
            starts = masking.word_starts(tokens, segments, tok.special_ids, tok.continues)
        chosen = masking.choose(
            tokens,
            masking.eligible(tokens, segments, tok.special_ids),
            generators,
            rate=self.config.rate,
            capacity=self.capacity,
            choice=self.config.choice,
            word_starts=starts,
        )
        corrupted = masking.corrupt(
            tokens,
            chosen,
            generators,
            mask_id=tok.mask_id,
            mask_share=self.config.mask_share,
            random_share=self.config.random_share,
            random_ids=self.random_ids,
        )
        positions, labels, weights = masking.gather(tokens, chosen, self.capacity)
        return {
            "tokens": corrupted,
            "mlm_positions": positions,
            "mlm_labels": labels,
            "mlm_weights": weights,
        }

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens a batch predicts."""
        return jnp.sum(batch["mlm_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        return token_sums(outputs["mlm_logits"], batch["mlm_labels"], batch["mlm_weights"])

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the sums of the guess without context."""
        return self.unigram.sums(batch["mlm_labels"], batch["mlm_weights"])
