"""The embedded corpus: the documentation that comes with every Python, read from the running one.

About 2 MB of English: the language reference's topics (`pydoc_data`, where the installation has
it) and the documentation strings of the standard library's modules, classes and functions. Source
files are parsed, never imported. It is a corpus to look with, not to build a model on.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pathlib
import platform
import re
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator

from absl import logging

from bert_jax.data.shards import cache_root

VERSION = 1  # of what is taken from the sources; part of the cached file's name

# Not documentation of the library: other people's packages, tests, demonstrations, vendored code.
_SKIPPED = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "lib2to3",
    "ensurepip",
}
_SKIPPED |= {"__pycache__", "lib-dynload", "__phello__", "antigravity.py", "this.py"}
_RULE = re.compile(r"^[ \t]*([-=*~^+#_.\"'`])\1{2,}[ \t]*$", re.MULTILINE)  # lines under headings


def embedded_file(cache_dir: str = "") -> pathlib.Path:
    """Returns a JSONL file of the embedded corpus: a topic or a module a line, under "text".

    It is made once per Python version and set of source files, in the cache (`shards.cache_root`).

    Raises:
      ValueError: this Python has no library sources to read.
    """
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    sources = list(_sources(library))
    listing = "\n".join(f"{path.relative_to(library)} {path.stat().st_size}" for path in sources)
    digest = hashlib.sha256(listing.encode()).hexdigest()[:12]
    target = cache_root(cache_dir) / f"embedded-{VERSION}-{platform.python_version()}-{digest}.jsonl"
    message = "embedded corpus of Python %s: a corpus to look with, not to build a model on"
    logging.log_first_n(logging.INFO, message, 1, platform.python_version())
    if target.is_file():
        return target
    if not sources:
        raise ValueError(
            f'data.source = "embedded": no Python sources in {library}; set data.source = "text"'
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            for path in sources:
                for text in _documents(path):
                    file.write(json.dumps({"text": text}) + "\n")
        os.replace(part, target)
    finally:
        pathlib.Path(part).unlink(missing_ok=True)
    return target


def _sources(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the library's source files in a fixed order."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name in _SKIPPED or path.name.startswith("config-"):
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py" and not path.name.startswith("_sysconfigdata"):
            yield path


def _documents(path: pathlib.Path) -> Iterator[str]:
    """Yields the texts of one source file: the topics of pydoc's table, or all its docstrings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # doubtful escapes in old sources are not ours to report
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    if path.name == "topics.py" and path.parent.name == "pydoc_data":
        tables = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        for table in (ast.literal_eval(node) for node in tables if isinstance(node, ast.Dict)):
            yield from (_RULE.sub("", text) for _, text in sorted(table.items()))
        return
    text = "\n\n".join(_docstrings(tree))
    if text:
        yield _RULE.sub("", text)


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Yields docstrings, dedented, in the order of the source."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text and text.strip():
            # JSON and UTF-8 files cannot hold the lone surrogates that some examples quote.
            yield text.encode("utf-8", "replace").decode("utf-8")
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _docstrings(child)
