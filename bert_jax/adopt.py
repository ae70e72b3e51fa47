"""Given weights in a new model: which arrays are taken, and how they fit another vocabulary or depth."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from absl import logging

from bert_jax.models.spec import ModelSpec
from bert_jax.optimizer import HEADS
from bert_jax.trees import named


def adopt(params: Any, found: Any, origin: str) -> Any:
    """Returns `params` with each array that `found` has in its place.

    Args:
      params: the run's initial parameters, on their devices.
      found: nested dict of host arrays; what it lacks stays as initialised, and that is said; so does a
        task's head that is of another size there, since another task's classes mean nothing here.
      origin: where they come from, for messages.

    Raises:
      ValueError: an array of another shape; the message names it.
    """
    given = dict(named(found))
    fresh, others, used = [], [], set()

    def take(name: str, param: jax.Array) -> jax.Array:
        if name not in given:
            fresh.append(name)
            return param
        used.add(name)
        if given[name].shape != param.shape and name.partition("/")[0] in HEADS:
            others.append(name)
            return param
        if given[name].shape != param.shape:
            raise ValueError(
                f"{origin}: {name} has shape {given[name].shape} and the model's has {param.shape}: "
                "the model group of the config does not fit it"
            )
        host = np.asarray(given[name], param.dtype)
        return jax.make_array_from_callback(host.shape, param.sharding, lambda index: host[index])

    leaves = [take(name, param) for name, param in named(params)]
    taken = jax.tree.unflatten(jax.tree.structure(params), leaves)
    logging.info("%s: %d arrays loaded", origin, len(used) - len(others))
    if others:
        logging.warning(
            "initialised anew, since %s was fine-tuned to another task: %s", origin, ", ".join(others)
        )
    if fresh:
        logging.info("initialised anew, since %s has none: %s", origin, ", ".join(fresh))
    unused = sorted(set(given) - used)
    if unused:
        logging.info("in %s but not in this model: %s", origin, ", ".join(unused))
    return taken


def with_vocabulary(
    params: dict[str, Any], pieces: list[list[int]], padded_vocab_size: int
) -> dict[str, Any]:
    """Returns parameters for another vocabulary: each new token is the mean of its old pieces.

    The word table, the output bias and a plain output matrix are changed; a token with one piece, its
    old self for instance, keeps the numbers that it had.

    Args:
      params: nested dicts of host arrays.
      pieces: of each new token, the old ids that it stood for; none gives the mean of the old table up
        to the highest id in use.
      padded_vocab_size: rows of the new table.
    """
    number = np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])
    flat = np.array([i for each in pieces for i in each], np.int64)
    counts = np.bincount(number, minlength=len(pieces))
    old_size = int(flat.max()) + 1 if len(flat) else 0

    def rows(table: np.ndarray) -> np.ndarray:
        """Returns the new (padded, ..) rows from the old (V, ..) ones."""
        new = np.zeros((padded_vocab_size, *table.shape[1:]), table.dtype)
        np.add.at(new, number, table[flat])
        shape = (-1, *(1,) * (table.ndim - 1))
        new[: len(pieces)] /= np.maximum(counts, 1).reshape(shape).astype(table.dtype)
        new[: len(pieces)][counts == 0] = table[:old_size].mean(axis=0)
        return new

    changed = dict(params)
    changed["encoder"] = {**params["encoder"], "word": rows(params["encoder"]["word"])}
    for head in (("token_head",), ("generator", "token_head")):
        _change(changed, (*head, "bias"), rows)
        _change(changed, (*head, "kernel"), lambda kernel: rows(kernel.T).T)
    return changed


def _change(tree: dict[str, Any], path: tuple[str, ...], function: Any) -> None:
    """Replaces the array at a path, where there is one, in dicts that are copied on the way."""
    *groups, leaf = path
    for group in groups:
        if group not in tree:
            return
        tree[group] = dict(tree[group])
        tree = tree[group]
    if leaf in tree:
        tree[leaf] = function(tree[leaf])


def of_teacher(params: dict[str, Any], teacher: ModelSpec, student: ModelSpec) -> dict[str, Any]:
    """Returns what a student starts from: its teacher's tables, token head, and layers evenly taken.

    Sanh et al. 2019, section 3: one layer of two where the student has half as many.

    Args:
      params: the teacher's, nested dicts of host arrays.
      teacher, student: their specs.

    Raises:
      ValueError: the two differ in more than depth; the message names the key.
    """
    for name in ("hidden_size", "embedding_size", "heads", "feed_forward_size", "gated", "bias", "norm",
                 "position", "attention", "share_layers", "max_positions", "position_offset"):  # fmt: skip
        ours, theirs = getattr(student, name), getattr(teacher, name)
        if ours != theirs:
            raise ValueError(
                f"model.{name} = {ours!r} and the teacher's is {theirs!r}: a student can start from it only "
                "where they agree; set objective.distill.init = False"
            )
    if student.layers > teacher.layers:
        raise ValueError(
            f"model.layers = {student.layers} is more than the teacher's {teacher.layers}: "
            "set objective.distill.init = False"
        )
    left_out = ("layers", "segment") if not student.segments else ("layers",)
    encoder = {name: array for name, array in params["encoder"].items() if name not in left_out}
    if "layers" in params["encoder"]:
        chosen = np.arange(student.layers) * teacher.layers // student.layers
        encoder["layers"] = jax.tree.map(lambda x: np.asarray(x)[chosen], params["encoder"]["layers"])
        logging.info("the student starts from the teacher's layers %s", ", ".join(map(str, chosen)))
    return {"encoder": encoder, "token_head": params["token_head"]}
