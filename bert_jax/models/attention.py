"""Multi-head attention: from queries and keys, or by place alone."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models import blocks, positions, sequence, splash
from bert_jax.models.dropout import Dropout
from bert_jax.models.masks import attention_weights, masked_softmax
from bert_jax.models.spec import ModelSpec, dense_init

# Names by which recomputation can leave arrays out; each is as large as (B, S, D).
KEPT = ("query", "key", "value", "mixture")


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


def by_cudnn(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, implementation: str = "cudnn"
) -> jax.Array:
    """Returns the (B, M, H, K) mixture by the fused kernel of NVIDIA's cuDNN; zeros where no key is visible.

    Args:
      query: (B, M, H, K) bfloat16.
      key, value: (B, S, H, K).
      visible: (B, 1, M, S) bool.
      implementation: "xla" computes it anywhere, for tests.
    """
    mixed = jax.nn.dot_product_attention(query, key, value, mask=visible, implementation=implementation)
    return jnp.where(jnp.any(visible, axis=-1)[:, 0, :, None, None], mixed, 0)


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
        visible: jax.Array | blocks.Rows | splash.Tiles,
        rotary: tuple[jax.Array, jax.Array] | None,
        train: bool,
        query_rotary: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Returns (B, M, D) from a (B, M, D) stream of queries and a (B, S, D) one of keys.

        Args:
          query_input: (B, M, D); M is S, or less where T-TA is asked for a part of a row.
          key_input: (B, S, D).
          visible: (B, 1, M, S) bool, or what tells it of some rows at a time, or TPU's kernel.
          rotary: the table of all S positions, where the model rotates.
          train: with dropout.
          query_rotary: the table of the M positions; None where they are all.
        """
        spec = self.spec
        value = checkpoint_name(_Projection(spec, name="value")(key_input), "value")
        if spec.attention == "dot":
            query = _Projection(spec, name="query")(query_input)
            key = _Projection(spec, name="key")(key_input)
            if rotary is not None:
                query = positions.rotate(query, query_rotary or rotary, spec.rope_layout)
                key = positions.rotate(key, rotary, spec.rope_layout)
            query, key = checkpoint_name(query, "query"), checkpoint_name(key, "key")
            key, value = self._with_earlier(sequence.gathered(key), sequence.gathered(value))
            if isinstance(visible, blocks.Rows):
                drop = self.make_rng("dropout") if train and spec.attention_dropout else None
                mixed = blocks.attend(
                    query, key, value, visible, drop, spec.attention_block, spec.attention_dropout
                )
                return self._out(mixed)
            if isinstance(visible, splash.Tiles):
                return self._out(splash.attend(query, key, value, visible.mask))
            if spec.attention_kernel == "cudnn" and not self.is_initializing():
                return self._out(by_cudnn(query, key, value, visible))
            weights = attention_weights(query, key, visible)
        else:
            weights = self._of_places(visible)
        self.sow("attention", "weights", weights)
        weights = Dropout(spec.attention_dropout, name="dropout")(weights.astype(spec.dtype), train)
        return self._out(jnp.einsum("BHST,BTHK->BSHK", weights, value))

    def _out(self, mixed: jax.Array) -> jax.Array:
        """Returns (B, M, D) from the (B, M, H, K) mixture of values."""
        return _Projection(self.spec, out=True, name="out")(checkpoint_name(mixed, "mixture"))

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
            nn.with_logical_partitioning(nn.initializers.normal(1.0), ("heads", "positions", "keys")),
            (spec.heads, spec.max_positions, spec.max_positions),
        )
        if spec.attention == "fixed_random":
            logits = jax.lax.stop_gradient(logits)
        size = visible.shape[-1]
        return masked_softmax(logits[None, :, :size, :size], visible)
