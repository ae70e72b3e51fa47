"""Scores of sentences: against loops by hand, whatever the batch; the command, killed and gone on with."""

import dataclasses
import gzip
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from bert_jax import flops
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.scoring import Scorer, batches, cost, output, program
from bert_jax.scoring import rows as rows_lib

LINES = [
    "the cats sat.",
    "",
    "a dog runs on the mat.",
    "running",
    " \t",
    "the dog, the cat, the dog and the cat are running on a mat.",  # some are unknown
    "the cat sat on the mat " * 3,  # just fits
    "the cat sat on the mat . a dog runs " * 5,  # windows
    "[MASK] runs",
    "\x00\r\u2028cat\ud800 \U0001f600",
]
KINDS = {
    "tta": {"kind": "tta"},
    "tta_rotary": {"kind": "tta", "position": "rotary", "tta_query": "mask_token", "norm": "pre"},
    "pll": {},
    "causal": {"mask": "causal"},
    "prefix": {"mask": "prefix"},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tiny_models.tokenizer(tmp_path_factory.mktemp("vocabulary"))


class ByHand:
    """What a model says of one row of 20, row after row."""

    def __init__(self, made: load.Source) -> None:
        self._params, self._prefix = made.params, made.spec.mask == "prefix"
        self._known: dict[tuple[int, ...], np.ndarray] = {}
        self._apply = jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b))

    def __call__(self, ids: list[int]) -> np.ndarray:
        """Log-probabilities, (S, V)."""
        if tuple(ids) not in self._known:
            self._known[tuple(ids)] = self.of(np.array([[*ids, *[0] * (20 - len(ids))]]), len(ids))
        return self._known[tuple(ids)]

    def of(self, tokens: np.ndarray, length: int) -> np.ndarray:
        """As above, of (1, S) tokens of which some are no padding."""
        place = np.arange(tokens.shape[1])[None]
        batch = {"tokens": tokens, "segment_ids": (place < length).astype(np.int32)}
        if self._prefix:
            batch["prefix"] = (place == 0).astype(np.int32)
        out = self._apply(self._params, batch)
        (logits,) = [out[name] for name in out if name.endswith("_logits")]
        return np.asarray(jax.nn.log_softmax(logits[0], axis=-1))


def scores(made: load.Source, lines: list[str] = LINES, **keys: Any) -> list[Any]:
    return list(Scorer(made, **{"batch_tokens": 200, **keys}).score(lines))


def assert_same(a: list[Any], b: list[Any], tolerance: float = 1e-4) -> None:
    assert [(x.text, x.tokens, x.note) for x in a] == [(x.text, x.tokens, x.note) for x in b]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.token_log_probs, y.token_log_probs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_sentence_alone(tokenizer: Any, kind: str) -> None:
    made = tiny_models.source(tokenizer, **KINDS[kind])
    by_hand = ByHand(made)
    found = scores(made)
    assert [x.text for x in found] == LINES
    for line, scored in zip(LINES, found, strict=True):
        encoding = tokenizer.encode(line)
        ids = encoding.ids
        assert scored.tokens == encoding.tokens[1:-1]
        assert scored.log_prob == pytest.approx(sum(scored.token_log_probs), abs=1e-6)
        assert scored.unknown == ids.count(tokenizer.unk_id)
        if len(ids) > 20:
            continue
        expected = []
        for i in range(1, len(ids) - 1):
            row = list(ids)
            if kind == "pll":
                row[i] = tokenizer.mask_id  # the naive loop: a pass for each token
            read = i - 1 if kind in ("causal", "prefix") else i
            # Left to right a token's probability is asked of the sentence up to it alone: the chain rule.
            expected.append(by_hand(row if read == i else row[:i])[read, ids[i]])
        np.testing.assert_allclose(scored.token_log_probs, expected, rtol=0, atol=1e-4)
    ids = tokenizer.encode(LINES[0]).ids  # the same without padding
    np.testing.assert_allclose(by_hand.of(np.array([ids]), len(ids)), by_hand(ids)[: len(ids)], atol=1e-5)
    assert [x.note for x in found] == [
        None, "empty line", None, None, "empty line", None, None,
        "55 tokens in 6 windows of 18 and the ends", None, None,
    ]  # fmt: skip
    assert found[1].to_json() == {
        "text": "", "log_prob": 0.0, "tokens": [], "token_log_probs": [], "note": "empty line"
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "keys"), [("tta", {}), ("pll", {"whole_words": True})])
def test_batch_padding_and_order_change_no_value(tokenizer: Any, kind: str, keys: dict[str, Any]) -> None:
    made = tiny_models.source(tokenizer, **KINDS[kind])
    found = scores(made, **keys)
    assert_same(found, scores(made, batch_tokens=37, **keys))
    order = np.random.default_rng(0).permutation(len(LINES))
    shuffled = scores(made, [LINES[i] for i in order] * 2, **keys)
    assert_same([found[i] for i in order] * 2, shuffled)


