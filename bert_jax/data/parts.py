"""Parts: blocks of text, tokenized one by one, each a file. The unit of parallel and of resumed work.

Workers are processes of their own that run this module: they share no state with the process that
feeds them, load neither JAX nor its main module, and end when it ends, also by kill -9.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator

import numpy as np

from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.duplicates import text_hash
from bert_jax.data.holdout import Assigned
from bert_jax.data.sentences import sentences
from bert_jax.data.shard_writer import token_dtype

SPLITS = ("train", "eval")
LONG = 20  # characters from which a paragraph counts in the overlap of the splits

_BATCH = 2048  # sentences tokenized at a time


@dataclasses.dataclass
class Block:
    """Consecutive paragraphs of the corpus, and the part that they become."""

    part: pathlib.Path
    characters: int
    paragraphs: list[Assigned]


def path_of(folder: pathlib.Path, number: int) -> pathlib.Path:
    """Returns where the part of the n-th block of a text lies."""
    return folder / f"{number:07d}.npz"


def blocks(paragraphs: Iterator[Assigned], folder: pathlib.Path, characters: int) -> Iterator[Block]:
    """Yields the text in blocks of at least `characters`, the last one excepted."""
    number = size = 0
    held: list[Assigned] = []
    for paragraph in paragraphs:
        held.append(paragraph)
        size += len(paragraph[2])
        if size >= characters:
            yield Block(path_of(folder, number), size, held)
            number, size, held = number + 1, 0, []
    if held:
        yield Block(path_of(folder, number), size, held)


def write_part(part: pathlib.Path, paragraphs: list[Assigned], tokenizer: tokenizers.Tokenizer) -> int:
    """Tokenizes a block and writes its part, atomically. Returns its number of tokens.

    A part holds, for each split: `tokens` (n,), `lengths` and `documents` of the sentences that
    have tokens (m,), `words` (2,): words, and words of several tokens; and of each paragraph that
    has tokens `hashes` uint64, `owners` (its document) and `long` (at least `LONG` characters).
    """
    arrays: dict[str, np.ndarray] = {}
    total = 0
    for split in SPLITS:
        mine = [(document, text) for name, document, text in paragraphs if name == split]
        pieces = [sentences(text) for _, text in mine]
        flat = [sentence for piece in pieces for sentence in piece]
        tokens, lengths = _encode(flat, tokenizer)
        owner = np.repeat(np.arange(len(mine)), [len(piece) for piece in pieces])[lengths > 0]
        lengths = lengths[lengths > 0]
        kept = np.unique(owner)
        documents = np.array([document for document, _ in mine], np.int64)
        arrays[f"{split}_tokens"] = tokens
        arrays[f"{split}_lengths"] = lengths
        arrays[f"{split}_documents"] = documents[owner]
        arrays[f"{split}_words"] = _words(tokens, lengths, tokenizer.continues)
        arrays[f"{split}_hashes"] = np.array([text_hash(mine[i][1]) for i in kept], np.uint64)
        arrays[f"{split}_owners"] = documents[kept]
        arrays[f"{split}_long"] = np.array([len(mine[i][1]) >= LONG for i in kept], bool)
        total += len(tokens)
    made = io.BytesIO()  # what lies at gs:// is written from front to back
    np.savez(made, **arrays)
    temporary = part.with_name(f"{part.stem}.{uuid.uuid4().hex}.tmp")
    temporary.write_bytes(made.getbuffer())
    temporary.replace(part)
    return total


def _encode(texts: list[str], tokenizer: tokenizers.Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of all texts, one after the other, and int64 (len(texts),) lengths."""
    dtype = token_dtype(tokenizer.vocab_size)
    tokens, lengths = [np.empty(0, dtype)], [np.empty(0, np.int64)]
    for start in range(0, len(texts), _BATCH):
        batch = tokenizer.encode_running(texts[start : start + _BATCH])
        lengths.append(np.fromiter(map(len, batch), np.int64, len(batch)))
        ids = itertools.chain.from_iterable(batch)
        tokens.append(np.fromiter(ids, dtype, int(lengths[-1].sum())))
    return np.concatenate(tokens), np.concatenate(lengths)


def _words(tokens: np.ndarray, lengths: np.ndarray, continues: np.ndarray) -> np.ndarray:
    """Returns int64 (2,): words, and words of several tokens. A sentence's first token begins one."""
    begins = ~continues[tokens]
    begins[np.cumsum(lengths) - lengths] = True
    goes_on = np.append(~begins[1:], False)[: len(begins)]
    return np.array([begins.sum(), (begins & goes_on).sum()], np.int64)


def write_parts(
    todo: Iterator[Block],
    tokenizer_directory: pathlib.Path,
    workers: int,
    done: Callable[[int, int], None],
) -> None:
    """Writes the parts of all blocks.

    Args:
      todo: the blocks; as many are held at a time as there are workers.
      tokenizer_directory: where the tokenizer lies.
      workers: processes; 1 works in this one.
      done: called after each block, one call at a time, with its characters and tokens.

    Raises:
      RuntimeError: a worker ended early.
    """
    if workers == 1:
        tokenizer = tokenizers.load(tokenizer_directory)
        for block in todo:
            done(block.characters, write_part(block.part, block.paragraphs, tokenizer))
        return
    lock = threading.Lock()
    started: list[subprocess.Popen[bytes]] = []

    def feed() -> None:
        worker = _start_worker(tokenizer_directory)
        started.append(worker)
        with worker:
            while True:
                with lock:
                    block = next(todo, None)
                if block is None:
                    return
                request = json.dumps({"part": str(block.part), "paragraphs": block.paragraphs}).encode()
                characters, block = block.characters, None  # the worker has the text: no need to hold it
                try:
                    worker.stdin.write(request + b"\n")
                    worker.stdin.flush()
                    request = b""
                    reply = worker.stdout.readline()
                except BrokenPipeError:
                    reply = b""
                if not reply:
                    raise RuntimeError(
                        f"a worker ended with exit status {worker.wait()} (above is what it said): run again "
                        "to go on from the finished parts, with fewer data.workers if memory ran out"
                    )
                with lock:
                    done(characters, int(reply))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        feeders = [pool.submit(feed) for _ in range(workers)]
        try:
            for feeder in concurrent.futures.as_completed(feeders):
                feeder.result()
        except BaseException:
            for worker in started:  # the other feeders then end too
                worker.kill()
            raise


def _start_worker(tokenizer_directory: pathlib.Path) -> subprocess.Popen[bytes]:
    package_root = str(pathlib.Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    # The processes are the parallel part: threads inside each would only get in each other's way.
    environment = os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "bert_jax.data.parts", str(tokenizer_directory)]
    # A session of its own: ^C reaches the feeding process alone, and its end is the workers' end.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    )


def _work(tokenizer_directory: str) -> None:
    """Answers each line of standard input, a block, by its number of tokens once the part is written."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    tokenizer = tokenizers.load(tokenizer_directory)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        print(
            write_part(pathlib.Path(request["part"]), request["paragraphs"], tokenizer),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    _work(sys.argv[1])
