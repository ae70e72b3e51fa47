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
      platform: "tpu", or "cpu" for trials.
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
    "cpu": Chip("cpu", 8 * GIB, 1e11, 2e10, 1e10),
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


def devices(topology: str) -> list[Any]:
    """Returns the devices of a topology; `prepare` comes before JAX is loaded.

    Raises:
      TopologyError: the compiler does not know it, or is not installed.
    """
    import jax
    from jax.experimental import topologies

    name, _ = parse(topology)
    if CHIPS[name].platform == "cpu":
        return jax.devices()
    try:
        return list(topologies.get_topology_desc(topology, "tpu").devices)
    except Exception as error:  # whatever the plug-in raises
        if "libtpu" in str(error) or "not found" in str(error).lower():
            raise TopologyError(
                "plans for TPU need its compiler: pip install -r requirements-tpu.txt (no TPU is needed)"
            ) from error
        raise TopologyError(f"--topology={topology}: {str(error).splitlines()[0]}") from error
