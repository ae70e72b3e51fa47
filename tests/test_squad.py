"""Questions: files and tables, refusals, hold-out, metrics and their files, answers, a whole run."""

import gzip
import json
import logging
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
import tasks_data
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import prediction, tasks, train
from bert_jax.config import ConfigError
from bert_jax.interop import load, native
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.tasks import TaskDataError
from bert_jax.tasks.answers import Answers

# A long context of three windows of rows of 12 tokens, and a short one.
LONG, SHORT = "a b c d a b c d a b c d", "b  d\u200b c"


def config(name: str, path: pathlib.Path | str, **keys: Any) -> ConfigDict:
    return tasks_data.config(name, path, **{"task__stride": 3, "task__max_question": 2, **keys})


def entry(id: str, question: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    said = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": question, "answers": said, **more}


def squad(path: pathlib.Path, *paragraphs: tuple[str, list[dict[str, Any]]]) -> pathlib.Path:
    made = [{"context": context, "qas": qas} for context, qas in paragraphs]
    text = json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": made}]})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text("\ufeff" + text, encoding="utf-8")
    return path


ANSWERED = [
    (LONG, [entry("q1", "a b", ("b c d", 10), ("b", 10)), entry("q2", "c", ("d", 6))]),
    (SHORT, [entry("q3", "d", ("d", 3), ("x", 0))]),
]
WITHOUT = [*ANSWERED, ("c b", [entry("q4", "b", is_impossible=True)])]


def make(tokenizer: Any, folder: pathlib.Path, paragraphs: Any = WITHOUT, **keys: Any) -> Answers:
    for name in ("train-v1.json", "dev-v1.json"):
        squad(folder / name, *paragraphs)
    (folder / "evaluate-v1.py").write_text("")  # as SQuAD's own folder has it
    return tasks.make(config("squad", folder, **keys), tokenizer)


def batches(examples: Any) -> dict[str, np.ndarray]:
    """The rows of all batches, padding left out."""
    count, size = examples.num_eval_batches(), examples.batch_size
    made = [examples.batch(step, np.arange(size)) for step in range(count)]
    return {name: np.concatenate([b[name] for b in made])[: examples.num_examples] for name in made[0]}


def test_rows_and_labels(tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        task = make(tokenizer, tmp_path)
    assert "1 of 4 training questions have an answer that does not stand" in caplog.text
    assert "4 training questions, 1 without an answer, in 8 windows, 4 of them with one" in caplog.text
    assert (task.nulls, task.metric, task.heads) == (True, "best_f1", {"has_span": True})
    rows = batches(task.evals["eval"])
    assert rows["span_labels"].tolist() == [
        *([0, 0], [6, 8], [0, 0]),  # the first answer, in the one window that has all of it
        *([6, 6], [3, 3], [0, 0]),  # "d" is token 3: of the first two windows
        [4, 4],
        [0, 0],
    ]
    assert rows["span_labels"].dtype == np.int32
    assert rows["tokens"][6].tolist() == [2, 8, 3, 6, 8, 7, 3, 0, 0, 0, 0, 0]
    assert task.train.num_examples == 8
    answered = make(tokenizer, tmp_path, ANSWERED)
    assert (answered.nulls, answered.metric) == (False, "f1")


def test_what_does_not_stand_is_not_trained_on(
    tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [("a b", [entry("1", "c", ("b", 1)), entry("2", "c", ("b", 0), ("b", 2))]), ("a \u200b", [
        entry("3", "c", ("\u200b", 2)),
    ])]  # fmt: skip
    task = make(tokenizer, tmp_path, wrong)
    assert "2 training questions without a usable answer are left out" in caplog.text
    assert [q.id for q in task.train.questions] == ["2"]
    assert task.train.batch(0, np.arange(1))["span_labels"].tolist() == [[4, 4]]
    assert [q.id for q in task.evals["eval"].questions] == ["1", "2", "3"]
    with pytest.raises(TaskDataError, match="no training question is left"):
        make(tokenizer, tmp_path, [("a b", [entry("1", "c", ("b", 1))])])


def test_unanswerable_as_asked(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    left = make(tokenizer, tmp_path, task__unanswerable=False)
    assert not left.nulls and [q.id for q in left.train.questions] == ["q1", "q2", "q3"]
    assert make(tokenizer, tmp_path, ANSWERED, task__unanswerable=True).nulls
    nothing = [("a", [entry("q", "b", is_impossible=True)])]
    with pytest.raises(TaskDataError, match="no question has an answer"):
        make(tokenizer, tmp_path, nothing, task__unanswerable=False)


def test_a_file_is_split_by_contexts(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    some = [
        (f"{a} {b} {c}", [entry(f"{a}{b}{c}{n}", "a", (a, 0)) for n in range(2)])
        for a in "abcd" for b in "abcd" for c in "ab"
    ]  # fmt: skip
    file = squad(tmp_path / "one.json.gz", *some, ("a  a a", [entry("more", "a", ("a", 0))]))
    task = tasks.make(config("squad", file, data__eval_fraction=0.2), tokenizer)
    held, left = ({q.context for q in x.questions} for x in (task.evals["eval"], task.train))
    assert not held & left and len(held | left) == 33
    assert 12 <= len(task.evals["eval"].questions) <= 14
    again = tasks.make(config("squad", file, data__eval_fraction=0.2, task__n_best=3), tokenizer)
    assert {q.id for q in again.evals["eval"].questions} == {q.id for q in task.evals["eval"].questions}


ROWS = [
    {"question": "a b", "context": LONG, "answer": "b c d", "answer_start": 10},
    {"question": "c", "context": LONG, "answer": ["d", "c"], "answer_start": [6, 4]},
    {"question": "d", "context": SHORT, "answer": {"text": ["d"], "answer_start": [3]}, "id": "x"},
    {"question": "b", "context": "c a", "answer": None},
    {"question": "b", "context": "c a", "answer": [], "answer_start": []},
]


def test_tables(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "dev.csv").write_text('id,question,context,answer,answer_start\n7,d,"b, d",d,3\n8,d,b,,\n')
    task = tasks.make(config("spans", tmp_path), tokenizer)
    asked = task.train.questions
    assert [q.id for q in asked] == ["0", "1", "x", "3", "4"]
    assert [[(a.text, a.start) for a in q.answers] for q in asked] == [
        [("b c d", 10)], [("d", 6), ("c", 4)], [("d", 3)], [], [],
    ]  # fmt: skip
    assert [(q.id, q.context, len(q.answers)) for q in task.evals["eval"].questions] == [
        ("7", "b, d", 1), ("8", "b", 0),
    ]  # fmt: skip
    (tmp_path / "x.tsv").write_text("q\tc\ta\tat\nd\tb d\td\t2\nd\tc d\td\t2\n")
    names = {"text": "q", "text_pair": "c", "label": "a", "answer_start": "at"}
    keys = {f"task__{key}": value for key, value in names.items()}
    task = tasks.make(config("spans", tmp_path / "x.tsv", data__eval_fraction=0.5, **keys), tokenizer)
    assert task.facts["columns"] == {"text": "q", "text_pair": "c"}
    assert (len(task.train.questions), len(task.evals["eval"].questions)) == (1, 1)


def test_tfds(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    import tensorflow_datasets as tfds

    features = {
        "id": str, "question": str, "context": str, "is_impossible": np.bool_,
        "answers": tfds.features.Sequence({"text": tfds.features.Text(), "answer_start": np.int32}),
    }  # fmt: skip
    rows = [
        {"id": "1", "question": "a b", "context": LONG, "is_impossible": False,
         "answers": {"text": ["b c d", "b"], "answer_start": [10, 10]}},
        {"id": "2", "question": "b", "context": "c a", "is_impossible": True,
         "answers": {"text": [], "answer_start": []}},
    ]  # fmt: skip
    tasks_data.tfds(tmp_path, "asked", features, {"train": rows, "validation": rows[:1]})
    task = tasks.make(config("squad", "asked", data__tfds_dir=str(tmp_path)), tokenizer)
    said = {q.id: [(a.text, a.start) for a in q.answers] for q in task.train.questions}
    assert said == {"1": [("b c d", 10), ("b", 10)], "2": []}
    assert [q.id for q in task.evals["eval"].questions] == ["1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"x.json: not JSON"),
        ("[]", r"must be one JSON object with 'data'"),
        ('{"data": 1}', r"x.json: data '1': it must be a list"),
        ('{"data": []}', r"x.json has no question"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\]: there is no 'context'"),
        (("a", [entry("1", " ", ("a", 0))]), r"qas\[0\]: the question is empty"),
        ((" ", []), r"paragraphs\[0\]: the context is empty"),
        (("a", [{"question": "a", "answers": []}]), r"id None"),
        (("a", [entry("1", "a")]), r"id 1\): is_impossible is false and there are 0 answers"),
        (("a", [entry("1", "a", ("a", 0), is_impossible=True)]), r"is true and there are 1 answers"),
        (("a", [entry("1", "a", ("a", 0), is_impossible="no")]), r"is_impossible 'no': it must be true or"),
        (("a", [entry("1", "a", ("a", -1))]), r"starts at -1: it must be the number of a character"),
        (("a", [entry("1", "a", ("a", 1.5))]), r"starts at 1.5"),  # type: ignore[arg-type]
        (("a", [entry("1", "a", ("", 0))]), r"the answer ''"),
        (("a", [entry("1", "a", ("a", 0))] * 2), r"2 questions have the id '1'"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path: pathlib.Path, tokenizer: Any, content: Any, message: str) -> None:
    file = tmp_path / "x.json"
    if isinstance(content, str):
        file.write_text(content)
    else:
        squad(file, content)
    with pytest.raises(TaskDataError, match=message):
        tasks.make(config("squad", file), tokenizer)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a", "context": "b"}, r"line 1: there is no column 'answer'"),
        ({"question": "a", "context": "b", "answer": "b"}, r"line 1: there is no column 'answer_start'"),
        ({"question": "a", "context": "b", "answer": "b", "answer_start": None}, r"starts at None"),
        ({"question": "a", "context": "b", "answer": "b", "answer_start": "x"}, r"starts at 'x'"),
        ({"question": "a", "context": "b", "answer": ["b"], "answer_start": 0}, r"as many of both in lists"),
        ({"question": "a", "context": "b", "answer": {"text": ["b"]}}, r"as many of both in lists"),
        ({"question": "a", "context": "", "answer": None}, r"the context is empty"),
    ],
)
def test_rows_that_are_refused(tmp_path: pathlib.Path, tokenizer: Any, row: Any, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskDataError, match=message):
        tasks.make(config("spans", tmp_path / "x.jsonl"), tokenizer)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("squad", {"task__label": "x"}, r"task.label is for own data"),
        ("squad", {"task__answer_start": "x"}, r"task.answer_start is for own data"),
        ("spans", {"task__labels": ("x", "y")}, r"task.labels is for other data"),
        ("spans", {"task__stride": 7}, r"= 2, task.stride = 7 and 4 tokens .* data.seq_len = 12"),
        ("squad", {"task__head": "crf"}, r'task.head = "crf".*left empty'),
        ("squad", {"model__pooling": "attention"}, r"makes one vector"),
        ("squad", {"task__n_best": 0}, r"task.n_best = 0"),
    ],
)  # fmt: skip
def test_configs_that_are_refused(name: str, keys: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(name, "x", **keys)


def source(tokenizer: Any, task: Answers, seed: int = 0) -> load.Source:
    """A model of one layer for a task, with random weights so large that its answers differ."""
    model = config_lib.default().model
    model.update({"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 40})
    heads = {"has_mlm": False, **task.heads}
    spec = spec_lib.from_config(model, vocab_size=tokenizer.vocab_size, mask_id=4, **heads)
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), native._abstract(spec))
    return load.Source(spec, params, tokenizer, task.labels, [], dict(task.facts))


def evaluated(task: Answers, made: load.Source) -> dict[str, np.ndarray]:
    """What `metrics` gets, batch by batch."""
    examples, kept = task.evals["eval"], []
    said = jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b))
    for step in range(examples.num_eval_batches()):
        batch = examples.batch(step, np.arange(examples.batch_size))
        logits = said(made.params, {name: jnp.array(x) for name, x in batch.items()})["span_logits"]
        first = step * examples.batch_size
        kept.append(task.condensed("eval", first, {"span_logits": np.asarray(logits)}))
    return {key: np.concatenate([x[key] for x in kept])[: examples.num_examples] for key in kept[0]}


def test_the_loss_by_hand(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path, train__batch_size=3)
    made = source(tokenizer, task)
    batch = {n: jnp.array(x) for n, x in task.evals["eval"].batch(2, np.arange(3)).items()}  # 2 and padding
    said = jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b)["span_logits"])
    logits = np.asarray(said(made.params, batch), np.float64)
    sums = task.objective.sums(batch, {"span_logits": jnp.array(logits, jnp.float32)})
    loss, right = 0.0, 0
    for row, size in ((0, 7), (1, 6)):
        labels, own = np.asarray(batch["span_labels"])[row], logits[row, :size]
        loss += np.mean([np.logaddexp.reduce(own[:, i]) - own[labels[i], i] for i in (0, 1)])
        right += (own.argmax(axis=0) == labels).all()
    assert float(sums["loss"]) == pytest.approx(loss, rel=1e-5)
    assert float(sums["accuracy"]) == right and float(task.objective.count(batch)) == 2
    gradient = jax.grad(lambda x: task.objective.sums(batch, {"span_logits": x})["loss"])(
        jnp.array(logits, jnp.float32)
    )
    real = np.asarray(batch["segment_ids"]) > 0
    assert not np.asarray(gradient)[~real].any() and np.asarray(gradient)[real].all()


