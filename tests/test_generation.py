"""Writing on from a source: beam search against a plain one that reads the whole row for every token."""

import dataclasses
import itertools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from bert_jax.models import generation
from bert_jax.models.model import Model

SOURCES = [[2, 5, 6, 8, 3], [2, 7, 3], [2, 9, 9, 10, 6, 5, 12, 3]]
MODELS: dict[str, dict[str, Any]] = {
    "learned": {},
    "rotary": {"position": "rotary", "segments": 0},
    "local": {
        "norm": "pre", "position": "rotary", "local_window": 4, "global_every": 2, "first_norm": False,
        "bias": False, "gated": True, "attention_kernel": "blocks", "attention_block": 4,
    },
    "shared": {
        "share_layers": True, "embedding_size": 8, "mlm_head": "plain", "position": "sinusoidal",
        "scan": False,
    },
}  # fmt: skip


def made(folder: pathlib.Path, name: str) -> tuple[Any, Model, Any]:
    tokenizer = tiny_models.tokenizer(folder)
    source = tiny_models.source(tokenizer, heads={"has_mlm": True}, mask="prefix", **MODELS[name])
    return tokenizer, Model(source.spec), jax.tree.map(jnp.asarray, source.params)


def rows(sources: list[list[int]], length: int) -> dict[str, np.ndarray]:
    batch = {key: np.zeros((len(sources), length), np.int32) for key in ("tokens", "segment_ids", "type_ids")}
    for number, ids in enumerate(sources):
        batch["tokens"][number, : len(ids)] = ids
        batch["segment_ids"][number, : len(ids)] = 1
    return batch


def search(model: Model, params: Any, batch: Any, how: generation.Writing) -> dict[str, np.ndarray]:
    return jax.device_get(jax.jit(lambda p, b: generation.generate(model, p, b, how))(params, batch))


def writing(tokenizer: Any, size: int, **keys: Any) -> generation.Writing:
    allowed = np.zeros(128, bool)
    allowed[[tokenizer.sep_id, *range(5, tokenizer.vocab_size)]] = True
    return generation.Writing(size, tokenizer.sep_id, allowed, **keys)


def whole_row_log_probs(model: Model, params: Any, size: int) -> Any:
    """Returns a function of a source and the beginning of an answer: the next token's log-probabilities."""

    @jax.jit
    def read(tokens: jax.Array, source: jax.Array, length: jax.Array) -> jax.Array:
        place = jnp.arange(size)[None]
        batch = {
            "tokens": tokens,
            "segment_ids": (place < length).astype(jnp.int32),
            "prefix": (place < source).astype(jnp.int32),
            "type_ids": (place >= source).astype(jnp.int32),
        }
        hidden = model.apply({"params": params}, batch, method="hidden")
        logits = model.apply({"params": params}, hidden, method="token_logits")
        return jax.nn.log_softmax(logits[0, length - 1])

    def following(source: list[int], answer: tuple[int, ...]) -> np.ndarray:
        ids = [*source, *answer]
        row = np.zeros((1, size), np.int32)
        row[0, : len(ids)] = ids
        return np.asarray(read(row, len(source), len(ids)), np.float64)

    return following


def plain_search(following: Any, source: list[int], how: generation.Writing) -> tuple[tuple[int, ...], float]:
    """Beam search as `generation.generate` says it, over lists."""
    going: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[float, tuple[int, ...], float]] = []
    for length in range(1, how.max_length + 1):
        continued = []
        for answer, log_prob in going:
            more = following(source, answer)
            continued += [((*answer, int(t)), log_prob + more[t]) for t in np.flatnonzero(how.allowed)]
        continued.sort(key=lambda pair: -pair[1])
        for answer, log_prob in continued[: how.beam_size]:
            if answer[-1] == how.end_id:
                ended.append((log_prob / ((5 + length) / 6) ** how.length_penalty, answer, log_prob))
        going = [pair for pair in continued if pair[0][-1] != how.end_id][: how.beam_size]
        if len(ended) >= how.beam_size:
            break
    if ended:
        return max(ended)[1:]
    return going[0]


@pytest.mark.parametrize(
    ("name", "beams", "penalty"),
    [
        ("learned", 1, 2.0), ("learned", 4, 1.5), ("rotary", 2, 0.0), ("local", 3, 0.5), ("shared", 2, 1.0),
    ],
)  # fmt: skip
def test_equals_a_search_that_reads_whole_rows(
    tmp_path: pathlib.Path, name: str, beams: int, penalty: float
) -> None:
    tokenizer, model, params = made(tmp_path, name)
    how = writing(tokenizer, 6, beam_size=beams, length_penalty=penalty)
    found = search(model, params, rows(SOURCES, 10), how)
    following = whole_row_log_probs(model, params, 20)
    for number, source in enumerate(SOURCES):
        answer, log_prob = plain_search(following, source, how)
        length = int(found["lengths"][number])
        assert tuple(found["tokens"][number, :length].tolist()) == answer
        assert float(found["log_prob"][number]) == pytest.approx(log_prob, abs=1e-4)
        assert bool(found["ended"][number]) == (answer[-1] == how.end_id)
        assert not np.asarray(found["tokens"][number, length:]).any()
        # What the model itself says of the answer.
        own = [following(source, answer[:i])[token] for i, token in enumerate(answer)]
        assert float(found["log_prob"][number]) == pytest.approx(sum(own), abs=1e-4)


