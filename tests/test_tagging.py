"""Tagging: files of columns, windows, first pieces, the heads' losses, scores, answers, a whole run."""

import json
import logging
import pathlib
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tasks_data
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import prediction, tasks
from bert_jax.config import ConfigError
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import export, load, native
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.tasks import words as words_lib
from bert_jax.tasks.tagging import Tagging

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##x", "##y", "#"]
PAIRS = "B-p I-p"  # the tags of a pair of words


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tasks_data.tokenizer(tmp_path_factory.mktemp("vocabulary"), VOCABULARY)


def config(path: pathlib.Path, **keys: Any) -> ConfigDict:
    return tasks_data.config("ner", path, **keys)


def make(tokenizer: Any, path: pathlib.Path, **keys: Any) -> Tagging:
    return tasks.make(config(path, **keys), tokenizer)


def write(folder: pathlib.Path, train: str, dev: str | None = None) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    (folder / "some.train").write_text(train, newline="")
    (folder / "some.dev").write_text(train if dev is None else dev, newline="")
    return folder


def lines(words: str, tags: str, gap: str = " ") -> str:
    """A sentence as columns."""
    return "".join(f"{w}{gap}{t}\n" for w, t in zip(words.split(), tags.split(), strict=True)) + "\n"


def read(task: Tagging) -> list[tuple[str, str]]:
    return [(" ".join(s.words), " ".join(s.tags)) for s in task.evals["eval"].sentences]


