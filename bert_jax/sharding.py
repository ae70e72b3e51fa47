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
from jax.experimental import mesh_utils
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
    ("sequence", "sequence"),  # positions of what passes through the layers, and of no parameter
)
UNSHARED = ("activation", "norm", "head_size", "layers", "positions", "keys", "segments", "labels",
             "embed_out", "embedding")  # fmt: skip
AXES = ("data", "fsdp", "tensor", "sequence")


def make_mesh(config: ConfigDict, on: Sequence[Any] | None = None) -> Mesh:
    """Returns the (data, fsdp, tensor, sequence) mesh over all devices.

    Args:
      config: `config.mesh`; data = -1 takes all devices that the other axes leave.
      on: devices of a machine that is not there; None: those that are.

    Raises:
      ValueError: the axes do not multiply to the number of devices, or the slices are others.
    """
    devices = jax.device_count() if on is None else len(on)
    shared = config.fsdp * config.tensor * config.sequence
    data = config.data if config.data > 0 else devices // shared
    if data * shared != devices or data < 1:
        asked = ", ".join(f"mesh.{name} = {config[name]}" for name in AXES)
        raise ValueError(
            f"{asked} do not make up the {devices} devices that there are: their product must be {devices}"
        )
    shape, types = (data, config.fsdp, config.tensor, config.sequence), (AxisType.Auto,) * len(AXES)
    slices = config.slices
    if slices == 1:
        return jax.make_mesh(shape, AXES, axis_types=types, devices=on)
    return Mesh(over_slices(shape, slices, jax.devices() if on is None else on), AXES, axis_types=types)


def over_slices(shape: tuple[int, ...], slices: int, devices: Sequence[Any]) -> np.ndarray:
    """Returns the devices of some slices, in an array whose first axis alone goes across them.

    Between slices lies a slower network, and the first axis adds gradients up once a step; the other axes
    talk in every layer, and stay within a slice.

    Args:
      shape: of the array.
      slices: number of slices.
      devices: each knows its own, `slice_index`.

    Raises:
      ValueError: the first axis cannot be divided, or the devices are of another number of slices.
    """
    found = len({getattr(device, "slice_index", 0) for device in devices})
    if found != slices:
        raise ValueError(f"mesh.slices = {slices}, and the devices that there are make up {found}")
    if shape[0] % slices:
        raise ValueError(f"mesh.data = {shape[0]} is not a multiple of mesh.slices = {slices}")
    inside = (shape[0] // slices, *shape[1:])
    over = (slices, *(1 for _ in shape[1:]))
    return mesh_utils.create_hybrid_device_mesh(inside, over, devices)


def rows(mesh: Mesh) -> int:
    """Returns among how many devices the rows of a batch are shared."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def check(config: ConfigDict, mesh: Mesh, spec: ModelSpec, batch_size: int) -> None:
    """Raises ValueError, naming the keys, where an array cannot be shared evenly over the mesh."""
    over = rows(mesh)
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
        (micro, "train.batch_size / train.accumulation", over, "mesh.data * mesh.fsdp"),
        (config.train.eval_batch_size or over, "train.eval_batch_size", over, "mesh.data * mesh.fsdp"),
        (config.model.hidden_size, "model.hidden_size", mesh.shape["fsdp"], "mesh.fsdp"),
        (config.model.heads, "model.heads", mesh.shape["tensor"], "mesh.tensor"),
        (config.model.feed_forward_size, "model.feed_forward_size", mesh.shape["tensor"], "mesh.tensor"),
        (spec.embedded_size, "model.embedding_size", mesh.shape["fsdp"], "mesh.fsdp"),
        (spec.padded_vocab_size, "the padded vocabulary", mesh.shape["tensor"], "mesh.tensor"),
        (
            spec.padded_vocab_size,
            "the padded vocabulary",
            mesh.shape["tensor"] * config.train.vocabulary_parts,
            "mesh.tensor * train.vocabulary_parts",
        ),
        *(
            (length, "a row's length", mesh.shape["sequence"], "mesh.sequence")
            for length in (config.data.seq_len, *config.data.buckets, *(p[0] for p in config.train.phases))
        ),
        *generator,
    ):
        if size % parts:
            raise ValueError(f"{name} = {size} is not a multiple of {axis} = {parts}")


def rules() -> Any:
    """Returns the context in which the models' logical axis names mean mesh axes."""
    return nn.logical_axis_rules((*RULES, *((name, None) for name in UNSHARED)))


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Returns the shardings of a tree of (abstract) parameters that carry logical axis names.

    Raises:
      ValueError: a parameter names no axes, or one that no rule knows: it would be left whole in silence.
    """
    known = {*(name for name, _ in RULES), *UNSHARED, None}  # None says by itself that nobody shares it
    leaves = jax.tree.leaves_with_path(boxed, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata))
    for path, leaf in leaves:
        names = getattr(leaf, "names", None)
        if names is None or not known.issuperset(names):
            raise ValueError(
                f"no rule says where parameter {jax.tree_util.keystr(path, simple=True, separator='/')} "
                f"is to lie: its axes are {names}, and sharding.RULES and UNSHARED know "
                f"{', '.join(sorted(filter(None, known)))}"
            )
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
