"""Errors made in clean texts: other letters in words, or other tokens.

Both keep the number of tokens, as the model reads a wrong token for each right one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_jax.data.encoding import Tokenizer
from bert_jax.data.ordering import generators

_WORD = re.compile(r"[^\W\d_]+")
_TRIES = 8  # of a word, until one has as many tokens as the word
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>")


def letters(texts: Sequence[str], tokenizer: Tokenizer, rate: float, seed: int) -> list[str]:
    """Returns the texts with errors in some words: a letter changed, left out, put in, or two exchanged.

    Letters are those that the texts have. An error keeps the number of tokens of its text, and makes none
    that is unknown; a word of which no such error was found stays as it is. What is made is the same for the
    same texts, rate and seed.

    Args:
      texts: clean.
      tokenizer: of `bert_jax.data.tokenizer`.
      rate: share of the words that are chosen.
      seed: of the choice.
    """
    alphabet = sorted({letter for text in texts for word in _WORD.findall(text) for letter in word})
    draws = generators(seed, "misspelling", np.zeros(len(texts), np.int64), np.arange(len(texts)))
    made, chosen_count, left = [], 0, 0
    for text, draw in zip(texts, draws, strict=True):
        size = len(tokenizer.encode_batch([text])[0])
        for word in reversed(list(_WORD.finditer(text))):
            if draw.random() >= rate:
                continue
            chosen_count += 1
            tries = [text[: word.start()] + _misspelt(word[0], alphabet, draw) + text[word.end() :]
                     for _ in range(_TRIES)]  # fmt: skip
            ids = tokenizer.encode_batch([text, *tries])
            unknown = ids[0].count(tokenizer.unk_id)
            fitting = [
                t
                for t, x in zip(tries, ids[1:], strict=True)
                if len(x) == size and x != ids[0] and x.count(tokenizer.unk_id) == unknown
            ]
            text = fitting[0] if fitting else text
            left += not fitting
        made.append(text)
    logging.info(
        "errors are made in %d of %d texts, in %d words; %d more were chosen, of which no error was found "
        "that has as many tokens",
        sum(a != b for a, b in zip(made, texts, strict=True)), len(texts), chosen_count - left, left,
    )  # fmt: skip
    return made


def _misspelt(word: str, alphabet: Sequence[str], draw: np.random.Generator) -> str:
    at = int(draw.integers(len(word)))
    other = alphabet[int(draw.integers(len(alphabet)))]
    other = other.upper() if word[at].isupper() else other.lower()
    if len(word) == 1:
        return other
    kind = int(draw.integers(4))
    if kind == 0:
        return word[:at] + other + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + other + word[at:]
    at = min(at, len(word) - 2)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


class Tokens:
    """Puts other tokens in the place of some; one that begins a word for one that does, and so on."""

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        """Finds the tokens that may be put.

        Args:
          tokenizer: of `bert_jax.data.tokenizer`.
          rate: share of the tokens that are replaced.
        """
        self._rate, self._continues = rate, tokenizer.continues
        usable = np.array([not _UNUSED.fullmatch(tokenizer.token(i)) for i in range(tokenizer.vocab_size)])
        usable[tokenizer.special_ids] = False
        self._others = [np.flatnonzero(usable & (self._continues == kind)) for kind in (False, True)]

    def __call__(
        self, tokens: np.ndarray, may: np.ndarray, draws: Sequence[np.random.Generator]
    ) -> np.ndarray:
        """Returns the (R, S) tokens with errors.

        Args:
          tokens: (R, S) int32.
          may: (R, S) bool, which may be replaced.
          draws: a generator a row.
        """
        numbers = np.array([draw.random((2, tokens.shape[1])) for draw in draws])  # (R, 2, S)
        chosen = may & (numbers[:, 0] < self._rate)
        result = tokens.copy()
        for kind, others in zip((False, True), self._others, strict=True):
            here = chosen & (self._continues[tokens] == kind)
            if len(others):
                result[here] = others[(numbers[:, 1][here] * len(others)).astype(np.int64)]
        return result
