"""Trains BERT with PyTorch and transformers, or scores by it, as `bert_jax.benchmarks.peer` tells it to.

It runs in the peer's environment: nothing of this project that needs JAX is imported here. A line of JSON
on standard input names one of `FUNCTIONS` with its arguments; its answer is a line on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification

_IGNORED = -100  # the label of a place without a target, in transformers


class Worker:
    """Models by name, the batches and the optimizer of each."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._scorers: dict[str, _MaskedScorer] = {}

    def versions(self) -> dict[str, Any]:
        """Returns what is compared with."""
        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def load(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Makes a model and its optimizer; see `_Run`."""
        self._runs[name] = _Run(**arguments)
        return {"parameters": sum(p.numel() for p in self._runs[name].model.parameters())}

    def steps(self, name: str, count: int) -> dict[str, Any]:
        """Does updates, and returns the seconds and the last loss."""
        run = self._runs[name]
        start, loss = time.perf_counter(), float("nan")
        for _ in range(count):
            loss = run.step()
        return {"seconds": time.perf_counter() - start, "loss": loss}

    def logits(self, name: str, batches: str, target: str) -> dict[str, Any]:
        """Writes the logits of batches, one array after the other, and returns the seconds."""
        run = self._runs[name]
        run.model.eval()
        start, found = time.perf_counter(), []
        with torch.no_grad():
            for batch in _read(batches):
                found.append(run.model(**_inputs(batch)).logits.numpy())
        seconds = time.perf_counter() - start
        run.model.train()
        np.save(target, np.concatenate(found))
        return {"seconds": seconds}

    def load_scorer(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Makes a masked model and its batches; see `_MaskedScorer`."""
        self._scorers[name] = _MaskedScorer(**arguments)
        return {"batches": len(self._scorers[name].batches)}

    def score(self, name: str) -> dict[str, Any]:
        """Returns the sum of all log-probabilities of a scorer's masked tokens, and the seconds."""
        start = time.perf_counter()
        total = self._scorers[name].total()
        return {"seconds": time.perf_counter() - start, "log_prob": total}


class _MaskedScorer:
    def __init__(self, config: dict[str, Any], batches: str, threads: int, weights: str = "") -> None:
        """Makes the model.

        Args:
          config: of BertConfig, where there are no weights.
          batches: the file: rows in which one place is masked.
          threads: of PyTorch.
          weights: a Hugging Face directory.
        """
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        made = BertForMaskedLM.from_pretrained(weights) if weights else BertForMaskedLM(BertConfig(**config))
        self._model = made.eval()
        self.batches = [
            (_inputs(batch), torch.tensor(batch["places"]), torch.tensor(batch["targets"]))
            for batch in _read(batches)
        ]

    def total(self) -> float:
        """Returns the sum of log p(token) of all masked places."""
        found = 0.0
        with torch.inference_mode():
            for inputs, places, targets in self.batches:
                hidden = self._model.bert(**inputs).last_hidden_state
                logits = self._model.cls(hidden[torch.arange(len(places)), places])
                values = torch.log_softmax(logits, dim=-1)[torch.arange(len(places)), targets]
                found += values.double().sum().item()
        return found


class _Run:
    def __init__(
        self,
        kind: str,
        config: dict[str, Any],
        batches: str,
        rates: list[float],
        optimizer: dict[str, Any],
        threads: int,
        seed: int = 0,
        weights: str = "",
        labels: int = 2,
        compiled: bool = False,
    ) -> None:
        """Makes the model.

        Args:
          kind: "stock" (logits at every place), "gathered" (at the masked places) or "classification".
          config: of BertConfig, where there are no weights.
          batches: the file; it starts again at its end.
          rates: the learning rate of each step; the last one goes on.
          optimizer: b1, b2, eps, weight_decay and clip.
          threads: of PyTorch.
          seed: of new weights and dropout.
          weights: a Hugging Face directory.
          labels: of a classification; 1 is a regression.
          compiled: by torch.compile.
        """
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        made = BertForSequenceClassification if kind == "classification" else BertForPreTraining
        extra = {"num_labels": labels} if kind == "classification" else {}
        if weights:
            self.model = made.from_pretrained(weights, **extra)
        else:
            self.model = made(BertConfig(**config, **extra))
        self.model.train()
        loss = {"stock": self._stock, "gathered": self._gathered, "classification": self._classification}[
            kind
        ]
        self._loss: Callable[[dict[str, Any]], torch.Tensor] = torch.compile(loss) if compiled else loss
        self._labels = labels
        self._batches = [_tensors(batch, kind) for batch in _read(batches)]
        self._rates, self._clip, self._step = rates, optimizer["clip"], 0
        decayed, others = [], []
        for name, parameter in self.model.named_parameters():
            (others if "bias" in name or "LayerNorm" in name else decayed).append(parameter)
        self._optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": optimizer["weight_decay"]},
             {"params": others, "weight_decay": 0.0}],
            lr=rates[0], betas=(optimizer["b1"], optimizer["b2"]), eps=optimizer["eps"],
        )  # fmt: skip

    def step(self) -> float:
        """Does one update and returns its loss."""
        batch = self._batches[self._step % len(self._batches)]
        for group in self._optimizer.param_groups:
            group["lr"] = self._rates[min(self._step, len(self._rates) - 1)]
        loss = self._loss(batch)
        loss.backward()
        if self._clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        return loss.item()

    def _stock(self, batch: dict[str, Any]) -> torch.Tensor:
        if "pairs" in batch:
            found = self.model(**batch["inputs"], labels=batch["labels"], next_sentence_label=batch["pairs"])
            return found.loss
        logits = self.model(**batch["inputs"]).prediction_logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

    def _gathered(self, batch: dict[str, Any]) -> torch.Tensor:
        found = self.model.bert(**batch["inputs"])
        places, head = batch["places"], self.model.cls
        hidden = found.last_hidden_state.flatten(0, 1)[places]
        loss = torch.nn.functional.cross_entropy(head.predictions(hidden), batch["labels"].flatten()[places])
        if "pairs" in batch:
            pooled = head.seq_relationship(found.pooler_output)
            loss = loss + torch.nn.functional.cross_entropy(pooled, batch["pairs"])
        return loss

    def _classification(self, batch: dict[str, Any]) -> torch.Tensor:
        logits = self.model(**batch["inputs"]).logits
        if self._labels == 1:
            return torch.nn.functional.mse_loss(logits[:, 0], batch["labels"])
        return torch.nn.functional.cross_entropy(logits, batch["labels"])


