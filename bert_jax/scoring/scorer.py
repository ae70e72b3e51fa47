"""Log-probabilities of sentences and of their tokens, by T-TA, a masked or a left-to-right model.

- "tta": log p(token | all the others), of all tokens in one pass (Shin et al. 2020).
- "pll": the same by a masked model, which needs a row for each token, in which that token is masked
  (pseudo-log-likelihood; Wang and Cho 2019, Salazar et al. 2020). With whole words all pieces of a word
  are masked together and each is predicted from the rest of the sentence, no piece from another of its
  word.
- "causal": log p(token | those before it), by the chain rule the sentence's own log-probability. A model
  with a prefix mask is scored so too, the start token being its source.

The first two sums are no log-probability of the sentence: they are compared with their like only.

What is scored is the sentence's own tokens; with `ends` the end tokens too: T-TA was trained to predict
both, a left-to-right model the last (its end of sentence, which makes the sum that of a whole sentence),
a masked model none. (The T-TA paper sums over a sentence's tokens; its released code predicts [SOS] and
[EOS] in training too, and has no program for scores.)
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.interop.load import Source
from bert_jax.models.spec import ModelSpec
from bert_jax.scoring import batches, program
from bert_jax.scoring.rows import Layout, Line, Row

METHODS = ("tta", "pll", "causal")

_WINDOW_BATCHES = 32  # full batches before lines of like length are put together
_WINDOW_LINES, _WINDOW_CHARACTERS = 4096, 1 << 19  # the most of both, whatever their tokens


@dataclasses.dataclass(frozen=True)
class Scored:
    """A text and its tokens' log-probabilities, in nats, to six digits.

    Attributes:
      text: as it was given.
      tokens: what was scored, as strings of the vocabulary.
      token_log_probs: one for each.
      unknown: how many of the tokens the vocabulary does not know.
      note: what is unusual: an empty line, one scored in windows; None where nothing is.
    """

    text: str
    tokens: list[str]
    token_log_probs: list[float]
    unknown: int
    note: str | None

    @property
    def log_prob(self) -> float:
        """The sum of the tokens' log-probabilities; 0 where there are none."""
        return round(math.fsum(self.token_log_probs), 9)

    def to_json(self) -> dict[str, Any]:
        """Returns `text`, `log_prob`, `tokens`, `token_log_probs`, and `note` where there is one."""
        note = {} if self.note is None else {"note": self.note}
        return {
            "text": self.text,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
            "token_log_probs": self.token_log_probs,
            **note,
        }


def perplexity(log_prob: float, tokens: int) -> float:
    """Returns exp(-log_prob / tokens), at most e^700, which a float still holds."""
    return math.exp(min(700.0, -log_prob / tokens))


def method_of(spec: ModelSpec, method: str = "auto") -> str:
    """Returns by which method a model scores: what "auto" stands for.

    Raises:
      ValueError: the model predicts no tokens, or not in the way that is asked for.
    """
    if not spec.has_mlm or spec.has_generator:
        raise ValueError(
            "the model has no head that predicts the tokens of a text: take a pretrained T-TA, masked or "
            "left-to-right model"
        )
    if spec.max_positions < 3:
        raise ValueError(
            f"the model reads {spec.max_positions} tokens, ends included: no room for a sentence"
        )
    own = "tta" if spec.kind == "tta" else "pll" if spec.mask == "full" else "causal"
    if method not in ("auto", own):
        name = {"tta": "a T-TA", "pll": "a masked model", "causal": "a left-to-right model"}[own]
        raise ValueError(f"method {method}: the model is {name}, which is scored by {own}")
    return own


