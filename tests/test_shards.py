"""The shard format: what is written is read back, over shard borders; damage is refused by name."""

import json
import pathlib

import numpy as np
import pytest

from bert_jax.data import shard_writer, shards


def _write(directory: pathlib.Path, vocab_size: int = 100, shard_tokens: int = 4) -> None:
    writer = shard_writer.SplitWriter(directory, "train", vocab_size, shard_tokens)
    writer.append(np.array([5, 6, 7]), np.array([2, 1]), np.array([0, 0]))
    writer.append(np.array([], int), np.array([], int), np.array([], int))
    writer.append(np.array([8, 9, 5, 11, 12, 99]), np.array([1, 2, 3]), np.array([0, 2, 3]))
    splits = {"train": writer.close()}
    shard_writer.write_index(
        directory, tokenizer="abc", vocab_size=vocab_size, splits=splits, counts={"a": 1}
    )


def test_what_was_written_is_read(tmp_path: pathlib.Path) -> None:
    _write(tmp_path)
    split = shards.open(tmp_path, "train")
    assert (split.num_tokens, split.num_sentences, split.num_documents) == (9, 5, 3)
    np.testing.assert_array_equal(split.sentences, [0, 2, 3, 4, 6, 9])
    np.testing.assert_array_equal(split.documents, [0, 3, 4, 5])
    assert split.sentences.dtype == split.documents.dtype == split.unigram.dtype == np.int64
    np.testing.assert_array_equal(split.unigram, np.bincount([5, 6, 7, 8, 9, 5, 11, 12, 99], minlength=100))
    tokens = np.array([5, 6, 7, 8, 9, 5, 11, 12, 99])
    assert len(list(tmp_path.glob("*.tokens.npy"))) == 3
    for start in range(10):
        for stop in range(start, 10):
            got = split.read(start, stop)
            assert got.dtype == np.int32
            np.testing.assert_array_equal(got, tokens[start:stop])
    with pytest.raises(IndexError, match=r"\[3, 10\) of a split of 9"):
        split.read(3, 10)
    assert shards.read_index(tmp_path)["counts"] == {"a": 1}


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_ids_fit_their_type(tmp_path: pathlib.Path, vocab_size: int, dtype: str) -> None:
    writer = shard_writer.SplitWriter(tmp_path, "train", vocab_size)
    top = vocab_size - 1
    writer.append(np.array([0, top]), np.array([2]), np.array([0]))
    shard_writer.write_index(
        tmp_path, tokenizer="", vocab_size=vocab_size, splits={"train": writer.close()}, counts={}
    )
    assert np.load(tmp_path / "train-00000.tokens.npy").dtype == dtype
    np.testing.assert_array_equal(shards.open(tmp_path, "train").read(0, 2), [0, top])


def test_damage_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    def damaged(name: str, content: bytes) -> None:
        path = tmp_path / name
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(shards.ShardError, match=name):
            shards.open(tmp_path, "train").read(0, 9)
        path.write_bytes(whole)

    _write(tmp_path)
    for path in sorted(tmp_path.glob("*.npy")):
        whole = path.read_bytes()
        damaged(path.name, whole[:-1])
        damaged(path.name, b"")
        damaged(path.name, whole[:-1] + bytes([whole[-1] ^ 1]))
    damaged("shards.json", b'{"format": 1')
    damaged("shards.json", b'{"format": 1}')
    (tmp_path / "train-00001.tokens.npy").unlink()
    with pytest.raises(shards.ShardError, match="train-00001"):
        shards.open(tmp_path, "train")


def test_another_version_and_a_missing_split_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(shards.ShardError, match="no shard directory"):
        shards.open(tmp_path, "train")
    _write(tmp_path)
    with pytest.raises(shards.ShardError, match="no eval split"):
        shards.open(tmp_path, "eval")
    index = json.loads((tmp_path / "shards.json").read_text())
    (tmp_path / "shards.json").write_text(json.dumps(index | {"format": 2}))
    with pytest.raises(shards.ShardError, match="format 2; this version reads format 1"):
        shards.open(tmp_path, "train")


def test_a_remote_directory_is_mirrored_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = tmp_path / "remote"
    (remote / "tokenizer").mkdir(parents=True)
    (remote / "tokenizer" / "vocab.txt").write_text("[PAD]\n")
    _write(remote)
    reads: list[str] = []

    class Address:
        """Stands for a path at gs://: an address that is no local path, with epath's reading methods."""

        def __init__(self, path: pathlib.Path) -> None:
            self._path, self.name, self.is_dir = path, path.name, path.is_dir

        def __fspath__(self) -> str:
            return f"gs://bucket{self._path}"

        __str__ = __fspath__

        def __truediv__(self, name: str) -> "Address":
            return Address(self._path / name)

        def expanduser(self) -> "Address":
            return self

        def iterdir(self) -> list["Address"]:
            return [Address(p) for p in self._path.iterdir()]

        def open(self, mode: str) -> object:
            reads.append(self.name)
            return self._path.open(mode)

        def read_text(self) -> str:
            return self._path.read_text()

    monkeypatch.setattr(
        shards.epath,
        "Path",
        lambda p: Address(remote) if os_path(p) == "gs://bucket/text" else pathlib.Path(p),
    )

    def os_path(path: object) -> str:
        return path if isinstance(path, str) else ""

    real = shards.read_index

    def read_index(path: object) -> dict:
        return json.loads((remote / "shards.json").read_text()) if isinstance(path, Address) else real(path)

    monkeypatch.setattr(shards, "read_index", read_index)
    local = shards.mirror("gs://bucket/text", str(tmp_path / "cache"))
    assert {p.name for p in local.iterdir()} == {p.name for p in remote.iterdir()}
    assert (local / "tokenizer" / "vocab.txt").read_text() == "[PAD]\n"
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [local.name]
    copied = len(reads)
    split = shards.open("gs://bucket/text", "train", str(tmp_path / "cache"))
    np.testing.assert_array_equal(split.read(2, 5), [7, 8, 9])
    assert len(reads) == copied


def test_a_file_that_is_written_to_is_no_longer_read(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, shard_tokens=100)
    split, file = shards.open(tmp_path, "train"), tmp_path / "train-00000.tokens.npy"
    want = split.read(0, 9)
    good = file.read_bytes()
    copy = tmp_path / "copy"
    copy.write_bytes(good[:-2] + bytes(2))
    copy.replace(file)  # another file under its name: what is open is the old one
    np.testing.assert_array_equal(split.read(0, 9), want)
    file.unlink()
    np.testing.assert_array_equal(split.read(0, 9), want)

    file.write_bytes(good)
    split = shards.open(tmp_path, "train")
    split.read(0, 9)
    with file.open("r+b") as stream:
        stream.truncate(len(good) - 4)  # to touch what was there would be the end of the process
    with pytest.raises(shards.ShardError, match=r"train-00000\.tokens\.npy was changed while it is read"):
        split.read(0, 9)
