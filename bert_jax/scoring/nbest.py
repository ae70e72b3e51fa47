"""N-best lists, of Moses and as JSON lines.

Moses: `id ||| text ||| features ||| score` a line, whatever follows the score left out; `id ||| text |||
score` is read too. JSON lines: {"id", "text", "score", "reference"}, the reference in any one line of its
list. The lines of a list stand together, the best score of the first pass not necessarily first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from etils import epath

from bert_jax.data import files
from bert_jax.tasks import tables


@dataclasses.dataclass(frozen=True)
class NBest:
    """The hypotheses for one input.

    Attributes:
      id: the list's.
      texts: the hypotheses, in the order of the file.
      scores: the first pass's, higher being better.
      reference: what is right; None where it is not known.
    """

    id: str
    texts: list[str]
    scores: list[float]
    reference: str | None

    @property
    def first_best(self) -> int:
        """Which hypothesis the first pass finds best; the first of several."""
        return max(range(len(self.scores)), key=self.scores.__getitem__)


def read(path: epath.Path, references: epath.Path | None = None) -> list[NBest]:
    """Reads all lists of a file.

    Args:
      path: Moses' format, or JSON lines where the name ends in .jsonl (or .jsonl.gz); UTF-8.
      references: a reference a line; the list with the number i as its id has line i, from 0.

    Raises:
      ValueError: a line is not of this form, a list comes twice, or a reference is missing; the message
        says which.
    """
    is_json = path.name.lower().removesuffix(".gz").endswith(".jsonl")
    found: dict[str, NBest] = {}
    last = None
    for where, id, text, score, reference in _of_json(path) if is_json else _of_moses(path):
        if id != last and id in found:
            raise ValueError(f"{where}: list {id} was there before: the lines of a list must stand together")
        some = found.setdefault(id, NBest(id, [], [], None))
        some.texts.append(text)
        some.scores.append(score)
        if reference is not None:
            if some.reference not in (None, reference):
                raise ValueError(f"{where}: list {id} has two references")
            found[id] = dataclasses.replace(some, reference=reference)
        last = id
    if not found:
        raise ValueError(f"{path}: no n-best list in it")
    lists = list(found.values())
    return lists if references is None else _with_references(lists, references)


def _of_moses(path: epath.Path) -> Iterator[tuple[str, str, str, float, str | None]]:
    for number, line in files.lines(path):
        if not line.strip():
            continue
        where, fields = f"{path}, line {number}", [field.strip() for field in line.split("|||")]
        if len(fields) < 3:
            raise ValueError(f"{where}: {line[:60]!r}: it must be id ||| text ||| features ||| score")
        score = fields[2] if len(fields) == 3 else fields[3]
        yield where, fields[0], fields[1], tables.number(tables.Row(where, {"score": score}), "score"), None


def _of_json(path: epath.Path) -> Iterator[tuple[str, str, str, float, str | None]]:
    for row in tables.rows(path, ("id", "text", "score")):
        id = row.values["id"]
        if not isinstance(id, str | int):
            raise ValueError(f"{row.where}: id {id!r}: it must be a text or a whole number")
        reference = None
        if row.values.get("reference") is not None:
            reference = tables.text(row, "reference", empty=True)
        yield row.where, str(id), tables.text(row, "text", empty=True), tables.number(row, "score"), reference


def _with_references(lists: Sequence[NBest], path: epath.Path) -> list[NBest]:
    lines = [line.removesuffix("\r") for _, line in files.lines(path)]
    made = []
    for some in lists:
        if not some.id.isdecimal() or int(some.id) >= len(lines):
            raise ValueError(
                f"{path}: no line for list {some.id}: its {len(lines)} lines belong to the ids from 0"
            )
        made.append(dataclasses.replace(some, reference=lines[int(some.id)]))
    return made


def to_json(some: NBest, chosen: int, score: float, log_prob: float) -> dict[str, object]:
    """Returns what is said of a list: its id, the hypothesis that was chosen, and by what."""
    order = sorted(range(len(some.scores)), key=lambda i: (-some.scores[i], i))
    reference = {} if some.reference is None else {"reference": some.reference}
    return {
        "id": some.id,
        "text": some.texts[chosen],
        "score": round(score, 6),
        "first_pass": some.scores[chosen],
        "log_prob": log_prob,
        "first_pass_rank": 1 + order.index(chosen),
        **reference,
    }