def test_a_tta_token_does_not_count_for_itself(tokenizer: Any) -> None:
    made = tiny_models.source(tokenizer, **KINDS["tta"])
    words = ["the", "cat", "sat", "on", "a", "mat"]
    others = [w for w in ("dog", "run", "s") if w not in words]
    variants = [[*words[:i], other, *words[i + 1 :]] for i in range(6) for other in others]
    before = ByHand(made)(tokenizer.encode(" ".join(words)).ids)
    moved = np.zeros((6, 6))
    for number, scored in enumerate(scores(made, [" ".join(v) for v in variants])):
        place, ids = number // 3, tokenizer.encode(scored.text).ids
        # What the sentence gave each token before another stood at the place.
        differences = np.abs([scored.token_log_probs[i] - before[i + 1, ids[i + 1]] for i in range(6)])
        moved[place] = np.maximum(moved[place], differences)
    assert np.diag(moved).max() < 1e-4
    assert moved[~np.eye(6, dtype=bool)].min() > 1e-3


def test_left_to_right_tokens_do_not_know_what_follows(tokenizer: Any) -> None:
    made = tiny_models.source(tokenizer, **KINDS["causal"])
    one, two = scores(made, ["the cat sat on", "the cat run a mat ."], ends=True)
    assert one.tokens == ["the", "cat", "sat", "on", "[SEP]"]
    assert one.token_log_probs[:2] == pytest.approx(two.token_log_probs[:2], abs=1e-5)
    # The sum is a distribution over sentences: after any words something must follow.
    by_hand = ByHand(made)
    ids = tokenizer.encode("the cat sat on").ids
    total = sum(by_hand(ids[:i])[i - 1, ids[i]] for i in range(1, len(ids)))
    assert one.log_prob == pytest.approx(total, abs=1e-4)
    assert np.exp(by_hand(ids[:3])[2]).sum() == pytest.approx(1, abs=1e-5)


def test_whole_words_are_masked_together(tokenizer: Any) -> None:
    made = tiny_models.source(tokenizer)
    text = "runnings cats run"
    (scored,) = scores(made, [text], whole_words=True)
    ids = tokenizer.encode(text).ids
    assert scored.tokens == ["run", "##ning", "##s", "cat", "##s", "run"]
    by_hand, mask = ByHand(made), tokenizer.mask_id
    expected = []
    for word in ([1, 2, 3], [4, 5], [6]):
        row = by_hand([mask if i in word else id for i, id in enumerate(ids)])
        expected += [row[i, ids[i]] for i in word]
    np.testing.assert_allclose(scored.token_log_probs, expected, rtol=0, atol=1e-4)
    (apart,) = scores(made, [text])
    differences = np.abs(np.subtract(scored.token_log_probs, apart.token_log_probs))
    assert differences[:3].max() > 1e-3 and differences[3:5].max() > 1e-3
    assert scored.token_log_probs[5] == pytest.approx(apart.token_log_probs[5], abs=1e-4)


