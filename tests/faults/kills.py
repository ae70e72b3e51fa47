"""kill -9 at random moments, of everything that goes on where it was."""

from __future__ import annotations

import json
import pathlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import commands_under_fault as under_fault
import made
from row import Row

Scenario = Callable[[pathlib.Path, Row, int], None]


def scenarios(count: int) -> dict[str, Scenario]:
    """Returns the scenarios by name, each with so many kills."""
    return {
        "kill: training": partial(_training, count=count, during_saves=False),
        "kill: saving": partial(_training, count=count, during_saves=True),
        "kill: preparing": partial(_preparing, count=count),
        "kill: scoring": partial(_scoring, count=count),
        "kill: sweeping": partial(_sweeping, count=count),
    }


def _again(
    words: Sequence[str],
    folder: pathlib.Path,
    row: Row,
    count: int,
    moment: Callable[[under_fault.Started], None],
    check: Callable[[under_fault.Started], None],
    clear: Callable[[], None],
    before: Callable[[], None] | None = None,
) -> None:
    """Kills a command `count` times, each time letting it go on, and checks what it ends with.

    Args:
      words: the command.
      folder: for its log.
      row: of the scenario.
      count: kills.
      moment: waits until it is to be killed, or has ended.
      check: looks at what is there when it has ended.
      clear: takes that away, so that it begins anew.
      before: done first in each process that is to be killed.
    """
    while row.tries < count:
        started = under_fault.start(words, folder / "log", before=before)
        moment(started)
        if started.poll() is None:
            started.kill()
            row.tries += 1
            continue
        _end(started, row, check)
        clear()
    started = under_fault.start(words, folder / "log")
    _end(started, row, check)


def _end(started: under_fault.Started, row: Row, check: Callable[[under_fault.Started], None]) -> None:
    try:
        code = started.wait()
    except under_fault.Hung as hung:
        row.hung += 1
        row.bad(str(hung))
        return
    row.check_kept(code == 0, f"exit {code}: {started.said()[-800:]}")
    if code == 0:
        check(started)


