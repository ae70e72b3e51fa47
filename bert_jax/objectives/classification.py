"""One label a text: softmax cross-entropy on the classifier's logits."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.objectives.objective import Objective


class Classification(Objective):
    """Cross-entropy of `labels` (B,) under `logits` (B, labels), rows weighted by `weights` (B,)."""

    name = "task"
    weight = 1.0

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        logits, labels = outputs["logits"], batch["labels"]
        is_label = jnp.arange(logits.shape[-1])[None, :] == labels[:, None]
        losses = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
        hits = jnp.argmax(logits, axis=-1) == labels
        return {"loss": jnp.sum(losses * batch["weights"]), "accuracy": jnp.sum(hits * batch["weights"])}
