"""The whole command in two processes: the same run as in one."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import commands
import jax
import pytest
import small

from bert_jax import train


def run(
    config_file: pathlib.Path, workdir: pathlib.Path, processes: int = 1, devices: int = 1, *flags: str
) -> dict:
    """Runs the command to its end, in processes of `devices` devices each, and returns its result."""
    env = {
        **os.environ,
        "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "bert_jax.main", f"--config={config_file}", f"--workdir={workdir}", *flags,
    ]  # fmt: skip
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


@pytest.mark.parametrize(
    ("said", "count", "gone"),
    [
        ("UNKNOWN: Gloo all-reduce failed: [pair.cc:538] Connection reset by peer", 2, True),
        ("UNAVAILABLE: the leader task died\nmore of it", 2, True),
        ("UNAVAILABLE: the leader task died", 1, False),
        ("RESOURCE_EXHAUSTED: Out of memory", 2, False),
    ],
)
def test_a_process_that_is_gone_is_told_in_a_line(tmp_path, monkeypatch, said, count, gone):
    monkeypatch.setattr(jax, "process_count", lambda: count)

    def fails(*_):
        try:
            raise jax.errors.JaxRuntimeError(said)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError("while something was done") from error

    monkeypatch.setattr(train, "train", fails)
    file = small.write(small.config(tmp_path), tmp_path / "config.py")
    words = ("main", f"--config={file}", "--workdir=run")
    if not gone:
        with pytest.raises(ValueError, match="while something was done"):
            commands.run(*words, folder=tmp_path)
        return
    done = commands.run(*words, folder=tmp_path)
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("error: process 0 of 2 does not reach the others any more (U")
    assert "the log of the one that ended first says why" in done.err


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    config = small.config(tmp_path, **{"train.steps": 12, "checkpoint.every": 6, "model.dropout": 0.1})
    config_file = small.write(config, tmp_path / "config.py")
    one, two = (run(config_file, tmp_path / str(n), n) for n in (1, 2))
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
    for a, b in zip(small.metrics(tmp_path / "1"), small.metrics(tmp_path / "2"), strict=True):
        assert (a["step"], a["split"]) == (b["step"], b["split"])
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    # What two processes saved, one goes on from: nothing is left to do but to evaluate.
    (tmp_path / "2" / "result.json").unlink()
    again = run(config_file, tmp_path / "2", 1)
    assert again["loss"] == pytest.approx(one["loss"], rel=1e-5)


@pytest.mark.slow
def test_twenty_steps_give_one_curve_on_every_mesh(tmp_path):
    config = small.config(
        tmp_path,
        **{"train.steps": 20, "train.log_every": 1, "checkpoint.every": 20, "model.dropout": 0.1,
           "model.attention_dropout": 0.1},
    )  # fmt: skip
    config_file = small.write(config, tmp_path / "config.py")
    alone = run(config_file, tmp_path / "alone")
    expected = [line["loss"] for line in small.metrics(tmp_path / "alone") if line["split"] == "train"]
    assert len(expected) == 20 and expected[-1] < expected[0]
    cases = {
        "8,1,1": (1, 8, (8, 1, 1), "none"),
        "1,8,1": (1, 8, (1, 8, 1), "none"),
        "2,2,2": (1, 8, (2, 2, 2), "none"),
        "4,1,2": (1, 8, (4, 1, 2), "none"),
        "2x4": (2, 4, (2, 2, 2), "none"),
        "full": (1, 1, (1, 1, 1), "full"),
        "2,2,2-full": (1, 8, (2, 2, 2), "full"),
    }
    for name, (processes, devices, mesh, remat) in cases.items():
        axes = zip(("data", "fsdp", "tensor"), mesh, strict=True)
        flags = [f"--config.mesh.{axis}={size}" for axis, size in axes]
        found = run(config_file, tmp_path / name, processes, devices, *flags, f"--config.model.remat={remat}")
        curve = [line["loss"] for line in small.metrics(tmp_path / name) if line["split"] == "train"]
        furthest = max(abs(a / b - 1) for a, b in zip(curve, expected, strict=True))
        print(f"{name}: furthest {furthest:.1e} of the loss alone")
        assert furthest < 1e-5, name
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5), name