def test_columns_of_every_kind(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    wanted = [("a b", PAIRS), ("# c", "B-p O")]
    spaces = "-DOCSTART- O\n\n# id 7\na B-p\nb  I-p\n\n\n# B-p\n# and so on\nc O"
    tabs = "-DOCSTART-\tX\tO\n# text = a b\n\ufeffa\tDT\tB-p\nb\tNN\tI-p\n \t \n#\tNN\tB-p\nc\tX\tO\n"
    assert read(make(tokenizer, write(tmp_path / "1", spaces))) == wanted
    found = read(make(tokenizer, write(tmp_path / "2", tabs.replace("\n", "\r\n"))))
    assert found == [("\ufeffa b", PAIRS), wanted[1]]  # a mark within a file is a character
    swapped = "1 B-p a x\n2 I-p b x\n\n1 B-p # x\n2 O c x\n"
    columns = {"task__token_column": -2, "task__tag_column": 1}
    assert read(make(tokenizer, write(tmp_path / "3", swapped), **columns)) == wanted


def test_json_lines(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    rows = [
        {"tokens": ["a", "b c"], "tags": ["x", "y"]},
        {"tokens": [], "tags": []},
        {"tokens": ["b"], "tags": ["x"]},
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = make(tokenizer, file, task__name="tagging", data__eval_path=str(file))
    assert read(task) == [("a b c", "x y"), ("b", "x")]
    assert (task.labels, task.metric, task.facts["entities"]) == (("x", "y"), "accuracy", False)
    found = task.metrics("eval", {"tags": np.array([[0, 1], [1, 0]])})
    assert found == {
        "accuracy": pytest.approx(2 / 3),
        "macro_f1": pytest.approx(2 / 3),
        "majority_tag_accuracy": pytest.approx(2 / 3),
    }
    file.write_text(file.read_text().replace("tokens", "say").replace("tags", "kinds"))
    keys = {
        "task__name": "tagging",
        "task__text": "say",
        "task__label": "kinds",
        "task__labels": ("y", "z", "x"),
    }
    named = make(tokenizer, file, **keys, data__eval_path=str(file))
    assert named.labels == ("y", "z", "x")
    chained = make(tokenizer, file, **keys, task__head="crf", data__eval_path=str(file))
    assert chained.heads == {"token_labels": 3, "token_head": "crf"}


def test_every_scheme_becomes_iob2(
    tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    words = "a b c a b"
    given = {"IOB1": "I-p I-p B-p O I-q", "IOB2": "B-p I-p B-p O B-q", "IOBES": "B-p E-p S-p O S-q"}
    for name, tags in given.items():
        caplog.clear()
        with caplog.at_level(logging.INFO):
            task = make(tokenizer, write(tmp_path / name, lines(words, tags)))
        assert f"the tags are in the scheme {name}" in caplog.text
        assert read(task) == [(words, given["IOB2"])]
        assert task.labels == ("O", "B-p", "I-p", "B-q", "I-q")
        assert read(make(tokenizer, tmp_path / name, task__scheme=name.lower())) == read(task)
        for other in {*given} - {name}:
            with pytest.raises(ValueError, match=rf'some.train, line \d: .*task.scheme = "{other.lower()}"'):
                make(tokenizer, tmp_path / name, task__scheme=other.lower())
    # The evaluation must keep the scheme that was found in the training data.
    with pytest.raises(ValueError, match=r"some.dev, line 2: I-p after O"):
        make(tokenizer, write(tmp_path / "mixed", lines("a", "B-p"), lines("a b", "O I-p")))


@pytest.mark.parametrize(
    ("keys", "train", "dev", "message"),
    [
        ({}, "a B-p\nb\n", None, r"some.train, line 2: 1 columns, and line 1 has 2"),
        ({}, "a\nb\n", None, r"line 1: one column"),
        ({}, "\n# no\n\n", None, r"no sentence|line 2"),
        ({}, "", None, r"some.train has no sentence"),
        ({}, "a\t\n", None, r"line 1: its tag is empty"),
        ({}, "a B-p\n\xff\n".encode("latin-1"), None, r"some.train, line 2: not UTF-8"),
        ({}, "a PER\n", None, r"line 1: 'PER' is no tag of entities"),
        ({}, "a B-p\n\nb O\nc I-p\n", None, r"no scheme: IOB2 is broken by .*line 4: I-p after O.*IOB1"),
        ({"task__scheme": "iob2"}, "a O\nb I-p\n", None, r"line 2: I-p after O: an entity .*: mend it"),
        ({}, "a O\nb O\n", None, r"every word has the tag 'O'"),
        ({}, "a B-p\n", "a B-q\n", r"some.dev, line 1: 'q' is none of 'p'"),
        ({"task__labels": ("q",)}, "a B-p\n", None, r"some.train, line 1: 'p' is none of 'q'"),
        ({"task__token_column": 2}, "a B-p\n", None, r"line 1: task.token_column = 2, and there are 2"),
        ({"task__train_file": "no"}, "a B-p\n", None, r"there is no such file"),
        ({"task__eval_file": "no"}, "a B-p\n", None, r"there is no such file"),
    ],
)  # fmt: skip
def test_refusals(
    tmp_path: pathlib.Path, tokenizer: Any, keys: Any, train: Any, dev: Any, message: str
) -> None:
    folder = write(tmp_path / "data", "", "a B-p\n" if dev is None else dev)
    (folder / "some.train").write_bytes(train if isinstance(train, bytes) else train.encode())
    with pytest.raises(ValueError, match=message):
        make(tokenizer, folder, **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"task__head": "entities"}, 'task.head = "entities": of task.name = "ner" it must be one of'),
        ({"task__tag_column": 0}, "are both 0"),
        ({"task__choices": ("x", "y")}, "task.choices is for other data"),
        ({"task__name": "tagging", "task__scheme": "iob2"}, 'task.scheme = "iob2" is of entities'),
        (
            {"task__name": "cola", "task__head": "crf"},
            'task.head = "crf": of task.name = "cola" it must be left',
        ),
        ({"model__pooling": "attention"}, 'model.pooling = "attention" makes one vector'),
        ({"task__eval_file": "x", "data__eval_path": "y"}, "are both set"),
        ({"task__constraints": "some"}, "task.constraints"),
        ({"task__head_rate": -1.0}, "task.head_rate"),
    ],
)
def test_what_cannot_go_together(tmp_path: pathlib.Path, keys: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(tmp_path, **keys)
    assert message in str(error.value)


def test_files_are_found_by_their_names(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    folder = write(tmp_path / "data", lines("a b", PAIRS), lines("c", "O"))
    (folder / "test.conll").write_text("not read")
    assert read(make(tokenizer, folder)) == [("c", "O")]
    (folder / "valid.txt").write_text("b O\n")
    with pytest.raises(ValueError, match=r"has some.dev and valid.txt: name one of them by task.eval_file"):
        make(tokenizer, folder)
    assert read(make(tokenizer, folder, task__eval_file="valid.txt")) == [("b", "O")]
    other = {"data__eval_path": str(folder / "valid.txt")}
    assert read(make(tokenizer, folder / "some.train", **other)) == [("b", "O")]
    with pytest.raises(ValueError, match=r"no file with 'train' in its name"):
        make(tokenizer, tmp_path)
    with pytest.raises(ValueError, match=r"is no folder"):
        make(tokenizer, folder / "some.train", task__eval_file="valid.txt")
    # Without any, some sentences are held out, the same ones whatever their order.
    sentences = [lines(f"{w} b", tags) for w in ("a", "ax", "b", "bx", "c", "cx") for tags in (PAIRS, "O O")]
    alone = tmp_path / "alone.tsv"
    alone.write_text("".join(sentences))
    held = make(tokenizer, alone, data__eval_fraction=0.3)
    seen = {s.words for s in held.evals["eval"].sentences}
    assert len(held.evals["eval"].sentences) == 4 and len(seen) == 2  # equal sentences are on one side
    assert held.train.num_examples == 8
    alone.write_text("".join(reversed(sentences)))
    again = make(tokenizer, alone, data__eval_fraction=0.3)
    assert {s.words for s in again.evals["eval"].sentences} == seen


def test_a_tag_belongs_to_the_first_piece(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    # "axy" is three pieces; of a control character nothing is left, and it is a word all the same.
    task = make(tokenizer, write(tmp_path / "data", lines("a axy \u200b bx", "O B-p I-p O")))
    batch = task.evals["eval"].batch(0, np.arange(2))
    assert batch["tokens"][0].tolist() == [2, 5, 5, 8, 9, 1, 6, 8, 3, 0, 0, 0]
    assert batch["word_positions"][0].tolist() == [1, 2, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0]
    assert batch["tag_labels"][0].tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert batch["tag_weights"][0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert batch["tag_weights"].dtype == np.float32 and not batch["tag_weights"][1].any()  # a row of padding


def test_windows_leave_no_word_out(tokenizer: Any) -> None:
    draw = random.Random(0)
    for seq_len in (4, 5, 6, 9, 12, 30):
        splitter = words_lib.Splitter(tokenizer, seq_len)
        for _ in range(60):
            words = [
                draw.choice(("a", "b", "ax", "bxy", "cxyxy", "a" + "x" * 40))
                for _ in range(draw.randint(1, 40))
            ]
            windows = splitter.windows(words)
            owned = [range(*window.own) for window in windows]
            assert [n for each in owned for n in each] == list(range(len(words)))
            for window, each in zip(windows, owned, strict=True):
                last = window.first + len(window.positions)
                assert len(window.ids) <= seq_len and len(each) > 0
                assert window.first <= each.start and each.stop <= last
                starts = [tokenizer.encode(word).ids[1] for word in words[window.first : last]]
                assert [window.ids[p] for p in window.positions] == starts
    # Words at a border are read with a fourth of a window, or nearly, on both sides.
    windows = words_lib.Splitter(tokenizer, 22).windows(["a"] * 50)
    assert [(w.first, w.first + len(w.positions), w.own) for w in windows] == [
        (0, 20, (0, 18)), (15, 35, (18, 33)), (30, 50, (33, 50)),
    ]  # fmt: skip
    assert [w.own for w in words_lib.Splitter(tokenizer, 52).windows(["a"] * 50)] == [(0, 50)]


def long_task(tmp_path: pathlib.Path, tokenizer: Any, **keys: Any) -> Tagging:
    """One sentence of three windows, an entity across a border, and a short sentence."""
    words = ["a", "bx"] * 10
    tags = ["O"] * 20
    tags[3:12] = ["B-p", *["I-p"] * 8]
    text = "".join(f"{w} {t}\n" for w, t in zip(words, tags, strict=True)) + "\nc B-q\n"
    return make(tokenizer, write(tmp_path / "long", text), **keys)


def test_windows_are_joined(tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = long_task(tmp_path, tokenizer)
    examples = task.evals["eval"]
    assert examples.num_examples == task.train.num_examples > 3
    batches = [examples.batch(step, np.arange(4)) for step in range(examples.num_eval_batches())]
    whole = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    assert whole["tag_weights"].sum() == 21
    # Right guesses at a window's own words, wrong ones at the words that are another's.
    guesses = np.where(whole["tag_weights"] > 0, whole["tag_labels"], 4)[: examples.num_examples]
    found = task.metrics("eval", {"tags": guesses})
    assert (found["f1"], found["f1_p"], found["f1_q"], found["token_accuracy"]) == (1, 1, 1, 1)
    assert found["all_o_token_accuracy"] == pytest.approx(11 / 21) and found["all_o_f1"] == 0
    task.write_predictions(tmp_path, "eval", {"tags": guesses})
    written = (tmp_path / "eval.conll").read_text().split("\n")
    assert written[:5] == ["a O O", "bx O O", "a O O", "bx B-p B-p", "a I-p I-p"]
    assert written[20:23] == ["", "c B-q B-q", ""] and len(written) == 24
    with caplog.at_level(logging.WARNING):
        none = task.metrics("eval", {"tags": np.zeros_like(guesses)})
    assert "no entity is guessed in 2 sentences" in caplog.text
    assert none["f1"] == 0 and none["token_accuracy"] == none["all_o_token_accuracy"]


def test_a_part_of_an_entity_is_a_path_that_may_be(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    """What a window has of another's entity begins with B- for a chain, which may know IOB2 alone."""
    for head, prefix in (("linear", "I-p"), ("crf", "B-p")):
        examples = long_task(tmp_path, tokenizer, task__head=head).evals["eval"]
        labels = [examples.batch(0, np.arange(4))[name] for name in ("tag_labels", "tag_weights")]
        first = [np.flatnonzero(row)[0] for row in labels[1]]
        names = ["O", "B-p", "I-p", "B-q", "I-q"]
        starts = [names[labels[0][n][i]] for n, i in enumerate(first)]
        assert (
            starts[0] == "O" and prefix in starts[1:] and ({"B-p": "I-p", "I-p": "B-p"}[prefix] not in starts)
        )


def source(tokenizer: Any, task: Tagging, seed: int = 1) -> load.Source:
    """A model of one layer for a task, with random weights so large that its answers differ."""
    model = config_lib.default().model
    model.update({"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 20})
    heads = {"has_mlm": False, **task.heads, **({"lstm_size": 8} if "lstm_size" in task.heads else {})}
    spec = spec_lib.from_config(model, vocab_size=tokenizer.vocab_size, mask_id=4, **heads)
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), native._abstract(spec))
    return load.Source(spec, params, tokenizer, task.labels, [], dict(task.facts))


@pytest.mark.parametrize("head", config_lib.config_rules.config_tasks.TOKEN_HEADS)
def test_losses_and_answers_of_each_head(tmp_path: pathlib.Path, tokenizer: Any, head: str) -> None:
    task = long_task(tmp_path, tokenizer, task__head=head)
    made = source(tokenizer, task)
    batch = {name: jnp.array(x) for name, x in task.evals["eval"].batch(0, np.arange(4)).items()}
    said = jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b))
    outputs = said(made.params, batch)
    sums = task.objective.sums(batch, outputs)

    # Each row alone: its own words only, nothing behind them, in float64.
    logits = np.asarray(outputs["token_labels_logits"], np.float64)
    loss = 0.0
    for row in range(4):
        own = np.flatnonzero(batch["tag_weights"][row])
        some, gold = logits[row, own], np.asarray(batch["tag_labels"][row])[own]
        if "crf" in head:
            transitions, start, end = (np.asarray(x, np.float64) for x in outputs["crf"])
            alpha = start + some[0]
            for emission in some[1:]:
                alpha = np.logaddexp.reduce(alpha[:, None] + transitions, axis=0) + emission
            score = start[gold[0]] + end[gold[-1]] + some[np.arange(len(own)), gold].sum()
            score += transitions[gold[:-1], gold[1:]].sum()
            loss += np.logaddexp.reduce(alpha + end) - score
        else:
            loss += np.sum(np.logaddexp.reduce(some, axis=1) - some[np.arange(len(own)), gold])
    assert float(sums["loss"]) == pytest.approx(loss, rel=1e-4)
    tags = np.asarray(outputs["tags"])
    weights = np.asarray(batch["tag_weights"])
    assert float(sums["accuracy"]) == ((tags == np.asarray(batch["tag_labels"])) * weights).sum()
    assert float(task.objective.count(batch)) == weights.sum()
    if head == "linear":
        states = Model(made.spec).apply({"params": made.params}, batch, method="hidden")
        where = np.asarray(batch["word_positions"])
        expected = np.take_along_axis(np.asarray(states), where[..., None], 1)
        kernel = made.params["token_classifier"]
        np.testing.assert_allclose(logits, expected @ kernel["kernel"] + kernel["bias"], atol=1e-3)

    # Answers to the words of the evaluation are its guesses, whatever is in a batch beside them.
    examples = task.evals["eval"]
    collected = []
    for step in range(examples.num_eval_batches()):
        each = {name: jnp.array(x) for name, x in examples.batch(step, np.arange(4)).items()}
        collected.append(np.asarray(said(made.params, each)["tags"]))
    guesses = [
        [task.labels[i] for i in row]
        for row in examples.joined(np.concatenate(collected)[: len(examples.rows)])
    ]
    texts = [" ".join(s.words) for s in examples.sentences]
    found = list(prediction.predict(made, ["", *texts, f"  {texts[1]}\t"], batch_size=2))
    assert found[0] == {"text": "", "words": [], "tags": [], "entities": [], "note": "empty line"}
    assert [answer["tags"] for answer in found[1:]] == [*guesses, guesses[1]]
    for answer in found:
        for entity in answer["entities"]:
            assert answer["text"][entity["start"] : entity["end"]] == entity["text"]
    if head in ("crf", "bilstm_crf"):
        assert not [p for answer in found for p in tasks.tagging.schemes.problems(answer["tags"], "iob2")][2:]


def test_a_tagger_is_saved_and_opened(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = long_task(tmp_path, tokenizer, task__head="bilstm_crf", task__constraints="train")
    made = source(tokenizer, task)
    native.write(tmp_path / "model", made.spec, made.params, tokenizer, made.labels, made.facts)
    again = load.read(tmp_path / "model")
    assert again.spec == made.spec and again.labels == made.labels
    assert (again.spec.token_head, again.spec.crf_constraints, again.spec.lstm_size) == (
        "bilstm_crf",
        "train",
        8,
    )
    assert {*made.params} == {"encoder", "lstm", "token_classifier", "crf"}
    assert {*made.params["lstm"]} == {"forward", "backward"}
    assert {*made.params["crf"]} == {"transitions", "start", "end"}
    text = ["a b c ax", "b"]
    assert list(prediction.predict(again, text)) == list(prediction.predict(made, text))
    with pytest.raises(ValueError, match=r"model.token_head = 'bilstm_crf'"):
        export.choose(made.spec, tokenizer.pad_id)
    plain = source(tokenizer, long_task(tmp_path, tokenizer)).spec
    assert export.choose(plain, tokenizer.pad_id).name == "bert"


def test_entities_have_their_characters(tokenizer: Any) -> None:
    from bert_jax.prediction.tokens import Tagger

    spec = spec_lib.ModelSpec(
        vocab_size=11, mask_id=4, hidden_size=16, heads=2, token_labels=3, has_mlm=False
    )
    tagger = Tagger(load.Source(spec, {}, tokenizer, ("O", "B-p", "I-p"), []))
    (item,) = tagger.items([(" a  bx c\u3000a ",)])
    assert item.rows[0].spots == [1, 2, 4, 5]
    found = tagger.answer(item, [{"tags": np.array([1, 2, 0, 2, 0])}])
    assert found["words"] == ["a", "bx", "c", "a"] and found["tags"] == ["B-p", "I-p", "O", "I-p"]
    assert found["entities"] == [
        {"type": "p", "text": "a  bx", "start": 1, "end": 6},
        {"type": "p", "text": "a", "start": 9, "end": 10},
    ]
    # Of another system's labels that are no entities' tags nothing is said of entities.
    plain = Tagger(load.Source(spec, {}, tokenizer, ("NN", "VB", "DT"), []))
    assert "entities" not in plain.answer(item, [{"tags": np.array([1, 2, 0, 2])}])


def test_real_files(test_data: pathlib.Path, tokenizer: Any) -> None:
    for name, sentences, types, entities in (
        ("wnut17", (3394, 1009), 6, (1975, 836)),
        ("ncbi-disease", (5424, 923), 1, (5134, 787)),
    ):
        task = make(tokenizer, test_data / "ner" / name, data__seq_len=128)
        held = task.evals["eval"]
        assert (len(task.train.sentences), len(held.sentences), len(task.types)) == (*sentences, types)
        for examples, count in ((task.train, entities[0]), (held, entities[1])):
            assert sum(tag[0] == "B" for s in examples.sentences for tag in s.tags) == count
        weights = sum(
            held.batch(n, np.arange(4))["tag_weights"].sum() for n in range(held.num_eval_batches())
        )
        assert weights == sum(len(s.words) for s in held.sentences)


def made_sentences(count: int, seed: int) -> str:
    """Words p are persons; w after n is a place with it; w alone is nothing, so context decides."""
    draw = random.Random(seed)
    text = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(draw.randint(2, 5)):
            for word, tag in draw.choice(
                [[("p", "B-per")], [("n", "B-loc"), ("wx", "I-loc")], [("wx", "O")], [("o", "O")]]
            ):
                words.append(word)
                tags.append(tag)
        text.append(lines(" ".join(words), " ".join(tags), "\t"))
    return "".join(text)


def test_a_run_learns_and_answers(tmp_path: pathlib.Path) -> None:
    """Training, evaluation, predictions, the saved model's answers: one made task, learnt in seconds."""
    from bert_jax import train

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "p", "n", "w", "##x", "o"])
    )
    folder = write(tmp_path / "data", made_sentences(160, 0), made_sentences(24, 1))
    c = config(
        folder, data__seq_len=16, data__tokenizer=str(vocabulary), data__lowercase=True, data__workers=1,
        task__head="bilstm_crf", task__lstm_size=16, task__head_rate=3.0, train__steps=60,
        train__batch_size=16, train__eval_every=30, train__log_every=30, checkpoint__every=60,
        optimizer__learning_rate=4e-3,
        train__compilation_cache=str(tmp_path.parent / "compiled"),
    )  # fmt: skip
    c.model.update({
        "hidden_size": 32, "layers": 2, "heads": 2, "feed_forward_size": 64, "max_positions": 16,
        "scan": True, "init_std": 0.1, "dropout": 0.0, "attention_dropout": 0.0,
    })  # fmt: skip
    result = train.train(c, tmp_path / "run")
    assert (result["metric"], result["value"]) == ("f1", result["f1"])
    assert result["f1"] > 0.95 and result["task_loss"] < 0.2
    assert result["f1_per"] > 0.9 and result["f1_loc"] > 0.9 and result["all_o_f1"] == 0
    blocks = (tmp_path / "run" / "predictions" / "eval.conll").read_text().strip().split("\n\n")
    rows = [[line.split(" ") for line in block.split("\n")] for block in blocks]
    opened = load.read(tmp_path / "run")
    answers = list(prediction.predict(opened, [" ".join(word for word, *_ in block) for block in rows]))
    assert [answer["tags"] for answer in answers] == [[said for *_, said in block] for block in rows]
    right = sum(gold == said for block in rows for _, gold, said in block)
    assert result["token_accuracy"] == pytest.approx(right / sum(map(len, rows)))
