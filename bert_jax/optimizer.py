"""The optimizer: schedule, clipping, AdamW or LAMB, and which weights decay."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from ml_collections import ConfigDict

from bert_jax import layerwise

# Groups of parameters that only a fine-tuning task has: no pretraining goes before them.
HEADS = ("classifier", "token_classifier", "span_head", "lstm", "crf", "pooling", "detector")


def schedule(config: ConfigDict, steps: int) -> optax.Schedule:
    """Returns the learning rate as a function of the step.

    A linear rise from 0 over the warm-up, then "linear" or "cosine" to the end, "wsd" (level, then
    linear over the last `decay_fraction`; Hu et al. 2024, section 4) or "constant". A warm-up that
    does not fit a short run of a long recipe is cut to a tenth of the run, and that is said.

    Args:
      config: `config.optimizer`.
      steps: length of the run.
    """
    peak, end = config.learning_rate, config.learning_rate * config.end_factor
    warmup = config.warmup_steps or round(config.warmup_fraction * steps)
    if warmup >= steps and config.warmup_steps:
        logging.warning(
            "optimizer.warmup_steps = %d does not fit a run of %d steps: the warm-up is cut to %d steps",
            warmup, steps, steps // 10,
        )  # fmt: skip
        warmup = steps // 10
    rest = max(1, steps - warmup)
    if config.schedule == "linear":
        after = optax.linear_schedule(peak, end, rest)
    elif config.schedule == "cosine":
        after = optax.cosine_decay_schedule(peak, rest, alpha=config.end_factor)
    elif config.schedule == "wsd":
        decay = min(rest, round(config.decay_fraction * steps))
        after = optax.linear_schedule(peak, end, max(1, decay), transition_begin=rest - decay)
    else:
        after = optax.constant_schedule(peak)
    if not warmup:
        return after
    # The first update takes 1/warmup of the peak: a rate of 0 would waste it.
    rise = optax.linear_schedule(peak / warmup, peak, warmup - 1) if warmup > 1 else after
    return optax.join_schedules([rise, after], [warmup])


def decays(params: Any) -> Any:
    """Returns a tree of booleans: true for what weight decay and L2 touch.

    That is all but biases, norms, the scores of a CRF, which are biases too, and attention logits that are
    parameters, which may be fixed.
    """

    def decayed(path: tuple[Any, ...], _: Any) -> bool:
        not_decayed = ("bias", "scale", "logits", "transitions", "start", "end")
        return getattr(path[-1], "key", None) not in not_decayed

    return jax.tree_util.tree_map_with_path(decayed, params)


def make(
    config: ConfigDict,
    steps: int,
    learning_rate: optax.Schedule | None = None,
    head_rate: float = 1.0,
) -> optax.GradientTransformation:
    """Returns clipping by the global norm, then AdamW or LAMB with the config's schedule.

    AdamW: Loshchilov and Hutter 2019, with bias correction (BERT's released code has none). LAMB:
    You et al. 2020, algorithm 2.

    Args:
      config: `config.optimizer`.
      steps: length of the run.
      learning_rate: the schedule, where it is made already.
      head_rate: multiplies the learning rate of `HEADS`.
    """
    # No part of the chain where it changes nothing: the state would have another form.
    heads = () if head_rate == 1.0 else (optax.stateless(functools.partial(_scale_heads, head_rate)),)
    decay = config.layer_decay
    depths = () if decay == 1.0 else (optax.stateless(functools.partial(_scale_by_depth, decay)),)
    return optax.chain(
        optax.stateless(functools.partial(_clip, config.clip)) if config.clip else optax.identity(),
        optax.scale_by_adam(
            b1=config.b1, b2=config.b2, eps=config.eps, mu_dtype=jnp.dtype(config.moment_dtype)
        ),
        optax.add_decayed_weights(config.weight_decay, mask=decays),
        optax.stateless(_scale_by_trust_ratio) if config.name == "lamb" else optax.identity(),
        *heads,
        *depths,
        optax.scale_by_learning_rate(learning_rate or schedule(config, steps)),
    )


def clip_scale(most: float, norm: jax.Array) -> jax.Array:
    """Returns what a gradient of this norm is multiplied by, so that its norm is at most `most`.

    Pascanu et al. 2013, algorithm 1.
    """
    return jnp.minimum(1.0, most / norm)


def _clip(most: float, updates: Any, params: Any) -> Any:
    """By one factor: optax's own divides each element, which a CPU then does in a pass of its own."""
    scale = clip_scale(most, optax.tree.norm(updates))
    return jax.tree.map(lambda x: x * scale.astype(x.dtype), updates)


def _scale_heads(rate: float, updates: Any, params: Any) -> Any:
    return {name: jax.tree.map(lambda x: x * rate, x) if name in HEADS else x for name, x in updates.items()}


def _scale_by_depth(decay: float, updates: Any, params: Any) -> Any:
    """Scales the update of the n-th of L layers from the top by decay^n, of the embeddings by decay^(L + 1).

    That is BEiT's rule (Bao et al. 2022); ELECTRA's released code has one more factor below its heads. What
    lies above the layers is left alone.
    """
    encoder = updates["encoder"]
    count = len(next(iter(jax.tree.leaves(encoder.get(layerwise.STACK))), ()))
    rates = decay ** np.arange(count, 0, -1, np.float32)

    def scale(name: str, group: Any) -> Any:
        if name in layerwise.ABOVE:
            return group
        if name == layerwise.STACK:
            return jax.tree.map(lambda x: x * rates.reshape(-1, *(1,) * (x.ndim - 1)), group)
        return jax.tree.map(lambda x: x * decay ** (count + 1), group)

    return {**updates, "encoder": {name: scale(name, group) for name, group in encoder.items()}}


def _scale_by_trust_ratio(updates: Any, params: Any) -> Any:
    """Scales each layer's update to the norm of its weights; biases and norms as they are.

    Unlike optax's own, it takes each layer of a stacked (L, ...) array by itself, and leaves out
    what does not decay, as the released code does: a bias that starts at 0 would never move.
    """

    def scale(path: tuple[Any, ...], update: jax.Array, param: jax.Array, decayed: bool) -> jax.Array:
        if not decayed:
            return update
        stacked = any(getattr(part, "key", None) == "layers" for part in path)
        axes = tuple(range(1 if stacked else 0, param.ndim))
        weight = jnp.sqrt(jnp.sum(param**2, axis=axes, keepdims=True))
        change = jnp.sqrt(jnp.sum(update**2, axis=axes, keepdims=True))
        known = (weight > 0) & (change > 0)
        return update * jnp.where(known, weight / jnp.where(known, change, 1.0), 1.0)

    return jax.tree_util.tree_map_with_path(scale, updates, params, decays(params))
