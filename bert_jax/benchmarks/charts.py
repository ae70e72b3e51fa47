"""Tables and plots of measurements, each written whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.figure import Figure

from bert_jax import workdir as workdir_lib


def write_table(file: epath.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes CSV, the columns being those of the first row."""
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    workdir_lib.write(file, text.getvalue())


def write_figure(file: epath.Path, figure: Figure) -> None:
    """Writes a PNG."""
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=120)
    workdir_lib.write(file, made.getvalue())
