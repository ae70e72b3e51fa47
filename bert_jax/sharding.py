"""Where arrays live: the mesh, the one table of rules, and batches over processes.

Parameters name their axes ("embed", "mlp", ..); the table says which mesh axis shares each. The
step is ordinary code on global arrays under `jit`; the compiler adds the communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from bert_jax.models.spec import ModelSpec

# Logical axis -> mesh axis. One that is not named here is not shared.
RULES = (
    ("batch", ("data", "fsdp")),  # both kinds of data parallelism take rows
    ("embed", "fsdp"),  # each kernel has one: its other axis is free for "tensor"
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
)
UNSHARED = ("sequence", "activation", "norm", "head_size", "layers", "positions", "segments", "labels",
             "embed_out", "embedding")  # fmt: skip
AXES = ("data", "fsdp", "tensor")


def make_mesh(config: ConfigDict, on: Sequence[Any] | None = None) -> Mesh:
    """Returns the (data, fsdp, tensor) mesh over all devices.

    Args:
      config: `config.mesh`; data = -1 takes all devices that fsdp and tensor leave.
      on: devices of a machine that is not there; None: those that are.

    Raises:
      ValueError: the axes do not multiply to the number of devices.
    """
    devices = jax.device_count() if on is None else len(on)
    shared = config.fsdp * config.tensor
    data = config.data if config.data > 0 else devices // shared
    if data * shared != devices or data < 1:
        raise ValueError(
            f"mesh.data = {config.data}, mesh.fsdp = {config.fsdp}, mesh.tensor = {config.tensor} "
            f"do not make up the {devices} devices that there are: their product must be {devices}"
        )
    return jax.make_mesh(
        (data, config.fsdp, config.tensor), AXES, axis_types=(AxisType.Auto,) * 3, devices=on
    )


def check(config: ConfigDict, mesh: Mesh, spec: ModelSpec, batch_size: int) -> None:
    """Raises ValueError, naming the keys, where an array cannot be shared evenly over the mesh."""
    rows = mesh.shape["data"] * mesh.shape["fsdp"]
    micro = batch_size // config.train.accumulation
    generator = ()
    if spec.has_generator:
        small, of = spec.generator, "of the generator (model.generator_fraction)"
        generator = (
            (small.hidden_size, f"the hidden size {of}", mesh.shape["fsdp"], "mesh.fsdp"),
            (small.heads, f"the number of heads {of}", mesh.shape["tensor"], "mesh.tensor"),
            (small.feed_forward_size, f"the feed-forward size {of}", mesh.shape["tensor"], "mesh.tensor"),
        )
    for size, name, parts, axis in (
        (micro, "train.batch_size / train.accumulation", rows, "mesh.data * mesh.fsdp"),
        (config.train.eval_batch_size or rows, "train.eval_batch_size", rows, "mesh.data * mesh.fsdp"),
        (config.model.hidden_size, "model.hidden_size", mesh.shape["fsdp"], "mesh.fsdp"),
        (config.model.heads, "model.heads", mesh.shape["tensor"], "mesh.tensor"),
        (config.model.feed_forward_size, "model.feed_forward_size", mesh.shape["tensor"], "mesh.tensor"),
        (spec.embedded_size, "model.embedding_size", mesh.shape["fsdp"], "mesh.fsdp"),
        (spec.padded_vocab_size, "the padded vocabulary", mesh.shape["tensor"], "mesh.tensor"),
        *generator,
    ):
        if size % parts:
            raise ValueError(f"{name} = {size} is not a multiple of {axis} = {parts}")


def rules() -> Any:
    """Returns the context in which the models' logical axis names mean mesh axes."""
    return nn.logical_axis_rules((*RULES, *((name, None) for name in UNSHARED)))


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Returns the shardings of a tree of (abstract) parameters that carry logical axis names."""
    with rules():
        return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a batch: its first axis over all that is data parallel."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def local_rows(batch_size: int, mesh: Mesh) -> np.ndarray:
    """Returns the row numbers of a global batch that this process's devices hold, ascending."""
    held = by_rows(mesh).addressable_devices_indices_map((batch_size,))
    rows = [np.arange(batch_size)[index[0]] for index in held.values()]
    return np.unique(np.concatenate(rows))


def to_devices(batch: dict[str, np.ndarray], batch_size: int, mesh: Mesh) -> dict[str, jax.Array]:
    """Returns the global batch from each process's `local_rows` of it."""
    sharding = by_rows(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, rows, (batch_size, *rows.shape[1:]))
        for name, rows in batch.items()
    }
