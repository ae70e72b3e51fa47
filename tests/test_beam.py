"""Preparation by Apache Beam: the bytes of the local run, after a failure too, and errors in one line."""

import json
import pathlib
import random
import subprocess
import sys
from importlib import util

import pytest
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax.data import beam, corpus, parts, prepare
from bert_jax.data import tokenizer as tokenizers

WORDS = "the cat sat on a mat and dogs ran over green hills while rain fell softly".split()  # noqa: SIM905
needs_beam = pytest.mark.skipif(
    util.find_spec("apache_beam") is None,
    reason="no Apache Beam: pip install --no-deps -r requirements-test-nodeps.txt",
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train_wordpiece([f"{' '.join(WORDS)} . x y z"] * 50, 200).save(folder)
    return str(folder)


def _texts(folder: pathlib.Path, files: int, seed: int = 0) -> pathlib.Path:
    """Writes JSON lines: several documents a file, and one file without any text."""
    draw = random.Random(seed)
    folder.mkdir()
    for number in range(files):
        documents = [
            {
                "text": "\n\n".join(
                    " ".join(draw.choices(WORDS, k=12)) + "." for _ in range(draw.randint(1, 6))
                )
            }
            for _ in range(7)
        ]
        lines = [] if number == 1 else [json.dumps(document) for document in documents]
        (folder / f"{number:02d}.jsonl").write_text("\n".join(lines))
    return folder


def _config(path: pathlib.Path, **data: object) -> ConfigDict:
    config = config_lib.default()
    config.data.update({"source": "jsonl", "path": str(path), "workers": 1, "eval_fraction": 0.2} | data)
    return config


def _content(folder: pathlib.Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    del found["timing.json"]
    return found


def _without_time(counts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in counts.items() if name not in ("seconds", "tokens_per_second")}


@needs_beam
@pytest.mark.parametrize("rule", ["documents", "tail", "eval_path"])
def test_shards_are_those_of_the_local_run(
    tmp_path: pathlib.Path, vocabulary: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, object] = {"holdout": rule, "tokenizer": vocabulary}
    if rule == "eval_path":
        keys = {"eval_path": str(_texts(tmp_path / "held", 3, seed=1)), "tokenizer": vocabulary}
    if rule == "tail":  # and a vocabulary that is trained
        keys = {"holdout": rule, "vocab_size": 120}
    config = _config(_texts(tmp_path / "text", 5), **keys)
    local = prepare.prepare(config, tmp_path / "local", block=700)
    if rule == "eval_path":  # as at gs://
        monkeypatch.setattr(prepare, "_is_remote", lambda output: True)
    counts = prepare.prepare(config, tmp_path / "beam", block=500, beam_flags=())
    assert _without_time(counts) == _without_time(local)
    assert counts["eval"]["documents"] > 1 and counts["train"]["documents"] > 20
    assert _content(tmp_path / "beam") == _content(tmp_path / "local")
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert prepare.prepare(config, tmp_path / "beam", beam_flags=()) == counts  # nothing to do
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


@needs_beam
def test_a_run_that_failed_goes_on(
    tmp_path: pathlib.Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(_texts(tmp_path / "text", 4), tokenizer=vocabulary)
    real, made, limit = parts.write_part, [], 4

    def write(part: pathlib.Path, *args: object) -> int:
        if len(made) == limit:
            raise OSError("the disk is full")
        made.append(str(part))
        return real(part, *args)

    monkeypatch.setattr(parts, "write_part", write)
    with pytest.raises(Exception, match="the disk is full"):
        prepare.prepare(config, tmp_path / "out", block=500, beam_flags=())
    assert len(made) == 4 and not (tmp_path / "out").exists()
    limit = 10**9
    prepare.prepare(config, tmp_path / "out", block=500, beam_flags=())
    assert len(made) == len(set(made)) > 6  # none was made twice
    prepare.prepare(config, tmp_path / "local")
    assert _content(tmp_path / "out") == _content(tmp_path / "local")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["local", "out", "text"]


@needs_beam
def test_what_cannot_be_read_is_told_in_one_line(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _texts(tmp_path / "text", 3)
    (text / "02.jsonl").write_text('{"title": "no text"}\n')
    config = _config(text, tokenizer=vocabulary)
    with pytest.raises(corpus.CorpusError, match=r"02.jsonl, line 1: no text under 'text'") as error:
        prepare.prepare(config, tmp_path / "out", beam_flags=())
    assert "\n" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["text"]
    with pytest.raises(ValueError, match=r"--beam_flags=--runner=NoRunner: .*NoRunner"):
        prepare.prepare(config, tmp_path / "out", beam_flags=("--runner=NoRunner",))
    with pytest.raises(ValueError, match=r'"tfds" has none: leave --runner out'):
        prepare.prepare(_config(text, source="tfds"), tmp_path / "out", beam_flags=())


def test_where_beam_is_absent_the_mend_is_told(
    tmp_path: pathlib.Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam.importlib.util, "find_spec", lambda name: None)
    config = _config(_texts(tmp_path / "text", 3), tokenizer=vocabulary)
    with pytest.raises(ValueError, match=r"pip install -r requirements-beam.txt$"):
        prepare.prepare(config, tmp_path / "out", beam_flags=())
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


@needs_beam
def test_the_command(tmp_path: pathlib.Path, vocabulary: str) -> None:
    root = pathlib.Path(__file__).parents[1]
    text = _texts(tmp_path / "text", 3)
    data = {"source": "jsonl", "path": text, "tokenizer": vocabulary, "eval_fraction": 0.2}
    command = [sys.executable, "-m", "bert_jax.prepare", "--config=configs/tiny.py", "--beam_flags"]
    command += ["--direct_num_workers=1", f"--output={tmp_path / 'out'}"]
    command += [f"--config.data.{key}={value}" for key, value in data.items()]
    refused = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --beam_flags are for --runner=beam")
    command.append("--runner=beam")
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["train"]["documents"] > 5
