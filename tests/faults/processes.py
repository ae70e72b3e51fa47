"""Processes that are beside each other: two of one run, two runs in one place, signals that come twice."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import time
from collections.abc import Callable
from functools import partial

import commands_under_fault as under_fault
import made
from row import Row


def scenarios() -> dict[str, Callable[[pathlib.Path, Row, int], None]]:
    """Returns the scenarios by name."""
    return {
        "one of two processes killed": partial(_one_of_two, number=signal.SIGKILL),
        "one of two processes hung": partial(_one_of_two, number=signal.SIGSTOP),
        "two runs in one workdir": _two_runs,
        "an evaluation beside a run": _evaluation_beside,
        "SIGTERM": partial(_terminated, twice=False),
        "SIGTERM twice": partial(_terminated, twice=True),
    }


def _pair(config: pathlib.Path, workdir: pathlib.Path, folder: pathlib.Path) -> list[under_fault.Started]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        under_fault.start(
            made.train(
                config, workdir, f"--coordinator=127.0.0.1:{port}", "--num_processes=2", f"--process_id={i}"
            ),
            folder / f"log{i}",
            before=made.slowly,
        )
        for i in range(2)
    ]


def _one_of_two(folder: pathlib.Path, row: Row, _: int, number: int) -> None:
    config = made.config(folder, **{"train.steps": 2000, "checkpoint.every": 20})
    for victim in (1, 0):
        workdir = folder / str(victim)
        pair = _pair(config, workdir, folder)
        ends = time.monotonic() + 120
        while made.newest(workdir) < 40 and time.monotonic() < ends and pair[0].poll() is None:
            time.sleep(0.01)
        row.tries += 1
        before = made.newest(workdir)
        row.check_kept(before >= 40, f"the two did not train: {pair[0].said()[-800:]}")
        pair[victim].signal(number)
        began = time.monotonic()
        try:
            code = pair[1 - victim].wait()
            row.check_kept(code != 0, "it ended as if nothing were")
            row.note += f"process {1 - victim} ended after {time.monotonic() - began:.0f} s, exit {code}; "
            row.check_said(_last(pair[1 - victim]), "process")
        except under_fault.Hung as hung:
            row.hung += 1
            row.bad(str(hung))
        pair[victim].signal(signal.SIGKILL)
        pair[victim].wait()
        row.check_kept(made.newest(workdir) >= before, "a checkpoint")
        again = under_fault.start(made.train(config, workdir), folder / "log")
        while made.newest(workdir) <= before + 20 and again.poll() is None:
            time.sleep(0.01)
        resumed = "going on from the checkpoint" in again.said()
        row.check_kept(resumed, f"it does not go on: {again.said()[-500:]}")
        again.kill()


def _last(started: under_fault.Started) -> str:
    """The line of the error, or what JAX's service said as it ended the process, its stack left out."""
    lines = [
        line for line in started.said().splitlines() if re.search("[Tt]erminating|distributed service", line)
    ]
    return started.error() or " ".join(lines[-2:])


def _two_runs(folder: pathlib.Path, row: Row, _: int) -> None:
    config = made.config(folder, **{"train.steps": 80, "train.log_every": 40})
    whole, cut = folder / "whole", folder / "cut"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    first = under_fault.start(made.train(config, cut), folder / "log1", before=made.slowly)
    while made.newest(cut) < 5 and first.poll() is None:
        time.sleep(0.002)
    for _ in range(2):
        row.tries += 1
        second = under_fault.run(made.train(config, cut), folder / "log2")
        row.check_kept(second.code == 2 or first.poll() is not None, f"exit {second.code}")
        row.check_said(second.error() or second.said(), "another process trains in", "--workdir")
    row.check_kept(first.wait() == 0, f"the first: {first.said()[-800:]}")
    differing = made.differences(made.ended(whole), made.ended(cut))
    row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = "the second is refused, the first ends bit for bit"


def _evaluation_beside(folder: pathlib.Path, row: Row, _: int) -> None:
    config = made.config(folder, **{"train.steps": 60, "train.log_every": 30, "checkpoint.every": 1})
    whole, cut = folder / "whole", folder / "cut"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    first = under_fault.start(made.train(config, cut), folder / "log1", before=made.slowly)
    while made.newest(cut) < 5 and first.poll() is None:
        time.sleep(0.002)
    for _ in range(3):
        row.tries += 1
        beside = under_fault.run(made.train(config, cut, "--mode=eval"), folder / "log2")
        row.check_kept(
            beside.code == 0 or bool(beside.error()), f"exit {beside.code}: {beside.said()[-600:]}"
        )
    row.check_kept(first.wait() == 0, f"the run: {first.said()[-800:]}")
    differing = made.differences(made.ended(whole), made.ended(cut))
    row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = "the run ends bit for bit"


def _terminated(folder: pathlib.Path, row: Row, _: int, twice: bool) -> None:
    config = made.config(folder, **{"train.steps": 60, "train.log_every": 20})
    whole = folder / "whole"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want = made.ended(whole)
    for number in range(3):
        cut = folder / str(number)
        started = under_fault.start(made.train(config, cut), folder / "log", before=made.slowly)
        while made.newest(cut) < 10 * (number + 1) and started.poll() is None:
            time.sleep(0.002)
        row.tries += 1
        started.signal(signal.SIGTERM)
        if twice:
            time.sleep(0.02 * number)
            started.signal(signal.SIGTERM)
        began = time.monotonic()
        code = started.wait(60)
        took = time.monotonic() - began
        if not twice:
            row.check_kept(code == 128 + signal.SIGTERM, f"exit {code}")
            row.check_said(started.said()[-300:], "stopped by SIGTERM after step", "goes on from there")
        else:
            row.check_kept(code in (-signal.SIGTERM, 128 + signal.SIGTERM), f"exit {code}")
        row.note = f"the last ended within {took:.1f} s; "
        again = under_fault.run(made.train(config, cut), folder / "log")
        row.check_kept(again.code == 0, f"exit {again.code}: {again.said()[-800:]}")
        if again.code == 0:
            differing = made.differences(want, made.ended(cut))
            row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note += "all went on bit for bit"
