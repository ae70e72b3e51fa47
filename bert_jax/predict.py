"""Writes a model's answers, one JSON object a line, in the order of the input.

Of a fine-tuned classifier {"text", "label", "probabilities"}, of a regression {"text", "score"}, of pairs
"text_pair" beside it, of choices {"text", "choices", "label", "probabilities"}. Of a model that tags words
{"text", "words", "tags", "entities": [{"type", "text", "start", "end"}]}, words being what white space
separates; of one of relations, to a text with "[E1] x [/E1]" and "[E2] y [/E2]" in it, {"text", "head",
"tail", "label", "probabilities"}; of one of two words or phrases (SuperGLUE's WiC and WSC), to a text so
marked, or two with a mark each, "span1" and "span2" in place of "head" and "tail". Of one that finds
answers, to a question and a context {"question", "answer", "start", "end", "score", "probability",
"log_probability", "candidates": [{"text", "start", "end", "score", "probability", "log_probability"}]};
where it was trained on unanswerable questions too, the answer may be "", and "null_probability" and
"null_odds" stand beside it. Of a model that predicts tokens, the fillers of each [MASK] (or what its
vocabulary calls the mask): {"text", "fills": [{"position", "candidates": [{"token", "probability"}]}],
"filled"}. Of one that writes a text for a text, {"text", "output", "log_prob", "ended"}, searched for as in
its training's evaluation where no flag says otherwise; an answer that was cut has not ended. Of one that
corrects spelling {"text", "output", "changes": [{"start", "end", "from", "to", "probability"}]}, the
probability being that of the token having been wrong.

Positions are counted in characters from 0, ends are behind the last one; probabilities are the model's own
over all tokens or labels, and special tokens are no candidates. An empty line, and one that is cut to what
the model reads, say so in "note".

The input is a text a line; for a model of pairs, choices or answers its texts are separated by tabs. A
.csv, .tsv or .jsonl file is a table: --text, --text_pair and --choices name its columns, and where they are
not given they are those of the training data. A .jsonl file is read by a model of SuperGLUE as a file of its
task, and answered example by example: each answer to a question, each entity that a query is filled with.
"""

from __future__ import annotations

from collections.abc import Iterator

from absl import flags as absl_flags
from etils import epath

from bert_jax import flags, jsonl, paths
from bert_jax.data import files
from bert_jax.interop import load
from bert_jax.prediction import Head, head_of, predict
from bert_jax.tasks import superglue_data, tables

__all__ = ["main", "predict"]

_MODEL = absl_flags.DEFINE_string(
    "model", None, "A run's workdir, a model directory, or a Hugging Face directory.", required=True
)
_INPUT = absl_flags.DEFINE_string(
    "input", None, "UTF-8 lines or a table; a name in .gz is decompressed; - reads stdin.", required=True
)
_OUTPUT = absl_flags.DEFINE_string(
    "output",
    None,
    "JSON lines; the file appears when it is whole; a name in .gz is compressed; - writes stdout.",
    required=True,
)
_TEXT = absl_flags.DEFINE_string(
    "text", None, "Column of the text, or the question; stdin is then JSON lines."
)
_TEXT_PAIR = absl_flags.DEFINE_string("text_pair", None, "Column of the second text, or the context.")
_CHOICES = absl_flags.DEFINE_list("choices", None, "Columns of the choices, separated by commas.")
_TOP_K = absl_flags.DEFINE_integer("top_k", 5, "Candidates for each [MASK] or question.", lower_bound=1)
_NULL_THRESHOLD = absl_flags.DEFINE_float(
    "null_threshold",
    None,
    "Of a model that finds answers: null odds above which it says that there is none. Not given, it is what "
    "the training found best.",
)
_BATCH_SIZE = absl_flags.DEFINE_integer("batch_size", 32, "Rows that are computed at once.", lower_bound=1)
_BEAM_SIZE = absl_flags.DEFINE_integer("beam_size", None, "Beams of a model that writes; 1 is greedy.", 1, 64)
_LENGTH_PENALTY = absl_flags.DEFINE_float("length_penalty", None, "Of its answers' comparison.", 0.0)
_MAX_TARGET = absl_flags.DEFINE_integer("max_target", None, "Most tokens of its answer, with the end's.", 2)


def _search() -> dict[str, float]:
    """Returns what the flags say of the search for answers."""
    given = (_BEAM_SIZE, _LENGTH_PENALTY, _MAX_TARGET)
    return {flag.name: flag.value for flag in given if flag.value is not None}


def _columns(name: str, given: tuple[str, ...], source: load.Source, head: Head) -> tuple[str, ...]:
    """Returns the columns of a table that hold the head's texts; none where the input is lines.

    Args:
      name: of the input.
      given: by the flags.
      source, head: the model.

    Raises:
      UsageError: the columns do not go with the model.
    """
    if not given and not tables.is_table(name):
        return ()
    if not given:
        known = source.facts.get("columns", {})
        given = tuple(x for x in (known.get("text"), known.get("text_pair"), *known.get("choices", ())) if x)
    if not given:
        raise flags.UsageError(
            f"--input={name} is a table: name the column of the text by --text"
            + (", and that of the second by --text_pair" if len(head.columns) == 2 else "")
        )
    if not head.fewest <= len(given) <= len(head.columns):
        raise flags.UsageError(
            f"the columns {', '.join(given)} are {len(given)}: the model reads {len(head.columns)}, "
            f"{', '.join(head.columns)}"
        )
    return given


def _of_table(path: epath.Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for row in tables.rows(path, columns):
        yield tuple(tables.text(row, column, empty=True) for column in columns)


def _of_lines(path: epath.Path, head: Head) -> Iterator[str | tuple[str, ...]]:
    """Yields a text a line, or several, if the model needs them."""
    for number, line in files.lines(path):
        line = line.removesuffix("\r")
        texts = line.split("\t")
        if head.fewest == 1:
            yield line
        elif len(texts) == len(head.columns):
            yield tuple(texts)
        elif line.strip():
            raise files.CorpusError(
                f"{path}, line {number}: {len(texts)} texts: the model reads {len(head.columns)}, separated "
                f"by tabs: {', '.join(head.columns)}"
            )
        else:
            yield ("",) * len(head.columns)


def main() -> None:
    """Reads --input and writes --output."""
    path = paths.to_read(_INPUT.value, "input")
    paths.check_to_write(_OUTPUT.value, input=_INPUT.value)
    source = load.read(_MODEL.value)
    options = {"top_k": _TOP_K.value, "null_threshold": _NULL_THRESHOLD.value, "search": _search()}
    head = head_of(source, **options)
    given = tuple(column for column in (_TEXT.value, _TEXT_PAIR.value, *(_CHOICES.value or ())) if column)
    if given and _TEXT.value is None and (known := source.facts.get("columns", {}).get("text")):
        given = (known, *given)  # only the others are called otherwise here
    # A model of SuperGLUE knows how its own files are read, which may nest what is asked.
    own = not given and _INPUT.value.lower().endswith((".jsonl", ".jsonl.gz"))
    benchmark = source.facts.get("superglue") if own else None
    columns = () if benchmark else _columns(_INPUT.value, given, source, head)
    if benchmark:
        texts = superglue_data.inputs(benchmark, path)
    else:
        texts = _of_table(path, columns) if columns else _of_lines(path, head)
    answers = predict(source, texts, batch_size=_BATCH_SIZE.value, **options)
    jsonl.write(answers, _OUTPUT.value)


if __name__ == "__main__":
    flags.run(main)
