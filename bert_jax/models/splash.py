"""Attention by TPU's own kernel, splash attention: no score leaves the fast memory.

It takes masks that are the same in every row, beside the rows' segments: all pairs, left to right, windows
and T-TA's diagonal; no prefix, which is a row's own, and no dropout of weights.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from bert_jax.models.masks import Mask

LANES = 128  # rows are whole blocks of so many positions
_LARGEST = 512  # block of positions; larger ones gain nothing and take more of the fast memory


@flax.struct.dataclass
class Tiles:
    """A mask that the kernel is to apply."""

    mask: Mask


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, interpret: bool = False
) -> jax.Array:
    """Returns softmax(query key^T / sqrt(K)) value over the visible keys, (B, S, H, K); 0 without one.

    Args:
      query, key, value: (B, S, H, K), S a multiple of 128.
      mask: without a prefix.
      interpret: computed by JAX on any device, for tests.
    """

    def of_rows(query: jax.Array, key: jax.Array, value: jax.Array, ids: jax.Array) -> jax.Array:
        kernel = _kernel(*query.shape[1:3], mask.causal, mask.window, mask.diagonal, interpret)
        by_head = (x.swapaxes(1, 2) for x in (query * query.shape[-1] ** -0.5, key, value))
        mixed = jax.vmap(kernel)(*by_head, kernels.SegmentIds(ids, ids)).swapaxes(1, 2)
        return jnp.where(_sees_any(ids, mask.diagonal)[..., None, None], mixed, 0)

    ids = mask.segment_ids
    if jax.sharding.get_abstract_mesh().empty:
        return of_rows(query, key, value, ids)
    # The compiler cannot take a kernel apart: each device calls it for its own rows and heads.
    heads = nn.logical_to_mesh_axes(("batch", None, "heads", None))
    rows = nn.logical_to_mesh_axes(("batch", None))
    each = jax.shard_map(of_rows, in_specs=(heads, heads, heads, rows), out_specs=heads, check_vma=False)
    return each(query, key, value, ids)


def _sees_any(ids: jax.Array, diagonal: bool) -> jax.Array:
    """Returns (B, S) bool: whether a position sees a key; padding does not, nor a lone token but itself."""
    real = ids > 0
    if not diagonal:
        return real
    same = jnp.pad(ids[:, 1:] == ids[:, :-1], ((0, 0), (1, 1)))
    return real & (same[:, 1:] | same[:, :-1])


def _kernel(
    length: int, heads: int, causal: bool, window: int, diagonal: bool, interpret: bool
) -> kernels.SplashAttentionKernel:
    block = next(size for size in (_LARGEST, 256, LANES) if length % size == 0)
    return kernels.make_splash_mha(
        masks.MultiHeadMask([masks.NumpyMask(_pairs(length, causal, window, diagonal))] * heads),
        block_sizes=kernels.BlockSizes(
            block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block, block_kv_dkv=block,
            block_kv_dkv_compute=block, use_fused_bwd_kernel=True,
        ),
        head_shards=1, q_seq_shards=1, interpret=interpret,
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _pairs(length: int, causal: bool, window: int, diagonal: bool) -> np.ndarray:
    """Returns (S, S) bool, the pairs of a row of one segment that a mask leaves; see `masks.seen_by`."""
    place = np.arange(length, dtype=np.int32)
    distance = place[:, None] - place[None, :]
    visible = distance >= 0 if causal else np.ones((length, length), bool)
    if window:
        visible &= np.abs(distance) <= window // 2
    if diagonal:
        visible &= distance != 0
    return visible
