"""One number a text: squared error of the head's single output."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.objectives.objective import Objective


class Regression(Objective):
    """(logit - label)^2 of `labels` (B,) float32 and `logits` (B, 1), rows weighted by `weights` (B,)."""

    name = "task"
    weight = 1.0

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed squared error."""
        errors = outputs["logits"][:, 0] - batch["labels"]
        return {"loss": jnp.sum(errors**2 * batch["weights"])}
