"""Writes a model's answers to lines of text, one JSON object a line, in the same order.

Of a fine-tuned classifier: {"text", "label", "probabilities"}, of a regression {"text", "score"}. Of a
model that predicts tokens, the fillers of each [MASK] (or what its vocabulary calls the mask):
{"text", "fills": [{"position", "candidates": [{"token", "probability"}]}], "filled"}, where a position is
counted in characters from 0, probabilities are the model's own over all tokens, and special tokens are
no candidates. An empty line, and one that is cut to the model's longest input, say so in "note".
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags as absl_flags
from absl import logging
from etils import epath

from bert_jax import flags
from bert_jax.data import files
from bert_jax.interop import load
from bert_jax.models.model import Model

_MODEL = absl_flags.DEFINE_string(
    "model", None, "A run's workdir or a Hugging Face BERT directory.", required=True
)
_INPUT = absl_flags.DEFINE_string(
    "input", None, "UTF-8 text, one a line; a name in .gz is decompressed; - reads stdin.", required=True
)
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines; the file appears when it is whole; - writes stdout.", required=True
)
_TOP_K = absl_flags.DEFINE_integer("top_k", 5, "Candidates for each [MASK].", lower_bound=1)
_BATCH_SIZE = absl_flags.DEFINE_integer("batch_size", 32, "Lines that are computed at once.", lower_bound=1)

# Rows and their numbers of masks double from here, so that few programs are compiled.
_SHORTEST, _FEWEST_MASKS = 16, 4
_BATCHES_AHEAD = 64  # read before lines of like length are put together


@dataclasses.dataclass(frozen=True)
class _Line:
    """A tokenised line: its ids, and (index of the token, character offset) of each mask in it."""

    text: str
    ids: list[int]
    masks: list[tuple[int, int]]
    note: str | None


def predict(
    source: load.Source, texts: Iterable[str], *, top_k: int = 5, batch_size: int = 32
) -> Iterator[dict[str, Any]]:
    """Yields the answer to each text, in their order, as the module's docstring has it.

    The length of a row depends on its own text only, so answers do not depend on what else is in a
    batch, to float rounding.

    Args:
      source: the model.
      texts: any number; memory does not grow with it.
      top_k: candidates for each mask.
      batch_size: texts that are computed at once.

    Raises:
      ValueError: the model has neither a classifier nor a head that predicts tokens, or gives NaN.
    """
    spec = source.spec
    if not spec.labels and not spec.has_mlm:
        raise ValueError(
            "the model has neither a classifier nor a head that predicts tokens: fine-tune it, or take one "
            "with cls.predictions or classifier in its files"
        )
    answer = _classifier(source) if spec.labels else _filler(source, top_k)
    cut, texts = 0, iter(texts)
    while window := [_tokenised(t, source) for t in itertools.islice(texts, batch_size * _BATCHES_AHEAD)]:
        cut += sum(line.note is not None and bool(line.text.strip()) for line in window)
        groups = defaultdict(list)
        for number, line in enumerate(window):
            if line.text.strip():
                groups[_size(line, spec.max_positions)].append(number)
        answers: list[dict[str, Any]] = [{} for _ in window]
        for (length, masks), numbers in sorted(groups.items()):
            for start in range(0, len(numbers), batch_size):
                some = numbers[start : start + batch_size]
                found = answer([window[n] for n in some], batch_size, length, masks)
                for number, result in zip(some, found, strict=True):
                    answers[number] = result
        for line, result in zip(window, answers, strict=True):
            note = {} if line.note is None else {"note": line.note}
            yield {"text": line.text, **(result or _empty(source)), **note}
    if cut:
        logging.warning("%d lines are cut to the model's %d tokens", cut, spec.max_positions)


def _tokenised(text: str, source: load.Source) -> _Line:
    tokenizer, longest = source.tokenizer, source.spec.max_positions
    encoding = tokenizer.encode(text)
    ids, note = encoding.ids, None if text.strip() else "empty line"
    if len(ids) > longest:
        note = f"cut from {len(ids)} to {longest} tokens"
        ids = [*ids[: longest - 1], tokenizer.sep_id]
    places = zip(ids, encoding.offsets, strict=False)
    masks = [(i, at[0]) for i, (id, at) in enumerate(places) if id == tokenizer.mask_id and at is not None]
    return _Line(text, ids, masks, note)


def _size(line: _Line, longest: int) -> tuple[int, int]:
    """Returns the length of a line's row, and for how many masks there is room in it."""

    def doubled(count: int, start: int) -> int:
        return max(start, 1 << (count - 1).bit_length())

    masks = len(line.masks)
    return min(doubled(len(line.ids), _SHORTEST), longest), doubled(masks, _FEWEST_MASKS) if masks else 0


def _batch(lines: list[_Line], rows: int, length: int, pad_id: int) -> dict[str, np.ndarray]:
    """Returns `tokens` and `segment_ids` (rows, length) int32; rows after the lines are padding."""
    batch = {
        "tokens": np.full((rows, length), pad_id, np.int32),
        "segment_ids": np.zeros((rows, length), np.int32),
    }
    for row, line in enumerate(lines):
        batch["tokens"][row, : len(line.ids)] = line.ids
        batch["segment_ids"][row, : len(line.ids)] = 1
    return batch


def _number(value: Any) -> float:
    return float(f"{value:.6g}")  # what float32 can be trusted with


