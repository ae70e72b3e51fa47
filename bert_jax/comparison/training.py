"""Trains the runs of a comparison, several at a time: each in a process and on processor cores of its own.

A small model uses one core well and two badly: on two cores, two at a time end before one after the other.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from absl import logging

from bert_jax import cores
from bert_jax import log as log_lib
from bert_jax import workdir as workdir_lib
from bert_jax.comparison.plan import ComparisonError, Planned

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None

LOG = "train.log"  # in a run's workdir, what its process said

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LOOK_EVERY = 0.2  # seconds


@contextlib.contextmanager
def alone(root: pathlib.Path) -> Iterator[int]:
    """Keeps other comparisons out of a directory; yields what a run's process must inherit for it.

    The lock is held until the last process that has it ends. A comparison that is killed leaves its runs
    behind, and the next one waits for these instead of training the same beside them.
    """
    with (root / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logging.info("%s: waiting for the runs of another or an earlier comparison", root)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def default_jobs() -> int:
    """Returns how many runs are trained at once: one a core on a CPU, one where there is an accelerator."""
    # Asked of a process of its own: this one must not hold what its runs will need.
    asked = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return len(cores.available()) if answer.stdout.strip() == "cpu" else 1


def train(planned: Sequence[Planned], recipe: pathlib.Path, jobs: int, lock: int) -> None:
    """Trains those runs that have not ended; they go on where they were.

    Args:
      planned: the runs.
      recipe: the config file that they are of.
      jobs: how many at once.
      lock: of `alone`.

    Raises:
      ComparisonError: a run failed; the others were stopped, and have saved.
    """
    waiting = collections.deque(run for run in planned if not run.complete)
    logging.info("%d runs, %d of them complete", len(planned), len(planned) - len(waiting))
    count = max(1, min(jobs, len(waiting)))
    mine = cores.available()
    lanes = [mine[i::count] or mine for i in range(count)]
    running: dict[int, tuple[Planned, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or running:
            for lane, its_cores in enumerate(lanes):
                if lane not in running and waiting:
                    run = waiting.popleft()
                    logging.info("%s: started", run.name)
                    running[lane] = run, _start(run, recipe, its_cores if count > 1 else [], lock)
            time.sleep(_LOOK_EVERY)
            for lane, (run, process) in list(running.items()):
                if process.poll() is not None:
                    del running[lane]
                    _end(run, process.returncode)
    finally:
        for _, process in running.values():
            process.terminate()  # it saves, and leaves
        for _, process in running.values():
            process.wait()


def _start(run: Planned, recipe: pathlib.Path, its_cores: list[int], lock: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "bert_jax.main", f"--config={recipe}:{run.variant}"]
    words += [f"--workdir={run.workdir}", *(f"--config.{key}={value}" for key, value in run.changes.items())]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    run.workdir.mkdir(parents=True, exist_ok=True)
    with (run.workdir / LOG).open("ab") as log:
        process = subprocess.Popen(
            words,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,) if fcntl is not None else (),
            process_group=0,  # Ctrl-C is for the comparison: a run that is asked to stop twice saves nothing
        )
    if its_cores and hasattr(os, "sched_setaffinity"):
        # The threads that it will start inherit it, and there are as many as it has cores.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, its_cores)
    return process


def _end(run: Planned, status: int) -> None:
    result = workdir_lib.read_result(run.workdir)
    if status or result is None:
        log = run.workdir / LOG
        lines = log.read_text(errors="replace").strip().splitlines()
        said = lines[-1].removeprefix("error: ") if lines else f"it ended with status {status}"
        raise ComparisonError(f"{run.name} failed: {said} (all of it: {log})")
    logging.info(
        "%s: held-out loss %.4f after %s", run.name, result["value"], log_lib.duration(result["seconds"])
    )
