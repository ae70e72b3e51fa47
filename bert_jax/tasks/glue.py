"""GLUE (Wang et al. 2018): nine tasks and the diagnostic set, from files or from TFDS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.tasks import Task, TaskDataError, glue_data, scores, tables
from bert_jax.tasks.glue_benchmarks import BENCHMARKS, Benchmark
from bert_jax.tasks.sequence import SequenceTask


class Glue(SequenceTask):
    """One task of GLUE.

    CoLA and the diagnostic set are judged by Matthews correlation; SST-2, MNLI, QNLI, RTE and WNLI by
    accuracy; MRPC and QQP by the mean of F1 and accuracy, STS-B by the mean of Pearson and Spearman
    correlation: where a task has two metrics, GLUE's score of it is their mean. MNLI's matched part
    decides, and its mismatched one is judged beside it.
    """

    def __init__(self, benchmark: Benchmark, config: ConfigDict, tokenizer: Any, splits: Mapping[str, Any]):
        """Tokenises the splits.

        Args:
          benchmark: which.
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          splits: `train` (a Split), `evals` and `tests` (by name).
        """
        self._benchmark = benchmark
        self.metric = benchmark.metric
        names = ("text", "text_pair")
        columns = {} if benchmark.header else dict(zip(names, benchmark.columns, strict=False))
        super().__init__(
            config, tokenizer, names=benchmark.names, facts={"columns": columns} if columns else {}, **splits
        )

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the metrics of the benchmark, the shares of predicted classes, and the baselines."""
        logits = outputs["logits"]
        if self.metric == "pearson_spearman":
            found = self.value_scores(name, logits)
            return {"pearson_spearman": (found["pearson"] + found["spearman"]) / 2, **found}
        labels, guesses, found = self.class_scores(name, logits)
        if self.metric == "mcc":
            return {"mcc": scores.matthews(labels, guesses), **found}
        if self.metric == "f1_accuracy":
            f1 = scores.f1(labels, guesses)
            always = scores.f1(labels, np.full_like(labels, self.majority))
            return {
                "f1_accuracy": (f1 + found["accuracy"]) / 2,
                "f1": f1,
                **found,
                "majority_class_f1": always,
                "majority_class_f1_accuracy": (always + found["majority_class_accuracy"]) / 2,
            }
        return found

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes JSON lines, and of a test the file that GLUE takes: `index` and `prediction`.

        Classes are written as in the training files; scores lie between 0 and 5.
        """
        super().write_predictions(folder, name, outputs)
        if name not in self.tests:
            return
        logits = outputs["logits"]
        if self.names:
            said = [self._benchmark.codes[n] for n in np.argmax(logits, axis=-1)]
        else:
            said = [f"{score:.3f}" for score in np.clip(logits[:, 0], 0.0, 5.0)]
        lines = [f"{i}\t{s}\n" for i, s in zip(self.index(name), said, strict=True)]
        submission = self._benchmark.submissions.get(
            name, "AX" if name == "ax_test" else self._benchmark.folder
        )
        workdir.write(folder / f"{submission}.tsv", "index\tprediction\n" + "".join(lines))


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads a task of GLUE, by `config.task.name`.

    `config.data.path` is its folder, with train.tsv and dev.tsv (MNLI: dev_matched.tsv and
    dev_mismatched.tsv; `task.train_file` and `task.eval_file` name others), or its name in TFDS, such as
    "glue/cola". Tests are read where they are there: test.tsv, and beside MNLI the diagnostic set.

    "cola_original" is CoLA as its authors give it: the folder has in_domain_train.tsv (or lies in one that
    has GLUE's train.tsv, which is the same), in_domain_dev.tsv, which decides, and out_of_domain_dev.tsv.
    "ax" trains on MNLI and is judged by diagnostic-full.tsv in the same folder or in AX or diagnostic
    beside it.

    Raises:
      ValueError: a file is missing, not UTF-8 or not of this format, or has a class without example.
    """
    name, path = config.task.name, config.data.path
    folder = epath.Path(path).expanduser()
    benchmark = BENCHMARKS["cola" if name == "cola_original" else name]
    if folder.is_dir():
        read = glue_data.original_cola if name == "cola_original" else glue_data.of_folder
        return Glue(benchmark, config, tokenizer, read(benchmark, folder, config))
    tables.refuse_files(config)
    if tables.is_tfds(path) and name not in ("cola_original", "ax"):
        data = tables.Tfds(path, config.data.tfds_dir)
        return Glue(benchmark, config, tokenizer, glue_data.of_tfds(benchmark, data))
    or_tfds = "" if name in ("cola_original", "ax") else f' nor a TFDS name (such as "glue/{name}")'
    raise TaskDataError(
        f"data.path = {path!r}: neither a folder (with train.tsv and {benchmark.evals['eval'][0]}){or_tfds}"
    )
