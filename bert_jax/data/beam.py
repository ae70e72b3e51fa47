"""The preparation as pipelines of Apache Beam, on any of its runners: the same parts, from many machines.

The unit of work is a file of the text. A first pipeline reads each once: its digest, and how many documents
it has, which numbers the documents of the files after it, and by its number a document is held out. A second
one turns each file into parts (see `parts`), from which one process makes the shards (see `merge`). So does
one process train the tokenizer where none is given, or measure the documents whose tails are held out.

What all machines must see, the text and the folder of the parts, lies at gs:// or on a shared file system.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import os
import pathlib
import tempfile
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax.data import corpus, holdout, parts
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.corpus import CorpusError

_PLACES = ("cache_dir", "workers", "prefetch")  # keys of `data` that are of this machine


class Pipelines:
    """The pipelines of one preparation.

    Args:
      config: the whole config; its text lies in files.
      flags: of Beam's `PipelineOptions`, such as "--runner=FlinkRunner"; without one its local one is taken.
      folder: where the parts are kept until the shards are made.

    Raises:
      ValueError: Beam is not installed, has no such runner, or cannot read the flags.
    """

    def __init__(self, config: ConfigDict, flags: Sequence[str], folder: epath.Path) -> None:
        if importlib.util.find_spec("apache_beam") is None:
            raise ValueError(
                "--runner=beam needs Apache Beam, which is absent: pip install -r requirements-beam.txt"
            )
        if config.data.source == "tfds":
            raise ValueError(
                '--runner=beam shares out files, and data.source = "tfds" has none: leave --runner out'
            )
        self._config, self._folder = config, folder
        self._data = json.dumps({k: v for k, v in config.data.items() if k not in _PLACES})
        self._options = _options(flags)
        self._files: list[dict[str, Any]] = []

    def fingerprint(self) -> tuple[str, int]:
        """Reads the text a first time, and returns what `corpus.fingerprint` does.

        Raises:
          CorpusError: text that cannot be read.
        """
        named = corpus.files_of(self._config)
        files = [
            {"number": number, "key": key, "file": os.fspath(file)}
            for number, (key, file, _) in enumerate(named)
        ]
        logging.info("reading %d files by Apache Beam", len(files))
        self._files = self._run("look", files, functools.partial(_look, self._data))
        before = 0
        for file in self._files:
            file["before"] = before
            before += file["documents"]
        known = {file["file"]: (file["digest"], file["bytes"]) for file in self._files}
        return corpus.fingerprint(self._config, lambda file: known[os.fspath(file)])

    def write_parts(self, plan: str, tokenizer: pathlib.Path, block: int) -> tuple[list[epath.Path], int]:
        """Writes the parts of all files; those that an earlier run of the same plan wrote are kept.

        Args:
          plan: names all that the parts depend on; those of others are removed.
          tokenizer: where the tokenizer lies, on this machine.
          block: characters of a part.

        Returns:
          the parts, in the order of the text, and the number of tokens that were made now.

        Raises:
          CorpusError: text that cannot be read.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in self._folder.iterdir():
            if other.name != plan:
                other.rmtree() if other.is_dir() else other.unlink()
        held = {path.name: base64.b64encode(path.read_bytes()).decode() for path in tokenizer.iterdir()}
        folder = os.fspath(self._folder / plan)
        logging.info("tokenizing %d files by Apache Beam", len(self._files))
        write = functools.partial(_write, self._data, json.dumps(held), folder, block)
        found = self._run("write", self._files, write)
        paths = [
            parts.path_of(_folder_of(folder, file), number)
            for file in found
            for number in range(file["parts"])
        ]
        return paths, sum(file["tokens"] for file in found)

    def has_parts(self) -> bool:
        """Returns whether there are parts that a further run would keep."""
        return self._folder.exists() and any(self._folder.rglob("*.npz"))

    def remove(self) -> None:
        """Removes what is left of the parts."""
        if self._folder.exists():
            self._folder.rmtree()

    def _run(
        self, name: str, files: list[dict[str, Any]], work: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Returns what `work` makes of each file, in their order, by a pipeline."""
        import apache_beam as beam

        self._folder.mkdir(parents=True, exist_ok=True)
        result = self._folder / f"{name}-{uuid.uuid4().hex}"
        with beam.Pipeline(options=self._options) as pipeline:
            elements = pipeline | "files" >> beam.Create([json.dumps(file) for file in files])
            each = elements | "apart" >> beam.Reshuffle()  # else one worker would do all
            lines = each | name >> beam.Map(functools.partial(_told, work))
            # One file: what is told of each file is a line.
            _ = lines | "told" >> beam.io.WriteToText(os.fspath(result), num_shards=1, shard_name_template="")
        found = [json.loads(line) for line in result.read_text().splitlines()]
        result.unlink()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()
        found.sort(key=lambda file: file["number"])
        for file in found:
            if "error" in file:
                raise CorpusError(file["error"])
        return found


def _options(flags: Sequence[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners.runner import create_runner

    try:
        options = PipelineOptions(list(flags))
        standard = options.view_as(StandardOptions)
        # DirectRunner is this one too, unless it can fetch a program from the web.
        standard.runner = standard.runner or "FnApiRunner"
        create_runner(standard.runner)
    except SystemExit as error:  # argparse has said why
        raise ValueError(f"--beam_flags={' '.join(flags)}: Beam cannot read them") from error
    except (ValueError, ImportError) as error:
        raise ValueError(f"--beam_flags={' '.join(flags)}: {error}") from error
    return options


# What follows runs on the workers. Elements are JSON, and the functions are found by their names there.


def _told(work: Callable[[dict[str, Any]], dict[str, Any]], element: str) -> str:
    file = json.loads(element)
    try:
        return json.dumps(file | work(file))
    except CorpusError as error:  # to be told in one line, where the user is
        return json.dumps(file | {"error": str(error)})


def _look(data: str, file: dict[str, Any]) -> dict[str, Any]:
    """Returns the digest of a file's content, its bytes and its documents."""
    digest, size = corpus.digest_of(epath.Path(file["file"]))
    paragraphs = corpus.paragraphs_of(_config(data), file["key"], file["file"])
    return {"digest": digest, "bytes": size, "documents": sum(p.new_document for p in paragraphs)}


def _write(data: str, tokenizer: str, folder: str, block: int, file: dict[str, Any]) -> dict[str, int]:
    """Writes the parts of a file that are not there; returns how many it has, and the tokens made now."""
    own = _folder_of(folder, file)
    own.mkdir(parents=True, exist_ok=True)
    count = tokens = 0
    text = holdout.assigned_of(_config(data), file["key"], file["file"], file["before"])
    for one in parts.blocks(text, own, block):
        count += 1
        if not one.part.exists():
            tokens += parts.write_part(one.part, one.paragraphs, _tokenizer(tokenizer))
    return {"parts": count, "tokens": tokens}


def _folder_of(folder: str, file: dict[str, Any]) -> epath.Path:
    return epath.Path(folder) / f"{file['number']:07d}"


def _config(data: str) -> ConfigDict:
    return ConfigDict({"data": {"cache_dir": "", **json.loads(data)}})


@functools.lru_cache(maxsize=1)
def _tokenizer(held: str) -> tokenizers.Tokenizer:
    """Returns the tokenizer of files by name, as base64 in JSON."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in json.loads(held).items():
            (pathlib.Path(folder) / name).write_bytes(base64.b64decode(content))
        return tokenizers.load(folder)
