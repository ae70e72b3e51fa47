"""What GLUE's tasks are: classes, columns, files, metrics (Wang et al. 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A task of GLUE.

    Attributes:
      folder: GLUE's name of it: that of its folder and of its submission.
      names: of the classes, in the order of their numbers in the released datasets; () is STS-B.
      columns: of the text or texts, in the files.
      label: column of the label.
      codes: what the files write for each class.
      metric: what it is judged by.
      features: of the texts in TFDS, where they differ from `columns`.
      evals, tests: the splits by our name: file, and split in TFDS.
      submissions: name of the submission of each test.
      header: names of columns that the file does not tell.
      drops: leaves broken lines out, and keeps empty texts.
    """

    folder: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    label: str = "label"
    codes: tuple[str, ...] = ("0", "1")
    metric: str = "accuracy"
    features: tuple[str, ...] = ()
    evals: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=lambda: {"eval": ("dev.tsv", "validation")}
    )
    tests: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=lambda: {"test": ("test.tsv", "test")}
    )
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    header: tuple[str, ...] = ()
    drops: bool = False


_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_SENTENCES = ("sentence1", "sentence2")
_MNLI = Benchmark(
    "MNLI", _NLI, _SENTENCES, "gold_label", _NLI,
    features=("premise", "hypothesis"),
    evals={
        "eval": ("dev_matched.tsv", "validation_matched"),
        "mismatched": ("dev_mismatched.tsv", "validation_mismatched"),
    },
    tests={
        "test_matched": ("test_matched.tsv", "test_matched"),
        "test_mismatched": ("test_mismatched.tsv", "test_mismatched"),
    },
    submissions={"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"},
)  # fmt: skip
BENCHMARKS = {
    "cola": Benchmark(
        "CoLA", ("unacceptable", "acceptable"), ("sentence",), metric="mcc",
        header=("source", "label", "mark", "sentence"),
    ),
    "sst2": Benchmark("SST-2", ("negative", "positive"), ("sentence",)),
    "mrpc": Benchmark(
        "MRPC", ("not_equivalent", "equivalent"), ("#1 String", "#2 String"), "Quality",
        metric="f1_accuracy", features=_SENTENCES,
    ),
    "qqp": Benchmark(
        "QQP", ("not_duplicate", "duplicate"), ("question1", "question2"), "is_duplicate",
        metric="f1_accuracy", drops=True,
    ),
    "stsb": Benchmark("STS-B", (), _SENTENCES, "score", (), "pearson_spearman"),
    "mnli": _MNLI,
    "qnli": Benchmark("QNLI", _ENTAILMENT, ("question", "sentence"), codes=_ENTAILMENT),
    "rte": Benchmark("RTE", _ENTAILMENT, _SENTENCES, codes=_ENTAILMENT),
    "wnli": Benchmark("WNLI", ("not_entailment", "entailment"), _SENTENCES),
    # Trained on MNLI, and judged by the diagnostic set, whose labels are not in TFDS.
    "ax": dataclasses.replace(_MNLI, metric="mcc"),
}  # fmt: skip
