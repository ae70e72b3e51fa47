"""Multi-head attention: from queries and keys, or by place alone."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import blocks, positions
from bert_jax.models.dropout import Dropout
from bert_jax.models.masks import attention_weights, masked_softmax
from bert_jax.models.spec import ModelSpec, dense_init


class _Projection(nn.Module):
    """An affine map into heads, (B, S, D) to (B, S, H, K), or, with `out`, back from them."""

    spec: ModelSpec
    out: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        spec = self.spec
        heads = (spec.heads, spec.hidden_size // spec.heads)
        if self.out:
            shape, axes, letters = (
                (*heads, spec.hidden_size),
                ("heads", "head_size", "embed"),
                "BSHK,HKD->BSD",
            )
            bias_shape, bias_axes = (spec.hidden_size,), ("norm",)
        else:
            shape, axes, letters = (
                (spec.hidden_size, *heads),
                ("embed", "heads", "head_size"),
                "BSD,DHK->BSHK",
            )
            bias_shape, bias_axes = heads, ("heads", "head_size")
        kernel = self.param("kernel", dense_init(spec, *axes), shape)
        y = jnp.einsum(letters, x, kernel.astype(spec.dtype))
        if not spec.bias:
            return y
        bias = self.param("bias", nn.with_logical_partitioning(nn.initializers.zeros, bias_axes), bias_shape)
        return y + bias.astype(spec.dtype)[(None,) * 2]


class Attention(nn.Module):
    """Multi-head attention from a query stream to a key/value stream.

    The two streams are the same tensor in BERT and differ in T-TA. No residual, no norm.
    """

    spec: ModelSpec

    @nn.compact
    def __call__(
        self,
        query_input: jax.Array,
        key_input: jax.Array,
        visible: jax.Array | blocks.Rows,
        rotary: tuple[jax.Array, jax.Array] | None,
        train: bool,
        query_rotary: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Returns (B, M, D) from a (B, M, D) stream of queries and a (B, S, D) one of keys.

        Args:
          query_input: (B, M, D); M is S, or less where T-TA is asked for a part of a row.
          key_input: (B, S, D).
          visible: (B, 1, M, S) bool, or what tells it of some rows at a time.
          rotary: the table of all S positions, where the model rotates.
          train: with dropout.
          query_rotary: the table of the M positions; None where they are all.
        """
        spec = self.spec
        value = _Projection(spec, name="value")(key_input)
        if spec.attention == "dot":
            query = _Projection(spec, name="query")(query_input)
            key = _Projection(spec, name="key")(key_input)
            if rotary is not None:
                query = positions.rotate(query, query_rotary or rotary, spec.rope_layout)
                key = positions.rotate(key, rotary, spec.rope_layout)
            key, value = self._with_earlier(key, value)
            if isinstance(visible, blocks.Rows):
                drop = self.make_rng("dropout") if train and spec.attention_dropout else None
                mixed = blocks.attend(
                    query, key, value, visible, drop, spec.attention_block, spec.attention_dropout
                )
                return _Projection(spec, out=True, name="out")(mixed)
            weights = attention_weights(query, key, visible)
        else:
            weights = self._of_places(visible)
        self.sow("attention", "weights", weights)
        weights = Dropout(spec.attention_dropout, name="dropout")(weights.astype(spec.dtype), train)
        mixed = jnp.einsum("BHST,BTHK->BSHK", weights, value)
        return _Projection(spec, out=True, name="out")(mixed)

    def _with_earlier(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values behind those of earlier calls, where the collection "cache" keeps them.

        The first call that asks for the collection fills it; whoever goes on from there makes room in it, and
        each further call writes behind what is there.

        Args:
          key, value: (B, S, H, K) of this call.

        Returns:
          The same, or (B, T, H, K) with room for all.
        """
        if self.is_initializing() or not self.is_mutable_collection("cache"):
            return key, value
        is_first = not self.has_variable("cache", "keys")
        keys = self.variable("cache", "keys", lambda: key)
        values = self.variable("cache", "values", lambda: value)
        length = self.variable("cache", "length", lambda: jnp.array(0, jnp.int32))
        at, length.value = length.value, length.value + key.shape[1]
        if is_first:
            return key, value
        keys.value = jax.lax.dynamic_update_slice_in_dim(keys.value, key, at, axis=1)
        values.value = jax.lax.dynamic_update_slice_in_dim(values.value, value, at, axis=1)
        return keys.value, values.value

    def _of_places(self, visible: jax.Array) -> jax.Array:
        """Returns the (B, H, S, S) weights of the Synthesizer's "random" form (Tay et al. 2020, 3.2).

        Their logits are parameters, the same for every text; fixed ones stay as they were drawn.
        """
        spec = self.spec
        logits = self.param(
            "logits",
            nn.with_logical_partitioning(nn.initializers.normal(1.0), ("heads", "positions", "sequence")),
            (spec.heads, spec.max_positions, spec.max_positions),
        )
        if spec.attention == "fixed_random":
            logits = jax.lax.stop_gradient(logits)
        size = visible.shape[-1]
        return masked_softmax(logits[None, :, :size, :size], visible)
