"""Preparation: exact tokens and counts, the same bytes after any kill, disjoint splits, flat memory."""

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax.data import corpus, duplicates, holdout, parts, prepare, shards
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.sentences import sentences

ROOT = pathlib.Path(__file__).parents[1]
WORDS = "the cat sat on a mat and dogs ran over green hills while rain fell softly in towns".split()  # noqa: SIM905


def _paragraph(rng: random.Random, count: int = 40) -> str:
    return " ".join(f"{' '.join(rng.choices(WORDS, k=8)).capitalize()}." for _ in range(count // 8))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small WordPiece directory."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train_wordpiece([f"{' '.join(WORDS)} . documents at x y z"] * 50, 300).save(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / "cache"))


def _config(path: object, **data: object) -> ConfigDict:
    config = config_lib.default()
    config.data.update({"source": "text", "path": str(path), "workers": 1} | data)
    return config


def _corpus(folder: pathlib.Path, documents: int, paragraphs: int, seed: int = 0) -> pathlib.Path:
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    for i in range(documents):
        text = "\n\n".join(f"Document {i} at {j}. {_paragraph(rng)}" for j in range(paragraphs))
        (folder / f"{i:04d}.txt").write_text(text)
    return folder


def _content(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the bytes of every file but the one that tells of the run."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    del found["timing.json"]
    return found


def _text_of(folder: pathlib.Path, split: str) -> list[list[list[int]]]:
    """Returns the tokens of each sentence of each document."""
    s = shards.open(folder, split)
    spans = zip(s.documents[:-1], s.documents[1:], strict=True)
    return [
        [s.read(s.sentences[i], s.sentences[i + 1]).tolist() for i in range(start, stop)]
        for start, stop in spans
    ]


def test_tokens_sentences_documents(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 30, 5)
    (text / "0007.txt").write_text("\x00\n\n")  # text, but none that makes a token
    config = _config(text, tokenizer=vocabulary, eval_fraction=0.1)
    counts = prepare.prepare(config, tmp_path / "out", block=3000)
    tokenizer = tokenizers.load(vocabulary)
    expected: dict[str, list] = {"train": [], "eval": []}
    for i, file in enumerate(sorted(text.iterdir())):
        if i != 7:
            pieces = [s for paragraph in file.read_text().split("\n\n") for s in sentences(paragraph)]
            split = "eval" if holdout.held_out(i, 0.1) else "train"
            expected[split].append(tokenizer.encode_batch(pieces))
    for split, documents in expected.items():
        assert _text_of(tmp_path / "out", split) == documents
        opened = shards.open(tmp_path / "out", split)
        flat = np.concatenate([np.array(s) for document in documents for s in document])
        np.testing.assert_array_equal(opened.unigram, np.bincount(flat, minlength=tokenizer.vocab_size))
        assert counts[split]["tokens"] == len(flat)
        assert counts[split]["documents"] == len(documents)
        assert counts[split]["sentences"] == sum(map(len, documents))
        assert not np.isin(flat, [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]).any()
    assert len(expected["eval"]) == 3
    index = shards.read_index(tmp_path / "out")
    assert index["tokenizer"] == tokenizer.digest() == tokenizers.load(tmp_path / "out/tokenizer").digest()
    assert {k: counts[k] for k in index["counts"]} == index["counts"]
    assert sorted(p.name for p in tmp_path.iterdir() if "out" in p.name) == ["out"]


def test_words_and_unknown_are_counted(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = tmp_path / "a.txt"
    text.write_text("The cats sat. \u4e16 dogs")  # cats = cat ##s; no such character in the vocabulary
    counts = prepare.prepare(_config(text, tokenizer=vocabulary, eval_fraction=0.0), tmp_path / "out")
    assert tokenizers.load(vocabulary).encode("The cats sat. \u4e16 dogs", special=False).tokens == [
        "the", "cat", "##s", "sat", ".", "[UNK]", "dogs"
    ]  # fmt: skip
    assert counts["train"]["words"] == 6
    assert counts["train"]["pieces_per_word"] == round(7 / 6, 4)
    assert counts["train"]["split_words"] == round(1 / 6, 6)
    assert counts["train"]["unknown_tokens"] == round(1 / 7, 6)


def test_much_unknown_is_said_aloud(
    tmp_path: pathlib.Path, vocabulary: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("\u4e16 \u754c cat")
    prepare.prepare(_config(tmp_path / "a.txt", tokenizer=vocabulary, eval_fraction=0.0), tmp_path / "out")
    assert "66.7 % of the train tokens are [UNK]" in caplog.text


def test_duplicates_and_overlap_are_exact(tmp_path: pathlib.Path, vocabulary: str) -> None:
    same, other = "The cat sat on the green mat.", "Dogs ran over the hills and fell."
    rows = [
        f"{same}\n\n{other}",
        f"{same}\n\n{other}",  # one document again; two paragraphs again
        f"{other}\n\n{same}",  # another document; two paragraphs again
        "Rain fell.",
        "Rain fell.",  # one document, one paragraph again
    ]
    held = [f"{same}\n\nRain fell.\n\nRain fell softly in the towns."]  # long: one of two is in training
    for name, texts in (("train", rows), ("eval", held)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    config = _config(
        tmp_path / "train.jsonl", source="jsonl", tokenizer=vocabulary, eval_path=str(tmp_path / "eval.jsonl")
    )
    for block in (1, 40, 10_000):
        counts = prepare.prepare(config, tmp_path / f"out{block}", block=block)
        assert counts["train"]["duplicate_documents"] == 2
        assert counts["train"]["duplicate_paragraphs"] == 5
        assert counts["eval"]["duplicate_documents"] == counts["eval"]["duplicate_paragraphs"] == 0
        assert counts["overlap"] == 0.5
        assert counts["train"]["documents"] == 5


def test_hashes_are_counted_over_all_buckets(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    many = rng.integers(0, 2**64, 200_000, np.uint64)
    bag, other = duplicates.HashBag(tmp_path / "bag"), duplicates.HashBag(tmp_path / "other")
    for piece in np.array_split(many, 7):
        bag.add(piece)
    bag.add(many[:1234])
    other.add(many[100:200])
    other.add(np.array([0, 2**64 - 1], np.uint64))
    assert duplicates.repeated(bag) == 1234
    assert duplicates.shared(other, bag) == 100
    assert len(list((tmp_path / "bag").iterdir())) == 256


def test_bytes_do_not_depend_on_workers_or_blocks(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 12, 20)
    outputs = []
    for workers, block in ((1, 1500), (2, 1500), (3, 4000), (1, 10**9)):
        output = tmp_path / f"out-{workers}-{block}"
        config = _config(text, tokenizer=vocabulary, eval_fraction=0.25, workers=workers)
        prepare.prepare(config, output, block=block)
        outputs.append(_content(output))
    assert "train-00000.tokens.npy" in outputs[0]
    assert all(output == outputs[0] for output in outputs[1:])


_RUN = """
import sys, time
from bert_jax import config as c
from bert_jax.data import prepare, parts
config = c.default()
config.data.update(source="text", path=sys.argv[1], holdout="tail", workers=int(sys.argv[3]), vocab_size=200)
real = parts.write_part
def slow(*args):
    time.sleep(0.05)
    return real(*args)
parts.write_part = slow
prepare.prepare(config, sys.argv[2], block=2000)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_and_ends_the_same(
    tmp_path: pathlib.Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _corpus(tmp_path / "text", 5, 60 if workers == 1 else 250)
    command = [sys.executable, "-c", _RUN, str(text), str(tmp_path / "out"), str(workers)]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    folder = tmp_path / ".out.work" / "parts"
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.npz"))) < 4 and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    time.sleep(0.3 if workers > 1 else 0)  # workers finish their block and end
    (folder / "0000001.123.tmp").write_bytes(b"half a part")
    finished = {path.name for path in folder.glob("*.npz")}
    assert len(finished) >= 4

    made: list[str] = []
    real = parts.write_part

    def counted(part: pathlib.Path, *args: object) -> int:
        made.append(part.name)
        return real(part, *args)

    monkeypatch.setattr(parts, "write_part", counted)
    config = _config(text, holdout="tail", vocab_size=200)
    prepare.prepare(config, tmp_path / "out", block=2000)
    assert made and not finished & set(made)
    prepare.prepare(config, tmp_path / "undisturbed", block=2000)
    assert _content(tmp_path / "out") == _content(tmp_path / "undisturbed")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text", "undisturbed"]


def test_another_plan_starts_anew(
    tmp_path: pathlib.Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _corpus(tmp_path / "text", 3, 10)
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.2)
    real, calls = parts.write_part, []

    def failing(part: pathlib.Path, *args: object) -> int:
        calls.append(part.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(part, *args)

    monkeypatch.setattr(parts, "write_part", failing)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(config, tmp_path / "out", block=1000)
    assert len(list((tmp_path / ".out.work" / "parts").iterdir())) == 2
    (text / "0000.txt").write_text("Another text.\n\nWith two paragraphs.\n\nAnd more.")
    prepare.prepare(config, tmp_path / "out", block=1000)
    assert calls.count("0000000.npz") == 2
    tokenizer = tokenizers.load(vocabulary)
    assert _text_of(tmp_path / "out", "train")[0][0] == tokenizer.encode_batch(["Another text."])[0]


def test_a_damaged_part_is_removed_and_made_anew(
    tmp_path: pathlib.Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _corpus(tmp_path / "text", 3, 10)
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.2)
    real = parts.write_part

    def damaging(part: pathlib.Path, *args: object) -> int:
        tokens = real(part, *args)
        if part.name == "0000001.npz":
            part.write_bytes(part.read_bytes()[:200])
        return tokens

    monkeypatch.setattr(parts, "write_part", damaging)
    with pytest.raises(ValueError, match=r"0000001.npz was damaged .* run again"):
        prepare.prepare(config, tmp_path / "out", block=1000)
    monkeypatch.setattr(parts, "write_part", real)
    prepare.prepare(config, tmp_path / "out", block=1000)
    prepare.prepare(config, tmp_path / "undisturbed", block=1000)
    assert _content(tmp_path / "out") == _content(tmp_path / "undisturbed")


def test_a_worker_that_dies_is_told(
    tmp_path: pathlib.Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _corpus(tmp_path / "text", 3, 10)
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.2, workers=2)

    def dead(folder: pathlib.Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "import os; os._exit(7)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    monkeypatch.setattr(parts, "_start_worker", dead)
    with pytest.raises(RuntimeError, match="a worker ended with exit status 7"):
        prepare.prepare(config, tmp_path / "out", block=1000)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.5])
def test_held_out_documents_are_their_share(fraction: float) -> None:
    held = [holdout.held_out(i, fraction) for i in range(2000)]
    assert abs(sum(held) - 2000 * fraction) <= 1
    runs = [sum(held[i] for i in range(2000) if int(i * fraction) == run) for run in range(20)]
    assert runs == [1] * 20


def test_holdout_of_tails_and_its_disjointness(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text("\n\n".join(f"Cat {i:03d}." for i in range(100)))
    (text / "b.txt").write_text("Only one.")
    (text / "c.txt").write_text("\n\n".join(["x" * 60, "y" * 30, "z" * 10]))
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.1)
    lengths = tmp_path / "lengths"
    holdout.measure(config, lengths)
    found = list(holdout.assigned(config, lengths))
    assert np.frombuffer(lengths.read_bytes(), "<i8").tolist() == [800, 9, 100]
    held = [(document, text) for split, document, text in found if split == "eval"]
    assert held == [(0, f"Cat {i:03d}.") for i in range(90, 100)] + [(2, "z" * 10)]
    assert len(found) == 100 + 1 + 3
    counts = prepare.prepare(config, tmp_path / "out")
    assert (counts["train"]["documents"], counts["eval"]["documents"]) == (3, 2)


def test_eval_path_alone_is_evaluated_on(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 40, 2)
    held = _corpus(tmp_path / "held", 2, 3, seed=1)
    counts = prepare.prepare(_config(text, tokenizer=vocabulary, eval_path=str(held)), tmp_path / "out")
    assert (counts["train"]["documents"], counts["eval"]["documents"]) == (40, 2)


def test_a_split_without_text_is_an_error(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = tmp_path / "one.txt"
    text.write_text("One paragraph.")

    def refused(pattern: str, **data: object) -> None:
        with pytest.raises(corpus.CorpusError, match=pattern):
            prepare.prepare(_config(text, tokenizer=vocabulary, **data), tmp_path / "out")
        assert [p.name for p in tmp_path.iterdir()] == ["one.txt"]

    refused('data.eval_fraction = 0.05 of 1 document holds none out: set data.holdout = "tail"')
    refused('holds none out: no paragraph begins that late; set data.holdout = "documents"', holdout="tail")
    refused("no such file", eval_path=str(tmp_path / "absent"))
    counts = prepare.prepare(_config(text, tokenizer=vocabulary, eval_fraction=0.0), tmp_path / "out")
    assert "eval" not in counts
    with pytest.raises(shards.ShardError, match="no eval split"):
        shards.open(tmp_path / "out", "eval")


def test_the_vocabulary_is_trained_on_training_text_alone(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(["the cat sat on the mat"] * 18 + ["zebra zebra zebra"] * 2))
    config = _config(text, holdout="tail", eval_fraction=0.08, vocab_size=100)
    prepare.prepare(config, tmp_path / "out")
    tokenizer = tokenizers.load(tmp_path / "out" / "tokenizer")
    assert tokenizer.id("cat") is not None
    assert tokenizer.id("z") is None
    assert tokenizer.lowercase
    config.data.tokenizer_kind = "sentencepiece"
    config.data.vocab_size = 30
    prepare.prepare(config, tmp_path / "sp")
    assert tokenizers.load(tmp_path / "sp" / "tokenizer").kind == "sentencepiece"


def test_an_output_is_never_overwritten(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 4, 3)
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.5)
    (tmp_path / "out").mkdir()
    counts = prepare.prepare(config, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert prepare.prepare(config, tmp_path / "out") == counts
    config.data.eval_fraction = 0.4
    with pytest.raises(FileExistsError, match="holds other prepared text"):
        prepare.prepare(config, tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    with pytest.raises(FileExistsError, match="no shard directory"):
        prepare.prepare(config, text)


def test_the_cache_is_keyed_by_content(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 4, 3)
    config = _config(text, tokenizer=vocabulary, holdout="tail", eval_fraction=0.5)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # all at once: one prepares, the others wait
        first, *others = pool.map(lambda _: prepare.cached(config), range(3))
    assert others == [first, first]
    assert first.parent == tmp_path / "cache"
    stamp = (first / "shards.json").stat().st_mtime_ns
    config.data.workers = 2
    assert prepare.cached(config) == first
    assert (first / "shards.json").stat().st_mtime_ns == stamp
    config.data.eval_fraction = 0.4
    second = prepare.cached(config)
    (text / "0000.txt").write_text("A cat.\n\nA mat.\n\nOn a hill.")
    assert len({first, second, prepare.cached(config)}) == 3
    assert sorted(p.name[:9] for p in (tmp_path / "cache").iterdir()) == ["prepared-"] * 3

    config = _config(first, source="shards")
    assert prepare.cached(config) == first
    config.data.tokenizer = vocabulary
    assert prepare.cached(config) == first
    config.data.lowercase = False
    with pytest.raises(shards.ShardError, match=r"is not the one that .* was prepared with"):
        prepare.cached(config)
    with pytest.raises(shards.ShardError, match="no shard directory"):
        prepare.cached(_config(tmp_path, source="shards"))


def test_an_upload_ends_with_the_index(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, order = tmp_path / "source", tmp_path / "target", []
    (source / "tokenizer").mkdir(parents=True)
    for name in ("a.npy", "shards.json", "tokenizer/vocab.txt", "z.npy"):
        (source / name).write_text(name)
    real = prepare.shutil.copyfileobj
    monkeypatch.setattr(
        prepare.shutil, "copyfileobj", lambda read, *args: (order.append(read.name), real(read, *args))
    )
    prepare._upload(source, prepare.epath.Path(target))
    assert [str(pathlib.Path(name).relative_to(source)) for name in order][-1] == "shards.json"
    assert (target / "tokenizer" / "vocab.txt").read_text() == "tokenizer/vocab.txt"
    assert len(order) == 4


_PEAK = """
import sys
from bert_jax import config as c
from bert_jax.data import prepare
config = c.default()
config.data.update(source="text", path=sys.argv[1], holdout="tail", workers=1, tokenizer=sys.argv[2])
prepare.prepare(config, sys.argv[3], block=100_000)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc to read peak memory")
def test_memory_does_not_grow_with_the_text(tmp_path: pathlib.Path, vocabulary: str) -> None:
    rng = random.Random(0)
    text = "\n".join(_paragraph(rng, 800) for _ in range(70))  # one document, one paragraph
    peaks = []
    for times in (2, 12):
        path = tmp_path / f"{times}.txt"
        path.write_text(f"{text}\n" * times)
        command = [sys.executable, "-c", _PEAK, str(path), vocabulary, str(tmp_path / f"out{times}")]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks.append(int(run.stdout) / 1024)
    assert path.stat().st_size > 2_500_000
    assert peaks[1] < peaks[0] + 8, f"{peaks} MiB"


def test_the_command(tmp_path: pathlib.Path, vocabulary: str) -> None:
    text = _corpus(tmp_path / "text", 4, 3)
    config = tmp_path / "c.py"
    config.write_text(
        "from bert_jax import config\n\n\ndef get_config():\n    c = config.default()\n"
        "    c.train.steps = 1\n    return c\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bert_jax.prepare", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    data = {"source": "text", "path": text, "tokenizer": vocabulary, "workers": 2}
    flags = [f"--config={config}", f"--output={tmp_path / 'out'}"]
    flags += [f"--config.data.{key}={value}" for key, value in data.items()]
    refused = run(*flags)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: data.eval_fraction = 0.05 of 4 documents holds")
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out").exists()
    done = run(*flags, "--config.data.holdout=tail", "--config.data.eval_fraction=0.5")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["train"]["documents"] == 4
    assert shards.open(tmp_path / "out", "train").num_documents == 4
