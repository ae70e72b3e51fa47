"""A layer's attention as a picture for papers and slides."""

from __future__ import annotations

import io
import math

from etils import epath
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bert_jax import workdir
from bert_jax.visual.reading import Reading

_NAMED = 40  # most tokens whose names are written beside the rows and columns


def draw(reading: Reading, path: epath.PathLike, layer: int, head: int = -1) -> None:
    """Writes a PNG of the heads of a layer, rows reading columns.

    Args:
      reading: of `reading.read`.
      path: the file; it appears when it is whole.
      layer: from 0.
      head: from 0; -1 draws all of them.
    """
    heads = range(reading.weights.shape[1]) if head < 0 else [head]
    columns = math.ceil(math.sqrt(len(heads)))
    rows = math.ceil(len(heads) / columns)
    size = max(2.4, min(6.0, 0.24 * len(reading.tokens)))
    figure = Figure(figsize=(columns * size, rows * size), layout="constrained")
    FigureCanvasAgg(figure)
    # A dollar sign would begin a formula.
    names = [token.replace("$", r"\$") for token in reading.tokens]
    for place, number in enumerate(heads):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(reading.weights[layer, number], cmap="Oranges", vmin=0.0, vmax=1.0)
        axes.set_title(f"layer {layer + 1}, head {number + 1}", fontsize=9)
        named = len(names) <= _NAMED
        axes.set_xticks(range(len(names)) if named else [], names if named else [], rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)) if named else [], names if named else [], fontsize=7)
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=150)
    workdir.write(path, made.getvalue())