def perfect(task: Answers, texts: dict[str, str], null: float) -> dict[str, np.ndarray]:
    """The outputs of a model that says these texts, and no answer with a score."""
    examples, rows = task.evals["eval"], []
    for number, window in examples.rows:
        question, document = examples.questions[number], examples.documents[number]
        logits = np.full((12, 2), -20.0, np.float32)
        logits[0] = null
        start = question.context.find(texts[question.id])
        place = document.tokens(start, start + len(texts[question.id]))
        if place and place[0] >= window.first and place[1] < window.stop:
            for column in (0, 1):
                logits[place[column] - window.first + window.place, column] = 5.0
        rows.append(logits)
    return dict(task.condensed("eval", 0, {"span_logits": np.stack(rows)}))


def test_metrics_and_their_files(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path)
    outputs = perfect(task, {"q1": "b c d", "q2": "c d", "q3": "d", "q4": "b"}, null=-1)
    found = task.metrics("eval", outputs)
    # q4 has no answer, and is given one by all thresholds that leave the others theirs.
    assert found["exact"] == found["best_exact"] == 2 / 4
    assert found["f1"] == found["best_f1"] == pytest.approx((1 + 2 / 3 + 1) / 4)
    assert (found["HasAns_exact"], found["NoAns_exact"]) == (2 / 3, 0)
    assert (found["no_answer_exact"], found["no_answer_f1"]) == (1 / 4, 1 / 4)
    assert found["untuned_f1"] == found["f1"] and found["best_f1_thresh"] == pytest.approx(-12)
    assert task.facts_of(found)["null_threshold"] == found["null_threshold"] == pytest.approx(-11.5)
    task.write_predictions(tmp_path, "eval", outputs)
    written = {name: json.loads((tmp_path / f"{name}.json").read_text())
               for name in ("predictions", "nbest_predictions", "null_odds")}  # fmt: skip
    assert written["predictions"] == {"q1": "b c d", "q2": "c d", "q3": "d", "q4": "b"}
    assert written["null_odds"] == dict.fromkeys(("q1", "q2", "q3", "q4"), -12.0)
    best = written["nbest_predictions"]["q3"]
    assert best[0]["text"] == "d" and best[0]["start_logit"] == best[0]["end_logit"] == 5
    assert best[1]["text"] == "" and best[1]["start_logit"] == -1
    assert "d\u200b c" in [each["text"] for each in best]  # as it stands in the text
    assert sum(each["probability"] for each in best) == pytest.approx(1)
    # What an earlier evaluation decided is not decided anew by the rows that it is to be judged by.
    task.recall({"null_threshold": -12.5})
    found = task.metrics("eval", outputs)
    assert (found["null_threshold"], found["exact"], found["best_exact"]) == (-12.5, 1 / 4, 2 / 4)
    task.recall({})
    # A model that never finds q4's answer less likely than none.
    silent = perfect(task, {"q1": "b c d", "q2": "c d", "q3": "d", "q4": "?"}, null=-1)
    found = task.metrics("eval", silent)
    assert found["best_f1"] == found["f1"] == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)
    assert found["NoAns_f1"] == 1
    task.write_predictions(tmp_path, "eval", silent)
    assert json.loads((tmp_path / "predictions.json").read_text())["q4"] == ""


