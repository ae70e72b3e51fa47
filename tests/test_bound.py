"""Training reaches the best loss that there is, and never less: a model that beats the bound has leaked.

The text is made so that the exact distribution of hidden tokens given the others can be computed. The
first half of a row is a Markov chain; each token of the second half is a noisy copy of the one half
a row before it. That is a hidden Markov model, whatever tokens are hidden, and forward-backward gives
the posterior of each. The bound is -log of it, averaged over the very tokens that the model is judged by.
"""

import types
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import config, optimizer, sharding, step
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.objectives.tta import TransformerTextAutoencoder

WORDS = 16  # ids 3..18
MASK, FIRST = 2, 3
HALF = 12
COPY = 0.6  # probability that a token of the second half is a copy and not a word by chance
HIDDEN = 4  # tokens that are hidden in a row
TOKENIZER = types.SimpleNamespace(
    vocab_size=FIRST + WORDS, special_ids=np.arange(FIRST), mask_id=MASK, cls_id=0, sep_id=1
)


class Text:
    """The source: its transitions, its noisy copies, and its exact posteriors."""

    def __init__(self, seed: int = 0):
        self.start = np.full(WORDS, 1 / WORDS)
        self.transition = np.random.default_rng(seed).dirichlet(np.full(WORDS, 0.25), WORDS)
        self.transition = 0.98 * self.transition + 0.02 / WORDS
        self.channel = COPY * np.eye(WORDS) + (1 - COPY) / WORDS

    def rows(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Returns (count, 2 * HALF) words, numbers below WORDS."""

        def draw(probabilities: np.ndarray) -> np.ndarray:
            return np.argmax(rng.random((count, 1)) < np.cumsum(probabilities, axis=1), axis=1)

        chain = [draw(np.tile(self.start, (count, 1)))]
        for _ in range(HALF - 1):
            chain.append(draw(self.transition[chain[-1]]))
        return np.stack(chain + [draw(self.channel[a]) for a in chain], axis=1)

    def posterior(self, words: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Returns p(word at a position | all words that are not hidden), (rows, 2 * HALF, WORDS).

        Meaningful where `hidden` (a boolean array like `words`) is true.
        """
        rows = np.arange(len(words))
        evidence = np.ones((len(words), HALF, WORDS))
        for i in range(HALF):
            seen = np.eye(WORDS)[words[:, i]]
            evidence[:, i] *= np.where(hidden[:, i, None], 1.0, seen)
            seen = self.channel[:, words[rows, HALF + i]].T
            evidence[:, i] *= np.where(hidden[:, HALF + i, None], 1.0, seen)
        before, after = np.ones_like(evidence), np.ones_like(evidence)
        before[:, 0] = self.start
        for i in range(1, HALF):
            before[:, i] = (before[:, i - 1] * evidence[:, i - 1]) @ self.transition
            before[:, i] /= before[:, i].sum(axis=1, keepdims=True)
        for i in reversed(range(HALF - 1)):
            after[:, i] = (after[:, i + 1] * evidence[:, i + 1]) @ self.transition.T
            after[:, i] /= after[:, i].sum(axis=1, keepdims=True)
        chain = before * evidence * after
        chain /= chain.sum(axis=2, keepdims=True)
        return np.concatenate([chain, chain @ self.channel], axis=1)

    def best_losses(self, words: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Returns -log p(word | all words that are not hidden) at each position, (rows, 2 * HALF)."""
        return -np.log(np.take_along_axis(self.posterior(words, hidden), words[..., None], axis=2)[..., 0])

    def best_losses_one_by_one(self, words: np.ndarray) -> np.ndarray:
        """Returns -log p(word | all other words of the row) at each position, (rows, 2 * HALF)."""
        columns = np.eye(2 * HALF, dtype=bool)
        return np.stack(
            [self.best_losses(words, np.tile(c, (len(words), 1)))[:, i] for i, c in enumerate(columns)],
            axis=1,
        )


def whole_rows(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the unpadded rows' units, and types that tell their halves apart."""
    second = np.arange(2 * HALF, dtype=np.int32) >= HALF
    return {
        "segment_ids": np.ones_like(tokens),
        "type_ids": np.tile(second.astype(np.int32), (len(tokens), 1)),
    }


def mlm_batch(words: np.ndarray, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns a batch with HIDDEN tokens of each row behind [MASK], and which those are (boolean)."""
    positions = np.sort(np.argsort(rng.random(words.shape), axis=1)[:, :HIDDEN], axis=1)
    hidden = np.zeros(words.shape, bool)
    np.put_along_axis(hidden, positions, True, axis=1)
    tokens = np.where(hidden, MASK, words + FIRST).astype(np.int32)
    labels = np.take_along_axis(words + FIRST, positions, axis=1).astype(np.int32)
    batch = {
        "tokens": tokens,
        **whole_rows(tokens),
        "mlm_positions": positions.astype(np.int32),
        "mlm_labels": labels,
        "mlm_weights": np.ones(labels.shape, np.float32),
    }
    return batch, hidden


def tta_batch(words: np.ndarray) -> dict[str, np.ndarray]:
    tokens = (words + FIRST).astype(np.int32)
    ones = np.ones_like(tokens)
    return {
        "tokens": tokens,
        "segment_ids": ones,
        "tta_labels": tokens,
        "tta_weights": ones.astype(np.float32),
    }


def train(steps: int, batch_size: int, make_batch: Any, **model: Any) -> tuple[step.Setup, Any]:
    """Returns the set-up and the parameters after training on fresh rows at every step."""
    c = config.default()
    c.model.update({
        "hidden_size": 64, "layers": 2, "heads": 4, "feed_forward_size": 128, "max_positions": 2 * HALF,
        "norm": "pre", "init_std": 0.05, "dropout": 0.0, "attention_dropout": 0.0, **model,
    })  # fmt: skip
    c.optimizer.update({
        "learning_rate": 3e-3, "schedule": "cosine", "warmup_steps": 100, "b2": 0.98, "weight_decay": 0.0,
    })  # fmt: skip
    kind = TransformerTextAutoencoder if c.model.kind == "tta" else MaskedLM
    group = c.objective.tta if c.model.kind == "tta" else c.objective.mlm
    group.weight = 1.0
    objective = kind(group, TOKENIZER, 2 * HALF, np.ones(TOKENIZER.vocab_size, np.int64))
    spec = spec_lib.from_config(c.model, vocab_size=TOKENIZER.vocab_size, mask_id=MASK)
    setup = step.Setup(
        Model(spec), (objective,), optimizer.make(c.optimizer, steps), optimizer.schedule(c.optimizer, steps),
        sharding.make_mesh(c.mesh), "threefry2x32",
    )  # fmt: skip
    rng = np.random.default_rng(1)
    state = step.create_state(setup, make_batch(batch_size, rng), seed=0)
    update = step.make_train_step(setup)
    for _ in range(steps):
        state, _ = update(state, sharding.to_devices(make_batch(batch_size, rng), batch_size, setup.mesh))
    return setup, state.params


def losses_of(setup: step.Setup, params: Any, batch: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Returns -log p(label), (B, M), in float64."""
    apply = jax.jit(lambda params, batch: setup.model.apply({"params": params}, batch)[f"{name}_logits"])
    logits = np.asarray(apply(params, batch), np.float64)
    highest = logits.max(axis=-1, keepdims=True)
    log_probs = logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_probs, batch[f"{name}_labels"][..., None], axis=-1)[..., 0]


def check(name: str, losses: np.ndarray, bound: np.ndarray) -> None:
    """The loss lies within 5 % of the bound, and not below it by more than chance explains."""
    excess = (losses - bound).mean(axis=1)  # rows are independent, their tokens are not
    error = excess.std() / np.sqrt(len(excess))
    numbers = (
        f"{name}: loss {losses.mean():.4f}, bound {bound.mean():.4f}, {excess.mean():+.4f} +- {error:.4f}"
    )
    print(numbers)
    assert excess.mean() > -3 * error, f"better than the best possible, so the model has leaked: {numbers}"
    assert losses.mean() < 1.05 * bound.mean(), numbers


def test_the_posterior_is_exact() -> None:
    """Against the sum over all that the hidden words might be, from the joint probability alone."""
    text, rng = Text(), np.random.default_rng(3)
    # Neighbours, a word and its own copy, and a word with its neighbour's copy.
    for pair in ((3, 4), (5, HALF + 5), (0, HALF + 1), (HALF - 1, 2 * HALF - 1), (HALF, HALF + 1)):
        words = text.rows(1, rng)
        hidden = np.zeros(words.shape, bool)
        hidden[0, list(pair)] = True
        guesses = np.repeat(words, WORDS**2, axis=0)
        guesses[:, pair] = np.stack(np.divmod(np.arange(WORDS**2), WORDS), axis=1)
        a, b = guesses[:, :HALF], guesses[:, HALF:]
        joint = (
            text.start[a[:, 0]] * text.transition[a[:, :-1], a[:, 1:]].prod(1) * text.channel[a, b].prod(1)
        )
        joint = (joint / joint.sum()).reshape(WORDS, WORDS)
        found = text.posterior(words, hidden)[0, list(pair)]
        np.testing.assert_allclose(found, [joint.sum(1), joint.sum(0)], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_mlm_reaches_the_bound(position: str) -> None:
    text, rng = Text(), np.random.default_rng(2)
    setup, params = train(
        1600, 128, lambda count, rng: mlm_batch(text.rows(count, rng), rng)[0], position=position
    )
    words = text.rows(4000, rng)
    batch, hidden = mlm_batch(words, rng)
    bound = np.take_along_axis(text.best_losses(words, hidden), batch["mlm_positions"], axis=1)
    check(f"MLM, {position}", losses_of(setup, params, batch, "mlm"), bound)


@pytest.mark.slow
def test_tta_reaches_the_bound() -> None:
    text, rng = Text(), np.random.default_rng(2)
    setup, params = train(800, 64, lambda count, rng: tta_batch(text.rows(count, rng)), kind="tta")
    words = text.rows(2000, rng)
    losses = losses_of(setup, params, tta_batch(words), "tta")
    check("T-TA", losses, text.best_losses_one_by_one(words))


@pytest.mark.slow
def test_a_model_that_sees_its_targets_is_caught() -> None:
    text, rng = Text(), np.random.default_rng(2)

    def leaking(words: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {**mlm_batch(words, rng)[0], "tokens": (words + FIRST).astype(np.int32)}

    setup, params = train(200, 64, lambda count, rng: leaking(text.rows(count, rng), rng))
    words = text.rows(1000, rng)
    batch = leaking(words, rng)
    hidden = np.zeros(words.shape, bool)
    np.put_along_axis(hidden, batch["mlm_positions"], True, axis=1)
    bound = np.take_along_axis(text.best_losses(words, hidden), batch["mlm_positions"], axis=1)
    with pytest.raises(AssertionError, match="leaked"):
        check("leaking", losses_of(setup, params, batch, "mlm"), bound)
