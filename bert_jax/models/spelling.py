"""The detector of Soft-Masked BERT (Zhang et al., ACL 2020): which tokens are wrong."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.spec import ModelSpec, dense, recurrent_inits


class Detector(nn.Module):
    """A gated recurrent unit in each direction over the embedded tokens, and a logit of each (3.2 there)."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, embedded: jax.Array, segment_ids: jax.Array) -> jax.Array:
        """Returns (B, S) float32 logits; positive: the token is wrong.

        Args:
          embedded: (B, S, E), with positions and segments in it.
          segment_ids: (B, S) int32, each row's tokens at its front; what stands behind them changes nothing
            before it.
        """
        embedded = embedded.astype(jnp.float32)
        lengths = jnp.sum(segment_ids > 0, axis=1)

        def cell(name: str) -> nn.GRUCell:
            return nn.GRUCell(self.spec.gru_size, **recurrent_inits(), name=name)

        forward = nn.RNN(cell("forward"))(embedded, seq_lengths=lengths)
        backward = nn.RNN(cell("backward"), reverse=True, keep_order=True)(embedded, seq_lengths=lengths)
        states = jnp.concatenate([forward, backward], axis=-1)
        return dense(self.spec, 1, ("embed", "labels"), "out")(states)[..., 0].astype(jnp.float32)


def softly_masked(embedded: jax.Array, mask: jax.Array, wrong: jax.Array) -> jax.Array:
    """Returns p * e[MASK] + (1 - p) * e of each token (equation 3 there), in the embeddings' dtype.

    Args:
      embedded: (B, S, E).
      mask: (B, S, E), a mask embedded at the same place.
      wrong: (B, S) float32, p, that the token is wrong.
    """
    share = wrong[..., None].astype(embedded.dtype)
    return share * mask + (1 - share) * embedded
