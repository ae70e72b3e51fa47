"""Models of random weights that answer in milliseconds, and their directories."""

import os
import pathlib
import subprocess
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import checkpoint
from bert_jax import config as config_lib
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model

ROOT = pathlib.Path(__file__).parents[1]
WORDS = ["the", "cat", "dog", "sat", "run", "##s", "##ning", "on", "a", "mat", ".", "s"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def tokenizer(folder: pathlib.Path) -> tokenizer_lib.Tokenizer:
    """A vocabulary of a dozen words and pieces."""
    file = folder / "vocab.txt"
    file.write_text("\n".join(VOCABULARY))
    return tokenizer_lib.load(file, lowercase=True)


def source(tokenizer: Any, seed: int = 1, heads: dict[str, Any] | None = None, **model: Any) -> load.Source:
    """A model of two layers whose weights are so large that every token's answer differs."""
    config = config_lib.default().model
    config.update({
        "hidden_size": 16, "layers": 2, "heads": 2, "feed_forward_size": 32, "max_positions": 20,
        "scan": True, **model,
    })  # fmt: skip
    spec = spec_lib.from_config(
        config, vocab_size=tokenizer.vocab_size, mask_id=tokenizer.mask_id, **(heads or {})
    )
    some = {"tokens": jnp.ones((1, 4), jnp.int32)}
    shapes = nn.unbox(jax.eval_shape(Model(spec).init, jax.random.key(0), some)["params"])
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape, scale=0.5).astype(np.float32), shapes)
    return load.Source(spec, params, tokenizer, (), [])


def save(folder: pathlib.Path, made: load.Source) -> pathlib.Path:
    """Writes a run's directory."""
    folder.mkdir()
    (folder / "model.json").write_text(spec_lib.to_json(made.spec, made.labels))
    made.tokenizer.save(folder / "tokenizer")
    checkpoints = checkpoint.Checkpoints(folder / "checkpoints", keep=1, best_mode="max")
    checkpoints.save(1, {"params": jax.tree.map(jnp.asarray, made.params)}, metric=0.5)
    checkpoints.close()
    return folder


def command(folder: pathlib.Path, module: str, *arguments: str, devices: int = 1) -> list[Any]:
    """Returns the arguments of `subprocess.run` for a command, as a list and keywords."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder / ".compiled"),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return [[sys.executable, "-m", f"bert_jax.{module}", *arguments], {"cwd": folder, "env": env}]


def run(
    folder: pathlib.Path, module: str, *arguments: str, stdin: bytes = b"", devices: int = 1
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    words, keys = command(folder, module, *arguments, devices=devices)
    return subprocess.run(words, input=stdin, capture_output=True, check=False, **keys)