def test_metrics_without_unanswerable_questions(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path, ANSWERED)
    outputs = perfect(task, {"q1": "b c", "q2": "d", "q3": "c"}, null=9)
    found = task.metrics("eval", outputs)
    assert found == {
        "exact": 1 / 3, "f1": pytest.approx((0.8 + 1) / 3), "no_answer_exact": 0, "no_answer_f1": 0,
    }  # fmt: skip
    assert task.facts_of(found) == task.facts
    task.write_predictions(tmp_path, "eval", outputs)
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"q1": "b c", "q2": "d", "q3": "c"}
    assert not (tmp_path / "null_odds.json").exists()


@pytest.mark.parametrize("keys", [{}, {"train__eval_batch_size": 3}, {"data__buckets": (6, 8)}])
@pytest.mark.parametrize("paragraphs", [WITHOUT, ANSWERED])
def test_answers_are_those_of_the_evaluation(
    tmp_path: pathlib.Path, tokenizer: Any, keys: Any, paragraphs: Any
) -> None:
    task = make(tokenizer, tmp_path, paragraphs, **keys)
    made = source(tokenizer, task)
    outputs = evaluated(task, made)
    metrics = task.metrics("eval", outputs)
    made = load.Source(made.spec, made.params, tokenizer, (), [], dict(task.facts_of(metrics)))
    task.write_predictions(tmp_path, "eval", outputs)
    texts = json.loads((tmp_path / "predictions.json").read_text())
    best = json.loads((tmp_path / "nbest_predictions.json").read_text())
    asked = task.evals["eval"].questions
    answers = list(prediction.predict(made, [(q.text, q.context) for q in asked], top_k=20))
    assert len(answers) == len(texts) == len(asked)
    for question, answer in zip(asked, answers, strict=True):
        assert answer["answer"] == texts[question.id]
        if answer["answer"]:
            assert question.context[answer["start"] : answer["end"]] == answer["answer"]
        wanted = [each for each in best[question.id] if each["text"]]
        assert [each["text"] for each in answer["candidates"]] == [each["text"] for each in wanted]
        for each, other in zip(answer["candidates"], wanted, strict=True):
            assert question.context[each["start"] : each["end"]] == each["text"]
            assert each["score"] == pytest.approx(
                other["start_logit"] + other["end_logit"], rel=1e-4, abs=1e-4
            )
            assert each["probability"] == pytest.approx(other["probability"], rel=1e-3)
        if task.nulls:
            odds = json.loads((tmp_path / "null_odds.json").read_text())[question.id]
            assert answer["null_odds"] == pytest.approx(odds, rel=1e-4, abs=1e-4)
        else:
            assert "null_odds" not in answer


