"""The whole command in two processes: the same run as in one."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import small

from bert_jax import config as config_lib


def run(config_file: pathlib.Path, workdir: pathlib.Path, processes: int) -> dict:
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bert_jax.main", f"--config={config_file}", f"--workdir={workdir}"]
    started = []
    for number in range(processes):
        together = [
            f"--coordinator=127.0.0.1:{port}",
            f"--num_processes={processes}",
            f"--process_id={number}",
        ]
        more = together if processes > 1 else []
        started.append(
            subprocess.Popen(
                command + more, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    said = [process.communicate(timeout=600)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes, said
    return json.loads((workdir / "result.json").read_text())


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    config = small.config(tmp_path, **{"train.steps": 12, "checkpoint.every": 6, "model.dropout": 0.1})
    config_file = tmp_path / "config.py"
    config_file.write_text(
        "from bert_jax import config\n\n\n"
        f"def get_config():\n    return config.from_json({config_lib.to_json(config)!r})\n"
    )
    one, two = (run(config_file, tmp_path / str(n), n) for n in (1, 2))
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
    lines = [(tmp_path / str(n) / "metrics.jsonl").read_text().splitlines() for n in (1, 2)]
    assert len(lines[0]) == len(lines[1])
    for a, b in zip(*map(lambda part: map(json.loads, part), lines), strict=True):
        assert (a["step"], a["split"]) == (b["step"], b["split"])
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    # What two processes saved, one goes on from: nothing is left to do but to evaluate.
    (tmp_path / "2" / "result.json").unlink()
    again = run(config_file, tmp_path / "2", 1)
    assert again["loss"] == pytest.approx(one["loss"], rel=1e-5)
