"""Trains a model, pretraining or fine-tuning as the config says, or only evaluates one.

A workdir that holds a run is continued. For a start on several machines, give each process
--coordinator=HOST:PORT, --num_processes=N and --process_id=I, or --distributed=auto where the
platform tells them (Cloud TPU, Slurm, Kubernetes).

    python -m bert_jax.main --config=configs/tiny.py --workdir=runs/tiny --config.train.steps=100
"""

from __future__ import annotations

import os

from absl import flags as absl_flags

from bert_jax import config as config_lib
from bert_jax import flags

_CONFIG = flags.define_config()
_WORKDIR = absl_flags.DEFINE_string(
    "workdir", None, "Directory of the run, local or gs://; made if absent.", required=True
)
_MODE = absl_flags.DEFINE_enum("mode", "train", ["train", "eval"], "Train, or only evaluate --workdir.")
_DISTRIBUTED = absl_flags.DEFINE_enum(
    "distributed", "none", ["none", "auto"], "auto: the platform tells the processes of each other."
)
_COORDINATOR = absl_flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0, the same for all; it listens on HOST only."
)
_NUM_PROCESSES = absl_flags.DEFINE_integer("num_processes", None, "Number of processes.", lower_bound=1)
_PROCESS_ID = absl_flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.", lower_bound=0)


def main() -> None:
    """Checks the config, joins the other processes, and trains or evaluates."""
    config = _CONFIG.value
    # Before JAX and TensorFlow are loaded: a slip costs no waiting.
    config_lib.validate(config)
    _start_distributed()

    from bert_jax import processes, train

    workdir = os.path.expanduser(_WORKDIR.value)  # a shell leaves the ~ of --workdir=~/runs alone
    try:
        if _MODE.value == "eval":
            train.evaluate(config, workdir)
        else:
            train.train(config, workdir)
    except Exception as error:
        if gone := processes.gone(error):
            raise gone from error
        raise


def _start_distributed() -> None:
    named = {
        "--coordinator": _COORDINATOR.value,
        "--num_processes": _NUM_PROCESSES.value,
        "--process_id": _PROCESS_ID.value,
    }
    missing = [name for name, value in named.items() if value is None]
    if len(missing) == len(named):
        if _DISTRIBUTED.value == "auto":
            import jax

            jax.distributed.initialize()
        return
    if missing:
        raise flags.UsageError(f"{missing[0]} is missing: {', '.join(named)} go together")
    if _DISTRIBUTED.value == "auto":
        raise flags.UsageError("--distributed=auto cannot go with --coordinator: the platform names it")
    if _PROCESS_ID.value >= _NUM_PROCESSES.value:
        raise flags.UsageError(
            f"--process_id={_PROCESS_ID.value}: it must be less than --num_processes={_NUM_PROCESSES.value}"
        )
    host, colon, port = _COORDINATOR.value.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise flags.UsageError(f"--coordinator={_COORDINATOR.value}: it must be HOST:PORT, as 10.0.0.2:8476")

    import jax

    jax.distributed.initialize(
        _COORDINATOR.value,
        _NUM_PROCESSES.value,
        _PROCESS_ID.value,
        # JAX would listen on every address of the machine.
        coordinator_bind_address=_COORDINATOR.value if _PROCESS_ID.value == 0 else None,
    )


if __name__ == "__main__":
    flags.run(main)
