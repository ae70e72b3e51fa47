"""The same loss, gradients and parameters on one device, on many, in two processes and from microbatches."""

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import devices_worker
import numpy as np
import pytest

WORKER = pathlib.Path(__file__).with_name("devices_worker.py")
BLOCKS = {"model.attention_kernel": "blocks", "model.attention_block": 3}
PLAIN, DROPPING = {"l2": 0.01}, {"l2": 0.01, "dropout": 0.2}


def launch(
    folder: pathlib.Path, devices: int, processes: int, cases: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns what process 0 found for each case, with `devices` devices in each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outputs = [folder / f"{i}.npz" for i in range(processes)]
    logs = [folder / f"{i}.log" for i in range(processes)]
    root = str(WORKER.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    running = []
    for i in range(processes):
        command = [sys.executable, WORKER, devices, processes, i, port, outputs[i], json.dumps(cases)]
        with logs[i].open("w") as log:
            running.append(
                subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, env=environment)
            )
    try:
        codes = [process.wait(timeout=300) for process in running]
    finally:
        for process in running:
            process.kill()
    assert not any(codes), "\n".join(log.read_text()[-3000:] for log in logs)
    found = [dict(np.load(output)) for output in outputs]
    for other in found[1:]:
        assert_same(other, found[0], exactly=True)
    return [
        {name.split("/", 1)[1]: value for name, value in found[0].items() if name.startswith(f"{number}/")}
        for number in range(len(cases))
    ]


def assert_same(found: dict[str, Any], expected: dict[str, Any], exactly: bool = False) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # Relative to an array's largest number, or to 0.01 where it is a gradient that is 0 but for rounding.
        scale = 0 if exactly else max(float(np.abs(value).max()), 1e-2)
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * scale, err_msg=name)


@pytest.fixture(scope="module")
def one_device() -> dict[str, dict[str, Any]]:
    return {"plain": devices_worker.run(PLAIN), "dropping": devices_worker.run(DROPPING)}


def test_the_reference_trains_and_drops(one_device: dict[str, dict[str, Any]]) -> None:
    plain, dropping = one_device["plain"], one_device["dropping"]
    assert plain["step2/loss"] != plain["step0/loss"]
    assert abs(plain["step0/loss"] - dropping["step0/loss"]) > 1e-3
    # A mean of each row's or microbatch's mean is another number, so the tests below can fail.
    counts = devices_worker.batches()[0]["mlm_weights"].sum(axis=1)
    assert len(set(counts[i::4].sum() for i in range(4))) > 1 and (counts == 0).any()


@pytest.mark.slow  # the quick tests have it on eight devices
def test_accumulation_is_the_same(one_device: dict[str, dict[str, Any]]) -> None:
    assert_same(devices_worker.run({"accumulation": 4, **PLAIN}), one_device["plain"])


@pytest.mark.parametrize(
    ("devices", "processes", "cases"),
    [
        pytest.param(
            8,
            1,
            [
                {"mesh": (2, 2, 2), "accumulation": 4, "train.vocabulary_parts": 8, **PLAIN},
                {"mesh": (8, 1, 1), **PLAIN},
                {"mesh": (2, 1, 2), "mesh.sequence": 2, **BLOCKS, **PLAIN},
            ],
            id="8x1",
        ),
        pytest.param(4, 2, [{"mesh": (2, 2, 2), **DROPPING}], id="4x2"),
        pytest.param(
            8,
            1,
            [
                *({"mesh": mesh, **DROPPING} for mesh in ((8, 1, 1), (2, 2, 2))),
                {"mesh": (2, 1, 1), "mesh.sequence": 4, **DROPPING},
                {"mesh": (1, 2, 1), "mesh.sequence": 4, **PLAIN},
            ],
            id="8x1-dropping",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            1,
            [
                {"mesh": mesh, **kind}
                for mesh in ((2, 1, 1), (1, 2, 1), (1, 1, 2))
                for kind in (PLAIN, DROPPING)
            ]
            + [{"mesh": mesh, "accumulation": 4, **PLAIN} for mesh in ((2, 1, 1), (1, 2, 1), (1, 1, 2))],
            id="2x1-each-axis",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            1,
            2,
            [
                {"mesh": mesh, **kind}
                for mesh in ((2, 1, 1), (1, 2, 1), (1, 1, 2))
                for kind in (PLAIN, DROPPING)
            ]
            + [{"mesh": (2, 1, 1), "accumulation": 4, **PLAIN}],
            id="1x2-each-axis",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_devices_and_processes_are_the_same(
    one_device: dict[str, dict[str, Any]],
    tmp_path: pathlib.Path,
    devices: int,
    processes: int,
    cases: list[dict[str, Any]],
) -> None:
    """Devices in each process, processes."""
    for case, values in zip(cases, launch(tmp_path, devices, processes, cases), strict=True):
        assert_same(values, one_device["dropping" if "dropout" in case else "plain"])