def _sleep(started: under_fault.Started, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while started.poll() is None and time.monotonic() < ends:
        time.sleep(0.002)


def _training(folder: pathlib.Path, row: Row, seed: int, count: int, during_saves: bool) -> None:
    config = made.config(folder, **({"checkpoint.every": 2} if during_saves else {}))
    whole, cut = folder / "whole", folder / "cut"
    began = time.monotonic()
    first = under_fault.run(made.train(config, whole), folder / "log", before=made.slowly)
    assert first.code == 0, first.said()[-2000:]
    takes = time.monotonic() - began
    want, draw, hit, resumed = made.ended(whole), random.Random(seed), 0, 0

    def moment(started: under_fault.Started) -> None:
        nonlocal hit
        before, saved = made.newest(cut), cut / "checkpoints"
        if during_saves:
            # A few saves later, while the directory of an unfinished one is there.
            target = before + draw.randint(1, 5)
            while started.poll() is None:
                if made.newest(cut) >= target and any("tmp" in p.name for p in saved.glob("*")):
                    _sleep(started, draw.random() * 0.05)
                    break
                time.sleep(0.0005)
        else:
            _sleep(started, draw.random() * takes)
        hit += started.poll() is None and any("tmp" in p.name for p in saved.glob("*"))
        row.check_kept(made.newest(cut) >= before, f"checkpoint {before}: the newest is {made.newest(cut)}")

    def check(started: under_fault.Started) -> None:
        nonlocal resumed
        resumed += "going on from the checkpoint" in started.said()
        differing = made.differences(want, made.ended(cut))
        row.check_kept(not differing, f"not the run that was left alone: {differing}")

    places = iter(range(1_000_000))
    _again(
        made.train(config, cut), folder, row, count, moment, check,
        lambda: cut.rename(folder / f"ended-{next(places)}"), made.slowly,
    )  # fmt: skip
    row.note = f"{hit} during a save, {resumed} resumed runs compared bit for bit"


def _preparing(folder: pathlib.Path, row: Row, seed: int, count: int) -> None:
    import small

    text = small.write_text(folder / "text", documents=400)
    config = made.config(folder, **{"data.path": str(text), "data.workers": 2, "data.vocab_size": 300})
    script = ["prepare", f"--config={config}"]

    def smaller_parts() -> None:
        from bert_jax.data import prepare

        prepare.prepare.__kwdefaults__["block"] = 20_000

    began = time.monotonic()
    first = under_fault.run([*script, f"--output={folder / 'whole'}"], folder / "log", before=smaller_parts)
    assert first.code == 0, first.said()[-2000:]
    takes, draw = time.monotonic() - began, random.Random(seed)
    want = made.files(folder / "whole", ("timing.json",))
    output, kept = folder / "out", 0
    while row.tries < count:
        started = under_fault.start([*script, f"--output={output}"], folder / "log", before=smaller_parts)
        _sleep(started, draw.random() * takes)
        row.check_kept(not output.exists() or started.poll() == 0, "an output that is not whole")
        parts = len([*folder.glob(".out.work/parts/*.npz")])
        if started.poll() is None:
            started.kill()
            row.tries += 1
        if started.poll() == 0 or row.tries == count:
            if row.tries == count and started.poll() != 0:
                started = under_fault.run(
                    [*script, f"--output={output}"], folder / "log", before=smaller_parts
                )
                kept += "finished parts" in started.said() and parts > 0
            row.check_kept(started.code == 0, f"exit {started.code}: {started.said()[-500:]}")
            row.check_kept(made.files(output, ("timing.json",)) == want, "the shards differ")
            row.check_kept(not [*folder.glob(".out.work*")], "the folder of work is left")
            output.rename(folder / f"ended-{row.tries}-{time.monotonic()}")
    row.note = "shards byte for byte those of the run that was left alone"


def _scoring(folder: pathlib.Path, row: Row, seed: int, count: int) -> None:
    import tiny_models
    from etils import epath

    draw = random.Random(seed)
    lines = [" ".join(draw.choices(tiny_models.WORDS, k=draw.randint(1, 16))) for _ in range(1500)]
    (folder / "lines.txt").write_text("\n".join(lines))

    def model() -> None:
        from bert_jax.interop import native

        source = tiny_models.source(tiny_models.tokenizer(folder), heads={"has_mlm": True})
        native.write(epath.Path(folder / "m"), source.spec, source.params, source.tokenizer, (), {})

    under_fault.in_fork(model)
    words = [
        "score", f"--model={folder / 'm'}", f"--input={folder / 'lines.txt'}", "--save_every=0.05",
        "--batch_tokens=64",
    ]  # fmt: skip
    began = time.monotonic()
    first = under_fault.run([*words, f"--output={folder / 'whole.jsonl'}"], folder / "log")
    assert first.code == 0, first.said()[-2000:]
    takes, output, resumed = time.monotonic() - began, folder / "out.jsonl", 0

    def check(started: under_fault.Started) -> None:
        nonlocal resumed
        resumed += "going on behind" in started.said()
        row.check_kept(_scores(output) == _scores(folder / "whole.jsonl"), "the scores differ")
        row.check_kept(not [*folder.glob("out.jsonl.partial*")], "a partial file is left")

    def moment(started: under_fault.Started) -> None:
        _sleep(started, draw.random() * takes)

    _again([*words, f"--output={output}"], folder, row, count, moment, check, output.unlink)
    row.note = f"{resumed} runs that went on compared line by line"


def _scores(file: pathlib.Path) -> list[tuple[str, float]]:
    """Texts and scores; rows that are computed in another company may round otherwise."""
    found = map(json.loads, file.read_text().splitlines())
    return [(line["text"], round(line["log_prob"], 3)) for line in found]


def _sweeping(folder: pathlib.Path, row: Row, seed: int, count: int) -> None:
    keys = {"sweep.seeds": 2, "sweep.learning_rate": (1e-3, 2e-3), "train.steps": 20}
    config = made.config(folder, **keys)
    whole, cut, draw = folder / "whole", folder / "cut", random.Random(seed)
    began = time.monotonic()
    first = under_fault.run(made.train(config, whole), folder / "log", before=made.slowly)
    assert first.code == 0, first.said()[-2000:]
    takes = time.monotonic() - began

    def result(root: pathlib.Path) -> dict[str, object]:
        found = json.loads((root / "result.json").read_text())
        return {"value": found["value"], "best": {k: v for k, v in found["best"].items() if k != "seconds"}}

    def check(_: under_fault.Started) -> None:
        row.check_kept(result(cut) == result(whole), f"{result(cut)} and not {result(whole)}")
        for number in range(4):
            a, b = (made.ended(root / "members" / str(number)) for root in (whole, cut))
            row.check_kept(not made.differences(a, b), f"member {number}: {made.differences(a, b)}")

    places = iter(range(1_000_000))
    _again(
        made.train(config, cut), folder, row, count,
        lambda started: _sleep(started, draw.random() * takes), check,
        lambda: cut.rename(folder / f"ended-{next(places)}"), made.slowly,
    )  # fmt: skip
    row.note = "4 members, each compared bit for bit"
