"""A few training steps on a mesh: run by test_devices.py in processes with other devices than its own.

python devices_worker.py DEVICES PROCESSES PROCESS PORT OUTPUT.npz 'JSON list of cases'
"""

import dataclasses
import json
import sys
import types
from typing import Any

import jax
import numpy as np

VOCAB, ROWS, LENGTH, SLOTS = 100, 16, 12, 6
STEPS = 3


def batches() -> list[dict[str, np.ndarray]]:
    """Batches whose numbers of targets differ strongly between rows; some rows have none."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(STEPS):
        weights = np.arange(SLOTS)[None] < rng.permutation([0] * 5 + [1] * 5 + [2] * 2 + [6] * 4)[:, None]
        segments = np.ones((ROWS, LENGTH), np.int32)
        segments[rng.integers(0, ROWS, 4), 7:] = 0
        segments[-1] = 0  # a row of padding
        weights[-1] = False
        made.append({
            "tokens": rng.integers(0, VOCAB, (ROWS, LENGTH)).astype(np.int32),
            "segment_ids": segments,
            "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
            "type_ids": rng.integers(0, 2, (ROWS, LENGTH)).astype(np.int32),
            "mlm_positions": rng.integers(0, LENGTH, (ROWS, SLOTS)).astype(np.int32),
            "mlm_labels": rng.integers(0, VOCAB, (ROWS, SLOTS)).astype(np.int32),
            "mlm_weights": weights.astype(np.float32),
            "pair_labels": rng.integers(0, 2, ROWS).astype(np.int32),
            "pair_weights": (segments[:, 0] > 0).astype(np.float32),
        })  # fmt: skip
    return made


def make_setup(
    mesh: tuple[int, int, int] = (-1, 1, 1), accumulation: int = 1, dropout: float = 0.0, l2: float = 0.0,
    model: Any = None, objectives: tuple[Any, ...] = (), **values: Any,
) -> Any:  # fmt: skip
    """Returns the set-up of a small model with masked tokens and sentence pairs, or of what is given."""
    from bert_jax import config, optimizer, sharding, step
    from bert_jax.models import spec as spec_lib
    from bert_jax.models.model import Model
    from bert_jax.objectives.mlm import MaskedLM
    from bert_jax.objectives.nsp import NextSentence

    c = config.default()
    c.mesh.data, c.mesh.fsdp, c.mesh.tensor = mesh
    c.train.batch_size, c.train.accumulation = ROWS, accumulation
    c.model.update({
        "hidden_size": 32, "layers": 2, "heads": 8, "feed_forward_size": 64, "max_positions": LENGTH,
        "dropout": dropout, "attention_dropout": dropout, "scan": True, "init_std": 0.2,
    })  # fmt: skip
    # An eps this large keeps Adam's division from blowing the rounding of gradients of zero up to
    # whole steps, so that parameters can be compared as closely as gradients.
    c.optimizer.update({"learning_rate": 0.01, "schedule": "constant", "eps": 1e-3, "clip": 0.5})
    c.update_from_flattened_dict(values)
    spec = spec_lib.from_config(c.model, vocab_size=VOCAB, mask_id=3, has_nsp=True)
    tokenizer = types.SimpleNamespace(vocab_size=VOCAB, special_ids=np.arange(5), mask_id=3)
    if not objectives:
        objectives = (
            MaskedLM(c.objective.mlm, tokenizer, LENGTH, np.arange(VOCAB)),
            NextSentence(c.objective.nsp),
        )
        objectives[1].weight = 0.5
    made = sharding.make_mesh(c.mesh)
    sharding.check(c, made, spec, c.train.batch_size)
    return step.Setup(
        model or Model(spec), objectives, optimizer.make(c.optimizer, 10),
        optimizer.schedule(c.optimizer, 10), made, c.train.prng, accumulation, l2,
        clip=c.optimizer.clip, vocabulary_parts=c.train.vocabulary_parts,
    )  # fmt: skip


def run(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns each step's metrics, the evaluation's, and the last parameters and first moments."""
    from bert_jax import sharding, step

    setup = dataclasses.replace(make_setup(**case), outputs=("hidden",))
    data = batches()
    rows = sharding.local_rows(ROWS, setup.mesh)
    placed = [sharding.to_devices({k: v[rows] for k, v in b.items()}, ROWS, setup.mesh) for b in data]
    state = step.create_state(setup, data[0], seed=0)
    shardings = jax.tree.map(lambda x: x.sharding, state)
    update, evaluate = step.make_train_step(setup), step.make_eval_step(setup)
    out: dict[str, np.ndarray] = {}
    for number, batch in enumerate(placed):
        state, sums = update(state, batch)
        for name, value in step.means(step.add(None, sums)).items():
            out[f"step{number}/{name}"] = np.float64(value)
    if not case.get("dropout"):  # evaluation has none
        sums, outputs, _ = evaluate(state.params, placed[0])
        for name, value in step.means(step.add(None, sums)).items():
            out[f"eval/{name}"] = np.float64(value)
        hidden = outputs["hidden"]
        held = hidden.addressable_shards[0].data.shape[1]
        if held * setup.mesh.shape["sequence"] != LENGTH:
            raise RuntimeError(f"states are not shared over the positions: {hidden.sharding}")
    moved = jax.tree.map(lambda x, s: not x.sharding.is_equivalent_to(s, x.ndim), state, shardings)
    if any(jax.tree.leaves(moved)):
        raise RuntimeError(f"a step changed where the state lives, so the next one compiles again: {moved}")
    word = state.params["encoder"]["word"]
    shared = setup.mesh.shape["fsdp"] * setup.mesh.shape["tensor"]
    if word.addressable_shards[0].data.size * shared != word.size:
        raise RuntimeError(f"the word table is not shared over the mesh: {word.sharding}")
    gather = jax.jit(lambda x: x, out_shardings=sharding.replicated(setup.mesh))
    whole = jax.device_get(gather((state.params, state.opt_state)))
    for path, leaf in jax.tree_util.tree_flatten_with_path(whole)[0]:
        out["state" + jax.tree_util.keystr(path)] = np.asarray(leaf)
    return out


def main(devices: str, processes: str, process: str, port: str, output: str, cases: str) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", int(devices))
    jax.config.update("jax_numpy_rank_promotion", "raise")
    if int(processes) > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    found = {}
    for number, case in enumerate(json.loads(cases)):
        for name, value in run(case).items():
            found[f"{number}/{name}"] = value
    np.savez(output, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
