"""The fine-tuning tasks that a config may name, and what must go together in their keys."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

GLUE = (
    "cola", "cola_original", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax",
)  # fmt: skip
SUPERGLUE = ("boolq", "cb", "copa", "multirc", "record", "superglue_rte", "wic", "wsc")
SUITES = ("glue", "superglue")  # all tasks of a benchmark, one after the other
# Tasks that read the user's own files, by the columns that are named.
OWN_DATA = ("classification", "pairs", "regression", "choice")
TAGGING = ("ner", "tagging")
ANSWERS = ("squad", "spans")
NAMES = (*SUITES, *GLUE, *SUPERGLUE, *OWN_DATA, *TAGGING, "relation", *ANSWERS, "seq2seq", "spelling")
TOKEN_HEADS = ("linear", "crf", "bilstm", "bilstm_crf")
RELATION_HEADS = ("entities", "pooled")


def rules(c: ConfigDict) -> list[tuple[Any, str]]:
    """Returns (whether a rule is broken, what is wrong) of each rule for fine-tuning."""
    m, d, name, head = c.model, c.data, c.task.name, c.task.head
    return [
        *(_of_own_data(c) if name in OWN_DATA else ()),
        *(_of_benchmarks(c) if name in (*SUITES, *GLUE, *SUPERGLUE) else ()),
        *(_of_tagging(c) if name in TAGGING else ()),
        *(_of_relations(c) if name == "relation" else ()),
        *(_of_answers(c) if name in ANSWERS else ()),
        *(_of_texts_to_texts(c) if name == "seq2seq" else ()),
        *(_of_spelling(c) if name == "spelling" else ()),
        (
            c.task.target and name not in ("seq2seq", "spelling"),
            f'task.target = "{c.task.target}" is for task.name = "seq2seq" or "spelling", not for "{name}"',
        ),
        (
            c.task.errors and name != "spelling",
            f'task.errors = "{c.task.errors}" is for task.name = "spelling", not for "{name}"',
        ),
        (
            head not in ("", *_heads(name)),
            f'task.head = "{head}": of task.name = "{name}" it must be '
            + (f"one of {', '.join(map(repr, _heads(name)))}" if _heads(name) else "left empty"),
        ),
        *(
            (
                pools
                and name in (*TAGGING, "relation", "wic", "wsc", *ANSWERS, "seq2seq", "spelling")
                and head != "pooled",
                f'{key} = "{c[key.partition(".")[0]].pooling}" makes one vector of a text, and task.name = '
                f'"{name}" reads none with this task.head: leave it out',
            )
            for key, pools in (
                ("model.pooling", m.pooling == "attention"),
                ("task.pooling", c.task.pooling),
            )
        ),
        (
            m.pooling == "attention" and c.task.pooling not in ("", "attention"),
            f'model.pooling = "attention" and task.pooling = "{c.task.pooling}": set one of them',
        ),
        (
            not d.path,
            f'task.name = "{name}" needs data.path: the folder of its files, or a TFDS name',
        ),
        (
            c.objective.distill.teacher,
            f"objective.distill.teacher = {c.objective.distill.teacher!r} is for pretraining: leave it empty "
            "for a task",
        ),
        (d.packing, "data.packing is for pretraining: set it to False for a task"),
        (
            c.train.vocabulary_parts > 1 and name not in ("seq2seq", "spelling"),
            f"train.vocabulary_parts = {c.train.vocabulary_parts} is of logits over the vocabulary, and "
            f'task.name = "{name}" makes none: set it to 1',
        ),
        (c.train.phases, "train.phases is for pretraining: set it to () for a task"),
        (d.mixture, "data.mixture is for pretraining: set it to () for a task"),
        (d.general_path, "data.general_path is for pretraining: leave it empty for a task"),
        (d.extend_vocab, "data.extend_vocab is for pretraining: set it to 0 for a task"),
        (
            c.task.see_self is not None and m.kind == "encoder" and not c.init_from,
            f'task.see_self = {c.task.see_self} is of T-TA: with model.kind = "encoder" every token sees '
            "itself; set it to None",
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
        _one_evaluation(c),
    ]


def _one_evaluation(c: ConfigDict) -> tuple[Any, str]:
    path, file = c.data.eval_path, c.task.eval_file
    return path and file, f"data.eval_path = {path!r} and task.eval_file = {file!r} are both set: set one"


def _heads(name: str) -> tuple[str, ...]:
    return TOKEN_HEADS if name in TAGGING else RELATION_HEADS if name == "relation" else ()


def _of_tagging(c: ConfigDict) -> list[tuple[Any, str]]:
    t, name = c.task, c.task.name
    return [
        *(
            (t[key], f'task.{key} is for other data: task.name = "{name}" reads one text')
            for key in ("text_pair", "choices")
        ),
        (
            name == "tagging" and t.scheme != "auto",
            f'task.scheme = "{t.scheme}" is of entities: task.name = "tagging" has tags without one',
        ),
        _one_evaluation(c),
        (
            t.token_column == t.tag_column,
            f"task.token_column and task.tag_column are both {t.tag_column}: words and tags are two columns",
        ),
        (len({*t.labels}) < len(t.labels), f"task.labels = {tuple(t.labels)}: each must be named once"),
    ]


def _of_relations(c: ConfigDict) -> list[tuple[Any, str]]:
    t = c.task
    return [
        *(
            (t[key], f'task.{key} is for other data: task.name = "relation" reads one text')
            for key in ("text_pair", "choices")
        ),
        _one_evaluation(c),
        (
            len(t.markers) != 4,
            f"task.markers = {tuple(t.markers)}: there must be four, before and after each of two entities",
        ),
        (len({*t.labels}) < len(t.labels), f"task.labels = {tuple(t.labels)}: each must be named once"),
    ]


def _of_answers(c: ConfigDict) -> list[tuple[Any, str]]:
    t, d = c.task, c.data
    ends = 4  # [CLS] and [SEP], of which RoBERTa's pairs have three
    return [
        *(
            (
                t[key] != ("answer_start" if key == "answer_start" else ""),
                f'task.{key} is for own data: task.name = "squad" knows its columns; take "spans"',
            )
            for key in (("text", "text_pair", "label", "answer_start") if t.name == "squad" else ())
        ),
        *(
            (t[key], f'task.{key} is for other data: task.name = "{t.name}" looks for parts of a text')
            for key in ("choices", "labels")
        ),
        _one_evaluation(c),
        (
            t.max_question + t.stride + ends > d.seq_len,
            f"task.max_question = {t.max_question}, task.stride = {t.stride} and {ends} tokens of the ends "
            f"are more than data.seq_len = {d.seq_len}: windows of a long context would have nothing in "
            "common; lower one of the first two",
        ),
    ]


def _of_texts_to_texts(c: ConfigDict) -> list[tuple[Any, str]]:
    t, m, room = c.task, c.model, c.data.seq_len - c.task.max_target
    return [
        *(
            (not t[key], f'task.name = "{t.name}" needs task.{key}, the column of the text that is {what}')
            for key, what in (("text", "read"), ("target", "to be written"))
        ),
        *(
            (t[key], f'task.{key} is for other data: task.name = "{t.name}" reads task.text and task.target')
            for key in ("text_pair", "choices", "label", "labels")
        ),
        _one_evaluation(c),
        (
            m.kind == "tta",
            f'model.kind = "tta" has another mask than task.name = "{t.name}", under which a text is read '
            'whole and its answer from left to right: set model.kind = "encoder"',
        ),
        (
            m.mask != "prefix",
            f'model.mask = "{m.mask}", and task.name = "{t.name}" writes from left to right after a source '
            'that is read whole: set model.mask = "prefix"',
        ),
        (
            m.attention != "dot",
            f'model.attention = "{m.attention}" has no keys to keep while an answer is written: set "dot"',
        ),
        (
            room < 8,
            f"data.seq_len = {c.data.seq_len} has room for {room} tokens beside task.max_target = "
            f"{t.max_target}, and a source needs 8: make data.seq_len longer, or task.max_target shorter",
        ),
    ]


def _of_spelling(c: ConfigDict) -> list[tuple[Any, str]]:
    t, m = c.task, c.model
    return [
        (not t.text, 'task.name = "spelling" needs task.text, the column of the text'),
        (
            not t.target and not t.errors,
            'task.name = "spelling" needs task.target, the column of the right text, or task.errors to be '
            "made in texts that are right",
        ),
        (
            t.target and t.errors,
            f'task.errors = "{t.errors}" are made in task.text, and task.target = "{t.target}" is not read: '
            "set one of them",
        ),
        *(
            (t[key], f'task.{key} is for other data: task.name = "spelling" reads task.text and task.target')
            for key in ("text_pair", "choices", "label", "labels")
        ),
        _one_evaluation(c),
        (
            m.mask != "full" or m.kind == "tta",
            f'model.mask = "{m.mask}", model.kind = "{m.kind}": what task.name = "spelling" corrects sees '
            'the whole text: set "full" and "encoder"',
        ),
    ]


def _of_benchmarks(c: ConfigDict) -> list[tuple[Any, str]]:
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
            c.task.name in SUITES and (c.task.train_file or c.task.eval_file),
            "task.train_file and task.eval_file are of one task, and "
            f'task.name = "{c.task.name}" runs all of them',
        ),
    ]
