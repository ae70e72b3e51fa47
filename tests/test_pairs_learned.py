"""A head that cannot learn is seen: pairs of a made text whose order and belonging can be told."""

import pathlib
import random

import pytest
import small

from bert_jax import train

NAMES = [a + b for a in ("ba", "ko", "li", "mu", "ne") for b in ("r", "s", "t", "v", "w")]
NUMBERS = [
    a + b for a in ("fa", "ge", "ho", "ji", "du", "pe", "qo", "xi") for b in ("bl", "cl", "dr", "gl", "st")
]


def _write(folder: pathlib.Path) -> pathlib.Path:
    """Writes documents that count on, sentence by sentence, each in its own two names.

    Every name and number is in many documents, so that a document that is held out has nothing new.
    """
    draw = random.Random(0)
    folder.mkdir()
    for document in range(400):
        names = draw.sample(NAMES, 2)
        start = draw.randrange(len(NUMBERS) - 24)
        sentences = [f"{' '.join(names)} {number}." for number in NUMBERS[start : start + 24]]
        (folder / f"{document:03d}.txt").write_text("\n\n".join(sentences))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_pairs_that_can_be_told_are_told(objective: str, tmp_path: pathlib.Path) -> None:
    config = small.config(tmp_path, **{
        "data.path": str(_write(tmp_path / "counting")),
        "data.seq_len": 48,
        "model.max_positions": 48,
        "model.hidden_size": 64,
        "model.feed_forward_size": 128,
        "model.norm": "pre",
        "model.position": "rotary",
        "model.init_std": 0.1,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
        f"objective.{objective}.weight": 1.0,
        "train.steps": 1500,
        "train.batch_size": 32,
        "train.log_every": 100,
        "train.eval_every": 250,
        "checkpoint.every": 1500,
        "optimizer.learning_rate": 2e-3,
        "optimizer.warmup_fraction": 0.05,
    })  # fmt: skip
    result = train.train(config, tmp_path / "run")
    assert result[f"{objective}_accuracy"] > 0.9
