"""Files that change under a run: checkpoints, shards, and numbers that are none any more."""

from __future__ import annotations

import pathlib
import random
import shutil
import time
from collections.abc import Callable
from functools import partial

import commands_under_fault as under_fault
import made
from row import Row

Scenario = Callable[[pathlib.Path, Row, int], None]
Damage = Callable[[pathlib.Path, random.Random], None]


def _flip(folder: pathlib.Path, draw: random.Random) -> None:
    """Changes one bit of some file, larger ones more often."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    file = draw.choices(files, [p.stat().st_size for p in files])[0]
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def _cut(folder: pathlib.Path, draw: random.Random) -> None:
    file = draw.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size))
    file.write_bytes(file.read_bytes()[: draw.randrange(file.stat().st_size)])


def _remove(folder: pathlib.Path, draw: random.Random) -> None:
    draw.choice(sorted(p for p in folder.rglob("*") if p.is_file())).unlink()


def _empty(folder: pathlib.Path, _: random.Random) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def scenarios(count: int) -> dict[str, Scenario]:
    """Returns the scenarios by name, each with so many damages."""
    checkpoints = {"a bit changed": _flip, "a file cut": _cut, "a file missing": _remove, "empty": _empty}
    return {
        **{
            f"checkpoint: {name}": partial(_checkpoint, count=count, damage=damage)
            for name, damage in checkpoints.items()
        },
        "shards: damaged before the start": partial(_shards, count=count),
        "shards: taken away under a run": partial(_under_a_run, how="removed"),
        "shards: replaced under a run": partial(_under_a_run, how="replaced"),
        "shards: cut under a run": partial(_under_a_run, how="cut"),
        "shards: changed under a run": partial(_under_a_run, how="changed"),
        "NaN in the gradient": partial(_nan, count=count),
    }


def _half_a_run(folder: pathlib.Path, config: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the workdir of a whole run, and that of one that was killed behind its third checkpoint."""
    whole, cut = folder / "whole", folder / "cut"
    first = under_fault.run(made.train(config, whole), folder / "log")
    assert first.code == 0, first.said()[-2000:]
    started = under_fault.start(made.train(config, cut), folder / "log", before=made.slowly)
    while made.newest(cut) < 15 and started.poll() is None:
        time.sleep(0.002)
    started.kill()
    return whole, cut


def _checkpoint(folder: pathlib.Path, row: Row, seed: int, count: int, damage: Damage) -> None:
    config = made.config(folder, **{"train.steps": 30})
    whole, cut = _half_a_run(folder, config)
    want, draw = made.ended(whole), random.Random(seed)
    harmless = 0
    for number in range(count):
        copy = folder / str(number)
        shutil.copytree(cut, copy)
        newest = made.newest(copy)
        damage(copy / "checkpoints" / str(newest), draw)
        row.tries += 1
        run = under_fault.run(made.train(config, copy), folder / "log")
        row.check_kept(run.code == 0, f"exit {run.code}: {run.said()[-800:]}")
        if run.code:
            continue
        warned = [line for line in run.said().splitlines() if "is damaged and passed over" in line]
        if warned:
            row.check_said(warned[0], f"checkpoints/{newest}", ": ")
        else:  # a file that says nothing of the state, or a bit that nobody reads
            harmless += 1
        differing = made.differences(want, made.ended(copy))
        row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = f"{count - harmless} passed over, {harmless} read to the same bits; all ended bit for bit"


def _prepared(folder: pathlib.Path, steps: int) -> pathlib.Path:
    """Prepares shards in folder/shards and returns a config that trains on them."""
    first = made.config(folder, "prepare.py")
    run = under_fault.run(["prepare", f"--config={first}", f"--output={folder / 'shards'}"], folder / "log")
    assert run.code == 0, run.said()[-2000:]
    keys = {"data.source": "shards", "data.path": str(folder / "shards"), "train.steps": steps}
    return made.config(folder, **keys)


