"""Bad files of data: the table of what each command says of them, by file and line where there is one."""

import json
import pathlib

import bad_input
import pytest
from bad_input import WORDS, Case, cut, flipped, gz, with_value

TRAIN = "main --config={w}/good.py --workdir=out --config.data.cache_dir=cache"
VOCABULARY = "--config.data.tokenizer={w}/vocab.txt --config.data.eval_fraction=0.0"
HUGE = "9" * 400
SQUAD = {"id": "1", "question": "who?", "answers": [{"text": "a cat", "answer_start": 0}]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return bad_input.make_world(tmp_path_factory.mktemp("world"))


def text(name: str, content, says: str, source: str = "text", file: str = "t.txt", more: str = "") -> Case:
    """A text to pretrain on."""
    command = f"prepare --config={{w}}/good.py --output=out --config.data.source={source} --config.data.path={file} {more}"
    return Case(name, command, says, {file: content})


def lines(
    name: str, content, says: str, command: str = "score", model: str = "tta", file: str = "t.txt"
) -> Case:
    """A text a line, or a table, for a model."""
    return Case(
        name, f"{command} --model={{w}}/{model} --input={file} --output=o.jsonl", says, {file: content}
    )


def nbest(name: str, content, says: str, file: str = "n.txt", **more) -> Case:
    files = {file: content, **({"r.txt": more["references"]} if more else {})}
    refs = " --references=r.txt" if more else ""
    return Case(
        name, f"rerank --model={{w}}/tta --weight=0.5 --input={file} --output=o.jsonl{refs}", says, files
    )


def alike(name: str, content, says: str, file: str = "t.tsv") -> Case:
    return Case(name, f"similarity --model={{w}}/mlm --input={file} --output=o.jsonl", says, {file: content})


def blimp(name: str, content, says: str, file: str = "t.jsonl") -> Case:
    return Case(name, f"pairs --model={{w}}/tta --input={file} --output=o.jsonl", says, {file: content})


def task(kind: str, name: str, files, says: str, *keys: str) -> Case:
    """Files of a task to fine-tune on, in the folder d."""
    more = " ".join(
        f"--config.{key}" for key in ("task.name=" + kind, "data.path=d", "data.source=embedded", *keys)
    )
    return Case(
        f"{kind}: {name}", f"{TRAIN} {VOCABULARY} {more}", says, {f"d/{k}": v for k, v in files.items()}
    )


def own(
    name: str, content, says: str, file: str = "train.csv", kind: str = "classification", *keys: str
) -> Case:
    return task(kind, name, {file: content}, says, "task.text=text", "task.label=label", *keys)


def ner(name: str, content, says: str, *keys: str) -> Case:
    return task("ner", name, {"train.txt": content, "dev.txt": "a B-X\n"}, says, *keys)


def squad(name: str, content, says: str, file: str = "train-v1.1.json") -> Case:
    if isinstance(content, dict):
        content = json.dumps({"data": [{"paragraphs": [{"context": "a cat sat", "qas": [SQUAD | content]}]}]})
    return task(
        "squad", name, {file: content, "dev-v1.1.json": content}, says, "task.max_question=4", "task.stride=4"
    )


def glue(kind: str, name: str, content, says: str) -> Case:
    return task(kind, name, {"train.tsv": content, "dev.tsv": content}, says)


def superglue(kind: str, name: str, content, says: str) -> Case:
    content = json.dumps(content) + "\n" if isinstance(content, dict) else content
    return task(kind, name, {"train.jsonl": content, "val.jsonl": content}, says)


def shards(name: str, says: str, files) -> Case:
    command = f"{TRAIN} --config.data.source=shards --config.data.path=s"
    return Case(name, command, says, {f"s/{k}": v for k, v in files.items()}, ("shards", "s"))


TEXTS = [
    text("a text that is empty", "", "there is no text in it"),
    text("a text of white space", " \n\n\t\n", "there is no text in it"),
    text("a text that is not UTF-8", b"good\n\xff\n", "t.txt, line 2: not UTF-8 (byte 0xff)"),
    text("a text in UTF-16", "text".encode("utf-16"), "t.txt, line 1: not UTF-8 (byte 0xff)"),
    text("a gzip file cut short", cut(0.5)(gz("text " * 999)), "t.txt.gz: not a whole gzip file", file="t.txt.gz"),
    text("a gzip file that is none", "text", "t.txt.gz: not a whole gzip file", file="t.txt.gz"),
    text("a gzip file with one bit changed", flipped(-6)(gz("text " * 9)), "t.txt.gz: not a whole gzip file", file="t.txt.gz"),
    text("a folder without text", "x", "no file in it ends in .txt", file="d/t.xml", more="--config.data.path=d"),
    text("a marker that is no expression", "text", "data.document_marker = '(' is no regular expression", more="--config.data.document_marker=("),
    text("a document only, to hold one out of", "one text", "data.eval_fraction"),
    text("JSON lines that are none", '{"text": "a"}\n{"text"\n', "t.jsonl, line 2: not JSON", "jsonl", "t.jsonl"),
    text("JSON lines without their text", '{"body": "a"}\n', "t.jsonl, line 1: no text under 'text' (its keys are body)", "jsonl", "t.jsonl"),
    text("JSON lines of lists", "[]\n", "t.jsonl, line 1: no text under 'text' (no object)", "jsonl", "t.jsonl"),
    text("JSON lines with a number", '{"text": 1}\n', "t.jsonl, line 1: no text under 'text'", "jsonl", "t.jsonl"),
    text("JSON nested too deeply", "[" * 100_000 + "\n", "t.jsonl, line 1: not JSON (it is nested too deeply)", "jsonl", "t.jsonl"),
    text("JSON with a number without an end", '{"text": ' + "9" * 5000 + "}\n", "t.jsonl, line 1: not JSON", "jsonl", "t.jsonl"),
    text("half of a surrogate pair", '{"text": "\\ud800"}\n', "a character that is no Unicode", "jsonl", "t.jsonl"),
    text("a dataset that is not there", "x", "TFDS cannot give this dataset", "tfds", "no_such_dataset_of_ours"),
    shards("no index", "s is no shard directory", {"shards.json": None}),
    shards("an index that is no JSON", "s/shards.json is damaged", {"shards.json": "{"}),
    shards("an index that is a list", "s/shards.json has shard format None", {"shards.json": "[]"}),
    shards("an index of another format", "s/shards.json has shard format 9", {"shards.json": with_value("format", value=9)}),
    shards("an index without counts", "s/shards.json is damaged", {"shards.json": '{"format": 1}'}),
    shards("an index whose splits are a list", "s/shards.json is damaged", {"shards.json": with_value("splits", value=["train"])}),
    shards("an index with no number", "s/shards.json is damaged", {"shards.json": with_value("splits", "train", "tokens", value="x")}),
    shards("an index of a strange type", "s/shards.json is damaged", {"shards.json": with_value("dtype", value="O")}),
    shards("an index whose type is no Python", "its dtype is '9 9'", {"shards.json": with_value("dtype", value="9 9")}),
    shards("an index out of the directory", "s/shards.json is damaged", {"shards.json": with_value("splits", "train", "shards", 0, "file", value="../x.npy")}),
    shards("an index of an absolute path", "s/shards.json is damaged", {"shards.json": with_value("splits", "train", "shards", 0, "file", value="/etc/passwd")}),
    shards("a shard that is not there", "s/train-00000.tokens.npy is missing or damaged", {"train-00000.tokens.npy": None}),
    shards("a shard cut short", "s/train-00000.tokens.npy is missing or damaged", {"train-00000.tokens.npy": cut(0.5)}),
    shards("a shard that is empty", "s/train-00000.tokens.npy is missing or damaged", {"train-00000.tokens.npy": b""}),
    shards("a shard whose header has an open text", "s/train-00000.tokens.npy is missing or damaged", {"train-00000.tokens.npy": lambda data: data.replace(b"}", b"'")}),
    shards("a shard that is a pickle", "s/train-00000.tokens.npy is missing or damaged", {"train-00000.tokens.npy": b"\x80\x04N."}),
    shards("a table with one bit changed", "s/train.sentences.npy is damaged: its CRC-32", {"train.sentences.npy": flipped(-3)}),
    shards("a table that is not there", "s/eval.documents.npy is missing or damaged", {"eval.documents.npy": None}),
    shards("shards without their vocabulary", "s/tokenizer", {"tokenizer": None}),
    shards("shards with another vocabulary", "s/tokenizer", {"tokenizer/vocab.txt": "\n".join(WORDS)}),
]  # fmt: skip

GOOD_ROW = "0 ||| the cat ||| f= 1 ||| -1\n"
SCORED = [
    lines("lines that are not UTF-8", b"the cat\n\xff\n", "t.txt, line 2: not UTF-8 (byte 0xff)"),
    lines("lines of a gzip file cut short", cut(0.5)(gz("text " * 999)), "t.txt.gz: not a whole gzip file", file="t.txt.gz"),
    lines("a model that scores nothing", "the cat\n", "the model has no head that predicts the tokens of a text", "score", "encoder"),
    lines("a model that answers nothing", "the cat\n", "head", "predict", "encoder"),
    lines("a question alone", "who?\n", "t.txt, line 1: 1 texts: the model reads 2, separated by tabs", "predict", "answers"),
    lines("a table without names", "a,b\n1,2\n", "t.csv", "predict", "mlm", "t.csv"),
    lines("a table of three columns", "question\tcontext\n1\t2\t3\n", "line 2: 3 columns: the first line names 2", "predict --text=question --text_pair=context", "answers", "t.tsv"),
    lines("a table without the column", "a\tb\n1\t2\n", "there is no column 'question', but 'a', 'b'", "predict --text=question --text_pair=context", "answers", "t.tsv"),
    lines("two columns of one name", "a\ta\n1\t2\n", "two columns are called 'a'", "predict --text=a", "mlm", "t.tsv"),
    lines("a quote that is not closed", 'a,b\n"1,2\n', "t.csv, line 2: no CSV row", "predict --text=a", "mlm", "t.csv"),
    lines("a text that is a number", '{"a": 1}\n', "t.jsonl, line 1: a 1: it must be a text", "predict --text=a", "mlm", "t.jsonl"),
    nbest("no lists", "", "n.txt: no n-best list in it"),
    nbest("a list of two fields", "0 ||| the cat\n", "n.txt, line 1: '0 ||| the cat': it must be id ||| text ||| features ||| score"),
    nbest("a score in words", "0 ||| the ||| f ||| good\n", "n.txt, line 1: score 'good': it must be a number"),
    nbest("an endless score", "0 ||| the ||| f ||| inf\n", "n.txt, line 1: score 'inf': it must be a number"),
    nbest("a list in two places", GOOD_ROW + "1 ||| a ||| f ||| 0\n" + GOOD_ROW, "n.txt, line 3: list 0 was there before"),
    nbest("lists that are not UTF-8", b"0 ||| \xff ||| f ||| 0\n", "n.txt, line 1: not UTF-8"),
    nbest("too few references", GOOD_ROW, "r.txt: no line for list 0", references=""),
    nbest("references that are a folder", GOOD_ROW, "--references=r.txt: there is no such file", references=()),
    nbest("lists of JSON without a score", '{"id": 1, "text": "a"}\n', "there is no column 'score'", "n.jsonl"),
    nbest("an id that is a list", '{"id": [], "text": "a", "score": 1}\n', "n.jsonl, line 1: id []", "n.jsonl"),
    nbest("a score that is a text", '{"id": 1, "text": "a", "score": "x"}\n', "n.jsonl, line 1: score 'x'", "n.jsonl"),
    nbest("a score without an end", f'{{"id": 1, "text": "a", "score": {HUGE}}}\n', "it must be a number", "n.jsonl"),
    nbest("a score that is true", '{"id": 1, "text": "a", "score": true}\n', "n.jsonl, line 1: score True", "n.jsonl"),
    nbest("a reference that is a number", '{"id": 1, "text": "a", "score": 1, "reference": 1}\n', "n.jsonl, line 1: reference 1", "n.jsonl"),
    nbest("two references", '{"id": 1, "text": "a", "score": 1, "reference": "a"}\n{"id": 1, "text": "b", "score": 1, "reference": "b"}\n', "n.jsonl, line 2: list 1 has two references", "n.jsonl"),
    alike("no pairs", "", "t.tsv: no pair in it"),
    alike("a header alone", "sentence1\tsentence2\tscore\n", "t.tsv: no pair in it"),
    alike("no score", "sentence1\tsentence2\n", "there is no column 'score', but 'sentence1', 'sentence2'"),
    alike("a score in words", "sentence1\tsentence2\tscore\na\tb\tc\n", "t.tsv, line 2: score 'c': it must be a number"),
    alike("a row cut short", "sentence1\tsentence2\tscore\na\tb\n", "t.tsv, line 2: 2 columns"),
    alike("a sentence that is null", '{"sentence1": null, "sentence2": "b", "score": 1}\n', "t.jsonl, line 1: sentence1 None", "t.jsonl"),
    Case("an unknown pooling", "similarity --model={w}/mlm --input=t.tsv --pooling=median", "median", {"t.tsv": "sentence1\tsentence2\tscore\na\tb\t1\n"}),
    blimp("no pairs", "", "t.jsonl: no pair in it"),
    blimp("a pair without its bad sentence", '{"sentence_good": "a", "UID": "u"}\n', "t.jsonl, line 1: there is no column 'sentence_bad'"),
    blimp("an empty sentence", '{"sentence_good": " ", "sentence_bad": "b", "UID": "u"}\n', "the sentence_good is empty"),
    blimp("pairs that are lists", "[1]\n", "t.jsonl, line 1: '[1]': each line must be a JSON object"),
    blimp("pairs that are no JSON", "{'a': 1}\n", "t.jsonl, line 1: not JSON"),
    blimp("pairs nested too deeply", "[" * 100_000, "t.jsonl, line 1: not JSON (it is nested too deeply)"),
    blimp("a gzip file cut short", cut(0.5)(gz("{}" * 999)), "not a whole gzip file", "t.jsonl.gz"),
    Case("a layer that is not there", "visualize --model={w}/mlm --text=cat --output=o.html --layer=3", "--layer=3: the model has 2"),
    Case("a text of nothing", ("visualize", "--model={w}/mlm", "--text= ", "--output=o.html"), "text"),
    Case("nothing that computes it", "convert --source={w}/tta --target=t --format=hf", "no class of transformers computes this model"),
    Case("a family that does not fit", "convert --source={w}/mlm --target=t --format=hf --family=modernbert", "modernbert"),
    Case("a method of another model", "score --model={w}/tta --input={w}/lines.txt --output=o --method=pll", "pll"),
]  # fmt: skip

TASKS = [
    task("cola", "no folder", {}, "d"),
    task("classification", "no file", {"x.txt": "x"}, "d has no train.csv, .tsv, .jsonl", "task.text=text", "task.label=label"),
    own("a header alone", "text,label\n", "train.csv has no example"),
    own("no such column", "body,label\na,b\n", "there is no column 'text', but 'body', 'label'"),
    own("semicolons", "text;label\na;b\n", "but 'text;label': ';' stands between its columns: a .csv has commas, a .tsv tabs"),
    own("tabs in a CSV", "text\tlabel\na\tb\n", "'\\t' stands between its columns: a .csv has commas, a .tsv tabs"),
    own("an empty text", "text,label\na,y\n,x\n", "d/train.csv, line 3: the text is empty"),
    own("an empty label", "text,label\na,\n", "d/train.csv, line 2: the label '' names no class"),
    own("three columns", "text,label\na,b,c\n", "d/train.csv, line 2: 3 columns: the header has 2"),
    own("a file that is not UTF-8", b"text,label\n\xff,x\n", "d/train.csv, line 2: not UTF-8"),
    own("a label that is a list", '{"text": "a", "label": []}\n', "d/train.jsonl, line 1: the label [] names no class", "train.jsonl"),
    own("a score in words", "text,label\na,b\n", "d/train.csv, line 2: label 'b': it must be a number", "train.csv", "regression"),
    own("a score without an end", f'{{"text": "a", "label": {HUGE}}}\n', "it must be a number", "train.jsonl", "regression"),
    own("one class alone", "text,label\na,x\nb,x\n", "x"),
    own("an unknown label", "text,label\na,x\nb,y\n", "the label is 'y': it must be one of 'x', 'z'", "train.csv", "classification", "task.labels=('x','z')"),
    ner("one column", "word\n", "d/train.txt, line 1: one column: there must be a word and its tag"),
    ner("no sentence", "\n\n", "d/train.txt has no sentence"),
    ner("a row cut short", "a B-X\nb\n", "d/train.txt, line 2: 1 columns, and line 1 has 2"),
    ner("a tag that is none", "a B-X\nb PER\n", "d/train.txt, line 2: 'PER' is no tag of entities"),
    ner("a scheme that is broken", "a O\nb E-X\n", "the tags keep no scheme", ),
    ner("a column that is not there", "a B-X\n", "task.tag_column = 5, and there are 2 columns", "task.tag_column=5"),
    ner("a file that is not UTF-8", b"\xff B-X\n", "d/train.txt, line 1: not UTF-8"),
    task("ner", "words without tags", {"train.jsonl": '{"words": ["a"], "tags": []}\n'}, "d/train.jsonl, line 1", "task.text=words", "task.label=tags"),
    squad("no JSON", "{", "d/train-v1.1.json: not JSON"),
    squad("nested too deeply", "[" * 100_000, "d/train-v1.1.json: not JSON (it is nested too deeply)"),
    squad("a list", "[]", "it must be one JSON object with 'data'"),
    squad("no data", "{}", "there is no 'data'"),
    squad("data that are a text", '{"data": "x"}', "data 'x': it must be a list"),
    squad("no question", '{"data": []}', "has no question"),
    squad("not UTF-8", b'{"data": "\xff"}', "d/train-v1.1.json, line 1: not UTF-8"),
    squad("answers that are texts", {"answers": ["a"]}, "there is no 'text'"),
    squad("an answer that is not there", {"answers": [{"text": "a dog", "answer_start": 0}]}, "no training question is left: check where the answers start"),
    squad("an answer without its place", {"answers": [{"text": "a cat"}]}, "starts at None: it must be the number of a character"),
    squad("an empty question", {"question": " "}, "data[0].paragraphs[0].qas[0]: the question is empty"),
    squad("an id that is a list", {"id": []}, "id []: it must be a text"),
    squad("no answer to what has one", {"is_impossible": True}, "is_impossible is true and there are 1 answers"),
    glue("cola", "three columns", "a\t1\t*\n", "d/train.tsv, line 1: 3 columns: there are, without a header, 4"),
    glue("cola", "a label of 2", "a\t2\t*\tthe cat\n", "d/train.tsv, line 1: label '2': it must be 0 (unacceptable) or 1 (acceptable)"),
    glue("sst2", "no such column", "text\tlabel\nthe cat\t1\n", "there is no column 'sentence'"),
    glue("sst2", "no example", "sentence\tlabel\n", "d/train.tsv has no example"),
    glue("stsb", "a score of 6", "sentence1\tsentence2\tscore\na\tb\t6\n", "score 6: it must lie between 0 and 5"),
    glue("rte", "a label of its own", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n", "label 'maybe'"),
    superglue("boolq", "no JSON", "{\n", "d/train.jsonl, line 1: not JSON"),
    superglue("boolq", "no passage", {"question": "a", "label": True}, "there is no column 'passage'"),
    superglue("boolq", "a label in words", {"question": "a", "passage": "b", "label": "yes"}, "label 'yes': it must be"),
    superglue("boolq", "no label", {"question": "a", "passage": "b"}, "there is no label"),
    superglue("copa", "an unknown question", {"premise": "a", "choice1": "b", "choice2": "c", "question": "why", "label": 0}, "question 'why': it must be cause or effect"),
    superglue("wic", "a span that is none", {"word": "a", "sentence1": "a", "sentence2": "a", "start1": 5, "end1": 9, "start2": 0, "end2": 1, "label": True}, "is no span of a sentence of 1 characters"),
    superglue("wsc", "no target", {"text": "a", "label": True}, "target"),
    superglue("multirc", "a passage that is a text", {"passage": "a"}, "passage a: it must be an object"),
    superglue("record", "a query without its place", {"passage": {"text": "a cat", "entities": [{"start": 0, "end": 0}]}, "qas": [{"query": "b", "answers": [{"text": "a"}]}]}, "there is no @placeholder in the query"),
    superglue("record", "an entity out of the text", {"passage": {"text": "a", "entities": [{"start": 0, "end": 7}]}, "qas": []}, "[0, 7] is not in the passage"),
]  # fmt: skip


@pytest.mark.parametrize("case", [*TEXTS, *SCORED, *TASKS], ids=lambda case: case.name)
def test_bad_data_are_refused_in_one_line(case: Case, world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    bad_input.refused(case, world, tmp_path)


TABLE = [*TEXTS, *SCORED, *TASKS]
