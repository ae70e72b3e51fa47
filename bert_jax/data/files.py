"""Text files as streams: what a path names, and lines of plain or gzipped UTF-8, in constant memory."""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from etils import epath

_CHUNK = 1 << 18  # bytes read at a time
# Most bytes, unpacked, of a line, and of a file that is read whole: a small gzip file may hold any number.
LONGEST_LINE = 1 << 28
LARGEST_FILE = 1 << 31


class CorpusError(ValueError):
    """Text that cannot be read; the message names the file, the line where there is one, and the mend."""


def find(path: str, suffixes: tuple[str, ...], key: str) -> list[epath.Path]:
    """Returns the files that a path names, in a fixed order.

    Args:
      path: a file, a directory (searched at all depths for names that end in one of `suffixes`,
        gzipped or not) or a glob ("**" crosses directories); local or gs://.
      suffixes: lower-case endings such as ".txt".
      key: config key of the path, for messages.

    Raises:
      CorpusError: the path does not exist or names no file.
    """
    if not path:  # which is the current directory to pathlib
        raise CorpusError(f"{key} is empty: name a file, a directory or a glob")
    root = epath.Path(path).expanduser()
    if root.is_dir():
        endings = suffixes + tuple(f"{suffix}.gz" for suffix in suffixes)
        found = sorted(_walk(root, endings), key=os.fspath)
        if not found:
            raise CorpusError(f"{key} = {path!r}: no file in it ends in {', '.join(endings)}")
        return found
    if root.is_file():
        return [root]
    if re.search(r"[*?\[]", path):
        found = sorted((p for p in map(epath.Path, _glob(path)) if p.is_file()), key=os.fspath)
        if found:
            return found
        raise CorpusError(f"{key} = {path!r}: no file matches")
    raise CorpusError(f"{key} = {path!r}: there is no such file or directory")


def _walk(folder: epath.Path, endings: tuple[str, ...]) -> Iterator[epath.Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, endings)
        elif entry.name.lower().endswith(endings):
            yield entry


def _glob(pattern: str) -> list[str]:
    if "://" not in pattern:
        return glob.glob(os.path.expanduser(pattern), recursive=True)
    import tensorflow as tf  # takes seconds, and local paths do without

    return tf.io.gfile.glob(pattern)


def lines(path: epath.Path, longest: int | None = None) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text without its line feed) of each line of a UTF-8 file, gzipped or not.

    Args:
      path: the file; a name that ends in ".gz" is decompressed.
      longest: bytes after which a line is cut at white space, so that a file without line feeds
        does not fill the memory; the pieces have the same number. None: never.

    Raises:
      CorpusError: a file that is not UTF-8, or no whole gzip file, or a line of more than LONGEST_LINE bytes.
    """
    number, rest = 1, b""
    with _opened(path) as stream:
        held: list[bytes] = []  # of a line that goes on, joined once
        size = 0
        while chunk := stream.read(_CHUNK):
            if longest is None and b"\n" not in chunk:
                held.append(chunk)
                size += len(chunk)
                if size > LONGEST_LINE:
                    raise CorpusError(
                        f"{path}, line {number}: longer than {LONGEST_LINE} bytes: is it text, in lines?"
                    )
                continue
            chunk = b"".join([rest, *held, chunk])
            held, size = [], 0
            cut = chunk.rfind(b"\n") + 1
            if not cut and longest is not None and len(chunk) > longest:
                cut = chunk.rfind(b" ") + 1 or _character_border(chunk)
            rest = chunk[cut:]
            if cut:
                pieces = _decode(chunk[:cut], path, number).split("\n")
                if not pieces[-1]:
                    pieces.pop()
                for piece in pieces:
                    yield number, piece
                    number += 1
                if chunk[cut - 1] != 0x0A:  # the line goes on
                    number -= 1
        rest = b"".join([rest, *held])
    if rest:
        yield number, _decode(rest, path, number)


def whole(path: epath.Path) -> str:
    """Returns the text of a UTF-8 file, gzipped or not.

    Raises:
      CorpusError: it is not UTF-8, or no whole gzip file, or has more than LARGEST_FILE bytes.
    """
    with _opened(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise CorpusError(f"{path}: it has more than {LARGEST_FILE} bytes, and is read whole: split it")
    return _decode(data, path, 1)


@contextlib.contextmanager
def _opened(path: epath.Path) -> Iterator[BinaryIO]:
    """Opens a file, gzipped or not, and tells of one that is damaged."""
    try:
        with path.open("rb") as raw:
            yield gzip.GzipFile(fileobj=raw) if path.name.lower().endswith(".gz") else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: not a whole gzip file ({error})") from error


def _character_border(data: bytes) -> int:
    """Returns the start of the last character: a UTF-8 byte 10xxxxxx starts none."""
    last = len(data) - 1
    while last > len(data) - 4 and data[last] & 0xC0 == 0x80:
        last -= 1
    return last


def _decode(data: bytes, path: epath.Path, number: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        raise CorpusError(
            f"{path}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); convert the file to UTF-8"
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text
