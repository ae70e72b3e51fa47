"""Fine-tuning beside PyTorch: what each reaches over some seeds, and how fast."""

from __future__ import annotations

import contextlib
import json
import statistics
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import benchmarks, build, completion, cores, optimizer, train
from bert_jax import workdir as workdir_lib
from bert_jax.benchmarks import peer as peer_lib
from bert_jax.data import pipeline
from bert_jax.flags import UsageError

_AT_ONCE = 50  # updates that the peer is asked for at once


def measure(
    config: ConfigDict, workdir: epath.PathLike, *, seeds: int, peers: tuple[str, ...] = (), python: str = ""
) -> dict[str, Any]:
    """Fine-tunes with each seed, ours and theirs in turns; what is complete in the workdir is not done again.

    Both sides get the same rows in the same order and lengths, the same weights to start from, schedule,
    optimizer and dropout; the new layers' first weights and the dropout's draws are each one's own.

    Args:
      config: of a classification or regression; `init_from` is a Hugging Face directory of BERT.
      workdir: ours/SEED are runs, transformers/SEED.json what the peer reached.
      seeds: `seed`, `seed` + 1, ...
      peers: () or ("transformers",).
      python: the peer's interpreter.

    Returns:
      JSON values: by side `values`, `mean`, `std` and `examples_per_second` of each seed's training; with a
      peer also `difference` of the means, and `ratio_examples` with its spread.

    Raises:
      UsageError: the task or the model is none that both sides have.
    """
    root = epath.Path(workdir)
    sides: dict[str, list[dict[str, float]]] = {side: [] for side in ("ours", *peers)}
    metric = ""
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(peer_lib.Peer(python)) if peers else None
        for number in range(seeds):
            member = config.copy_and_resolve_references()
            member.seed = config.seed + number
            result = train.train(member, root / "ours" / str(member.seed))
            metric = result["metric"]
            speed = _examples_per_second(root / "ours" / str(member.seed), member.train.batch_size)
            sides["ours"].append({"value": result["value"], "examples_per_second": speed})
            if peer is not None:
                kept = root / "transformers" / f"{member.seed}.json"
                found = json.loads(kept.read_text()) if kept.exists() else _theirs(peer, member)
                if not kept.exists():
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    workdir_lib.write(kept, json.dumps(found) + "\n")
                sides["transformers"].append({"value": found[metric], **found})
            for side, them in sides.items():
                value, speed = them[-1]["value"], them[-1]["examples_per_second"]
                logging.info("seed %d, %s: %s %.4f, %.1f examples/s", member.seed, side, metric, value, speed)
    summary: dict[str, Any] = {
        "what": "finetune",
        "task": config.task.name,
        "metric": metric,
        "device": f"{jax.device_count()} {jax.devices()[0].device_kind}",
    }
    for side, them in sides.items():
        values = [each["value"] for each in them]
        summary[side] = {
            "values": values,
            "mean": statistics.mean(values),
            "std": statistics.stdev(values) if len(values) > 1 else 0.0,
            "examples_per_second": [each["examples_per_second"] for each in them],
        }
    if peers:
        ours, theirs = (summary[side] for side in ("ours", "transformers"))
        summary["difference"] = ours["mean"] - theirs["mean"]
        # Seconds an example, since `ratios` is of times.
        times = [[1 / x for x in side["examples_per_second"]] for side in (ours, theirs)]
        ratio = benchmarks.ratios(*times)
        summary["ratio_examples"] = ratio["median"]
        summary["ratio_examples_spread"] = [ratio["lowest"], ratio["highest"]]
    return summary


def _examples_per_second(workdir: epath.Path, batch_size: int) -> float:
    """Returns the mean speed over the steps of a run's log, evaluation and compilation left out."""
    lines = map(json.loads, (workdir / workdir_lib.METRICS).read_text().splitlines())
    found = [line for line in lines if line["split"] == "train"]
    seconds = before = 0.0
    for line in found:
        seconds += (line["step"] - before) * line["step_seconds"]
        before = line["step"]
    return batch_size * before / seconds


def _theirs(peer: peer_lib.Peer, config: ConfigDict) -> dict[str, float]:
    """Returns the task's metrics of the peer's model, and its `examples_per_second`."""
    run = build.build(*completion.complete(config, None))
    task, phase = run.task, run.phases[0]
    if task is None or set(task.heads) != {"labels"} or phase.train.choices > 1:
        raise UsageError(
            f"--peer=transformers fine-tunes classifications and regressions, and task.name is "
            f'"{config.task.name}"'
        )
    own = peer_lib.bert_config(phase.setup.model.spec)
    size, o = phase.train.batch_size, config.optimizer
    schedule = optimizer.schedule(o, run.steps)
    peer.ask(
        "load",
        name="transformers",
        kind="classification",
        config=own,
        weights=config.init_from,
        labels=task.heads["labels"],
        batches=peer.give([phase.train.batch(i, np.arange(size)) for i in range(run.steps)]),
        rates=[float(schedule(i)) for i in range(run.steps)],
        optimizer={key: o[key] for key in ("b1", "b2", "eps", "weight_decay", "clip")},
        threads=len(cores.available()),
        seed=config.seed,
    )
    seconds, done = 0.0, 0
    while done < run.steps:
        count = min(_AT_ONCE, run.steps - done)
        answer = peer.ask("steps", name="transformers", count=count)
        seconds, done = seconds + answer["seconds"], done + count
        logging.info("transformers %d/%d, loss %.4f", done, run.steps, answer["loss"])
    metrics: dict[str, float] = {}
    for name, examples in task.evals.items():
        number = examples.num_eval_batches()
        rows = np.arange(examples.batch_size)
        batches = list(pipeline.dataset(examples, 0, number, rows, workers=1))
        target = peer.path("logits.npy")
        peer.ask("logits", name="transformers", batches=peer.give(batches), target=target)
        logits = np.load(target, allow_pickle=False)[: examples.num_examples]
        found = task.metrics(name, {"logits": logits})
        metrics |= found if name == "eval" else {f"{name}_{key}": x for key, x in found.items()}
    return {**metrics, "examples_per_second": size * run.steps / seconds}
