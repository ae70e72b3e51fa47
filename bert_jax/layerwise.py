"""Which of a model's layers a run trains, which it keeps as they were given, and how near the others stay."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import dropped
from bert_jax.models.spec import ModelSpec

# Groups of "encoder" that lie above its layers, and the layers themselves; all others are embeddings.
ABOVE = ("final_norm",)
STACK = "layers"


@dataclasses.dataclass(frozen=True)
class Layers:
    """The L layers of a run's model, counted from the lowest. A stack is (L, ...) arrays.

    Attributes:
      count: L.
      frozen: n keeps the embeddings and the n lowest layers as they are, L the whole encoder; -1 nothing.
      renewed: how many of the top layers are drawn anew, though weights are given.
    """

    count: int = 0
    frozen: int = -1
    renewed: int = 0

    def split(self, params: Any) -> tuple[Any, dict[str, Any]]:
        """Returns what is trained, and the groups of the encoder that are not; arrays or their shardings."""
        if self.frozen < 0:
            return params, {}
        trained, kept = {}, {}
        for name, group in params["encoder"].items():
            if name == STACK:
                if self.frozen < self.count:
                    trained[name] = _cut(group, slice(self.frozen, None))
                if self.frozen > 0:
                    kept[name] = _cut(group, slice(self.frozen))
            elif name in (*ABOVE, "shared_layer") and self.frozen < self.count:
                trained[name] = group
            else:
                kept[name] = group
        return {**params, "encoder": trained}, kept

    def join(self, trained: Any, kept: dict[str, Any]) -> Any:
        """Returns the parameters that `split` took apart."""
        if not kept:
            return trained
        encoder = {**kept, **trained["encoder"]}
        if STACK in kept and STACK in trained["encoder"]:
            encoder[STACK] = _stacked(kept[STACK], trained["encoder"][STACK])
        return {**trained, "encoder": encoder}

    def given(self, trained: Any) -> dict[str, Any]:
        """Returns the encoder's trained groups that the run began with, not those drawn anew."""
        groups = dict(trained["encoder"])
        if self.renewed and STACK in groups:
            stack = groups.pop(STACK)
            if self._given_layers():
                groups[STACK] = _cut(stack, slice(self._given_layers()))
        return groups

    def with_given(self, trained: Any, groups: dict[str, Any]) -> Any:
        """Returns what is trained with the groups that `given` gives replaced."""
        encoder = {**trained["encoder"], **groups}
        if self.renewed and STACK in groups:
            encoder[STACK] = _stacked(
                groups[STACK], _cut(trained["encoder"][STACK], slice(self._given_layers(), None))
            )
        return {**trained, "encoder": encoder}

    def renew(self, params: Any, fresh: Any) -> Any:
        """Returns the parameters with the top layers and the pooler of `fresh` ones.

        The pooler reads the top layer, and goes with it (Zhang et al. 2021, section 5).
        """
        if not self.renewed:
            return params
        old, new = (x["encoder"][STACK] for x in (params, fresh))
        whole = slice(self.count - self.renewed), slice(self.count - self.renewed, None)
        encoder = {**params["encoder"], STACK: _stacked(_cut(old, whole[0]), _cut(new, whole[1]))}
        return {**params, "encoder": encoder, **{name: fresh[name] for name in ("pooler",) if name in fresh}}

    def _given_layers(self) -> int:
        return self.count - self.renewed - max(self.frozen, 0)


def of(spec: ModelSpec, frozen: int, renewed: int, held: bool = False) -> Layers:
    """Returns the layers of a model.

    Args:
      spec: the model's.
      frozen, renewed: of `Layers`.
      held: whether what is trained is held to what was given.

    Raises:
      ValueError: there are not so many layers, or not of their own; the message names the key.
    """
    if frozen > spec.layers:
        raise ValueError(
            f"optimizer.freeze_layers = {frozen}: the model has {spec.layers} layers; -1 freezes nothing, 0 "
            f"the embeddings, {spec.layers} all but the heads"
        )
    if spec.share_layers and 0 < frozen < spec.layers:
        raise ValueError(
            f"optimizer.freeze_layers = {frozen}: all layers have one layer's weights (model.share_layers): "
            f"set 0, the embeddings, or {spec.layers}, all of the encoder"
        )
    if held and frozen == spec.layers:
        raise ValueError(
            f"optimizer.freeze_layers = {frozen} trains none of the encoder, and task.l2_start and "
            "task.mixout hold it to what it is: set both to 0"
        )
    if renewed and spec.share_layers:
        raise ValueError(
            f"task.reinit_layers = {renewed}: all layers have one layer's weights (model.share_layers), and "
            "the top ones cannot be drawn anew alone: set 0"
        )
    if renewed > spec.layers - max(frozen, 0):
        raise ValueError(
            f"task.reinit_layers = {renewed}: the model has {spec.layers} layers, "
            f"{max(frozen, 0)} of them frozen; what is drawn anew must be trained"
        )
    return Layers(spec.layers, frozen, renewed)


def mixout(weights: Any, start: Any, rate: float, key: jax.Array) -> Any:
    """Returns weights whose kernels' elements are each the start's with probability `rate`.

    The difference to the start is scaled by 1 / (1 - rate), so that the mean stays: Lee et al. 2020,
    equation 4, w' = (M w + (1 - M) u - rate u) / (1 - rate), which is u + M (w - u) / (1 - rate): dropout of
    the difference. As in the authors' code, tables, biases and norms are left alone.

    Args:
      weights, start: trees of equal form.
      rate: 0 gives the weights, 1 the start.
      key: of this draw.
    """

    def mix(path: tuple[Any, ...], key: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
        return u + dropped(w - u, rate, key) if getattr(path[-1], "key", None) == "kernel" else w

    leaves, form = jax.tree.flatten(weights)
    keys = form.unflatten([jax.random.fold_in(key, i) for i in range(len(leaves))])
    return jax.tree_util.tree_map_with_path(mix, keys, weights, start)


def distance(weights: Any, start: Any) -> jax.Array:
    """Returns the sum of squared differences (L2-SP, without its factor; Li et al. 2018, equation 2)."""
    squares = jax.tree.map(lambda w, u: jnp.sum((w - u) ** 2), weights, start)
    return sum(jax.tree.leaves(squares), jnp.zeros(()))


def _cut(group: Any, layers: slice) -> Any:
    # A sharding says nothing of the layers' axis, and is that of any part of it.
    return jax.tree.map(lambda x: x if isinstance(x, jax.sharding.Sharding) else x[layers], group)


def _stacked(lower: Any, upper: Any) -> Any:
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), lower, upper)
