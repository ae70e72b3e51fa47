"""The heads on an encoder's output."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.spec import ModelSpec, activation, dense_init, layer_norm

# Logit of a padded row of the vocabulary: its probability is exactly 0 in float32.
_NEVER = -1e9


def _dense(spec: ModelSpec, size: int, axes: tuple[str, str], name: str, bias: bool = True) -> nn.Dense:
    return nn.Dense(
        size,
        use_bias=bias,
        dtype=spec.dtype,
        kernel_init=dense_init(spec, *axes),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros, axes[1:]),
        name=name,
    )


class TokenHead(nn.Module):
    """Logits over the vocabulary.

    "tied" is BERT's: dense, activation, LayerNorm, then the word table and a bias of size V.
    "plain" is one (D, V) matrix.
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, word: jax.Array) -> jax.Array:
        """Returns (B, M, V) float32 logits, V padded, padded ones at -1e9.

        Args:
          hidden: (B, M, D), the positions that are predicted.
          word: (V, D), the word table.
        """
        spec = self.spec
        if spec.mlm_head == "plain":
            kernel = self.param("kernel", dense_init(spec, "embed", "vocab"), word.shape[::-1])
            logits = jnp.einsum(
                "BMD,DV->BMV", hidden, kernel.astype(spec.dtype), preferred_element_type=jnp.float32
            )
            bias = jnp.zeros(spec.padded_vocab_size)
        else:
            x = activation(spec)(_dense(spec, spec.hidden_size, ("embed", "embed_out"), "dense")(hidden))
            x = layer_norm(spec, "norm")(x)
            logits = jnp.einsum("BMD,VD->BMV", x, word.astype(spec.dtype), preferred_element_type=jnp.float32)
            bias = self.param(
                "bias",
                nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",)),
                (spec.padded_vocab_size,),
            )
        bias = jnp.where(jnp.arange(spec.padded_vocab_size) < spec.vocab_size, bias, _NEVER)
        return logits + bias[None, None, :]


class Pooler(nn.Module):
    """Dense and tanh on the first token's hidden state."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Returns (B, D) from (B, S, D)."""
        dense = _dense(self.spec, self.spec.hidden_size, ("embed", "embed_out"), "dense")
        return jnp.tanh(dense(hidden[:, 0]))


class NextSentenceHead(nn.Module):
    """Is B the text that follows A?

    "pooled" gives 2 logits on the pooled vector (class 0: it follows), as the released weights
    have it. "single" gives 1 logit from a (D, 1) matrix on the [CLS] output (positive: random).
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, pooled: jax.Array | None) -> jax.Array:
        """Returns (B, 2) or (B, 1) float32 logits from (B, S, D) states and the (B, D) pooled vector."""
        if self.spec.nsp_head == "single":
            logits = _dense(self.spec, 1, ("embed", "labels"), "dense", bias=False)(hidden[:, 0])
        else:
            logits = _dense(self.spec, 2, ("embed", "labels"), "dense")(pooled)
        return logits.astype(jnp.float32)
