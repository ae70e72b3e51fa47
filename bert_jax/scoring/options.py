"""The flags that say how sentences are scored, the same in every command that does."""

from __future__ import annotations

from absl import flags

from bert_jax.interop import load
from bert_jax.scoring import scorer as scorer_lib

# `--help` lists a flag with the command that asked for it, not with this module.
flags.disclaim_key_flags()


def define_model() -> flags.FlagHolder[str]:
    """Defines --model."""
    return flags.DEFINE_string(
        "model", None, "A run's workdir, a model directory or one of Hugging Face's.", required=True
    )


def define_batch_tokens() -> flags.FlagHolder[int]:
    """Defines --batch_tokens."""
    return flags.DEFINE_integer(
        "batch_tokens",
        0,
        "Tokens computed at once on a device; 0: 1024 on a CPU, 16384 elsewhere.",
        lower_bound=0,
    )


class Scoring:
    """Defines --method, --ends, --whole_words and --batch_tokens, and makes the scorer that they ask for."""

    def __init__(self) -> None:
        self._method = flags.DEFINE_enum(
            "method",
            "auto",
            ["auto", *scorer_lib.METHODS],
            "How to score; each model has one way, which auto takes.",
        )
        self.ends = flags.DEFINE_bool("ends", False, "Score the end tokens too (tta, causal).")
        self.whole_words = flags.DEFINE_bool(
            "whole_words", False, "Mask all pieces of a word together (pll)."
        )
        self._batch_tokens = define_batch_tokens()

    def scorer(self, source: load.Source) -> scorer_lib.Scorer:
        """Returns the scorer of a model. Raises ValueError where the model cannot score so."""
        return scorer_lib.Scorer(
            source,
            self._method.value,
            ends=self.ends.value,
            whole_words=self.whole_words.value,
            batch_tokens=self._batch_tokens.value,
        )
