"""Which runs a comparison has: variants of a recipe at some depths and seeds, all else alike."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import workdir as workdir_lib
from bert_jax.data import corpus, files

RUNS, TEXT = "runs", "text"  # in the comparison's directory
_PREPARED = "text.prepared"

_CURVE_POINTS, _EVALUATIONS = 50, 8  # of each run, about


class ComparisonError(ValueError):
    """A comparison that cannot be made as it is asked for; the message names the flag and the mend."""


@dataclasses.dataclass(frozen=True)
class Size:
    """What all runs of a comparison have in common.

    Attributes:
      steps: updates.
      hidden: D; heads are of 64, and the feed-forward layer is 4 D wide.
      batch: B, rows of an update.
      seq_len: S, tokens of a row.
      vocab_size: V, of the vocabulary that is trained on the text.
    """

    steps: int
    hidden: int
    batch: int
    seq_len: int
    vocab_size: int


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run of a comparison.

    Attributes:
      variant, layers, seed: which it is.
      workdir: its directory.
      config: complete and valid.
      changes: what its config has by other keys than its recipe, as "group.key".
    """

    variant: str
    layers: int
    seed: int
    workdir: pathlib.Path
    config: ConfigDict
    changes: dict[str, Any]

    @property
    def name(self) -> str:
        return self.workdir.name

    @property
    def method(self) -> str:
        """How its sentences are scored: "tta", "pll" or "causal"."""
        if self.config.model.kind == "tta":
            return "tta"
        return "pll" if self.config.model.mask == "full" else "causal"

    @property
    def complete(self) -> bool:
        """Whether it has ended."""
        return workdir_lib.read_result(self.workdir) is not None


def models(variants: Sequence[str], deep: Sequence[str], depths: Sequence[str]) -> list[tuple[str, int]]:
    """Returns (variant, layers) of each model: all variants at the first depth, the deep ones at the others.

    Raises:
      ComparisonError: a depth is no number, or a model comes twice, or there is none.
    """
    for depth in depths:
        if not depth.isdecimal() or not int(depth):
            raise ComparisonError(f"--depths: {depth!r}: it must be a whole number from 1")
    made = [(name, int(depth)) for i, depth in enumerate(depths) for name in (deep if i else variants)]
    if not made:
        raise ComparisonError("--variants and --depths name no model")
    twice = [f"{name} of {depth} layers" for name, depth in made if made.count((name, depth)) > 1]
    if twice:
        raise ComparisonError(f"--variants, --deep_variants, --depths: {twice[0]} comes twice")
    return made


def runs(
    recipe: pathlib.Path,
    root: pathlib.Path,
    of: Sequence[tuple[str, int]],
    seeds: int,
    size: Size,
) -> list[Planned]:
    """Returns the runs of a comparison, in the order of their models.

    Args:
      recipe: a config file with VARIANTS.
      root: the comparison's directory.
      of: (variant, layers) of each model.
      seeds: runs of each model, with the seeds 0, 1, ..
      size: of all.

    Raises:
      ComparisonError: the recipe has no such variant.
      ConfigError: a config breaks a rule, or a run of another config lies in its place.
    """
    made = _read(recipe)
    found = []
    for variant, layers in of:
        if variant not in made["VARIANTS"]:
            raise ComparisonError(f"variant {variant!r}: {recipe} has {', '.join(made['VARIANTS'])}")
        for seed in range(seeds):
            changes = _changes(root, layers, seed, size)
            config = made["get_config"](variant)
            for key, value in changes.items():
                group, _, leaf = key.rpartition(".")
                (config[group] if group else config)[leaf] = value
            config_lib.validate(config)
            workdir = root / RUNS / f"{variant}-L{layers}-seed{seed}"
            if workdir_lib.has_saved(workdir):
                workdir_lib.refuse_another(workdir, config, workdir_lib.read_config(workdir), "--output")
            found.append(Planned(variant, layers, seed, workdir, config, changes))
    return found


def _read(recipe: pathlib.Path) -> dict[str, Any]:
    if not recipe.is_file():
        raise ComparisonError(f"--recipe={recipe}: there is no such file")
    sys.path.append(str(recipe.resolve().parent.parent))  # a config derives from others of `configs`
    made = runpy.run_path(str(recipe))
    for name in ("VARIANTS", "get_config"):
        if name not in made:
            raise ComparisonError(f"--recipe={recipe} defines no {name}: see configs/compare.py")
    return made


def _changes(root: pathlib.Path, layers: int, seed: int, size: Size) -> dict[str, Any]:
    log_every = max(1, size.steps // _CURVE_POINTS)
    # A window of the curve is then never cut by a checkpoint that a killed run goes on from.
    eval_every = log_every * max(1, size.steps // (log_every * _EVALUATIONS))
    return {
        "seed": seed,
        "model.hidden_size": size.hidden,
        "model.heads": max(1, size.hidden // 64),
        "model.feed_forward_size": 4 * size.hidden,
        "model.layers": layers,
        "model.max_positions": size.seq_len,
        "data.path": str(root.resolve() / TEXT),
        "data.seq_len": size.seq_len,
        "data.vocab_size": size.vocab_size,
        "train.steps": size.steps,
        "train.batch_size": size.batch,
        "train.log_every": log_every,
        "train.eval_every": eval_every,
        "checkpoint.every": eval_every,
    }


def gather_text(paths: Sequence[str], root: pathlib.Path) -> None:
    """Puts links to all the text's files into the comparison's directory, in their order.

    Args:
      paths: files, directories or globs; a file that is named twice counts once.
      root: the comparison's directory, which is made.

    Raises:
      CorpusError: a path names nothing.
      ComparisonError: a file's name is not that of text, or the comparison was begun on other files.
    """
    folder = root / TEXT
    found = [
        pathlib.Path(file).resolve() for path in paths for file in files.find(path, corpus.TEXT, "--text")
    ]
    for file in found:
        if not file.name.lower().removesuffix(".gz").endswith(corpus.TEXT):
            raise ComparisonError(f"--text: the name of {file} must end in one of {', '.join(corpus.TEXT)}")
    wanted = {f"{i:05d}-{file.name}": str(file) for i, file in enumerate(dict.fromkeys(found))}
    there = {link.name: os.readlink(link) for link in folder.iterdir()} if folder.is_dir() else None
    if there == wanted:
        return
    if there and (root / RUNS).is_dir():
        raise ComparisonError(f"{root} is a comparison on other --text: name the same, or another --output")
    folder.mkdir(parents=True, exist_ok=True)
    for name in there or ():
        (folder / name).unlink()
    for name, target in wanted.items():
        (folder / name).symlink_to(target)


def keep_text(root: pathlib.Path, prepared: str) -> None:
    """Writes down which text the comparison is on.

    Args:
      root: the comparison's directory.
      prepared: what stands for the text's content and its vocabulary.

    Raises:
      ComparisonError: the text is another than when the comparison was begun.
    """
    file = root / _PREPARED
    if not file.exists() or not any((root / RUNS).glob("*")):
        workdir_lib.write(file, prepared + "\n")
    elif file.read_text().strip() != prepared:
        raise ComparisonError(f"the text of {root} has changed since it was begun: name another --output")