def test_one_beam_is_greedy(tmp_path: pathlib.Path) -> None:
    tokenizer, model, params = made(tmp_path, "learned")
    how = writing(tokenizer, 8)
    found = search(model, params, rows(SOURCES, 8), how)
    following = whole_row_log_probs(model, params, 20)
    for number, source in enumerate(SOURCES):
        answer: tuple[int, ...] = ()
        while len(answer) < 8 and (not answer or answer[-1] != how.end_id):
            answer = (*answer, int(np.argmax(np.where(how.allowed, following(source, answer), -np.inf))))
        assert found["tokens"][number, : int(found["lengths"][number])].tolist() == list(answer)


def test_all_beams_find_the_best_of_all_answers(tmp_path: pathlib.Path) -> None:
    tokenizer, model, params = made(tmp_path, "learned")
    how = writing(tokenizer, 2)
    how.allowed[9:] = False  # four words and the end
    how = dataclasses.replace(how, beam_size=25)
    found = search(model, params, rows(SOURCES, 8), how)
    following = whole_row_log_probs(model, params, 20)
    for number, source in enumerate(SOURCES):
        best = (-math.inf, ())
        for answer in [(how.end_id,), *itertools.product(range(5, 9), (how.end_id,))]:
            total = sum(following(source, answer[:i])[token] for i, token in enumerate(answer))
            best = max(best, (total, answer))
        assert tuple(found["tokens"][number, : int(found["lengths"][number])].tolist()) == best[1]
        assert float(found["log_prob"][number]) == pytest.approx(best[0], abs=1e-4)


def test_a_row_does_not_depend_on_the_others_nor_on_padding(tmp_path: pathlib.Path) -> None:
    tokenizer, model, params = made(tmp_path, "learned")
    how = writing(tokenizer, 6, beam_size=3, length_penalty=1.0)
    together = search(model, params, rows([*SOURCES, []], 8), how)
    assert not together["tokens"][3].any() and together["log_prob"][3] == 0 and not together["ended"][3]
    for number, source in enumerate(SOURCES[:2]):
        alone = search(model, params, rows([source], 12), how)
        np.testing.assert_array_equal(alone["tokens"][0], together["tokens"][number])
        assert float(alone["log_prob"][0]) == pytest.approx(float(together["log_prob"][number]), abs=1e-4)


def test_longer_answers_gain_by_the_penalty() -> None:
    """Of two that have ended the one is likelier, and the other is longer."""
    state = generation._Search(
        step=jnp.array(3), tokens=jnp.zeros((1, 2, 5), jnp.int32), log_probs=jnp.array([[-2.2, -9.0]]),
        following=jnp.full((1, 2, 8), -30.0).at[0, 0, 3].set(0.0).at[0, 1, 4].set(0.0), kept={},
        ended_tokens=jnp.full((1, 2, 5), 7), ended_log_probs=jnp.array([[-2.0, -1e9]]),
        ended_scores=jnp.array([[-2.0, -1e9]]), count=jnp.array([1]),
    )  # fmt: skip
    for penalty, first in ((0.0, -2.0), (1.0, -2.2)):
        how = generation.Writing(5, 3, np.ones(8, bool), beam_size=2, length_penalty=penalty)
        put, parents, chosen = generation._chosen(state, how)
        assert float(put.ended_log_probs[0, 0]) == pytest.approx(first)
        assert float(put.ended_scores[0].max()) == pytest.approx(max(-2.0, -2.2 / 1.5**penalty))
        assert (int(put.count[0]), int(chosen[0, 0]), int(parents[0, 0])) == (2, 4, 1)


def test_keys_are_kept_only_where_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    _, model, params = made(tmp_path, "learned")
    some = {"tokens": jnp.ones((1, 4), jnp.int32)}
    assert "cache" not in jax.eval_shape(model.init, jax.random.key(0), some)

    @jax.jit
    def read(batch: Any) -> Any:
        keeps = model.apply({"params": params}, batch, method="hidden", mutable=["cache"])
        return *keeps, model.apply({"params": params}, batch, method="hidden")

    hidden, kept, plain = read(rows(SOURCES, 8))
    np.testing.assert_array_equal(hidden, plain)
    assert kept["cache"]["encoder"]["layers"]["attention"]["keys"].shape == (2, 3, 8, 2, 8)
