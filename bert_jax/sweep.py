"""A search: runs of one config with other seeds and settings, what each reaches, and which is best."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import completion, sweep_table
from bert_jax import config as config_lib
from bert_jax import workdir as workdir_lib

# Keys of a config that a search may give several values, in the order in which they vary.
KEYS = {
    "learning_rate": "optimizer.learning_rate",
    "batch_size": "train.batch_size",
    "epochs": "train.epochs",
}

Results = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a search.

    Attributes:
      number: N of members/N/.
      setting: what it has that others have not, by the names of `KEYS`.
      config: its own, as if it ran alone.
      root: its workdir.
    """

    number: int
    setting: dict[str, float]
    config: ConfigDict
    root: epath.Path

    @property
    def name(self) -> str:
        """What its lines begin with."""
        values = "".join(f", {key.replace('_', ' ')} {value:g}" for key, value in self.setting.items())
        return f"member {self.number} (seed {self.config.seed}{values})"


def is_asked(config: ConfigDict) -> bool:
    """Returns whether a config asks for more than one run."""
    return config.sweep.seeds > 1 or any(config.sweep[name] for name in KEYS)


def run(
    config: ConfigDict,
    workdir: epath.PathLike,
    train: Callable[[Sequence[ConfigDict], Sequence[epath.Path], Sequence[str]], Results],
) -> dict[str, Any]:
    """Trains a member for each setting and seed, and returns what they reach.

    A member that is complete is not trained again, one that was cut short goes on, and one whose loss became
    no number is said to have failed; the others are trained all the same.

    Args:
      config: `sweep` has the values; seeds are `seed`, `seed` + 1, ...
      workdir: members live in members/N/ of it.
      train: trains some in one program (`train.train_together`).

    Returns:
      what result.json says: task and metric; of the best setting `value`, the mean over its seeds, `std`,
      the sample deviation, and the mean of every other metric; `members`, `settings`, and `best`, the member
      whose model is that of the search (`sweep_table.summary`).

    Raises:
      ConfigError: the workdir holds another run.
      ValueError: no member has come to its end.
    """
    root = epath.Path(workdir)
    workdir_lib.check(root, config, workdir_lib.read_config(root))
    members = _members(config, root)
    for member in members:
        config_lib.validate(member.config)
    most = _most_together(config)
    results = {m.number: done for m in members if (done := completion.finished(m.config, m.root)) is not None}
    if results:
        logging.info("%d of %d members are complete", len(results), len(members))
    left = [member for member in members if member.number not in results]
    for group in _groups(config, left, most):
        logging.info("%d of %d members left; now %s", len(members) - len(results), len(members),
                     "; ".join(member.name for member in group))  # fmt: skip
        found = train([m.config for m in group], [m.root for m in group], [m.name for m in group])
        results |= {member.number: result for member, result in zip(group, found, strict=True)}
        if jax.process_index() == 0 and workdir_lib.read_config(root) is None:
            workdir_lib.claim(root, config)
    rows = [
        {
            "member": member.number,
            "seed": member.config.seed,
            **{name: _value(member.config, key) for name, key in KEYS.items()},
            "result": results[member.number],
        }
        for member in members
    ]
    summary = sweep_table.summary(rows)
    if jax.process_index() == 0:
        workdir_lib.claim(root, config)
        for line in sweep_table.table(summary):
            logging.info("%s", line)
        workdir_lib.write_result(root, summary)
        if config.sweep.keep == "best":
            for member in members:
                folder = member.root / workdir_lib.CHECKPOINTS
                if member.number != summary["best"]["member"] and folder.exists():
                    folder.rmtree()
    return summary


def _members(config: ConfigDict, root: epath.Path) -> list[Trial]:
    """Returns the members in the order of their numbers: settings in turn, of each all seeds."""
    choices = [[(name, value) for value in config.sweep[name]] or [None] for name in KEYS]
    found: list[Trial] = []
    for setting in itertools.product(*choices):
        chosen = dict(pair for pair in setting if pair is not None)
        for number in range(config.sweep.seeds):
            own = config.copy_and_resolve_references()
            own.sweep = config_lib.default().sweep
            own.seed = config.seed + number
            for name, value in chosen.items():
                group, _, leaf = KEYS[name].partition(".")
                own[group][leaf] = type(own[group][leaf])(value)
            folder = root / workdir_lib.MEMBERS / str(len(found))
            found.append(Trial(len(found), chosen, own, folder))
    return found


def _value(config: ConfigDict, key: str) -> float:
    group, _, leaf = key.partition(".")
    return config[group][leaf]


def _most_together(config: ConfigDict) -> int:
    """Returns how many members may train in one program; 0 is no bound."""
    asked = config.sweep.together
    if asked == 1:
        return 1
    why = ""
    if jax.device_count() > 1:
        why = f"a run takes all of the {jax.device_count()} devices"
    elif config.train.prng != "threefry2x32":
        why = f'keys of train.prng = "{config.train.prng}" give other numbers to runs in one program'
    elif config.train.spike.policy == "skip":
        why = 'by train.spike.policy = "skip" each may go back alone'
    if why:
        logging.info("the members train one after the other: %s", why)
        return 1
    if not asked and jax.default_backend() == "cpu":
        return 1
    return asked


def _groups(config: ConfigDict, members: Sequence[Trial], most: int) -> list[list[Trial]]:
    """Returns which members train in one program: those whose arrays have equal shapes at every step.

    Where rows are cut to `data.buckets`, a seed's batches have lengths of their own, and under another length
    dropout is another: then only members of one seed, which read the same batches, train together.
    """
    alike: dict[tuple[Any, ...], list[Trial]] = {}
    for member in members:
        own = member.config
        key = (own.train.batch_size, own.train.epochs, own.seed if config.data.buckets else None)
        alike.setdefault(key, []).append(member)
    if config.data.buckets and most != 1 and config.sweep.seeds > 1:
        logging.info(
            "data.buckets gives the rows of each seed lengths of their own: only members of one seed train "
            "in one program; with data.buckets = () all that share a batch size do"
        )
    found = []
    for group in alike.values():
        size = most or len(group)
        for start in range(0, len(group), size):
            found += _at_one_step(group[start : start + size])
    return found


def _at_one_step(group: list[Trial]) -> list[list[Trial]]:
    """Returns the group, in parts where its members have been left at steps that others do not have."""
    saved = {member.number: workdir_lib.saved_steps(member.root) for member in group}
    if set.intersection(*saved.values()) or not any(saved.values()):
        return [group]
    parts: dict[int, list[Trial]] = {}
    for member in group:
        parts.setdefault(max(saved[member.number], default=0), []).append(member)
    return list(parts.values())
