"""Text to token shards: in several processes, resumable after any kill, in memory that does not grow.

The work goes on in a folder `.NAME.work` beside the output: blocks of text become parts (see
`parts`), the parts become shards (see `merge`), and the output appears by one rename, whole. A run
that was killed is run again: finished parts are found and kept, unless text, tokenizer or settings
have changed. The output's bytes are the same whatever the number of workers and of kills; only
`timing.json` in it tells of the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any

import filelock
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import cores, jsonl
from bert_jax.data import beam, corpus, extend, holdout, parts, shards
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.encoding import MUCH_UNKNOWN
from bert_jax.data.merge import merge
from bert_jax.data.progress import Progress
from bert_jax.data.shard_writer import write_index

RULES = 1  # version of all rules that turn text into shards; older caches are then not found
BLOCK = 1_000_000  # characters of a part; a process holds a few of these


def prepare(
    config: ConfigDict,
    output: str | os.PathLike[str],
    *,
    tokenizer: tokenizers.Tokenizer | None = None,
    progress: bool = True,
    block: int = BLOCK,
    beam_flags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Prepares the text of `config.data` into a shard directory.

    Args:
      config: a valid config; its `data` group says what is read and how.
      output: directory to make, local or gs://. If it holds this very text, prepared the same way,
        nothing is done; anything else there is refused.
      tokenizer: in place of `data.tokenizer`, or of training one.
      progress: show a bar on a terminal, lines elsewhere.
      block: characters of a part; does not change the output.
      beam_flags: flags of Apache Beam, whose pipelines then read and tokenize the text (see `beam`), to the
        same output; None: processes of this machine do.

    Returns:
      the counts: of each split `documents`, `sentences`, `tokens`, `words`, `pieces_per_word`,
      `split_words` (share of words of several pieces), `unknown_tokens` (share), and
      `duplicate_documents` and `duplicate_paragraphs` (equal ones before them); `overlap` (share of
      eval paragraphs that occur in training); `seconds` and `tokens_per_second`, of this run.

    Raises:
      CorpusError, VocabularyError (both ValueErrors): text or tokenizer cannot be used.
      FileExistsError: the output holds something else.
    """
    if config.data.mixture:
        raise corpus.CorpusError(
            "data.mixture names several texts, and shards are of one: prepare each by data.path, and name "
            "the outputs in data.mixture"
        )
    output = epath.Path(output).expanduser()
    tokenizer = tokenizer or _given_tokenizer(config)
    pipelines = None
    if beam_flags is not None:  # beside the output, where all machines see it
        folder = (output if _is_remote(output) else output.absolute()).with_name(f".{output.name}.beam")
        pipelines = beam.Pipelines(config, beam_flags, folder)
    digest, size = pipelines.fingerprint() if pipelines else corpus.fingerprint(config)
    recipe = _recipe(config, tokenizer, digest)
    return _prepare(config, recipe, size, output, tokenizer, progress, block, pipelines)


def cached(config: ConfigDict) -> pathlib.Path:
    """Returns a local shard directory of the config's data, prepared before or now.

    With `data.source = "shards"` that is `data.path` itself, or its mirror where it lies at gs://.
    Otherwise it is a directory in the cache (`shards.cache_root`), keyed by the content of the
    text, the tokenizer or its training, and the hold-out. The text is read once to tell; for a
    large corpus run `python -m bert_jax.prepare` and name its output instead.

    Raises:
      ShardError: `data.path` is no shard directory, or `data.tokenizer` is not the one it was made with.
      and what `prepare` raises.
    """
    data = config.data
    if data.source == "shards":
        _check_vocabulary(config)
        return shards.mirror(data.path, data.cache_dir)
    tokenizer = _given_tokenizer(config)
    digest, size = corpus.fingerprint(config)
    recipe = _recipe(config, tokenizer, digest)
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:20]
    output = shards.cache_root(data.cache_dir) / f"prepared-{key}"
    _prepare(config, recipe, size, epath.Path(output), tokenizer, True, BLOCK)
    return output


def _check_vocabulary(config: ConfigDict) -> None:
    """Makes sure that the shards have the vocabulary that is asked for, extended as is asked for."""
    data = config.data
    index = shards.read_index(data.path)
    made = index.get("recipe", {}).get("tokenizer", {})
    extended = made.get("extend", 0)
    if data.extend_vocab and data.extend_vocab != extended:
        raise shards.ShardError(
            f"data.extend_vocab = {data.extend_vocab} adds words as a text is prepared, and {data.path} was "
            f"prepared with {extended}: set that, or prepare the text again"
        )
    tokenizer = _given_tokenizer(config)
    if tokenizer is None or tokenizer.digest() == index["tokenizer"]:
        return
    if data.extend_vocab and made.get("digest") == tokenizer.digest():
        return  # its words and more
    start = config.init_from or config.objective.distill.teacher
    same = f"--config.{'init_from' if config.init_from else 'objective.distill.teacher'}={start}"
    raise shards.ShardError(
        f"the vocabulary of {data.tokenizer} is not the one that {data.path} was prepared with: prepare the "
        f"text again with {same if start else f'--config.data.tokenizer={data.tokenizer}'}, or name the "
        f"shards' own, --config.data.tokenizer={data.path}/tokenizer"
    )


