"""The heads on an encoder's output."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import sequence
from bert_jax.models.activations import ACTIVATIONS, gelu
from bert_jax.models.spec import (
    ModelSpec,
    dense,
    dense_init,
    layer_norm,
    recurrent_inits,
)
from bert_jax.models.vocabulary import Unmade

# Logit of a padded row of the vocabulary: its probability is exactly 0 in float32.
_NEVER = -1e9


class TokenHead(nn.Module):
    """Logits over the vocabulary.

    "tied" is BERT's: dense (to E), activation, LayerNorm, then the word table and a bias of size V.
    "plain" is one (D, V) matrix.
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, word: jax.Array, parts: int = 1) -> jax.Array | Unmade:
        """Returns (B, M, V) float32 logits, V padded, padded ones at -1e9.

        Args:
          hidden: (B, M, D), the positions that are predicted.
          word: (V, E), the word table.
          parts: above 1 the logits are left unmade, to be made in so many parts.
        """
        spec, rows = self.spec, sequence.merged(hidden)
        if spec.mlm_head == "plain":
            shape = (hidden.shape[-1], word.shape[0])
            x = rows
            table = self.param("kernel", dense_init(spec, "embed", "vocab"), shape).T
            bias = jnp.zeros(spec.padded_vocab_size)
        else:
            to_table = dense(spec, spec.embedded_size, ("embed", "embed_out"), "dense", spec.bias)
            x = layer_norm(spec, "norm")(ACTIVATIONS[spec.activation](to_table(rows)))
            table = word
            bias = self.param(
                "bias",
                nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",)),
                (spec.padded_vocab_size,),
            )
        bias = jnp.where(jnp.arange(spec.padded_vocab_size) < spec.vocab_size, bias, _NEVER)
        table = table.astype(spec.dtype)
        if parts > 1:
            return Unmade(x.reshape(*hidden.shape[:-1], -1), table, bias, parts)
        logits = jnp.einsum("...E,VE->...V", x, table, preferred_element_type=jnp.float32)
        return logits.reshape(*hidden.shape[:-1], -1) + bias[None, None, :]


class Pooler(nn.Module):
    """Dense and an activation; with pooler "norm" also a LayerNorm (ModernBERT's prediction head)."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns (.., D) from (.., D): of a text's pooled state, or of each token's."""
        spec = self.spec
        x = dense(spec, spec.hidden_size, ("embed", "embed_out"), "dense", spec.bias)(x)
        if spec.pooler == "norm":
            return layer_norm(spec, "norm")(ACTIVATIONS[spec.activation](x))
        return {"tanh": jnp.tanh, "relu": nn.relu, "gelu": gelu}[spec.pooler](x)


class AttentionPooling(nn.Module):
    """One vector of a text: the sum of its states, each by its share of softmax(query . state).

    The query is learnt. It is 0 at first, so that the vector begins as the states' mean.
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, segment_ids: jax.Array) -> jax.Array:
        """Returns (B, D) from (B, S, D) states; padding, (B, S) segment ids of 0, has no share."""
        zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("embed",))
        query = self.param("query", zeros, (self.spec.hidden_size,))
        states = hidden.astype(jnp.float32)
        scores = jnp.einsum("BSD,D->BS", states, query)
        shares = jax.nn.softmax(jnp.where(segment_ids > 0, scores, _NEVER), axis=-1)
        return jnp.einsum("BS,BSD->BD", shares, states).astype(hidden.dtype)


class BiLstm(nn.Module):
    """A long short-term memory in each direction (Graves and Schmidhuber 2005), in float32."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: jax.Array, lengths: jax.Array) -> jax.Array:
        """Returns (B, W, 2 * lstm_size) float32, forward then backward.

        Args:
          x: (B, W, D), each row's words at its front.
          lengths: (B,) int32, how many; what stands behind them changes nothing before it.
        """
        x = x.astype(jnp.float32)

        def cell(name: str) -> nn.OptimizedLSTMCell:
            return nn.OptimizedLSTMCell(self.spec.lstm_size, **recurrent_inits(), name=name)

        forward = nn.RNN(cell("forward"))(x, seq_lengths=lengths)
        backward = nn.RNN(cell("backward"), reverse=True, keep_order=True)(x, seq_lengths=lengths)
        return jnp.concatenate([forward, backward], axis=-1)


def pooled_state(spec: ModelSpec, hidden: jax.Array, segment_ids: jax.Array) -> jax.Array:
    """Returns the (B, D) state of each text: its first token's, or the mean of its (B, S, D) real ones."""
    if spec.pooling == "first":
        return hidden[:, 0]
    real = (segment_ids > 0).astype(jnp.float32)[..., None]
    total = jnp.sum(hidden * real, axis=1)
    return (total / jnp.maximum(jnp.sum(real, axis=1), 1.0)).astype(hidden.dtype)


class ReplacedTokenHead(nn.Module):
    """Was the token replaced (ELECTRA; Clark et al. 2020)? Dense, activation and one logit."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Returns (B, S) float32 logits from (B, S, D) states; positive: replaced."""
        spec = self.spec
        x = dense(spec, spec.hidden_size, ("embed", "embed_out"), "dense")(hidden)
        x = ACTIVATIONS[spec.activation](x)
        return dense(spec, 1, ("embed", "labels"), "out")(x)[..., 0].astype(jnp.float32)


class NextSentenceHead(nn.Module):
    """Is B the text that follows A (NSP), or are A and B in their order (SOP)?

    "pooled" gives 2 logits on the pooled vector (class 0: it is so), as the released weights
    have it. "single" gives 1 logit from a (D, 1) matrix on the [CLS] output (positive: it is not).
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, pooled: jax.Array | None) -> jax.Array:
        """Returns (B, 2) or (B, 1) float32 logits from (B, S, D) states and the (B, D) pooled vector."""
        if self.spec.nsp_head == "single":
            logits = dense(self.spec, 1, ("embed", "labels"), "dense", bias=False)(hidden[:, 0])
        else:
            logits = dense(self.spec, 2, ("embed", "labels"), "dense")(pooled)
        return logits.astype(jnp.float32)
