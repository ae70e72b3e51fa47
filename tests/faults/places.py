"""Places that cannot be written, clocks and languages that are others."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import commands_under_fault as under_fault
import made
from row import Row


def scenarios() -> dict[str, Callable[[pathlib.Path, Row, int], None]]:
    """Returns the scenarios by name."""
    return {
        "a full disk: saving": _full_disk,
        "a full disk: preparing": _full_preparing,
        "a full disk: answers": _full_answers,
        "a read-only workdir": _read_only,
        "the clock jumps": _clock,
        "another language": _language,
        "a reader that leaves": _pipe,
    }


@contextlib.contextmanager
def _disk(folder: pathlib.Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mounts a file system of a size at a folder; yields what gives it other options. Needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)

    def change(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)

    try:
        yield change
    finally:
        subprocess.run(["umount", folder], check=True)


def _full_disk(folder: pathlib.Path, row: Row, _: int) -> None:
    config = made.config(folder, **{"checkpoint.keep": 100})
    whole = folder / "whole"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want = made.ended(whole)
    one = sum(p.stat().st_size for p in (whole / "checkpoints" / "5").rglob("*") if p.is_file())
    for kilobytes in (one // 1024 // 2, one * 2 // 1024, one * 4 // 1024):
        place = folder / f"disk-{kilobytes}"
        with _disk(place, f"{kilobytes}k") as change:
            cut = place / "run"
            row.tries += 1
            try:
                run = under_fault.run(made.train(config, cut), folder / "log")
            except under_fault.Hung as hung:
                row.hung += 1
                row.bad(str(hung))
                continue
            row.check_kept(run.code == 2, f"exit {run.code}")
            row.check_said(run.error() or run.said(), "No space left on device")
            change("size=200m")
            before = made.newest(cut)
            again = under_fault.run(made.train(config, cut), folder / "log")
            row.check_kept(again.code == 0, f"exit {again.code}: {again.said()[-800:]}")
            if again.code == 0:
                resumed = f"going on from the checkpoint of step {before}" in again.said()
                row.check_kept(resumed or not before, f"checkpoint {before} was not gone on from")
                differing = made.differences(want, made.ended(cut))
                row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = "with room again all went on bit for bit"


def _full_preparing(folder: pathlib.Path, row: Row, _: int) -> None:
    config = made.config(folder)
    words = ["prepare", f"--config={config}"]
    assert under_fault.run([*words, f"--output={folder / 'whole'}"], folder / "log").code == 0
    want = made.files(folder / "whole", ("timing.json",))
    for kilobytes in (8, 24, 48):
        place = folder / f"disk-{kilobytes}"
        with _disk(place, f"{kilobytes}k") as change:
            row.tries += 1
            run = under_fault.run([*words, f"--output={place / 'out'}"], folder / "log")
            row.check_kept(run.code == 2, f"exit {run.code}")
            row.check_said(run.error() or run.said(), "No space left on device")
            row.check_kept(not (place / "out").exists(), "an output that is not whole")
            change("size=100m")
            again = under_fault.run([*words, f"--output={place / 'out'}"], folder / "log")
            row.check_kept(again.code == 0, f"exit {again.code}: {again.said()[-800:]}")
            same = again.code == 0 and made.files(place / "out", ("timing.json",)) == want
            row.check_kept(same, "the shards differ")
    row.note = "with room again byte for byte"


def _model(folder: pathlib.Path) -> None:
    import tiny_models
    from etils import epath

    def write() -> None:
        from bert_jax.interop import native

        source = tiny_models.source(tiny_models.tokenizer(folder), heads={"has_mlm": True})
        native.write(epath.Path(folder / "m"), source.spec, source.params, source.tokenizer, (), {})

    under_fault.in_fork(write)


def _full_answers(folder: pathlib.Path, row: Row, _: int) -> None:
    _model(folder)
    lines = folder / "lines.txt"
    lines.write_text("the cat sat on a [MASK] .\n" * 300)
    for command in ("predict", "score"):
        place = folder / command
        with _disk(place, "16k") as change:
            row.tries += 1
            output = place / "out.jsonl"
            words = [command, f"--model={folder / 'm'}", f"--input={lines}", f"--output={output}"]
            run = under_fault.run(words, folder / "log")
            row.check_kept(run.code == 2, f"exit {run.code}")
            row.check_said(run.error() or run.said(), "No space left on device")
            row.check_kept(not output.exists(), "an output that is not whole")
            change("size=10m")
            again = under_fault.run(words, folder / "log")
            count = len(output.read_text().splitlines()) if output.exists() else 0
            row.check_kept((again.code, count) == (0, 300), f"exit {again.code}, {count} lines")


def _read_only(folder: pathlib.Path, row: Row, _: int) -> None:
    config = made.config(folder)
    _model(folder)
    with _disk(folder / "disk", "50m") as change:
        cut = folder / "disk" / "run"
        started = under_fault.start(made.train(config, cut), folder / "log", before=made.slowly)
        while made.newest(cut) < 10 and started.poll() is None:
            pass
        started.kill()
        before = made.files(cut)
        change("ro")
        lines = folder / "lines.txt"
        lines.write_text("the cat\n")
        for words in (
            made.train(config, cut),
            made.train(config, folder / "disk" / "new"),
            ["prepare", f"--config={config}", f"--output={folder / 'disk' / 'out'}"],
            ["score", f"--model={folder / 'm'}", f"--input={lines}", f"--output={folder / 'disk' / 'o'}"],
            ["report", str(cut)],
        ):
            row.tries += 1
            run = under_fault.run(words, folder / "log")
            row.check_kept(run.code == 2, f"{words[0]}: exit {run.code}")
            row.check_said(run.error() or run.said(), "Read-only file system: ", str(folder / "disk"))
        row.check_kept(made.files(cut) == before, "files of the run changed")
        change("rw")
        again = under_fault.run(made.train(config, cut), folder / "log")
        row.check_kept(again.code == 0, f"exit {again.code}: {again.said()[-500:]}")
    row.note = "main, prepare, score, report; the run goes on when it can be written again"


def _clock(folder: pathlib.Path, row: Row, seed: int) -> None:
    draw = random.Random(seed)
    config = made.config(folder)
    whole = folder / "whole"
    assert under_fault.run(made.train(config, whole), folder / "log").code == 0
    want = made.ended(whole)
    years = 3600.0 * 24 * 365 * 30
    for number, jump in enumerate(4 * (-years, -3600.0, 3600.0, years)):

        def jumps(jump: float = jump) -> None:
            import time

            now, calls = time.time, 0
            moves = draw.randrange(2000)

            def moved() -> float:
                nonlocal calls
                calls += 1
                return now() + (jump if calls > moves else 0.0)

            time.time = moved

        row.tries += 1
        command = made.train(config, folder / str(number))
        run = under_fault.run(command, folder / "log", before=jumps)
        if (
            run.code == 2
        ):  # Orbax's patience is of the clock of the day: a save that it jumps in has "timed out"
            row.check_said(run.error(), "a checkpoint could not be saved", "start the same command again")
            run = under_fault.run(command, folder / "log")
        row.check_kept(run.code == 0, f"exit {run.code}: {run.said()[-800:]}")
        if run.code == 0:
            differing = made.differences(want, made.ended(folder / str(number)))
            row.check_kept(not differing, f"not the run that was left alone: {differing}")
    row.note = (
        "time.time() jumps by an hour or 30 years, either way; bit for bit, if need be once started again"
    )


def _language(folder: pathlib.Path, row: Row, _: int) -> None:
    """Runs commands in processes of their own, since a language is chosen when Python starts."""
    _model(folder)
    text = folder / "text"
    text.mkdir()
    for number in range(8):
        words = " ".join(f"größe{n} naïve{n % 7} \u65e5\u672c {n}." for n in range(200))
        (text / f"ü{number}.txt").write_text(words, encoding="utf-8")
    config = made.config(folder, **{"train.steps": 10, "data.vocab_size": 300, "data.lowercase": False})
    lines = folder / "lines.txt"
    lines.write_text("die größe \u65e5\u672c\n", encoding="utf-8")
    found: dict[str, dict[str, object]] = {}
    for name, env in (
        ("utf-8", {"LC_ALL": "C.UTF-8"}),
        ("ascii", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ("turkish", {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    ):
        here = folder / name
        here.mkdir()
        output = here / "answers.jsonl"
        for words in (
            [*made.train(config, here / "run"), f"--config.data.cache_dir={here / 'cache'}"],
            ["score", f"--model={folder / 'm'}", f"--input={lines}", f"--output={output}"],
            ["predict", f"--model={here / 'run'}", f"--input={lines}", "--output=-"],
            ["report", str(here / "run")],
            [
                "visualize",
                f"--model={here / 'run'}",
                "--text=die größe \u65e5",
                f"--output={here / 'o.html'}",
            ],
        ):
            row.tries += 1
            said = subprocess.run(
                [sys.executable, "-m", f"bert_jax.{words[0]}", *words[1:]],
                env={**os.environ, **env}, cwd=here, capture_output=True, check=False,
                timeout=under_fault.HANG,
            )  # fmt: skip
            row.check_kept(
                said.returncode == 0, f"{name}, {words[0]}: {said.stderr.decode(errors='replace')[-600:]}"
            )
        if (here / "run" / "result.json").exists() and output.exists():
            found[name] = {**made.ended(here / "run"), "scores": json.loads(output.read_text("utf-8"))}
            vocabulary = (here / "run" / "tokenizer" / "vocab.txt").read_text("utf-8")
            row.check_kept("größ" in vocabulary, f"{name}: the vocabulary is not UTF-8")
    for name, its in found.items():
        differing = made.differences(found["utf-8"], its)
        row.check_kept(not differing, f"{name}: other than in UTF-8: {differing}")
    row.note = "trained, scored, predicted, reported, drawn in C.UTF-8, ASCII and Turkish: the same"


def _pipe(folder: pathlib.Path, row: Row, _: int) -> None:
    _model(folder)
    lines = folder / "lines.txt"
    lines.write_text("the cat sat on a [MASK] .\n" * 3000)
    for command in ("predict", "score"):
        row.tries += 1
        words = [sys.executable, "-m", f"bert_jax.{command}", f"--model={folder / 'm'}", f"--input={lines}"]
        started = subprocess.Popen(
            [*words, "--output=-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
        )
        started.stdout.readline()
        started.stdout.close()
        said = started.stderr.read().decode()
        code = started.wait(under_fault.HANG)
        row.check_kept(code == 141, f"exit {code}")
        row.check_said(said)
    shutil.rmtree(folder / "m")
    row.note = "`| head -1`: exit 141, no traceback"
