"""Compiles a config's real train step for machines that are not there, and says whether it fits.

--topology is CHIP:SHAPE, as v5e:4x4 for 16 chips of TPU v5e (a slice, of which there are mesh.slices), or
h100:8 for 8 GPUs of one machine (h100:4x8: of four). The compiler must be installed (pip install -r
requirements-tpu.txt, or -gpu.txt); the machine need not be there. The answer is JSON on standard output:
`fits`, parameters, and for each of train.phases the HBM that a device needs, by kind, the model's FLOPs by
part, the collectives with the bytes that a device moves, and the step's time as the slowest of computing,
memory and network at the chip's published rates (of the network within a slice or machine): a bound from
below, since they overlap at best. Where it does not fit, `mends` names settings that do, each compiled.
--search finds the largest batch that fits.

    python -m bert_jax.plan --config=configs/base.py --topology=v5e:4x4 --config.train.batch_size=512
"""

from __future__ import annotations

import json

from absl import flags as absl_flags

from bert_jax import config as config_lib
from bert_jax import flags
from bert_jax.planning import machines

_CONFIG = flags.define_config()
_TOPOLOGY = absl_flags.DEFINE_string("topology", None, "CHIP:SHAPE, as v5e:4x4 or h100:8.", required=True)
_SEARCH = absl_flags.DEFINE_bool("search", False, "Find the largest train.batch_size that fits.")


def main() -> None:
    """Plans, and prints the plan."""
    config = _CONFIG.value
    config_lib.validate(config)
    machines.prepare(_TOPOLOGY.value)

    from bert_jax.planning import plan

    devices = machines.devices(_TOPOLOGY.value, config.mesh.slices)
    name, _ = machines.parse(_TOPOLOGY.value)
    with plan.Planner(config, devices, machines.CHIPS[name]) as planner:
        if _SEARCH.value:
            size, found = planner.largest_batch()
            found["largest_batch_size"] = size
        else:
            found = planner.plan()
            if not found["fits"]:
                found["mends"] = planner.mends()
    print(json.dumps({"topology": _TOPOLOGY.value, **found}, indent=2))


if __name__ == "__main__":
    flags.run(main)
