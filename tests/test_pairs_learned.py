"""A head that cannot learn is seen: made texts whose order, belonging and replaced words can be told."""

import pathlib
import random
from typing import Any

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


def _train(folder: pathlib.Path, steps: int, **keys: object) -> dict[str, Any]:
    """Trains a model that is large enough to tell, and returns what it reached; keys as "group.key"."""
    config = small.config(folder, **{
        "model.hidden_size": 64,
        "model.feed_forward_size": 128,
        "model.norm": "pre",
        "model.position": "rotary",
        "model.init_std": 0.1,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
        "train.steps": steps,
        "train.batch_size": 32,
        "train.log_every": 100,
        "train.eval_every": 250,
        "checkpoint.every": steps,
        "optimizer.learning_rate": 2e-3,
        **keys,
    })  # fmt: skip
    return train.train(config, folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_pairs_that_can_be_told_are_told(objective: str, tmp_path: pathlib.Path) -> None:
    result = _train(tmp_path, 1500, **{
        "data.path": str(_write(tmp_path / "counting")),
        "data.seq_len": 48,
        "model.max_positions": 48,
        f"objective.{objective}.weight": 1.0,
        "optimizer.warmup_fraction": 0.05,
    })  # fmt: skip
    assert result[f"{objective}_accuracy"] > 0.9


def _write_couples(folder: pathlib.Path) -> pathlib.Path:
    """Writes words of which each second one is decided by the first, and the first by nothing.

    What stands in for a first word comes from the generator's guessing, and does not go with the second.
    """
    draw = random.Random(0)
    first, second = (
        [a + b for a in starts for b in "rstvwxyzmn"]
        for starts in (("ba", "ko", "li", "mu", "ne", "ro"), ("da", "fo", "gi", "hu", "je", "zo"))
    )
    folder.mkdir()
    for document in range(20):
        sentences = [
            " ".join(f"{first[i]} {second[i]}" for i in draw.choices(range(60), k=7)) for _ in range(120)
        ]
        (folder / f"{document}.txt").write_text("\n\n".join(sentences))
    return folder


@pytest.mark.slow
def test_replaced_words_that_can_be_told_are_told(tmp_path: pathlib.Path) -> None:
    result = _train(tmp_path, 1000, **{
        "data.path": str(_write_couples(tmp_path / "couples")),
        "data.packing": True,
        "data.vocab_size": 400,
        "model.generator_fraction": 0.5,
        "objective.rtd.weight": 50.0,
        "objective.mlm.mask_share": 0.85,
        "objective.mlm.random_share": 0.0,
        "optimizer.warmup_fraction": 0.1,
    })  # fmt: skip
    wrong, always = 1 - result["rtd_accuracy"], 1 - result["rtd_always_original_accuracy"]
    assert always > 0.005  # there is something to tell
    assert wrong < 0.35 * always