def _read(path: str) -> list[dict[str, np.ndarray]]:
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            batches.setdefault(int(number), {})[name] = file[key]
    return [batches[number] for number in sorted(batches)]


def _inputs(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.tensor(batch["tokens"]).long(),
        "token_type_ids": torch.tensor(batch["type_ids"]).long(),
        "attention_mask": torch.tensor(batch["segment_ids"] > 0).long(),
    }


def _tensors(batch: dict[str, np.ndarray], kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {"inputs": _inputs(batch)}
    if kind == "classification":
        labels = torch.tensor(batch["labels"])
        return made | {"labels": labels if labels.is_floating_point() else labels.long()}
    labels = np.full(batch["tokens"].shape, _IGNORED)
    rows, columns = np.nonzero(batch["mlm_weights"])
    labels[rows, batch["mlm_positions"][rows, columns]] = batch["mlm_labels"][rows, columns]
    made["labels"] = torch.tensor(labels)
    made["places"] = torch.tensor(np.flatnonzero(labels.ravel() != _IGNORED))
    if "pair_labels" in batch:
        made["pairs"] = torch.tensor(batch["pair_labels"]).long()
    return made


def main() -> None:
    """Answers line after line."""
    transformers.logging.set_verbosity_error()
    worker = Worker()
    told = (
        worker.versions, worker.load, worker.steps, worker.logits, worker.load_scorer, worker.score
    )  # fmt: skip
    functions = {f.__name__: f for f in told}
    for line in sys.stdin:
        arguments = json.loads(line)
        answer = functions[arguments.pop("what")](**arguments)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
