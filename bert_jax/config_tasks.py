"""The fine-tuning tasks that a config may name, and what must go together in their keys."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

GLUE = (
    "cola", "cola_original", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax",
)  # fmt: skip
# Tasks that read the user's own files, by the columns that are named.
OWN_DATA = ("classification", "pairs", "regression", "choice")
NAMES = ("glue", *GLUE, *OWN_DATA)


def rules(c: ConfigDict) -> list[tuple[Any, str]]:
    """Returns (whether a rule is broken, what is wrong) of each rule for fine-tuning."""
    m, d, name = c.model, c.data, c.task.name
    return [
        *(_of_own_data(c) if name in OWN_DATA else ()),
        *(_of_glue(c) if name in ("glue", *GLUE) else ()),
        (
            not d.path,
            f'task.name = "{name}" needs data.path: the folder of its TSV files, or a TFDS name',
        ),
        (d.packing, "data.packing is for pretraining: set it to False for a task"),
        (c.train.phases, "train.phases is for pretraining: set it to () for a task"),
        (d.mixture, "data.mixture is for pretraining: set it to () for a task"),
        (d.general_path, "data.general_path is for pretraining: leave it empty for a task"),
        (d.extend_vocab, "data.extend_vocab is for pretraining: set it to 0 for a task"),
        (
            m.kind == "tta",
            'model.kind = "tta" has no [CLS] that sees the sentence: fine-tune with model.kind = "encoder"',
        ),
    ]


def _of_own_data(c: ConfigDict) -> list[tuple[Any, str]]:
    t, name = c.task, c.task.name
    return [
        (not t.label, f'task.name = "{name}" needs task.label, the column of what is right'),
        (
            not t.text and name != "choice",
            f'task.name = "{name}" needs task.text, the column of the text',
        ),
        (
            name == "pairs" and not t.text_pair,
            'task.name = "pairs" needs task.text_pair, the second text\'s column',
        ),
        (
            t.text_pair and name in ("classification", "choice"),
            f'task.text_pair = "{t.text_pair}" is for task.name = "pairs" or "regression"',
        ),
        (
            len(t.choices) < 2 if name == "choice" else t.choices,
            f"task.choices = {tuple(t.choices)}: a choice needs at least two columns, other tasks none",
        ),
        (
            t.labels and name == "regression",
            f"task.labels = {tuple(t.labels)}: a regression has numbers, not classes",
        ),
        (len({*t.labels}) < len(t.labels), f"task.labels = {tuple(t.labels)}: each must be named once"),
        (
            t.labels and name == "choice" and len(t.labels) != len(t.choices),
            f"task.labels = {tuple(t.labels)}: there must be one for each of task.choices, "
            f"{tuple(t.choices)}",
        ),
        (
            (d := c.data).eval_path and t.eval_file,
            f"data.eval_path = {d.eval_path!r} and task.eval_file = {t.eval_file!r} are both set: set one",
        ),
    ]


def _of_glue(c: ConfigDict) -> list[tuple[Any, str]]:
    return [
        *(
            (c.task[key], f'task.{key} is for own data: task.name = "{c.task.name}" knows its columns')
            for key in ("text", "text_pair", "label", "choices", "labels")
        ),
        (
            c.data.eval_path,
            f'data.eval_path = {c.data.eval_path!r}: task.name = "{c.task.name}" has its evaluation in '
            "data.path; another file of it is task.eval_file",
        ),
        (
            c.task.name == "glue" and (c.task.train_file or c.task.eval_file),
            'task.train_file and task.eval_file are of one task, and task.name = "glue" runs all of them',
        ),
    ]
