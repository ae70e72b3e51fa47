"""Machines by name, and their devices without the machines."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from typing import Any

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One device, by its maker's published figures.

    Attributes:
      platform: "tpu", "cuda", or "cpu" for trials.
      memory: bytes of HBM that programs may use.
      flops: dense bfloat16 operations a second.
      memory_bandwidth: bytes a second of HBM.
      network_bandwidth: bytes a second to other devices, in one direction, by all links together.
    """

    platform: str
    memory: int
    flops: float
    memory_bandwidth: float
    network_bandwidth: float


# HBM: what the compiler leaves of the published size.
CHIPS = {
    "v4": Chip("tpu", int(30.75 * GIB), 275e12, 1228e9, 150e9),
    "v5e": Chip("tpu", int(15.75 * GIB), 197e12, 819e9, 100e9),
    "v5p": Chip("tpu", int(95.74 * GIB), 459e12, 2765e9, 300e9),
    "v6e": Chip("tpu", int(31.25 * GIB), 918e12, 1640e9, 224e9),
    # Of 79.1 GiB JAX takes three quarters, where XLA_PYTHON_CLIENT_MEM_FRACTION says nothing else.
    "h100": Chip("cuda", int(0.75 * 79.1 * GIB), 989e12, 3350e9, 450e9),
    "cpu": Chip("cpu", 8 * GIB, 1e11, 2e10, 1e10),
}
# What CUDA's compiler must know of a chip that is not there: the published description of its parts.
_PARTS = {
    "h100": """gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84942979072
}
platform_name: "CUDA"
runtime_version { major: 12 minor: 9 }
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
""",
}
_FORM = re.compile(r"(\w+):(\d+(?:x\d+)*)")


class TopologyError(ValueError):
    """A topology that cannot be had; the message says what would be understood."""


def prepare(topology: str) -> None:
    """Sets what JAX must know before it is loaded, to compile for machines that are not there.

    Raises:
      TopologyError: the name is not understood.
    """
    name, shape = parse(topology)
    os.environ["JAX_PLATFORMS"] = "cpu"
    if CHIPS[name].platform == "tpu":
        # Otherwise libtpu looks for the machine's own TPU, and waits for a server that tells of it.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # plans beside one another
    else:
        count = f"--xla_force_host_platform_device_count={math.prod(shape)}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {count}".strip()


def parse(topology: str) -> tuple[str, tuple[int, ...]]:
    """Returns the chip's name and the shape of "v5e:4x4".

    Raises:
      TopologyError: the name is not understood.
    """
    match = _FORM.fullmatch(topology)
    if not match or match[1] not in CHIPS:
        raise TopologyError(
            f"--topology={topology}: it must be CHIP:SHAPE, as v5e:4x4, with a chip of {', '.join(CHIPS)}"
        )
    return match[1], tuple(int(size) for size in match[2].split("x"))


def devices(topology: str, slices: int = 1) -> list[Any]:
    """Returns the devices of a topology; `prepare` comes before JAX is loaded.

    Args:
      topology: as v5e:4x4; of GPUs h100:8, or h100:4x8 for four machines of eight.
      slices: so many of them, with a slower network between.

    Raises:
      TopologyError: the compiler does not know it, or is not installed.
    """
    import jax
    from jax.experimental import topologies

    name, shape = parse(topology)
    platform = CHIPS[name].platform
    if platform == "cpu" or (platform == "cuda" and slices > 1):
        if slices > 1:
            raise TopologyError(f"--topology={topology}: mesh.slices = {slices} can be planned for TPU only")
        return jax.devices()
    try:
        if platform == "cuda":
            machines, each = (1, *shape)[-2:]
            made = topologies.get_topology_desc(
                platform="cuda", topology=f"{machines}x1x{each}", target_config=_PARTS[name]
            )
        else:
            more = {"num_slices": slices} if slices > 1 else {}
            made = topologies.get_topology_desc(topology, "tpu", **more)
        return list(made.devices)
    except Exception as error:  # whatever the plug-in raises
        kind, file = ("NVIDIA GPUs", "gpu") if platform == "cuda" else ("TPU", "tpu")
        said = str(error)
        if any(sign in said.lower() for sign in ("not found", "not installed", "not implemented")):
            raise TopologyError(
                f"plans for {kind} need their compiler: pip install -r requirements-{file}.txt (no {kind} is "
                "needed)"
            ) from error
        raise TopologyError(f"--topology={topology}: {said.splitlines()[0]}") from error
