"""Who sees whom, and the softmax over what is seen.

A mask is a description; `dense` turns it into an array of all pairs, `seen_by` into that of some queries.
A query that may see no key at all gets zeros: neither NaN nor an average of what it must not see.
"""

import flax.struct
import jax
import jax.numpy as jnp

# Large but finite, so that a row without a visible key gives no NaN, in bfloat16 neither.
_HIDDEN = -1e9


@flax.struct.dataclass
class Mask:
    """Which keys a query sees: those of its own unit in the row, less what the fields take away.

    Attributes:
      segment_ids: (B, S) int32; 0 is padding, equal positive numbers belong together.
      prefix: (B, S) int32 or None; with it a token sees the tokens of its unit where this is 1, and
        others only to its left (UniLM; Dong et al. 2019, section 2.3).
      diagonal: if true no position sees itself (T-TA; Shin et al. 2020, section 3.2).
      causal: if true a position sees none to its right.
      window: W; if not 0 a position sees at most W / 2 others to each side.
    """

    segment_ids: jax.Array
    prefix: jax.Array | None = None
    diagonal: bool = flax.struct.field(pytree_node=False, default=False)
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    window: int = flax.struct.field(pytree_node=False, default=0)


def dense(mask: Mask) -> jax.Array:
    """Returns the (B, 1, S, S) boolean array of visible (query, key) pairs."""
    return seen_by(mask, mask.segment_ids, jnp.arange(mask.segment_ids.shape[1]))


def seen_by(mask: Mask, query_ids: jax.Array, query_places: jax.Array) -> jax.Array:
    """Returns which of a row's keys some of its queries see, (B, 1, M, S) bool.

    Args:
      mask: of the row.
      query_ids: (B, M) int32, the queries' segment ids.
      query_places: (M,) int32, where in the row they stand.
    """
    query, key = query_ids[:, :, None], mask.segment_ids[:, None, :]
    visible = (query == key) & (key > 0)
    place = jnp.arange(mask.segment_ids.shape[1])
    # Of the query from the key, to the right.
    distance = (query_places[:, None] - place[None, :])[None]
    if mask.causal:
        visible &= distance >= 0
    if mask.prefix is not None:
        visible &= (distance >= 0) | (mask.prefix[:, None, :] > 0)
    if mask.window:
        visible &= jnp.abs(distance) <= mask.window // 2
    if mask.diagonal:
        visible &= distance != 0
    return visible[:, None]


def masked_softmax(scores: jax.Array, visible: jax.Array) -> jax.Array:
    """Returns the softmax of (B, H, S, S) scores over the visible keys; zeros where none is visible."""
    weights = jax.nn.softmax(jnp.where(visible, scores, _HIDDEN), axis=-1)
    return jnp.where(visible, weights, 0.0)


def attention_weights(query: jax.Array, key: jax.Array, visible: jax.Array) -> jax.Array:
    """Returns softmax(query key^T / sqrt(K)) over the visible keys; zeros where none is visible.

    Vaswani et al. 2017, equation 1.

    Args:
      query, key: (B, S, H, K).
      visible: (B, 1, S, S) bool.

    Returns:
      (B, H, S, S) float32, whatever the dtype of the inputs.
    """
    scale = query.shape[-1] ** -0.5
    scores = jnp.einsum("BSHK,BTHK->BHST", query * scale, key, preferred_element_type=jnp.float32)
    return masked_softmax(scores, visible)
