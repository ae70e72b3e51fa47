"""GLUE's data: the files that it distributes, CoLA's original ones, and TFDS's.

Files are tab-separated, without quoting, UTF-8. Their columns are found by the names in the first line
(CoLA's have none: source, label, the author's mark, sentence). QQP's training file has broken lines, which
are left out and counted, and empty questions, which stay; elsewhere both are refused. In a test, whose labels
nobody has, a text may be empty everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax.tasks import TaskDataError, tables
from bert_jax.tasks.glue_benchmarks import Benchmark
from bert_jax.tasks.sequence import Split

# The diagnostic set: without labels as GLUE's test, and with them as its authors give it.
_AX_TEST, _AX_FULL = "diagnostic.tsv", "diagnostic-full.tsv"
_AX_COLUMNS, _AX_LABEL = ("Premise", "Hypothesis"), "Label"


def of_folder(benchmark: Benchmark, folder: epath.Path, config: ConfigDict) -> dict[str, Any]:
    """Returns `train`, `evals` and `tests` of a folder, as `Glue` takes them.

    Raises:
      ValueError: a file is missing or cannot be read.
    """
    files = {name: folder / file for name, (file, _) in benchmark.evals.items()}
    if config.task.eval_file:
        files["eval"] = folder / config.task.eval_file
    train = _labelled(benchmark, folder / (config.task.train_file or "train.tsv"))
    evals = {name: _labelled(benchmark, file) for name, file in files.items()}
    tests = {name: folder / file for name, (file, _) in benchmark.tests.items()}
    if benchmark.folder == "MNLI":
        labelled, test = (_diagnostic(folder, file) for file in (_AX_FULL, _AX_TEST))
        if test is not None:
            tests["ax_test"] = test
        if labelled is not None:
            own_columns = dataclasses.replace(benchmark, columns=_AX_COLUMNS, label=_AX_LABEL)
            evals["ax"] = _labelled(own_columns, labelled)
        elif config.task.name == "ax":
            raise TaskDataError(
                f"{folder / _AX_FULL} is not there, nor in AX or diagnostic beside its folder: it has the "
                "labels that the diagnostic set is judged by"
            )
        if config.task.name == "ax":
            evals = {"eval": evals.pop("ax"), "matched": evals.pop("eval"), **evals}
    return {"train": train, "evals": evals, "tests": _unlabelled(benchmark, tests)}


def _diagnostic(folder: epath.Path, file: str) -> epath.Path | None:
    """Returns where a file of the diagnostic set lies: in MNLI's folder, or in its own beside it."""
    places = (folder, folder.parent / "AX", folder.parent / "diagnostic")
    return next((place / file for place in places if (place / file).is_file()), None)


def original_cola(benchmark: Benchmark, folder: epath.Path, config: ConfigDict) -> dict[str, Any]:
    """Returns the same of CoLA as its authors give it; `glue.make` says where the files may lie."""
    inside = next((folder / p for p in ("original/raw", "raw") if (folder / p).is_dir()), folder)
    train = inside / (config.task.train_file or "in_domain_train.tsv")
    if not train.is_file() and not config.task.train_file:
        glue = [p / "train.tsv" for p in (folder, folder.parent, folder.parent.parent)]
        found = next((file for file in glue if file.is_file()), None)
        if found is not None:
            logging.info("%s is not there: training on %s, GLUE's copy of it", train, found)
            train = found
    own = inside / (config.task.eval_file or "in_domain_dev.tsv")
    other = inside / "out_of_domain_dev.tsv"
    evals = {"eval": _labelled(benchmark, own), "out_of_domain": _labelled(benchmark, other)}
    return {"train": _labelled(benchmark, train), "evals": evals}


def _labelled(benchmark: Benchmark, file: epath.Path) -> Split:
    if not file.is_file():
        raise TaskDataError(
            f"{file} is not there: data.path needs the training and development files of GLUE's "
            f"{benchmark.folder}"
        )
    wanted = (*benchmark.columns, benchmark.label)
    rows = tables.tsv(file, wanted, benchmark.header, benchmark.drops)
    return _split(benchmark, rows, benchmark.columns, str(file), lambda row: _code(benchmark, row))


