"""gpu_bench.sh: the commands that it would run, and the first of them at a size for a CPU."""

import json
import pathlib
import re
import shlex
import subprocess

import commands
import pytest

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "launch" / "gpu_bench.sh"
TINY = [
    "--rounds=1", "--steps=1", "--config.model.layers=1", "--config.model.hidden_size=64",
    "--config.model.heads=1", "--config.model.feed_forward_size=64", "--config.train.batch_size=2",
    "--config.model.vocab_size=0",
    "--config.data.vocab_size=300",
]  # fmt: skip


def run(*words: str, folder: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_implementation_is_measured_as_it_can_be(tmp_path: pathlib.Path) -> None:
    done = run("--dry-run", "--output=there", "--", *TINY, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    asked = [shlex.split(line) for line in done.stdout.splitlines()]
    measured = [
        re.fullmatch(r"there/(\w+)-dropout-(0\.\d)\.json", word.partition("=")[2]).groups()
        for words in asked
        for word in words
        if word.startswith("--output=")
    ]
    assert measured == [
        ("dense", "0.0"),
        ("blocks", "0.0"),
        ("cudnn", "0.0"),
        ("dense", "0.1"),
        ("blocks", "0.1"),
    ]
    for words, (kernel, dropout) in zip(asked, measured, strict=True):
        assert words[1:4] == ["-m", "bert_jax.bench", "--config=configs/bench.py:base"]
        assert f"--config.model.attention_kernel={kernel}" in words
        assert f"--config.model.attention_dropout={dropout}" in words
        assert words[-len(TINY) :] == TINY
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_command_is_one_that_measures(tmp_path: pathlib.Path, number: int) -> None:
    """What only a GPU can do is refused by name where there is none."""
    line = run("--dry-run", f"--output={tmp_path}", "--", *TINY).stdout.splitlines()[number]
    done = commands.run("bench", *shlex.split(line)[3:], folder=ROOT)
    if number == 2:
        assert done.code == 2 and "cudnn" in done.err
        return
    assert done.code == 0, done.err
    (result,) = tmp_path.glob("*.json")
    found = json.loads(result.read_text())
    assert (found["seq_len"], found["batch_size"]) == (512, 2) and found["tokens_per_second"] > 0


def test_an_unknown_flag_is_refused() -> None:
    done = run("--outputs=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown flag --outputs; see --help\n"