def _given_tokenizer(config: ConfigDict) -> tokenizers.Tokenizer | None:
    data = config.data
    if not data.tokenizer:
        return None
    return tokenizers.load(data.tokenizer, data.lowercase, data.strip_accents)


def _recipe(config: ConfigDict, tokenizer: tokenizers.Tokenizer | None, text: str) -> dict[str, Any]:
    """Returns all that the output depends on, as JSON values; it is kept in the index."""
    data = config.data
    if tokenizer is not None:
        vocabulary: dict[str, Any] = {"digest": tokenizer.digest()}
    else:
        lowercase = _trained_lowercase(data)
        vocabulary = {"kind": data.tokenizer_kind, "vocab_size": data.vocab_size, "lowercase": lowercase}
        vocabulary["strip_accents"] = data.strip_accents
    if data.extend_vocab:
        vocabulary["extend"] = data.extend_vocab
    rule = {"eval_path": True} if data.eval_path else {data.holdout: data.eval_fraction}
    return {"rules": RULES, "text": text, "tokenizer": vocabulary, "holdout": rule}


def _prepare(
    config: ConfigDict,
    recipe: dict[str, Any],
    size: int,
    output: epath.Path,
    tokenizer: tokenizers.Tokenizer | None,
    progress: bool,
    block: int,
    pipelines: beam.Pipelines | None = None,
) -> dict[str, Any]:
    remote = _is_remote(output)
    if remote:  # made here, then copied: a rename is no single step there
        name = hashlib.sha256(os.fspath(output).encode()).hexdigest()[:16]
        local = shards.cache_root(config.data.cache_dir) / f"upload-{name}"
    else:
        local = pathlib.Path(output).absolute()
    work = local.with_name(f".{local.name}.work")
    if (counts := _finished(output, recipe)) is not None:
        if pipelines:
            pipelines.remove()  # left by a run that was killed
        return counts
    work.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{work}.lock"):
        counts = _finished(output, recipe)  # another process may have been at it
        if counts is None:
            _start(work, {"recipe": recipe, "block": block})
            try:
                counts = _make(config, recipe, size, work, tokenizer, progress, block, pipelines)
            except ValueError:
                # an error of the input, and nothing to go on from
                if not any((work / "parts").iterdir()) and not (pipelines and pipelines.has_parts()):
                    _clean(work)
                raise
            if remote:
                _upload(work / "out", output)
            else:
                (work / "out").rename(local)
            logging.info("%s is prepared", output)
        if pipelines:
            pipelines.remove()
        _clean(work)
    return counts


def _is_remote(output: epath.Path) -> bool:
    return "://" in os.fspath(output)


def _clean(work: pathlib.Path) -> None:
    """Removes the work folder and its lock; who waits on the lock finds the output when it wakes."""
    shutil.rmtree(work, ignore_errors=True)
    work.with_name(f"{work.name}.lock").unlink(missing_ok=True)


