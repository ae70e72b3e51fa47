"""Masked language modelling (Devlin et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data import masking, spans
from bert_jax.objectives.tokens import Unigram, token_sums


class MaskedLM:
    """Predicts chosen tokens, most of which are hidden behind [MASK], from all the others.

    They are chosen one by one, or as whole words, n-grams or spans of words (`bert_jax.data.spans`). What
    becomes of a chosen token is decided for each alone, also within words and n-grams, as in the released
    codes of BERT and ALBERT; a span is masked, replaced or kept as a whole (SpanBERT, section 3.1).
    """

    name = "mlm"

    def __init__(self, config: ConfigDict, tokenizer: Any, seq_len: int, unigram: np.ndarray):
        """Fits the number of predicted positions, M, to the rate, the unit and the row.

        Args:
          config: the group `objective.mlm`.
          tokenizer: of `bert_jax.data.tokenizer`.
          seq_len: S.
          unigram: (V,) counts of the training tokens.

        Raises:
          ValueError: a unit of words, and a tokenizer that knows no words.
        """
        self.weight = config.weight
        self.config = config
        self.tokenizer = tokenizer
        self.law, continuing = None, 0.0
        if config.unit != "token":
            if not tokenizer.continues.any():
                raise ValueError(
                    f'objective.mlm.unit = "{config.unit}" chooses whole words, and no token of this '
                    'vocabulary is marked as going on with a word: set objective.mlm.unit = "token"'
                )
            self.law = {
                "word": spans.ONE_WORD,
                "ngram": spans.ngram_law(config.ngram),
                "span": spans.span_law(config.span_p, config.span_max),
            }[config.unit]
            continuing = float(unigram[tokenizer.continues].sum() / max(1, unigram.sum()))
        self.capacity = masking.capacity(
            config.rate, seq_len, config.choice, config.max_predictions, self.law, continuing
        )
        self.random_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self.unigram = Unigram(unigram)

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns the corrupted `tokens` (B, S) and `mlm_positions`, `_labels`, `_weights` (B, M)."""
        tokens, segments, tok = batch["tokens"], batch["segment_ids"], self.tokenizer
        eligible = masking.eligible(tokens, segments, tok.special_ids)
        options = {"rate": self.config.rate, "capacity": self.capacity, "choice": self.config.choice}
        together = None
        if self.law is None:
            chosen = masking.choose(eligible, generators, **options)
        else:
            starts = masking.word_starts(tokens, segments, tok.special_ids, tok.continues)
            chosen, first = spans.choose(eligible, starts, segments, generators, law=self.law, **options)
            together = first if self.config.unit == "span" else None
        corrupted = masking.corrupt(
            tokens,
            chosen,
            generators,
            mask_id=tok.mask_id,
            mask_share=self.config.mask_share,
            random_share=self.config.random_share,
            random_ids=self.random_ids,
            together=together,
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
