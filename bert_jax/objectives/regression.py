"""One number a text: squared error of the head's single output."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np


class Regression:
    """(logit - label)^2 of `labels` (B,) float32 and `logits` (B, 1), rows weighted by `weights` (B,)."""

    name = "task"
    weight = 1.0

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Adds nothing: the task's examples carry their values."""
        return {}

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many real rows a batch holds."""
        return jnp.sum(batch["weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed squared error."""
        errors = outputs["logits"][:, 0] - batch["labels"]
        return {"loss": jnp.sum(errors**2 * batch["weights"])}

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Adds nothing: the task knows its mean."""
        return {}