def _unlabelled(benchmark: Benchmark, tests: Mapping[str, epath.Path]) -> dict[str, Split]:
    """Returns the tests whose files are there; nothing of them is refused but a broken line."""
    found = {}
    for name, file in tests.items():
        if file.is_file():
            rows = list(tables.tsv(file, benchmark.columns))
            split = _split(benchmark, rows, benchmark.columns, str(file), None)
            called = next((key for key in ("index", "id") if key in rows[0].values), None)
            index = None if called is None else [row.values[called] for row in rows]
            found[name] = dataclasses.replace(split, index=index)
    return found


def of_tfds(benchmark: Benchmark, data: tables.Tfds) -> dict[str, Any]:
    """Returns the same of a TFDS dataset; labels of -1, as tests have them, are none."""
    features = benchmark.features or benchmark.columns
    columns = (*features, "label")

    def split(name: str, labelled: bool = True) -> Split:
        rows = data.rows(name, columns)
        made = _split(benchmark, rows, features, f"{data.name}, {name}", _class if labelled else None)
        return dataclasses.replace(made, index=[row.values["idx"] for row in rows])

    def _class(row: tables.Row) -> float:
        if not benchmark.names:
            return _score(row, "label")
        number = int(row.values["label"])
        if not 0 <= number < len(benchmark.names):
            raise TaskDataError(f"{row.where}: label {number}: it must be {_choices(benchmark, range(9))}")
        return number

    said = data.classes("label") if "label" in data.features else None
    if said is not None and tuple(said) != benchmark.names:
        raise TaskDataError(
            f"data.path = {data.name!r}: its classes are {', '.join(said)}: those of GLUE's "
            f"{benchmark.folder} are {', '.join(benchmark.names)}"
        )
    return {
        "train": split("train"),
        "evals": {name: split(its) for name, (_, its) in benchmark.evals.items()},
        "tests": {n: split(its, False) for n, (_, its) in benchmark.tests.items() if its in data.splits},
    }


def _split(
    benchmark: Benchmark,
    rows: Iterable[tables.Row],
    columns: Sequence[str],
    origin: str,
    label: Callable[[tables.Row], float] | None,
) -> Split:
    """Returns the texts of rows, and their labels where `label` reads them."""
    texts: list[list[str]] = [[] for _ in columns]
    labels: list[float] = []
    for row in rows:
        if label is not None:
            labels.append(label(row))
        for column, into in zip(columns, texts, strict=True):
            into.append(tables.text(row, column, empty=label is None or benchmark.drops))
    if not texts[0]:
        raise TaskDataError(f"{origin} has no example")
    return Split(texts[0], texts[1] if len(texts) > 1 else None, None if label is None else labels)


def _code(benchmark: Benchmark, row: tables.Row) -> float:
    """Returns the number of a row's class, or its score."""
    value = row.values[benchmark.label]
    if not benchmark.names:
        return _score(row, benchmark.label)
    if value not in benchmark.codes:
        raise TaskDataError(
            f"{row.where}: label {value!r}: it must be {_choices(benchmark, benchmark.codes)}"
        )
    return benchmark.codes.index(value)


def _score(row: tables.Row, column: str) -> float:
    score = tables.number(row, column)
    if not 0 <= score <= 5:
        raise TaskDataError(f"{row.where}: {column} {score:g}: it must lie between 0 and 5")
    return score


def _choices(benchmark: Benchmark, codes: Iterable[Any]) -> str:
    """Returns "0 (negative) or 1 (positive)"."""
    shown = [
        str(code) if code == name else f"{code} ({name})"
        for code, name in zip(codes, benchmark.names, strict=False)
    ]
    return f"{', '.join(shown[:-1])} or {shown[-1]}"