def test_ends_and_methods(tokenizer: Any) -> None:
    tta, mlm = tiny_models.source(tokenizer, **KINDS["tta"]), tiny_models.source(tokenizer)
    without, with_ends = scores(tta), scores(tta, ends=True)
    for a, b in zip(without, with_ends, strict=True):
        assert b.tokens == ["[CLS]", *a.tokens, "[SEP]"]
        np.testing.assert_allclose(b.token_log_probs[1:-1], a.token_log_probs, rtol=0, atol=1e-4)
    ids = tokenizer.encode(LINES[0]).ids
    ends = ByHand(tta)(ids)[[0, len(ids) - 1], [ids[0], ids[-1]]]
    np.testing.assert_allclose(np.array(with_ends[0].token_log_probs)[[0, -1]], ends, rtol=0, atol=1e-4)
    for made, keys, message in (
        (mlm, {"ends": True}, "never learned to predict"),
        (mlm, {"method": "tta"}, "is a masked model, which is scored by pll"),
        (tta, {"method": "pll"}, "is a T-TA, which is scored by tta"),
        (tta, {"whole_words": True}, "whole words are for pll"),
        (tiny_models.source(tokenizer, heads={"has_mlm": False}), {}, "no head that predicts the tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            Scorer(made, **keys)
    tta.params["encoder"]["embedding_norm"]["scale"][:] = np.nan
    with pytest.raises(ValueError, match="is not a number"):
        scores(tta)


def _context(token: int, begin: int, end: int, count: int) -> float:
    """How much of the sentence a window gives a token, on its poorer side."""
    left = token - begin if begin else float("inf")
    right = end - 1 - token if end < count else float("inf")
    return min(left, right)


@pytest.mark.parametrize("room", [1, 2, 3, 5, 18])
@pytest.mark.parametrize("method", ["tta", "pll", "causal"])
def test_windows_score_each_token_once_with_most_context(room: int, method: str) -> None:
    for count in range(1, 4 * room + 3):
        windows = rows_lib._windows(count, room, method)
        owner = [None] * count
        for begin, end, first, last in windows:
            assert 0 <= begin <= first <= last <= end <= count
            assert end - begin == min(room, count)
            for token in range(first, last):
                assert owner[token] is None
                owner[token] = (begin, end)
        for token, (begin, end) in enumerate(owner):
            if method == "causal":
                # The first window that holds it: what it sees to its left is half a window at least.
                assert begin == min(b for b, e, _, _ in windows if b <= token < e)
                assert begin == 0 or token - begin >= room // 2
            else:
                best = max(_context(token, b, e, count) for b, e, _, _ in windows if b <= token < e)
                assert _context(token, begin, end, count) >= best - 1


def test_windows_are_scored_as_sentences_of_their_own(tokenizer: Any) -> None:
    line = LINES[7]
    ids = tokenizer.encode(line).ids[1:-1]
    for kind in ("tta", "causal"):
        made = tiny_models.source(tokenizer, **KINDS[kind])
        (scored,) = scores(made, [line])
        by_hand, expected = ByHand(made), []
        for begin, end, first, last in rows_lib._windows(len(ids), 18, kind):
            row = [tokenizer.cls_id, *ids[begin:end], tokenizer.sep_id]
            shift = 1 if kind == "tta" else 0
            expected += [by_hand(row)[i - begin + shift, ids[i]] for i in range(first, last)]
        np.testing.assert_allclose(scored.token_log_probs, expected, rtol=0, atol=1e-4)


def test_states_of_a_part_are_those_of_the_whole(tokenizer: Any) -> None:
    """T-TA's streams do not read one another, under rotation and local layers too."""
    batch = {
        "tokens": jnp.arange(24).reshape(2, 12) % 12 + 4,
        "segment_ids": jnp.array([[1] * 12, [1] * 7 + [0] * 5]),
    }
    for values in (
        {},
        {"position": "rotary", "local_window": 4, "global_every": 2, "local_rope_theta": 50.0},
    ):
        made = tiny_models.source(tokenizer, kind="tta", **values)

        def states(asked: slice | None, made: load.Source = made) -> jax.Array:
            def of(model: Model) -> jax.Array:
                zeros = jnp.zeros_like(batch["tokens"])
                positions = zeros + jnp.arange(12)[None]
                inputs = batch["tokens"], batch["segment_ids"], positions, zeros
                return model.encoder(*inputs, False, asked=asked)

            return jax.jit(lambda p: Model(made.spec).apply({"params": p}, method=of))(made.params)

        np.testing.assert_allclose(states(slice(3, -2)), states(None)[:, 3:-2], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="can be asked of T-TA"):
        plain = tiny_models.source(tokenizer)
        Model(plain.spec).apply(
            {"params": plain.params},
            method=lambda m: m.encoder(*[jnp.ones((1, 4), jnp.int32)] * 4, False, asked=slice(1, 2)),
        )


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="the system tells no memory maps")
def test_programs_that_are_forgotten_leave_no_memory_maps(tokenizer: tokenizer_lib.Tokenizer) -> None:
    def maps() -> int:
        return len(pathlib.Path("/proc/self/maps").read_text().splitlines())

    program.forget()
    counts = [maps()]
    for size in (8, 16, 24):
        made = tiny_models.source(tokenizer, kind="tta", feed_forward_size=size)
        scores(made)
        counts.append(maps())
        program.forget()
        counts.append(maps())
    grown = counts[1] - counts[0]
    assert grown > 10
    assert counts[-1] - counts[0] < grown, counts


def test_few_shapes_and_full_batches() -> None:
    widths = {batches.padded(n, 512) for n in range(1, 513)}
    assert len(widths) == 24
    assert all(n <= batches.padded(n, 512) <= max(n + 3, 1.25 * n) for n in range(1, 513))
    assert batches.padded(9, 10) == 10
    draw = random.Random(0)
    rows = [[0] * draw.randint(1, 100) for _ in range(1000)]
    planned = list(batches.plan(rows, len, 100, 256, 2))
    assert sorted(len(r) for _, _, some in planned for r in some) == sorted(map(len, rows))
    assert all(height * width <= 256 for width, height, _ in planned)
    assert all(len(some) == 2 * height for _, height, some in planned[:-1])


def test_the_ceiling_is_the_ratio_of_the_products(tokenizer: Any) -> None:
    tta, mlm = tiny_models.source(tokenizer, **KINDS["tta"]).spec, tiny_models.source(tokenizer).spec
    lengths = [5, 1, 9]
    masked = sum(n * flops.forward(mlm, 1, n + 2, 1) for n in lengths)
    assert cost.masked(mlm, lengths) == masked
    # By hand, one layer: keys and values of all tokens, queries of the sentence's own.
    d, f, v = 16, 32, 128
    one = dataclasses.replace(tta, layers=1)
    by_hand = sum((n + 2) * 4 * d * d + n * (4 * d * d + 4 * d * f + 4 * (n + 2) * d) for n in lengths)
    by_hand += sum(lengths) * (2 * d * d + 2 * d * v)
    assert cost.one_pass(one, lengths) == by_hand
    assert cost.ceiling(tta, mlm, lengths) == masked / cost.one_pass(tta, lengths)


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    return [
        json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    ]


def test_resumable_lines(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "out.jsonl.gz"
    inputs, made_with = [f"line {i}" for i in range(10)], {"model": "x"}

    def go(stop: int, inputs: list[str] = inputs, **keys: Any) -> None:
        with output.Resumable(str(file), keys or made_with, {"n": 0}, every=0.0) as lines:
            for text in itertools.islice(lines.rest(inputs), stop):
                lines.totals["n"] += 1
                lines.add(text, {"text": text, "n": lines.totals["n"]})
            if stop < len(inputs):
                raise KeyboardInterrupt

    file.write_bytes(gzip.compress(b"{}\n"))
    for stop in (0, 4, 3):
        with pytest.raises(KeyboardInterrupt):
            go(stop)
        assert read(file) == [{}]  # what was there stays until all is there
        assert len(list(tmp_path.iterdir())) == (3 if stop else 1)
    for keys, wrong, message in (
        ({"model": "y"}, inputs, "another model or other options"),
        ({}, ["else", *inputs[1:]], "belongs to another input"),
        ({}, inputs[:6], "belongs to another input"),
    ):
        with pytest.raises(ValueError, match=message):
            go(100, wrong, **keys)
    with (tmp_path / "out.jsonl.gz.partial").open("ab") as partial:
        partial.write(b"half a li")  # written, but not yet saved when the process was killed
        other = output.Resumable(str(file), made_with, {})
        with pytest.raises(ValueError, match="another process is writing"):
            go(100)
        other._file.close()
    go(100)
    assert read(file) == [{"text": text, "n": n + 1} for n, text in enumerate(inputs)]
    assert list(tmp_path.iterdir()) == [file]
    assert output.encoded({"a": "\ud800"}) == b'{"a": "\\ud800"}\n'
    assert output.encoded({"a": "\xe9"}) == '{"a": "\xe9"}\n'.encode()


def test_the_command_killed_and_gone_on_with(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = tiny_models.source(tokenizer, **KINDS["tta"])
    tiny_models.save(tmp_path / "run", made)
    draw = random.Random(0)
    lines = [
        " ".join(draw.choice(tiny_models.WORDS) for _ in range(draw.randint(0, 16))) for _ in range(3000)
    ]
    (tmp_path / "in.txt").write_text("\r\n".join(lines))
    arguments = ["--model=run", "--input=in.txt", "--output=out.jsonl", "--batch_tokens=64", "--save_every=0"]
    words, keys = tiny_models.command(tmp_path, "score", *arguments, devices=2)
    saved = tmp_path / "out.jsonl.partial.json"  # what is not in it yet is written again
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **keys)
    deadline = time.monotonic() + 300
    while process.poll() is None and (not saved.exists() or b'"lines": 0' in saved.read_bytes()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()
    assert not (tmp_path / "out.jsonl").exists()
    done = tiny_models.run(tmp_path, "score", *arguments, devices=2)
    assert done.returncode == 0, done.stderr
    assert b"going on behind its" in done.stderr
    found = read(tmp_path / "out.jsonl")
    assert [x["text"] for x in found] == lines
    expected = list(Scorer(made).score(lines))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x["token_log_probs"], y.token_log_probs, rtol=0, atol=1e-4)
        assert x["log_prob"] == pytest.approx(sum(x["token_log_probs"]), abs=1e-6)
    tokens = sum(len(x["tokens"]) for x in found)
    value = np.exp(-sum(x["log_prob"] for x in found) / tokens)
    summary = f"pseudo-perplexity {value:.4g} (tta, {tokens} tokens in 3000 lines)"
    assert done.stderr.decode().splitlines()[-1] == summary
    names = {"in.txt", "out.jsonl", "run", ".compiled"}
    assert {path.name for path in tmp_path.iterdir()} == names

    # Bad input leaves an earlier output as it was, and nothing beside it.
    before = (tmp_path / "out.jsonl").read_bytes()
    done = tiny_models.run(
        tmp_path, "score", "--model=run", "--input=-", "--output=out.jsonl", stdin=b"the cat\n\xff\n"
    )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1].startswith("error: /dev/stdin, line 2: not UTF-8")
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.slow
def test_many_lines_killed_twice_in_flat_memory(tmp_path: pathlib.Path) -> None:
    """BERT_JAX_SCORE_LINES=1000000 makes it a million."""
    if not pathlib.Path("/proc/self/statm").exists():
        pytest.skip("the memory of a process is read from /proc")
    count = int(os.environ.get("BERT_JAX_SCORE_LINES", "60000"))
    made = tiny_models.source(tiny_models.tokenizer(tmp_path), kind="tta", layers=1)
    tiny_models.save(tmp_path / "run", made)
    draw = random.Random(0)
    with (tmp_path / "in.txt").open("w") as file:
        for number in range(count):
            words = (draw.choice(tiny_models.WORDS) for _ in range(draw.randint(0, 9)))
            file.write(f"{number} {' '.join(words)}\n")
    arguments = ["--model=run", "--input=in.txt", "--output=out.jsonl", "--batch_tokens=4096"]
    words, keys = tiny_models.command(tmp_path, "score", *arguments, "--save_every=0.5")
    journal = tmp_path / "out.jsonl.partial.json"
    memory: list[tuple[int, int]] = []  # lines that were saved, and the process's megabytes then
    kills = [count // 4, count // 2]
    deadline = time.monotonic() + 3600
    while True:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **keys)
        while process.poll() is None:
            assert time.monotonic() < deadline
            done = _saved(journal)
            memory.append((done, _resident(process.pid)))
            if kills and done >= kills[0]:
                process.send_signal(signal.SIGKILL)
                kills.pop(0)
                break
            time.sleep(0.05)
        _, said = process.communicate()
        if process.returncode != -signal.SIGKILL:
            break
    assert process.returncode == 0, said.decode()
    assert not kills and b"going on behind its" in said
    with (tmp_path / "in.txt").open() as given, (tmp_path / "out.jsonl").open() as found:
        for text, line in itertools.zip_longest(given, found):
            assert json.loads(line)["text"] == text.removesuffix("\n")
    early = max((mb for done, mb in memory if done <= count // 4), default=0)
    late = max(mb for done, mb in memory if done > count // 2)
    print(f"{count} lines, 2 kills: at most {early} MB in the first quarter, {late} MB in the second half")
    assert 0 < late < 1.25 * early + 50


def _saved(journal: pathlib.Path) -> int:
    """Lines that a killed run would go on behind."""
    try:
        return json.loads(journal.read_bytes())["lines"]
    except FileNotFoundError:
        return 0


def _resident(process: int) -> int:
    """Megabytes that a process holds; 0 where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20