def _finite(array: jax.Array) -> np.ndarray:
    values = np.asarray(array)
    if not np.isfinite(values).all():
        raise ValueError(
            "the model's answer is not a number: its weights are damaged or its training diverged"
        )
    return values


def _empty(source: load.Source) -> dict[str, Any]:
    if source.spec.labels == 1:
        return {"score": None}
    if source.spec.labels:
        return {"label": None, "probabilities": None}
    return {"fills": [], "filled": ""}


def _classifier(source: load.Source) -> Callable[[list[_Line], int, int, int], list[dict[str, Any]]]:
    """Returns what answers lines with the classifier's label or score."""
    spec = dataclasses.replace(source.spec, has_mlm=False, has_nsp=False)  # nothing that is not asked for
    model, params = Model(spec), jax.tree.map(jnp.asarray, source.params)
    names = source.labels or tuple(f"LABEL_{i}" for i in range(spec.labels))

    @jax.jit
    def logits(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return model.apply({"params": params}, batch)["logits"]

    def answer(lines: list[_Line], rows: int, length: int, masks: int) -> list[dict[str, Any]]:
        found = _finite(logits(params, _batch(lines, rows, length, source.tokenizer.pad_id)))[: len(lines)]
        if spec.labels == 1:
            return [{"score": _number(value)} for value in found[:, 0]]
        shares = np.exp(found - found.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return [
            {
                "label": names[int(np.argmax(row))],
                "probabilities": {name: _number(p) for name, p in zip(names, row, strict=True)},
            }
            for row in shares
        ]

    return answer


def _filler(source: load.Source, top_k: int) -> Callable[[list[_Line], int, int, int], list[dict[str, Any]]]:
    """Returns what answers lines with candidates for their masks."""
    spec = dataclasses.replace(source.spec, has_nsp=False, has_pooler=False)
    model, params, tokenizer = Model(spec), jax.tree.map(jnp.asarray, source.params), source.tokenizer
    allowed = np.zeros(spec.padded_vocab_size, bool)
    allowed[: tokenizer.vocab_size] = True
    allowed[tokenizer.special_ids] = False
    count = min(top_k, int(allowed.sum()))

    @jax.jit
    def candidates(params: Any, batch: dict[str, jax.Array], spots: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = model.apply({"params": params}, batch, method="hidden")
        chosen = jnp.take_along_axis(hidden, spots[..., None], axis=1)
        logits = model.apply({"params": params}, chosen, method="token_logits")
        shares = jax.nn.softmax(logits, axis=-1)
        return jax.lax.top_k(jnp.where(allowed[None, None], shares, -1.0), count)

    def answer(lines: list[_Line], rows: int, length: int, masks: int) -> list[dict[str, Any]]:
        if not masks:
            return [{"fills": [], "filled": line.text} for line in lines]
        spots = np.zeros((rows, masks), np.int32)
        for row, line in enumerate(lines):
            spots[row, : len(line.masks)] = [i for i, _ in line.masks]
        shares, tokens = candidates(params, _batch(lines, rows, length, tokenizer.pad_id), spots)
        shares, tokens = _finite(shares), np.asarray(tokens)
        return [_filled(line, shares[row], tokens[row], tokenizer) for row, line in enumerate(lines)]

    return answer


def _filled(line: _Line, shares: np.ndarray, tokens: np.ndarray, tokenizer: Any) -> dict[str, Any]:
    """Returns the fills of one line from (M, k) probabilities and tokens, M no less than its masks."""
    fills = [
        {
            "position": at,
            "candidates": [
                {"token": tokenizer.token(id), "probability": _number(p)}
                for id, p in zip(tokens[m].tolist(), shares[m].tolist(), strict=True)
            ],
        }
        for m, (_, at) in enumerate(line.masks)
    ]
    text = line.text
    for m, (_, at) in reversed(list(enumerate(line.masks))):
        best, before = int(tokens[m, 0]), text[:at]
        filler = tokenizer.decode([best])
        if tokenizer.continues[best] or filler.startswith(" "):
            before = before.rstrip(" ")  # the piece belongs to the word before it, or brings its space
        text = before + filler + text[at + len(tokenizer.specials.mask) :]
    return {"fills": fills, "filled": text}


def _write(answers: Iterable[dict[str, Any]], output: str) -> None:
    """Writes JSON lines: to stdout as they come, to a file whole or not at all."""
    lines = ((json.dumps(answer, ensure_ascii=False) + "\n").encode() for answer in answers)
    if output == "-":
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    path = epath.Path(output)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            for line in lines:
                file.write(line)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise


def main() -> None:
    """Reads --input and writes --output."""
    name, output = _INPUT.value, _OUTPUT.value
    path = epath.Path("/dev/stdin" if name == "-" else name)
    if name != "-" and not path.is_file():
        raise flags.UsageError(f"--input={name}: there is no such file")
    if output != "-" and epath.Path(output).is_dir():
        raise flags.UsageError(f"--output={output} is a directory: name a file")
    if output != "-" and "://" not in output and not epath.Path(output).parent.is_dir():
        raise flags.UsageError(f"--output={output}: its directory does not exist")
    source = load.read(_MODEL.value)
    texts = (line.removesuffix("\r") for _, line in files.lines(path))
    _write(predict(source, texts, top_k=_TOP_K.value, batch_size=_BATCH_SIZE.value), output)


if __name__ == "__main__":
    flags.run(main)
