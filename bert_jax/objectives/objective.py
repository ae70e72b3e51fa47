"""What an objective adds to a batch and says without a model, where it is nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np


class Objective:
    """The parts that an objective may leave as they are; see `bert_jax.objectives`."""

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Adds nothing: the batch, or another objective, has all that is asked for."""
        return {}

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many real rows a batch holds, by their `weights` (B,)."""
        return jnp.sum(batch["weights"])

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Adds nothing: what the loss is compared with is told by the sums, or by the task."""
        return {}


def real_tokens(batch: Mapping[str, jax.Array]) -> jax.Array:
    """Returns (B, S) float32: 1 for a token, 0 for padding."""
    return (batch["segment_ids"] > 0).astype(jnp.float32)