def test_questions_without_much_to_them(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = source(tokenizer, make(tokenizer, tmp_path))
    given = [("", ""), ("a", " "), ("", "a"), ("a", "\u200b"), ("\u200b", "a b"), ("a b c d", LONG * 9)]
    found = list(prediction.predict(made, given))
    assert [x.get("note") for x in found] == [
        "empty line",
        "empty context",
        "empty question",
        None,
        None,
        None,
    ]
    assert [x["answer"] for x in found[:4]] == [None, None, None, ""]
    assert found[3]["candidates"] == [] and found[3]["start"] is None
    assert all((LONG * 9)[x["start"] : x["end"]] == x["text"] for x in found[5]["candidates"])
    always = next(iter(prediction.predict(made, [("a", "b c")], null_threshold=1e9)))
    never = next(iter(prediction.predict(made, [("a", "b c")], null_threshold=-1e9)))
    assert always["answer"] and never["answer"] == "" and never["score"] != always["score"]
    with pytest.raises(ValueError, match="null_threshold = 0 is of models that find answers"):
        other = load.Source(made.spec, made.params, tokenizer, (), [], {"kind": "fill"})
        prediction.head_of(other, null_threshold=0.0)
    bare = load.Source(made.spec, made.params, tokenizer, (), [])  # of another system: nobody says how it was
    assert next(iter(prediction.predict(bare, [("a", "b c")])))["answer"] == always["answer"]


def test_a_run_learns_twenty_questions(tmp_path: pathlib.Path) -> None:
    words = [a + b for a in "klmnr" for b in "aeiou"]
    paragraphs = []
    for number in range(10):
        chosen = [words[(number * 7 + i * 3) % 25] for i in range(16)]
        context = " ".join(chosen)
        at = context.index(f" {chosen[9]} ") + 1
        paragraphs.append((context, [
            entry(f"{number}", chosen[2], (f"{chosen[9]} {chosen[10]}", at)),
            entry(f"{number}x", chosen[3] + " " + chosen[1], is_impossible=True),
        ]))  # fmt: skip
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    data = squad(tmp_path / "train.json", *paragraphs)
    (tmp_path / "text").mkdir()
    c = small.config(
        tmp_path,
        **{
            "task.name": "squad", "data.path": str(data), "data.eval_path": str(data),
            "data.tokenizer": str(vocabulary), "data.seq_len": 16, "task.stride": 6,
            "task.max_question": 2, "train.steps": 200, "train.batch_size": 20,
            "train.eval_batch_size": 7, "optimizer.learning_rate": 3e-3, "model.dropout": 0.0,
            "model.attention_dropout": 0.0, "task.dropout": 0.0,
        },
    )  # fmt: skip
    result = train.train(c, tmp_path / "run")
    assert result["metric"] == "best_f1" and result["value"] == result["best_exact"] == 1
    assert result["no_answer_f1"] == 0.5 and (result["HasAns_f1"], result["NoAns_f1"]) == (1, 1)
    texts = json.loads((tmp_path / "run" / "predictions" / "predictions.json").read_text())
    assert texts == {
        q["id"]: q["answers"][0]["text"] if q["answers"] else "" for _, qas in paragraphs for q in qas
    }
    made = load.read(tmp_path / "run")
    assert made.facts["null_threshold"] == result["null_threshold"] > result["best_f1_thresh"]
    given = [(q["question"], context) for context, qas in paragraphs for q in qas]
    assert [x["answer"] for x in prediction.predict(made, given)] == list(texts.values())
    # A run that goes on keeps what the best checkpoint's evaluation told.
    (tmp_path / "run" / "result.json").unlink()
    assert train.train(c, tmp_path / "run")["value"] == 1
    assert load.read(tmp_path / "run").facts == made.facts
