"""Replaced-token detection (Clark et al. 2020, section 3.2): which tokens did the generator put there?"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax.objectives.objective import Objective, real_tokens


class ReplacedTokens(Objective):
    """Binary cross-entropy of each real token's `rtd_labels`, special tokens included.

    The labels are an output of the model, whose generator draws the replacements.
    """

    name = "rtd"

    def __init__(self, config: ConfigDict):
        self.weight = config.weight

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many real tokens a batch holds."""
        return jnp.sum(real_tokens(batch))

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats), right guesses, and those of always answering "original"."""
        real = real_tokens(batch)
        replaced = outputs["rtd_labels"]
        margin = jnp.where(replaced, 1.0, -1.0) * outputs["rtd_logits"]
        return {
            "loss": jnp.sum(jax.nn.softplus(-margin) * real),
            "accuracy": jnp.sum((margin > 0) * real),
            "always_original_accuracy": jnp.sum(~replaced * real),
        }