def _shards(folder: pathlib.Path, row: Row, seed: int, count: int) -> None:
    config = _prepared(folder, 20)
    whole, cut = folder / "whole", folder / "cut"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want, draw, good = made.ended(whole), random.Random(seed), folder / "good"
    started = under_fault.start(made.train(config, cut), folder / "log", before=made.slowly)
    while made.newest(cut) < 5 and started.poll() is None:
        time.sleep(0.002)
    started.kill()
    (folder / "shards").rename(good)
    harmless = 0
    for number in range(3 * count):
        shutil.copytree(good, folder / "shards")
        copy = folder / str(number)
        shutil.copytree(cut, copy)
        (_flip, _cut, _remove)[number % 3](folder / "shards", draw)
        row.tries += 1
        run = under_fault.run(made.train(config, copy), folder / "log")
        if run.code == 0:
            differing = made.differences(want, made.ended(copy))
            row.check_kept(not differing, f"trained on damaged shards: {differing}")
            harmless += 1
        else:
            row.check_said(run.error() or run.said(), "shards/")
            row.check_kept(made.newest(copy) >= 5, "a checkpoint")
        shutil.rmtree(folder / "shards")
    row.note = f"{row.tries - harmless} refused; {harmless} hit what is not read, and ended bit for bit"


def _under_a_run(folder: pathlib.Path, row: Row, seed: int, how: str) -> None:
    config = _prepared(folder, 60)
    whole, cut = folder / "whole", folder / "cut"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want = made.ended(whole)
    file = folder / "shards" / "train-00000.tokens.npy"
    good = file.read_bytes()
    started = under_fault.start(made.train(config, cut), folder / "log", before=made.slowly)
    while made.newest(cut) < 10 and started.poll() is None:
        time.sleep(0.002)
    row.tries += 1
    if how == "removed":
        file.unlink()
    elif how == "replaced":
        other = file.with_suffix(".new")
        other.write_bytes(good[:200] + bytes(len(good) - 200))
        other.replace(file)
    elif how == "cut":
        with file.open("r+b") as stream:
            stream.truncate(200)
    else:
        with file.open("r+b") as stream:
            stream.seek(200)
            stream.write(bytes(len(good) - 200))
    code = started.wait()
    if code == 0:  # what was open stayed as it was
        differing = made.differences(want, made.ended(cut))
        row.check_kept(not differing, f"not the run that was left alone: {differing}")
        (cut / "result.json").unlink()
        shutil.rmtree(cut / "checkpoints" / "60")
        row.note = "went on with what it had open; "
    else:
        row.check_said(started.error() or f"exit {code}: {started.said()}", str(file.name), "changed")
        row.note = "ended; "
    row.check_kept(made.newest(cut) >= 10, "a checkpoint")
    again = under_fault.run(made.train(config, cut), folder / "log")
    row.check_kept(again.code == 2, f"the next start took it: exit {again.code}")
    row.check_said(again.error() or again.said(), str(file.name), "prepare the text again")
    file.write_bytes(good)
    healed = under_fault.run(made.train(config, cut), folder / "log")
    row.check_kept(healed.code == 0, f"exit {healed.code}: {healed.said()[-800:]}")
    if healed.code == 0:
        differing = made.differences(want, made.ended(cut))
        row.check_kept(not differing, f"mended, not the run that was left alone: {differing}")
    row.note += "the next start refused it, and went on bit for bit once it was mended"


def _nan(folder: pathlib.Path, row: Row, seed: int, count: int) -> None:
    config = made.config(folder, **{"train.steps": 20})
    whole = folder / "whole"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want, draw = made.ended(whole), random.Random(seed)
    for number in range(count):
        cut, wrong = folder / str(number), draw.randint(1, 20)

        def spoil(wrong: int = wrong) -> None:
            from bert_jax import step as step_lib

            make = step_lib.make_train_step

            def spoiled(*arguments: object) -> object:
                step = make(*arguments)

                def one(state: object, batch: object) -> object:
                    import jax.numpy as jnp

                    number = int(state.step) + 1
                    state, sums = step(state, batch)
                    if number == wrong:
                        sums = {**sums, "grad_norm": (jnp.float32("nan"), sums["grad_norm"][1])}
                    return state, sums

                return one

            step_lib.make_train_step = spoiled

        row.tries += 1
        run = under_fault.run(made.train(config, cut), folder / "log", before=spoil)
        row.check_kept(run.code == 2, f"a NaN in step {wrong} was taken: exit {run.code}")
        row.check_said(run.error() or run.said(), f"grad_norm = nan in step {wrong}", "checkpoint", "lower")
        row.check_kept(
            made.newest(cut) == (wrong - 1) // 5 * 5, f"{made.newest(cut)} is the newest, {wrong=}"
        )
        again = under_fault.run(made.train(config, cut), folder / "log")
        row.check_kept(again.code == 0, f"exit {again.code}: {again.said()[-800:]}")
        if again.code == 0:
            differing = made.differences(want, made.ended(cut))
            row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = "nothing of it saved; went on bit for bit without it"