def _finished(output: epath.Path, recipe: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the counts if the output is there already, None if its place is free."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    if output.is_dir() and (output / shards.INDEX).exists():
        index = shards.read_index(output)
        if index.get("recipe") == recipe:
            logging.info("%s: this text is prepared already", output)
            timing = output / "timing.json"
            return index["counts"] | (jsonl.read_object(timing) if timing.exists() else {})
        raise FileExistsError(f"{output} holds other prepared text: name another directory, or remove it")
    raise FileExistsError(f"{output} exists and is no shard directory: name another, or remove it")


def _start(work: pathlib.Path, plan: dict[str, Any]) -> None:
    """Makes the work folder, or keeps one that was left by a run of the same plan."""
    path = work / "plan.json"
    try:
        same = json.loads(path.read_text()) == plan
    except (FileNotFoundError, ValueError):
        same = False
    if same:
        kept = sum(1 for _ in (work / "parts").glob("*.npz"))
        logging.info("going on from %d finished parts in %s", kept, work)
    else:
        shutil.rmtree(work, ignore_errors=True)
        (work / "parts").mkdir(parents=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(plan))
        part.replace(path)
    for name in ("out", "hashes"):
        shutil.rmtree(work / name, ignore_errors=True)
    for leftover in (work / "parts").glob("*.tmp"):
        leftover.unlink()


def _make(
    config: ConfigDict,
    recipe: dict[str, Any],
    size: int,
    work: pathlib.Path,
    tokenizer: tokenizers.Tokenizer | None,
    progress: bool,
    block: int,
    pipelines: beam.Pipelines | None,
) -> dict[str, Any]:
    started = time.monotonic()
    lengths = work / "lengths"
    holdout.measure(config, lengths)
    holdout.check(config, lengths)
    tokenizer = _tokenizer(config, work / "tokenizer", lengths, tokenizer)

    tokenizing = time.monotonic()
    if pipelines:
        plan = hashlib.sha256(f"{json.dumps(recipe, sort_keys=True)} {block}".encode()).hexdigest()[:20]
        known, tokens = pipelines.write_parts(plan, work / "tokenizer", block)
    else:
        known, tokens = _by_workers(config, size, work, lengths, progress, block)
    rate = tokens / max(1e-9, time.monotonic() - tokenizing)

    out = work / "out"
    out.mkdir()
    entries, counts = merge(known, out, work / "hashes", tokenizer)
    if not entries["train"]["tokens"]:
        raise corpus.CorpusError("the training text has no tokens: check data.path and data.tokenizer")
    if not (config.data.eval_path or config.data.eval_fraction):
        del entries["eval"], counts["eval"], counts["overlap"]
        for file in out.glob("eval.*"):
            file.unlink()
        logging.info(
            "no eval split: data.eval_fraction = 0 and no data.eval_path; an evaluation will be an error"
        )
    shutil.copytree(work / "tokenizer", out / "tokenizer")
    timing = {"seconds": round(time.monotonic() - started, 3), "tokens_per_second": round(rate, 1)}
    (out / "timing.json").write_text(json.dumps(timing) + "\n")
    write_index(
        out,
        tokenizer=tokenizer.digest(),
        vocab_size=tokenizer.vocab_size,
        splits=entries,
        counts=counts,
        recipe=recipe,
    )
    for split in entries:
        if counts[split]["unknown_tokens"] > MUCH_UNKNOWN:
            logging.warning(
                "%.1f %% of the %s tokens are [UNK]: this tokenizer does not fit the text",
                100 * counts[split]["unknown_tokens"], split,
            )  # fmt: skip
    return counts | timing


def _by_workers(
    config: ConfigDict, size: int, work: pathlib.Path, lengths: pathlib.Path, progress: bool, block: int
) -> tuple[list[pathlib.Path], int]:
    """Writes the parts that are not there, by processes of this machine; returns all, and the new tokens."""
    known: list[pathlib.Path] = []
    tokens = 0
    with Progress(size, progress) as bar:

        def todo() -> Iterator[parts.Block]:
            for one in parts.blocks(holdout.assigned(config, lengths), work / "parts", block):
                known.append(one.part)
                if one.part.exists():
                    bar.add(one.characters, 0)
                else:
                    yield one

        def done(characters: int, new: int) -> None:
            nonlocal tokens
            tokens += new
            bar.add(characters, new)

        parts.write_parts(todo(), work / "tokenizer", config.data.workers or len(cores.available()), done)
    return known, tokens


def _tokenizer(
    config: ConfigDict, folder: pathlib.Path, lengths: pathlib.Path, given: tokenizers.Tokenizer | None
) -> tokenizers.Tokenizer:
    """Returns the tokenizer and saves it; or finds it again.

    It is the given one or one trained, and extended where that is asked for, on the training text alone.
    """
    if folder.is_dir():
        return tokenizers.load(folder)
    data = config.data
    if given is None:
        lowercase = _trained_lowercase(data)
        texts = (text for split, _, text in holdout.assigned(config, lengths) if split == "train")
        train = {
            "wordpiece": tokenizers.train_wordpiece,
            "sentencepiece": tokenizers.train_sentencepiece,
            "bpe": tokenizers.train_bytebpe,
        }[data.tokenizer_kind]
        logging.info(
            "training a %s vocabulary of %d on the training text", data.tokenizer_kind, data.vocab_size
        )
        given = train(texts, data.vocab_size, lowercase=lowercase, strip_accents=data.strip_accents)
    if data.extend_vocab:
        texts = (text for split, _, text in holdout.assigned(config, lengths) if split == "train")
        given, _ = extend.extend(given, texts, data.extend_vocab)
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    given.save(part)
    part.rename(folder)
    return given


def _trained_lowercase(data: ConfigDict) -> bool:
    """Whether a trained vocabulary has no case: as asked, else BPE of bytes keeps it and others do not."""
    return data.tokenizer_kind != "bpe" if data.lowercase is None else data.lowercase


def _upload(source: pathlib.Path, target: epath.Path) -> None:
    """Copies a shard directory to gs://, its index last: without it the copy is no shard directory."""
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and path.name != shards.INDEX]
    for path in [*files, source / shards.INDEX]:
        copy = target / path.relative_to(source).as_posix()
        copy.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as read, copy.open("wb") as write:
            shutil.copyfileobj(read, write, 1 << 22)
