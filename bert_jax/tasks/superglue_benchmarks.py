"""What SuperGLUE's tasks are: classes, fields, files, metrics (Wang et al. 2019)."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A task of SuperGLUE.

    Attributes:
      folder: SuperGLUE's name of it: that of its folder and of its submission.
      names: of the classes or choices, in the order of their numbers in TFDS.
      codes: what the files write for each, and a submission too.
      fields: of an example, once files and TFDS are brought to one form (`superglue_files.flat`).
      metric: what it is judged by.
      tfds: its name in TFDS's super_glue.
      inside: fields of a line of its files, where the others lie inside these.
    """

    folder: str
    names: tuple[str, ...]
    codes: tuple[Any, ...]
    fields: tuple[str, ...]
    metric: str = "accuracy"
    tfds: str = ""
    inside: tuple[str, ...] = ()


_BOOLEAN = ("false", "true"), (False, True)
_ENTAILMENT = ("entailment", "not_entailment"), ("entailment", "not_entailment")
_CB = ("entailment", "contradiction", "neutral")
_CHOICES = ("choice1", "choice2")
_NLI = ("premise", "hypothesis")
BENCHMARKS = {
    "boolq": Benchmark("BoolQ", *_BOOLEAN, ("passage", "question"), tfds="boolq"),
    "cb": Benchmark("CB", _CB, _CB, _NLI, "f1_accuracy", tfds="cb"),
    "copa": Benchmark("COPA", _CHOICES, (0, 1), ("premise", "question", *_CHOICES), tfds="copa"),
    "multirc": Benchmark(
        "MultiRC", ("false", "true"), (0, 1), ("paragraph", "question", "answer"), "f1a_em",
        tfds="multirc", inside=("passage",),
    ),
    "record": Benchmark(
        "ReCoRD", *_BOOLEAN, ("passage", "query", "entities", "answers"), "f1_em",
        tfds="record", inside=("passage", "qas"),
    ),
    "superglue_rte": Benchmark("RTE", *_ENTAILMENT, _NLI, tfds="rte"),
    "wic": Benchmark(
        "WiC", *_BOOLEAN, ("sentence1", "sentence2", "start1", "end1", "start2", "end2"), tfds="wic"
    ),
    "wsc": Benchmark(
        "WSC", *_BOOLEAN, ("text", "span1_text", "span1_index", "span2_text", "span2_index"),
        tfds="wsc.fixed", inside=("text", "target"),
    ),
}  # fmt: skip
# What a model of RTE is asked beside it: broad diagnostics, and the Winogender pairs.
DIAGNOSTICS = {
    "axb": Benchmark("AX-b", *_ENTAILMENT, ("sentence1", "sentence2"), "mcc", tfds="axb"),
    "axg": Benchmark("AX-g", *_ENTAILMENT, _NLI, tfds="axg"),
}
