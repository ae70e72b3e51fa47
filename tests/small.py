"""A run small enough for a test: a made text, a tiny model, a hundred steps in seconds."""

import json
import pathlib
import random
from typing import Any

from ml_collections import ConfigDict

from bert_jax import config as config_lib


def write_text(folder: pathlib.Path, documents: int = 12) -> pathlib.Path:
    """Writes documents of made sentences over 60 words and returns their folder."""
    draw = random.Random(0)
    words = [a + b for a in ("ba", "ko", "li", "mu", "ne", "ro") for b in "rstvwxyzmn"]
    folder.mkdir()
    for number in range(documents):
        sentences = [
            " ".join(draw.choice(words) for _ in range(draw.randint(4, 12))).capitalize() + "."
            for _ in range(40)
        ]
        (folder / f"{number:02d}.txt").write_text("\n\n".join(sentences))
    return folder


def config(tmp_path: pathlib.Path, **overrides: object) -> ConfigDict:
    """Returns a valid config on a made text in tmp_path; keys as "group.key"."""
    c = config_lib.default()
    text = tmp_path / "text"
    values = {
        "model.hidden_size": 32,
        "model.layers": 2,
        "model.heads": 2,
        "model.feed_forward_size": 64,
        "model.max_positions": 32,
        "model.init_std": 0.1,
        "data.source": "text",
        "data.path": str(text if text.exists() else write_text(text)),
        "data.eval_fraction": 0.2,
        "data.vocab_size": 200,
        "data.seq_len": 32,
        "data.cache_dir": str(tmp_path / "cache"),
        "data.workers": 1,
        "train.steps": 30,
        "train.batch_size": 8,
        "train.log_every": 10,
        # Compiled once for all tests of a session.
        "train.compilation_cache": str(tmp_path.parent / "compiled"),
        "model.scan": True,
        "optimizer.learning_rate": 1e-3,
        "checkpoint.every": 10,
        **overrides,
    }
    for key, value in values.items():
        group, _, leaf = key.rpartition(".")
        (c[group] if group else c)[leaf] = value
    config_lib.validate(c)
    return c


def write(c: ConfigDict, file: pathlib.Path) -> pathlib.Path:
    """Writes a config file that gives this config, and returns its path."""
    file.write_text(
        "from bert_jax import config\n\n\ndef get_config():\n"
        f"    return config.from_json({config_lib.to_json(c)!r})\n"
    )
    return file


def metrics(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines that a run logged."""
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
