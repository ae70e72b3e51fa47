"""kill -9 at random moments, during saving too: nothing of the run is lost but time."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import small

from bert_jax import checkpoint


def start(config_file: pathlib.Path, workdir: pathlib.Path, log: pathlib.Path) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "bert_jax.main", f"--config={config_file}", f"--workdir={workdir}"]
    with log.open("a") as out:
        return subprocess.Popen(command, env=env, stdout=out, stderr=out)


def newest(workdir: pathlib.Path) -> int:
    folder = workdir / "checkpoints"
    return max((int(p.name) for p in folder.glob("*") if p.name.isdigit()), default=0)


@pytest.mark.slow
def test_ten_kills_change_no_bit(tmp_path):
    config = small.config(
        tmp_path,
        **{
            "train.steps": 200,
            "model.dropout": 0.1,
            "checkpoint.every": 5,
            "train.log_every": 20,
        },
    )
    config_file = small.write(config, tmp_path / "config.py")
    log = tmp_path / "log"
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start(config_file, whole, log).wait() == 0, log.read_text()[-3000:]

    draw = random.Random(0)
    saved_before, kills, during_save = 0, 0, 0
    while kills < 10:
        process = start(config_file, cut, log)
        # A kill counts once the restarted run has passed the checkpoint that it began from.
        deadline = time.monotonic() + 300
        target = saved_before + draw.randint(5, 15)
        while newest(cut) < min(target, 195) and process.poll() is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.005)
        time.sleep(draw.random() * 0.2)
        assert process.poll() is None, "the run ended before it was killed: " + log.read_text()[-3000:]
        during_save += any("tmp" in p.name for p in (cut / "checkpoints").iterdir())
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kills += 1
        saved_before = newest(cut)
        assert 0 < saved_before < 200
    process = start(config_file, cut, log)
    assert process.wait() == 0, log.read_text()[-3000:]

    resumed = log.read_text().count("going on from the checkpoint of step")
    assert resumed == 10, f"{resumed} of 10 restarts resumed"
    print(f"10 kills, {during_save} of them during a save; 10 restarts resumed")
    a, b = (checkpoint.read_params(folder / "checkpoints") for folder in (whole, cut))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    ends = [json.loads((folder / "result.json").read_text())["loss"] for folder in (whole, cut)]
    assert ends[0] == ends[1]
