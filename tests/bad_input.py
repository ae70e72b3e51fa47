"""Tables of bad input: what is wrong, the command that is given it, and the one line that it must say.

A case writes its files into a folder of its own, some of them a copy of something good with one thing
changed, and runs a command there. `World` has what is good.
"""

import dataclasses
import gzip
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import commands
import small
import tiny_models
from etils import epath

from bert_jax import config as config_lib
from bert_jax import convert
from bert_jax.data import prepare
from bert_jax.interop import native

Change = Callable[[bytes], bytes]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "run", "##s", "a", "b"]


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link."""

    to: str


@dataclasses.dataclass(frozen=True)
class Case:
    """Something that a user may do wrong.

    Attributes:
      name: what is wrong.
      command: the command and its arguments, the folder of what is good written as {w}.
      says: what the line says; {w} as in `command`.
      base: (from, to): what is copied, of what is good, before the files are written.
      files: contents by name: texts, bytes, what is made of the bytes that are there, a link, None for
        what is taken away, () for an empty folder.
    """

    name: str
    command: str | tuple[str, ...]
    says: str
    files: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base: tuple[str, str] | None = None

    def words(self, world: pathlib.Path) -> list[str]:
        words = self.command.split() if isinstance(self.command, str) else list(self.command)
        return [word.replace("{w}", str(world)) for word in words]


def make_world(folder: pathlib.Path) -> pathlib.Path:
    """Makes what is good: a config, text, shards, and models in each form."""
    config = small.config(folder, **{"data.vocab_size": 100})
    small.write(config, folder / "good.py")
    prepare.prepare(config, folder / "shards", progress=False)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "lines.txt").write_text("the cat sat\na dog runs\n")
    made = folder / "vocabulary"
    made.mkdir()
    tokenizer = tiny_models.tokenizer(made)
    models = {
        "mlm": tiny_models.source(tokenizer, heads={"has_mlm": True, "has_pooler": True}),
        "tta": tiny_models.source(tokenizer, kind="tta", heads={"has_mlm": True}),
        "encoder": tiny_models.source(tokenizer, heads={"has_mlm": False}),
        "answers": tiny_models.source(tokenizer, heads={"has_span": True}),
    }
    for name, source in models.items():
        native.write(
            epath.Path(folder / name), source.spec, source.params, source.tokenizer, source.labels, {}
        )
    convert.convert(models["mlm"], epath.Path(made), folder / "hf", "hf")
    tiny_models.save(folder / "run", models["mlm"])
    (folder / "run" / "config.json").write_text(config_lib.to_json(config))
    return folder


def refused(case: Case, world: pathlib.Path, folder: pathlib.Path) -> None:
    """Asserts that a case is refused as the table says, and leaves nothing behind."""
    if case.base:
        shutil.copytree(world / case.base[0], folder / case.base[1])
    for name, content in case.files.items():
        _write(folder / name, content)
    before = _there(folder)
    result = commands.run(*case.words(world), folder=folder)
    assert result.code == 2, (result.code, result.err[-1000:])
    assert "Traceback" not in result.err
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and result.err.endswith(errors[0] + "\n"), result.err[-2000:]
    assert case.says.replace("{w}", str(world)) in errors[0], errors[0]
    assert len(errors[0]) < 1000, errors[0]
    assert not result.out, result.out[:1000]
    assert _there(folder) == before


def _there(folder: pathlib.Path) -> dict[str, int]:
    """Names and sizes of all that is in a folder."""
    return {
        str(p.relative_to(folder)): p.lstat().st_size
        for p in folder.rglob("*")
        if p.is_symlink() or p.is_file()
    }


def _write(file: pathlib.Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    elif content == ():
        file.mkdir()
    elif isinstance(content, Link):
        file.unlink(missing_ok=True)
        file.symlink_to(content.to)
    elif isinstance(content, str | bytes):
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        file.write_bytes(content(file.read_bytes()))


def cut(share: float) -> Change:
    """The first part of a file."""
    return lambda data: data[: int(len(data) * share)]


def with_json(**changes: Any) -> Change:
    """A JSON object with other values; of None, without them."""

    def change(data: bytes) -> bytes:
        made = {**json.loads(data), **changes}
        return json.dumps({key: value for key, value in made.items() if value is not None}).encode()

    return change


def with_value(*path: Any, value: Any) -> Change:
    """A JSON object in which one place has another value."""

    def change(data: bytes) -> bytes:
        whole = json.loads(data)
        part = whole
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        return json.dumps(whole).encode()

    return change


def gz(text: str) -> bytes:
    return gzip.compress(text.encode())


def flipped(at: int) -> Change:
    """A file with one bit changed, of a byte that is counted from its end."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[len(data) + at + 1 :]
