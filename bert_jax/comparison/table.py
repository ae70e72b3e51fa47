"""The table of a comparison: a row for each run as CSV, and for each model, over its seeds, as Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from bert_jax import workdir as workdir_lib
from bert_jax.comparison.curves import Point
from bert_jax.comparison.evaluation import Values
from bert_jax.comparison.plan import Planned

CSV, MARKDOWN = "table.csv", "table.md"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: its name in the CSV file, its title and the form of its numbers in Markdown."""

    name: str
    title: str
    form: str
    scale: float = 1.0


MODEL = ("model", "layers", "positions", "first_query")
COLUMNS = (
    Column("parameters", "parameters", ",.0f"),
    Column("updates", "updates", ",.0f"),
    Column("tokens", "tokens seen", ",.0f"),
    Column("training_seconds", "training, s", ",.0f"),
    Column("heldout_loss", "held-out loss", ".3f"),
    Column("unigram_cross_entropy", "unigram", ".3f"),
    Column("pseudo_perplexity", "pseudo-perplexity", ".4g"),
    Column("perplexity", "perplexity", ".4g"),
    Column("blimp_accuracy", "BLiMP, %", ".1f", 100.0),
    Column("stsb_pearson", "STS-B, Pearson x 100", ".1f", 100.0),
    Column("bleu_first_best", "BLEU, first best", ".2f"),
    Column("bleu_reranked", "BLEU, re-ranked", ".2f"),
    Column("weight", "weight", ".2f"),
    Column("bleu_oracle", "BLEU, oracle", ".2f"),
    Column("sentences_per_second", "sentences/s scored", ",.0f"),
)
_NOTES = (
    "Held-out loss is of each model's own objective, in nats, with the best guess without context (unigram) "
    "beside it. It, pseudo-perplexity (T-TA, masked) and perplexity (left to right) are different quantities "
    "for different objectives: compare each only down its column, and losses only within an objective.",
    "(Pseudo-)perplexity and speed are of {sentences} sentences of the held-out text, the same for all. "
    "Seconds of training leave out compilation, evaluation and saving.",
)
_LEFT_OUT = {
    "blimp_accuracy": "BLiMP (--blimp)",
    "stsb_pearson": "STS-B (--stsb)",
    "bleu_reranked": "re-ranking (--nbest)",
}


def rows(
    planned: Sequence[Planned], points: dict[str, list[Point]], found: dict[str, Values]
) -> list[dict[str, Any]]:
    """Returns a row for each run.

    Args:
      planned: the runs.
      points: of each one's curve, by name.
      found: what its evaluation found, by name.
    """
    made = []
    for run in planned:
        result = workdir_lib.read_result(run.workdir) or {}
        last = points[run.name][-1]
        made.append(
            {
                "model": run.variant,
                "layers": run.layers,
                "positions": run.config.model.position,
                "first_query": run.config.model.tta_query if run.method == "tta" else "",
                "seed": run.seed,
                "updates": result["steps"],
                "tokens": last.tokens,
                "training_seconds": last.seconds,
                "heldout_loss": result["loss"],
                "unigram_cross_entropy": result["unigram_cross_entropy"],
                **found[run.name],
            }
        )
        if run.method == "tta" and run.config.model.position == "rotary":
            made[-1]["first_query"] = "mask_token"  # whatever the config asks for: there is no position
    return made


def write(made: list[dict[str, Any]], root: pathlib.Path, sentences: int) -> str:
    """Writes table.csv and table.md, and returns the latter."""
    columns = [column for column in COLUMNS if any(column.name in row for row in made)]
    text = io.StringIO()
    lines = csv.DictWriter(
        text, [*MODEL, "seed", *(c.name for c in columns)], extrasaction="ignore", lineterminator="\n"
    )
    lines.writeheader()
    lines.writerows(made)
    workdir_lib.write(root / CSV, text.getvalue())
    markdown = _markdown(made, columns, sentences)
    workdir_lib.write(root / MARKDOWN, markdown)
    return markdown


def _markdown(made: list[dict[str, Any]], columns: list[Column], sentences: int) -> str:
    titles = [*(name.replace("_", " ") for name in MODEL), *(column.title for column in columns)]
    lines = [_line(titles), _line(["---"] * len(MODEL) + ["---:"] * len(columns))]
    models = list(dict.fromkeys(tuple(row[name] for name in MODEL) for row in made))
    for model in models:
        some = [row for row in made if tuple(row[name] for name in MODEL) == model]
        cells = [_cell([row[c.name] for row in some if c.name in row], c) for c in columns]
        lines.append(_line([*map(str, model), *cells]))
    seeds = len({row["seed"] for row in made})
    notes = [_NOTES[0], _NOTES[1].format(sentences=sentences)]
    if seeds > 1:
        notes.append(f"Mean and deviation over {seeds} seeds.")
    absent = [name for column, name in _LEFT_OUT.items() if all(column not in row for row in made)]
    if absent:
        notes.append(f"Not given, and so left out: {', '.join(absent)}.")
    return "\n".join(lines) + "\n\n" + "\n\n".join(notes) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(values: list[float], column: Column) -> str:
    if not values:
        return ""
    scaled = [column.scale * value for value in values]
    mean = format(statistics.mean(scaled), column.form)
    if len(scaled) < 2 or min(scaled) == max(scaled):
        return mean
    return f"{mean} ± {format(statistics.stdev(scaled), column.form)}"
