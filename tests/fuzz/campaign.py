"""Fuzzes each reader for a time, guided by the coverage of this package where atheris is installed.

    python tests/fuzz/campaign.py --seconds=600 --output=fuzz.md
    python tests/fuzz/campaign.py --seconds=60 --only=squad,safetensors

Each reader runs in a process of its own, in --memory MiB. What it must not do (an error that no command tells
in one line, a crash, more memory, more than --slowest seconds for one input) ends it; the input stays in
--finds.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(pathlib.Path(__file__).resolve().parent)]


class _Over(Exception):
    """A reader's time is over."""


def main() -> int:
    """Fuzzes, and prints a table; returns 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of a core, for each reader")
    parser.add_argument("--only", default="", help="names of readers, separated by commas")
    parser.add_argument(
        "--memory", type=int, default=4096, help="MiB that a reader may use, libraries included"
    )
    parser.add_argument("--slowest", type=int, default=20, help="seconds that one input may take")
    parser.add_argument("--seed", type=int, default=0, help="of chance")
    parser.add_argument("--finds", default="finds", help="folder of inputs that broke something")
    parser.add_argument("--output", default="", help="file for the table, too")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        _fuzz(asked)
        return 0
    names = asked.only.split(",") if asked.only else _names()
    rows = [
        "| reader | seconds of a core | inputs | read | refused | places covered | found |",
        "|---" * 7 + "|",
    ]
    found = False
    for name in names:
        command = [sys.executable, __file__, f"--one={name}", f"--seconds={asked.seconds}",
                   f"--memory={asked.memory}", f"--slowest={asked.slowest}", f"--seed={asked.seed}",
                   f"--finds={pathlib.Path(asked.finds).absolute()}"]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        rows.append(_row(name, ended))
        found |= "nothing" not in rows[-1]
        print(rows[-1], flush=True)
        if "nothing" not in rows[-1]:
            print(ended.stdout[-1500:], ended.stderr[-3000:], flush=True)
    text = "\n".join(rows)
    print(text)
    if asked.output:
        pathlib.Path(asked.output).write_text(text + "\n")
    return int(found)


def _names() -> list[str]:
    import readers

    return list(readers.readers())


def _row(name: str, ended: subprocess.CompletedProcess[str]) -> str:
    counts = re.findall(r"^counts (\d+) (\d+) (\d+)$", ended.stderr, re.MULTILINE)
    read, refused, seconds = counts[-1] if counts else ("0", "0", "0")
    cover = re.findall(r"\bcov: (\d+)", ended.stderr)
    error = re.search(
        r"^(?:\w+\.)*\w*(?:Error|Exception|Timeout)\b.*$|ERROR: libFuzzer.*$",
        ended.stdout + ended.stderr,
        re.MULTILINE,
    )
    found = "nothing" if ended.returncode == 0 else error[0][:200] if error else f"exit {ended.returncode}"
    inputs, places = int(read) + int(refused), cover[-1] if cover else ""
    return f"| {name} | {seconds} | {inputs} | {read} | {refused} | {places} | {found} |"


def _fuzz(asked: argparse.Namespace) -> None:
    """Fuzzes one reader in this process, to the end of its time or the first find."""
    resource.setrlimit(resource.RLIMIT_AS, (_used() + (asked.memory << 20),) * 2)
    try:
        import atheris
    except ImportError:
        atheris = None
    if atheris is not None:
        with atheris.instrument_imports(include=["bert_jax"], enable_loader_override=False):
            import readers
    else:
        import readers
    import mutation

    reader = readers.readers()[asked.one]
    counts = {"read": 0, "refused": 0}
    # The time of a core, not of the clock: what is tried depends on how much of one there is.
    began = said = time.process_time()

    def say() -> None:
        seconds = round(time.process_time() - began)
        print(f"\ncounts {counts['read']} {counts['refused']} {seconds}", file=sys.stderr, flush=True)

    def one(data: bytes) -> None:
        nonlocal said
        counts[readers.tried(reader, data)] += 1
        if time.process_time() - said > 1:
            said = time.process_time()
            say()
        if time.process_time() - began >= asked.seconds:
            raise _Over

    finds = pathlib.Path(asked.finds) / re.sub(r"\W+", "-", asked.one)
    finds.mkdir(parents=True, exist_ok=True)
    for seed in reader.seeds:
        one(seed)
    if atheris is None:
        _at_random(one, reader.seeds, asked.seed, finds)
        say()
        return

    def custom(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        return mutation.mutated(data, draw, most) if draw.random() < 0.7 else atheris.Mutate(data, most)

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(reader.seeds):
            (pathlib.Path(corpus) / str(number)).write_bytes(seed)

        def one_or_over(data: bytes) -> None:
            try:
                one(data)
            except _Over:
                # libFuzzer would take any other way out for a find.
                say()
                shutil.rmtree(corpus)
                os._exit(0)

        arguments = [
            sys.argv[0], corpus, f"-timeout={asked.slowest}",
            "-rss_limit_mb=0", "-max_len=65536", f"-seed={asked.seed + 1}", f"-artifact_prefix={finds}/",
        ]  # fmt: skip
        atheris.Setup(arguments, one_or_over, custom_mutator=custom)
        atheris.Fuzz()


def _at_random(one: Callable[[bytes], None], seeds: Sequence[bytes], seed: int, finds: pathlib.Path) -> None:
    import mutation

    draw = random.Random(seed)
    while True:
        data = mutation.mutated(draw.choice(seeds), draw)
        try:
            one(data)
        except _Over:
            return
        except BaseException:
            (finds / "find").write_bytes(data)
            raise


def _used() -> int:
    """Returns the bytes of address space that this process has already."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
