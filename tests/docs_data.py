"""The data and models that the pages of docs/ name, made small."""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import string
from collections.abc import Sequence

import small
import tiny_models
from etils import epath

from bert_jax import convert
from bert_jax.data import tokenizer as tokenizer_lib

WORDS = ["the", "cat", "dog", "sat", "runs", "on", "a", "mat", "ada", "lovelace", "lived", "in", "london"]
LETTERS = [*string.ascii_lowercase, *string.digits, *string.punctuation]


def make(page: str, folder: pathlib.Path) -> None:
    """Makes what a page needs in its folder."""
    makers = {
        "pretrain": _pretrain,
        "finetune": _finetune,
        "checkpoints": _checkpoints,
        "tta": _tta,
        "extend": _extend,
    }
    makers[page](folder)


def _texts(folder: pathlib.Path, names: Sequence[str] = ("texts",)) -> None:
    for name in names:
        small.write_text(folder / name, documents=24)


def _model(folder: pathlib.Path) -> None:
    """A BERT with random weights and all letters in its vocabulary, as Hugging Face has it."""
    made = folder / "vocabulary"
    made.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS)]
    (made / "vocab.txt").write_text("\n".join(dict.fromkeys([*tokens, *WORDS])))
    tokenizer = tokenizer_lib.load(made / "vocab.txt", lowercase=True)
    source = tiny_models.source(tokenizer, max_positions=512, heads={"has_mlm": True})
    convert.convert(source, epath.Path(made), folder / "MODEL", "hf")


def _sentences(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS[:8]) for _ in range(draw.randint(3, 7))) for _ in range(number)]


def _rows(file: pathlib.Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    tab = "\t" if file.suffix == ".tsv" else ","
    file.write_text("".join(f"{tab.join(row)}\n" for row in [header, *rows]))


def _jsonl(file: pathlib.Path, rows: Sequence[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _pretrain(folder: pathlib.Path) -> None:
    _texts(folder, ("texts", "wiki", "books"))
    _jsonl(folder / "articles.jsonl", [{"body": " ".join(_sentences(20, seed))} for seed in range(24)])


def _finetune(folder: pathlib.Path) -> None:
    _model(folder)
    texts = _sentences(40)
    for name, some in (("news", texts), ("tests", texts[:9])):
        rows = [(t, "sport" if "dog" in t else "home") for t in some]
        _rows(folder / f"{name}.csv", ("title", "section"), rows)
    _rows(folder / "more.csv", ("title",), [(t,) for t in _sentences(5, seed=1)])
    (folder / "lines.txt").write_text("the cat sat on a mat\nthe dog runs\n")
    for part, number, seed in (("train", 24, 2), ("dev", 8, 3)):
        some, others = _sentences(number, seed), _sentences(number, seed + 10)
        labels = [str(n % 2) for n in range(number)]
        rows = [("made", label, "*", text) for label, text in zip(labels, some, strict=True)]
        _rows(folder / "glue" / "CoLA" / f"{part}.tsv", rows[0], rows[1:])
        header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
        rows = [(label, "1", "2", *pair) for label, *pair in zip(labels, some, others, strict=True)]
        _rows(folder / "glue" / "MRPC" / f"{part}.tsv", header, rows)
        classes = ("entailment", "contradiction", "neutral")
        _jsonl(
            folder / "superglue" / "CB" / f"{'val' if part == 'dev' else part}.jsonl",
            [
                {"premise": one, "hypothesis": two, "label": classes[n % 3], "idx": n}
                for n, (one, two) in enumerate(zip(some, others, strict=True))
            ],
        )
        tagged = ["Ada B-PER\nLovelace I-PER\nlived O\nin O\nLondon B-LOC\n", "the O\ncat O\nsat O\n"]
        (folder / "ner").mkdir(exist_ok=True)
        (folder / "ner" / f"{part}.txt").write_text("\n".join(tagged * (number // 2)))
    contexts = _sentences(10, seed=4)
    questions = [
        {
            "id": str(n),
            "question": "who runs?",
            "answers": [{"text": text.split()[0], "answer_start": 0}],
        }
        for n, text in enumerate(contexts)
    ]
    paragraphs = [
        {"context": text, "qas": [question]} for text, question in zip(contexts, questions, strict=True)
    ]
    (folder / "squad.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "made", "paragraphs": paragraphs}]})
    )
    _rows(folder / "questions.csv", ("question", "context"), [("who runs?", text) for text in contexts[:3]])
    _rows(folder / "pairs.tsv", ("long", "short"), [(text, " ".join(text.split()[:2])) for text in texts])
    _rows(folder / "clean.csv", ("text",), [(text,) for text in texts])


def _checkpoints(folder: pathlib.Path) -> None:
    _model(folder)
    _texts(folder, ("domain", "general"))


def _tta(folder: pathlib.Path) -> None:
    _texts(folder, ("books",))
    lines = _sentences(12)
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    for name, some in (("dev", lines[:6]), ("test", lines[6:])):
        (folder / f"{name}.ref").write_text("".join(f"{line}\n" for line in some))
        hypotheses = [
            f"{n} ||| {text} ||| lm= 0 ||| {-rank}\n"
            for n, line in enumerate(some)
            for rank, text in enumerate([f"{line} dog", line, line[4:]])
        ]
        (folder / f"{name}.nbest").write_text("".join(hypotheses))
    pairs = [(a, b, str(n % 6)) for n, (a, b) in enumerate(itertools.pairwise(lines))]
    _rows(folder / "pairs.tsv", ("sentence1", "sentence2", "score"), pairs)
    some = [{"sentence_good": line, "sentence_bad": f"{line} the", "UID": "made"} for line in lines]
    _jsonl(folder / "minimal.jsonl", some)


def _extend(folder: pathlib.Path) -> None:
    _model(folder)
    _texts(folder)
    (folder / "fasttext").mkdir()
    for part, number in (("train", 24), ("dev", 8)):
        lines = [f"__label__{'ab'[n % 2]} {text}\n" for n, text in enumerate(_sentences(number))]
        (folder / "fasttext" / f"{part}.txt").write_text("".join(lines))