class Scorer:
    """Scores texts with one model, on all local devices.

    Args:
      source: the model, of `bert_jax.interop.load.read`.
      method: "auto", "tta", "pll" or "causal"; each model has one of them.
      ends: score the end tokens too.
      whole_words: in "pll", mask all pieces of a word together.
      batch_tokens: tokens of a batch on each device; 0: what suits the device.

    Attributes:
      method: the method, "auto" resolved.

    Raises:
      ValueError: the model cannot be scored so.
    """

    def __init__(
        self,
        source: Source,
        method: str = "auto",
        *,
        ends: bool = False,
        whole_words: bool = False,
        batch_tokens: int = 0,
    ) -> None:
        self.method = method_of(source.spec, method)
        if ends and self.method == "pll":
            raise ValueError("ends of a masked model: it never learned to predict them; leave ends out")
        if whole_words and self.method != "pll":
            raise ValueError(f"whole words are for pll, the model is scored by {self.method}: leave them out")
        # In float32, whatever it was trained in: a token's value is then the same in any batch.
        self._spec = dataclasses.replace(source.spec, dtype=jnp.float32, remat="none")
        self._tokenizer = source.tokenizer
        self._layout = Layout(
            source.tokenizer, self._spec.max_positions, self.method, ends=ends, whole_words=whole_words
        )
        self._budget = batches.budget(batch_tokens)
        self._mesh = program.mesh()
        params = {name: source.params[name] for name in ("encoder", "token_head")}
        self._params = program.on_all(params, self._mesh)
        # T-TA's streams read no other stream: those of the ends are not made where nothing asks for them.
        inner = self.method == "tta" and not ends and self._spec.attention == "dot"
        self._asked = (1, -1) if inner else (0, None)

    def score(self, texts: Iterable[str]) -> Iterator[Scored]:
        """Yields the score of each text, in their order.

        Any number of texts can be given: a window of them is held at a time. A text's values depend on
        nothing else in a batch, to float32's rounding.

        Raises:
          ValueError: the model gives NaN.
        """
        texts = iter(texts)
        while window := self._window(texts):
            yield from self._scored(window)

    def _window(self, texts: Iterator[str]) -> list[Line]:
        lines: list[Line] = []
        room, characters = _WINDOW_BATCHES * self._budget * self._mesh.size, 0
        for text in itertools.islice(texts, _WINDOW_LINES):
            line = self._layout.line(text)
            lines.append(line)
            count = len(line.ids) + 2
            # A masked model reads a row for each token; of a long line, each as long as a window.
            longest = min(count, self._spec.max_positions)
            room -= count * longest if self.method == "pll" else count
            characters += len(text)
            if room <= 0 or characters >= _WINDOW_CHARACTERS:
                break
        return lines

    def _scored(self, lines: Sequence[Line]) -> Iterator[Scored]:
        values = [np.full(len(line.tokens), np.nan, np.float32) for line in lines]
        rows = [row for number, line in enumerate(lines) for row in self._layout.rows(number, line)]
        longest, devices = self._spec.max_positions, self._mesh.size
        under_way: collections.deque[tuple[list[Row], int, jax.Array]] = collections.deque()

        def read() -> None:
            some, height, result = under_way.popleft()
            by_device = np.asarray(result).reshape(devices, -1)
            for device in range(devices):
                at = 0
                for row in some[device * height : (device + 1) * height]:
                    values[row.line][row.slots] = by_device[device, at : at + len(row.slots)]
                    at += len(row.slots)

        planned = batches.plan(rows, lambda row: len(row.ids), longest, self._budget, devices)
        for width, height, some in planned:
            under_way.append((some, height, self._dispatch(some, width, height)))
            if len(under_way) > batches.AHEAD:
                read()
        while under_way:
            read()
        for line, found in zip(lines, values, strict=True):
            if not np.isfinite(found).all():
                raise ValueError(
                    "the model's answer is not a number: its weights are damaged or its training diverged"
                )
            rounded = [float(f"{value:.6g}") for value in found.tolist()]
            unknown = line.ids.count(self._tokenizer.unk_id)
            yield Scored(line.text, line.tokens, rounded, unknown, line.note)

    def _dispatch(self, rows: Sequence[Row], width: int, height: int) -> jax.Array:
        """Starts a batch; its result is (devices * N,), each device's in the order of its rows."""
        devices, mask_id = self._mesh.size, self._tokenizer.mask_id
        chunk = min(batches.logits(), height if self.method == "pll" else height * width)
        room = -(-height * width // chunk) * chunk
        first, last, _ = slice(*self._asked).indices(width)
        tokens, segments = batches.arrays(
            [row.ids for row in rows], height * devices, width, self._tokenizer.pad_id
        )
        places = np.zeros((devices, room), np.int32)
        targets, counts = np.zeros_like(places), np.zeros(devices, np.int32)
        for number, row in enumerate(rows):
            tokens[number, row.masked] = mask_id
            device, line = divmod(number, height)
            at = slice(counts[device], counts[device] + len(row.places))
            places[device, at] = np.asarray(row.places) + (line * (last - first) - first)
            targets[device, at] = row.targets
            counts[device] += len(row.places)
        compute = program.shared(program.log_probs, self._mesh, self._spec, self._asked, chunk)
        return compute(self._params, tokens, segments, places.reshape(-1), targets.reshape(-1), counts)
