"""One tag a word: cross-entropy of each, or the negative log-likelihood of a chain of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.models import crf
from bert_jax.objectives.objective import Objective
from bert_jax.objectives.tokens import token_sums


class Tagging(Objective):
    """Loss of `tag_labels` (B, W) under `token_labels_logits` (B, W, C), a sum over words a word.

    Without a CRF it is each word's softmax cross-entropy. With one it is log Z - score of the tags of a
    whole sentence, summed over sentences, and divided by words too: so the two are of one scale, and a long
    sentence counts as much as its words. Words with `tag_weights` (B, W) of 0 are in neither sum nor
    chain.
    """

    name = "task"
    weight = 1.0

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many words of a batch are judged."""
        return jnp.sum(batch["tag_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses, those of the best path where there is a chain."""
        logits, labels, weights = outputs["token_labels_logits"], batch["tag_labels"], batch["tag_weights"]
        if "crf" in outputs:
            mask = weights > 0
            partition = crf.log_partition(outputs["crf"], logits, mask)
            loss = jnp.sum(partition - crf.score(outputs["crf"], logits, labels, mask))
        else:
            loss = token_sums(logits, labels, weights)["loss"]
        return {"loss": loss, "accuracy": jnp.sum((outputs["tags"] == labels) * weights)}
