"""Pairs of texts of which one is made of the other, from the user's own tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ml_collections import ConfigDict

from bert_jax.tasks import own, own_data, tables
from bert_jax.tasks.own_data import Columns


@dataclasses.dataclass(frozen=True)
class Texts:
    """A text and what is to be made of it.

    Attributes:
      where: their file and line, for messages.
      source, target: neither is empty.
    """

    where: str
    source: str
    target: str


def read(config: ConfigDict) -> tuple[list[Texts], list[Texts]]:
    """Returns the pairs to train on and those of the evaluation.

    Files, and what is held out where no evaluation is named, are those of own data (`own.make`); the columns
    are `task.text` and `task.target`, which without a name is the same. Pairs with the same
    source are on one side.

    Raises:
      ValueError: a file, column or text is not as it must be; the message names file and line.
    """
    task = config.task
    target = task.target or task.text
    columns = dataclasses.replace(Columns.of(config), label=target)
    train, held_out = (rows and _texts(rows, task.text, target) for rows in own_data.read(config, columns))
    if held_out is not None:
        return train, held_out
    return own.hold_out_by(
        [pair.source for pair in train],
        train,
        config.data.eval_fraction,
        what="pairs",
        how="chosen by their sources, the same under any seed",
    )


def _texts(rows: Sequence[tables.Row], source: str, target: str) -> list[Texts]:
    return [Texts(row.where, tables.text(row, source), tables.text(row, target)) for row in rows]
