"""Where an answer starts and ends: softmax cross-entropy over the tokens of a row (Devlin et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.objectives.objective import Objective

_NEVER = -1e9  # logit of padding: its probability is exactly 0 in float32


class AnswerSpan(Objective):
    """Mean of the two cross-entropies of `span_labels` (B, 2) under `span_logits` (B, S, 2).

    Padding has no share of the softmax. Rows are weighted by `weights` (B,). A row is right where start and
    end both are.
    """

    name = "task"
    weight = 1.0

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right rows."""
        labels, weights = batch["span_labels"], batch["weights"]
        logits = jnp.where((batch["segment_ids"] > 0)[..., None], outputs["span_logits"], _NEVER)
        is_label = jnp.arange(logits.shape[1])[None, :, None] == labels[:, None, :]
        right = jnp.sum(jnp.where(is_label, logits, 0.0), axis=1)
        losses = jnp.mean(jax.nn.logsumexp(logits, axis=1) - right, axis=-1)
        hits = jnp.all(jnp.argmax(logits, axis=1) == labels, axis=-1)
        return {"loss": jnp.sum(losses * weights), "accuracy": jnp.sum(hits * weights)}
