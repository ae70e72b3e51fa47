"""How long preparing text takes, by its size."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from etils import epath
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from bert_jax import cores
from bert_jax.benchmarks import charts
from bert_jax.data import corpus, prepare
from bert_jax.data import tokenizer as tokenizers
from bert_jax.flags import UsageError

CSV, PNG = "prepare.csv", "prepare.png"


def read_sizes(given: Sequence[str]) -> list[float]:
    """Returns the numbers of --sizes.

    Raises:
      UsageError: they are no numbers, or do not rise.
    """
    try:
        sizes = [float(size) for size in given]
    except ValueError:
        sizes = []
    if not sizes or not all(0 < a < b for a, b in itertools.pairwise([*sizes, math.inf])):
        raise UsageError(f"--sizes={','.join(given)}: it must be rising numbers above 0, such as 1,3,10")
    return sizes


def measure(config: ConfigDict, sizes: Sequence[float], folder: epath.PathLike) -> dict[str, Any]:
    """Prepares the beginning of a config's text in several lengths; writes the times as a table and a plot.

    Where the text is shorter it begins again. The tokenizer is the config's, or one trained on the first
    length, whose training is not counted.

    Args:
      config: `data` says which text.
      sizes: of the texts, in MB of UTF-8, rising.
      folder: for prepare.csv and prepare.png.

    Returns:
      JSON values: `workers`, and `points`, of each size `megabytes` (whole documents), `tokens`, `seconds`
      and `tokens_per_second`.
    """
    points: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        own = config.copy_and_resolve_references()
        own.data.update({"source": "jsonl", "text_key": "text", "eval_path": "", "extend_vocab": 0})
        tokenizer = None
        if own.data.tokenizer:
            tokenizer = tokenizers.load(own.data.tokenizer, own.data.lowercase, own.data.strip_accents)
        for number, size in enumerate(sizes):
            own.data.path = str(root / f"{number}.jsonl")
            written = _write(config, int(size * 1e6), pathlib.Path(own.data.path))
            if tokenizer is None:
                prepare.prepare(own, root / "first", progress=False)
                tokenizer = tokenizers.load(root / "first" / "tokenizer")
            began = time.perf_counter()
            counts = prepare.prepare(own, root / f"out{number}", tokenizer=tokenizer, progress=False)
            seconds = time.perf_counter() - began
            tokens = sum(counts[split]["tokens"] for split in ("train", "eval") if split in counts)
            points.append(
                {
                    "megabytes": written / 1e6,
                    "tokens": tokens,
                    "seconds": seconds,
                    "tokens_per_second": tokens / seconds,
                }
            )
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    charts.write_table(folder / CSV, points)
    _plot(points, folder / PNG)
    return {"what": "prepare", "workers": config.data.workers or len(cores.available()), "points": points}


def _write(config: ConfigDict, size: int, file: pathlib.Path) -> int:
    """Writes whole documents of the config's text until there are `size` bytes; returns how many."""
    written, held = 0, []
    with file.open("w") as out:

        def end_document() -> int:
            line = json.dumps({"text": "\n\n".join(held)}) + "\n"
            out.write(line)
            return sum(len(paragraph.encode()) + 2 for paragraph in held)

        while written < size:
            for paragraph in corpus.paragraphs(config):
                if paragraph.new_document and held:
                    written += end_document()
                    held.clear()
                    if written >= size:
                        return written
                held.append(paragraph.text)
            written += end_document()
            held.clear()
    return written


def _plot(points: Sequence[dict[str, float]], file: epath.Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    axis.plot([point["megabytes"] for point in points], [point["seconds"] for point in points], marker="o")
    axis.set(xlabel="text (MB)", ylabel="seconds", title="preparation")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    charts.write_figure(file, figure)
