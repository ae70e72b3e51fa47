"""Turns text into token shards and a vocabulary, in parallel, resumable, in constant memory.

The config's `data` group says what is read, which tokenizer is used or trained, and what is held
out for evaluation. Run the same command again after an interruption: it goes on where it was. To
train on the result: --config.data.source=shards --config.data.path=OUTPUT.
"""

from __future__ import annotations

import json

from absl import flags as absl_flags
from absl import logging

from bert_jax import config as config_lib
from bert_jax import flags
from bert_jax.data import prepare

_CONFIG = flags.define_config()
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "Directory to make, local or gs://; it appears when it is whole.", required=True
)


def main() -> None:
    """Prepares the text and prints the counts as JSON."""
    logging.set_verbosity(logging.INFO)
    config = _CONFIG.value
    config_lib.validate(config)
    if config.data.source == "shards":
        raise config_lib.ConfigError(
            'data.source = "shards" is prepared text already: set "text", "jsonl", "tfds" or "embedded"'
        )
    print(json.dumps(prepare.prepare(config, _OUTPUT.value), indent=2))


if __name__ == "__main__":
    flags.run(main)
