"""Each reader of what others may give: what is done with some bytes, and good bytes to begin from.

A reader may refuse its bytes by an error that a command tells in one line (`flags.is_users`); any other error is
a find, and so is a property that does not hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import json
import pathlib
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
from etils import epath
from safetensors import numpy as safe

from bert_jax import checkpoint_record, flags, jsonl, spikes, workdir
from bert_jax import config as config_lib
from bert_jax.data import corpus, files, shard_writer, shards, transformers_files
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.data.encoding import Tokenizer
from bert_jax.interop import huggingface, huggingface_config, huggingface_files, tensorflow1
from bert_jax.interop.families import FAMILIES
from bert_jax.models import spec as spec_lib
from bert_jax.scoring import minimal_pairs, nbest
from bert_jax.tasks import conll, questions, superglue_data, superglue_files, tables
from bert_jax.tasks.superglue_benchmarks import BENCHMARKS
from bert_jax.visual import report

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "a", "b", ".", "é", "\u65e5"]
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
      read: what is done with some bytes.
      seeds: bytes that it takes.
    """

    read: Callable[[bytes], None]
    seeds: Sequence[bytes]


def tried(reader: Reader, data: bytes) -> str:
    """Returns "read" or "refused"; raises what the reader must not raise."""
    try:
        reader.read(data)
    except Exception as error:
        if not flags.is_users(error):
            raise
        return "refused"
    return "read"


def _put(name: str, data: bytes) -> epath.Path:
    """Writes a file, into a folder that its name begins with, and returns its path."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return epath.Path(path)


def _dumps(value: object) -> bytes:
    return json.dumps(value).encode()


# --- Text through tokenizers


def _trained() -> list[Tokenizer]:
    texts = ["the cats sat on a mat. naïve 2,000 日本 x" + "abcdefgh"[n % 8] * (n % 5) for n in range(60)]
    return [
        tokenizer_lib.train_wordpiece(texts, 60),
        tokenizer_lib.train_sentencepiece(texts, 60),
        tokenizer_lib.train_bytebpe(texts, 300),
    ]


def _text() -> Callable[[bytes], None]:
    tokenizers = _trained()

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for tokenizer in tokenizers:
            made = tokenizer.encode(text, special=False)
            assert len(made.ids) == len(made.tokens) == len(made.offsets) == len(made.type_ids)
            assert all(0 <= i < tokenizer.vocab_size for i in made.ids)
            assert all(0 <= start <= end <= len(text) for start, end in made.offsets)
            starts = [start for start, _ in made.offsets]
            assert starts == sorted(starts), "offsets go back"
            assert tokenizer.encode_batch([text]) == [made.ids]
            assert isinstance(tokenizer.decode(made.ids), str)

    return read


# --- Vocabularies


def _vocabulary(name: str, beside: dict[str, bytes] | None = None) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        folder = "-".join(("v", name, *(beside or ())))
        for other, content in (beside or {}).items():
            _put(f"{folder}/{other}", content)
        file = _put(f"{folder}/{name}", data)
        tokenizer = tokenizer_lib.load(file.parent if beside else file)
        assert tokenizer.vocab_size > 0
        tokenizer.decode(tokenizer.encode("the cats. é").ids)

    return read


_WORDPIECE = {
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "added_tokens": [{"id": 13, "content": "[X]"}],
    "model": {"type": "WordPiece", "vocab": {word: i for i, word in enumerate(WORDS)}},
}


# --- Models of others


def _config(data: bytes) -> None:
    content = huggingface_files.read_json(_put("hf/config.json", data))
    family = huggingface_config.family_of(content, "config.json")
    huggingface_config.read_spec(family, content, 4, "config.json")
    huggingface_config.read_labels(content, 2, "config.json")
    with contextlib.suppress(huggingface_files.HuggingFaceError):  # there are no arrays
        huggingface.assemble(family, content, {}, [], 4, "hf")


_TF1 = {"vocab_size": 13, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
        "intermediate_size": 4, "max_position_embeddings": 4}  # fmt: skip


def _configs(tokenizer: Tokenizer) -> list[bytes]:
    """Returns of each family a config.json with what must be there, and one with all that may be."""
    least = {**_TF1, "num_hidden_layers": 3, "dim": 4, "n_layers": 1, "n_heads": 1, "hidden_dim": 4}
    made = []
    for name, family in FAMILIES.items():
        bare = {"model_type": name, **least}
        spec = huggingface_config.read_spec(family, bare, 4, name)
        spec = dataclasses.replace(spec, labels=2, local_window=2 * (name == "modernbert"))
        whole = huggingface_config.write_config(family, spec, tokenizer, ("a", "b"), family.classes[0][0])
        made += [_dumps(bare), _dumps(whole)]
    return made


def _arrays(data: bytes) -> None:
    folder = FOLDER / "arrays"
    _put("arrays/model.safetensors", data)
    tensors, _ = huggingface_files.read_tensors(epath.Path(folder))
    assert sum(x.nbytes for x in tensors.values()) <= 4 * len(data)


def _index(data: bytes) -> None:
    _put("index/model.safetensors.index.json", data)
    _put("index/w.safetensors", safe.save({"a": np.zeros(2, np.float32)}))
    _put("secret.safetensors", safe.save({"secret": np.zeros(2, np.float32)}))
    tensors, _ = huggingface_files.read_tensors(epath.Path(FOLDER / "index"))
    assert "secret" not in tensors, "a file out of the directory was read"


def _tensorflow1(data: bytes) -> None:
    _put("tf1/bert_config.json", _dumps(_TF1))
    if not (FOLDER / "tf1" / "x.data-00000-of-00001").exists():
        _put("tf1/x.data-00000-of-00001", bytes(64))
    _put("tf1/x.index", data)
    tensorflow1.read(epath.Path(FOLDER / "tf1"), 4)


def _tf1_index() -> bytes:
    import tensorflow as tf

    prefix = FOLDER / "made"
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=["bert/pooler/dense/kernel"], shape_and_slices=[""],
        tensors=[tf.constant(np.zeros((4, 4), np.float32))],
    )  # fmt: skip
    return pathlib.Path(f"{prefix}.index").read_bytes()


# --- Our own files


def _shards_index(data: bytes) -> None:
    folder = _made_shards("s-index")
    (folder / shards.INDEX).write_bytes(data)
    shards.open(folder, "train")


def _shard(data: bytes) -> None:
    folder = _made_shards("s-file")
    (folder / "train-00000.tokens.npy").write_bytes(data)
    split = shards.open(folder, "train")
    split.read(0, split.num_tokens)


def _made_shards(name: str) -> pathlib.Path:
    folder = FOLDER / name
    if not folder.exists():
        folder.mkdir()
        writer = shard_writer.SplitWriter(folder, "train", 100, 100)
        writer.append(np.arange(5, 14), np.array([3, 2, 4]), np.array([0, 2, 3]))
        splits = {"train": writer.close()}
        shard_writer.write_index(folder, tokenizer="a", vocab_size=100, splits=splits, counts={})
    return folder


def _workdir(data: bytes, name: str) -> None:
    folder = epath.Path(FOLDER / f"w-{name}")
    _put(f"w-{name}/config.json", config_lib.to_json(config_lib.default()).encode())
    _put(f"w-{name}/{name}", data)
    found = report.read(folder)
    assert "<script" not in report.render(found)
    workdir.start_metrics(folder)
    workdir.read_facts(folder)
    workdir.of_model(folder)
    spikes.read(folder)
    assert found


_RESULT = {"task": "classification", "metric": "mcc", "value": 0.5, "best_value": 0.5, "best_step": 1, "std": 0.1,
           "best": {"member": 0, "seed": 1}, "settings": [{"value": 0.5}], "members": [{"member": 0}]}  # fmt: skip
_LINES = (
    {"step": 0, "split": "eval", "loss": 2.0, "unigram_cross_entropy": 3.0, "mlm_accuracy": 0.1, "seconds": 1.0},
    {"step": 1, "split": "train", "loss": 1.0, "tokens_per_second": 9.5, "grad_norm": None, "learning_rate": 1e-4,
     "step_seconds": 0.5},
    {"step": 1, "split": "skip", "spike_step": 1, "spike_loss": None, "usual": 1.0, "back": 0, "batches": 1},
    {"step": 2, "split": "eval", "loss": 1.5, "unigram_cross_entropy": 3.0, "mlm_accuracy": 0.2,
     "most_frequent_accuracy": 0.1, "predicted_share_a": 1, "seconds": 3},
)  # fmt: skip
_SAMPLES = {
    "tokens": [["the", {"gold": "cat", "guess": "dog", "probability": 0.5}, "sat"]],
    "answers": [
        {"text": "a", "gold": "b", "said": "c", "right": False},
        {"text": "a", "gold": "1", "said": "2"},
    ],
    "confusion": {"labels": ["a", "b"], "counts": [[1, 0], [2, 3]]},
}
_FACTS = {
    "kind": "seq2seq", "seq_len": 16, "pairs": False, "choices": ["a"], "superglue": "cb", "max_target": 4,
    "columns": {"text": "t", "text_pair": "", "choices": []}, "beam_size": 2, "length_penalty": 0.6,
    "null_threshold": 0.0, "stride": 4, "max_question": 4, "max_answer": 3, "markers": ["a", "b", "c", "d"],
}  # fmt: skip
_SPIKE = {"step": 3, "name": "loss", "value": 9.0, "usual": 1.0, "back": 2, "skips": [[2, 1]]}
# What lies in a run's workdir, beside its config.
_OF_A_RUN = {
    "metrics.jsonl": b"".join(_dumps(line) + b"\n" for line in _LINES),
    "result.json": _dumps(_RESULT),
    "about.json": b'{"devices": "1 cpu", "vocabulary": 4096, "steps": 19}',
    "samples.json": _dumps(_SAMPLES),
    "task.json": _dumps(_FACTS),
    "spikes.json": _dumps({"format": 1, "spikes": [_SPIKE]}),
}


_LEAVES = {"format": 1, "metric": 0.5, "best_mode": "max", "leaves": {"a/b": ["float32", [2, 3], 7]},
           "notes": {"skips": [[2, 1]], "losses": [1.5]}}  # fmt: skip


def _good_config() -> bytes:
    config = config_lib.default()
    config.train.steps = 1
    return config_lib.to_json(config).encode()


def _config_json(data: bytes) -> None:
    config = config_lib.from_json(data)
    config_lib.validate(config)


def _record(data: bytes) -> None:
    """Reads the bytes as a checkpoint's file, and what record they have as one whose checksum is right."""
    _put("record/1/_CHECKPOINT_METADATA", data)
    with contextlib.suppress(checkpoint_record.DamagedError):
        checkpoint_record.read(epath.Path(FOLDER / "record"), 1)
    with contextlib.suppress(ValueError, KeyError, TypeError):  # there is none
        record = jsonl.parse(data)["custom_metadata"]["record"]
        metadata = {"custom_metadata": {"record": record, "crc32": checkpoint_record.crc32(record)}}
        _put("record/1/_CHECKPOINT_METADATA", _dumps(metadata))
    with contextlib.suppress(checkpoint_record.DamagedError):  # it is passed over
        checkpoint_record.read(epath.Path(FOLDER / "record"), 1)


# --- Data


def _rows(suffix: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        for row in tables.rows(_put(f"rows{suffix}", data), ("a", "b")):
            tables.text(row, "a", empty=True)
            tables.number(row, "b")

    return read


def _superglue(data: bytes) -> None:
    for name, benchmark in BENCHMARKS.items():
        file = _put("superglue.jsonl", data)
        try:
            rows = superglue_files.coded(name, benchmark, file)
            superglue_data.items(name, benchmark, rows, str(file))
            list(superglue_data.inputs(name, file))
        except ValueError as error:
            if not flags.is_users(error):
                raise


def _corpus(source: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        config = config_lib.default()
        config.data.source = source
        config.data.path = str(_put("corpus.md" if source == "text" else "corpus.jsonl", data))
        for paragraph in corpus.paragraphs(config):
            assert paragraph.text.strip() and len(paragraph.text) <= corpus.LONGEST

    return read


def _spec() -> bytes:
    return spec_lib.to_json(spec_lib.ModelSpec(vocab_size=13, mask_id=4, hidden_size=8, heads=2)).encode()


_SQUAD = {"data": [{"paragraphs": [{"context": "a cat sat", "qas": [
    {"id": "1", "question": "who?", "answers": [{"text": "a cat", "answer_start": 0}], "is_impossible": False},
]}]}]}  # fmt: skip
_SUPERGLUE = [
    {"question": "a", "passage": "b", "label": True, "idx": 0},
    {"premise": "a", "hypothesis": "b", "label": "entailment", "idx": 0},
    {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "label": 0, "idx": 0},
    {"word": "a", "sentence1": "a", "sentence2": "a b", "start1": 0, "end1": 1, "start2": 0, "end2": 1,
     "label": True},
    {"text": "a cat it", "label": True,
     "target": {"span1_text": "a", "span1_index": 0, "span2_text": "it", "span2_index": 2}},
    {"passage": {"text": "a", "questions": [{"question": "b", "answers": [{"text": "c", "label": 1}]}]}},
    {"passage": {"text": "a cat", "entities": [{"start": 0, "end": 0}]},
     "qas": [{"query": "@placeholder", "answers": [{"text": "a"}]}]},
]  # fmt: skip


def readers() -> dict[str, Reader]:
    """Returns all readers by name."""
    wordpiece, sentencepiece, bytebpe = _trained()
    json_lines = b'{"a": "x", "b": 1}\n{"a": "", "b": "2.5", "c": null}\n'
    good = _made_shards("s-good")
    merges = {"merges.txt": bytebpe_merges(bytebpe)}
    words_of_bytes = _dumps(json.loads(bytebpe.files()["tokenizer.json"])["model"]["vocab"])
    of = {
        family: transformers_files.files(tokenizer, 16, family)
        for family, tokenizer in (("bert", wordpiece), ("roberta", bytebpe), ("modernbert", bytebpe))
    }
    return {
        "text": Reader(_text(), ["the cats. 2,000 日本 é\ud800".encode("utf-8", "surrogatepass"), b" \x00a\xff"]),
        "vocab.txt": Reader(_vocabulary("vocab.txt"), ["\n".join(WORDS).encode()]),
        "spiece.model": Reader(_vocabulary("spiece.model"), [sentencepiece.files()["spiece.model"]]),
        "tokenizer.json": Reader(
            _vocabulary("tokenizer.json"),
            [_dumps(_WORDPIECE), bytebpe.files()["tokenizer.json"], *(of[name]["tokenizer.json"] for name in of)],
        ),
        "vocab.json": Reader(
            _vocabulary("vocab.json", merges),
            [words_of_bytes],
        ),
        "tokenizer_config.json": Reader(
            _vocabulary("tokenizer_config.json", {"vocab.txt": "\n".join(WORDS).encode()}),
            [
                wordpiece.files()["tokenizer_config.json"],
                b'{"mask_token": {"content": "[MASK]"}}',
                of["bert"]["tokenizer_config.json"],
            ],
        ),
        **{
            f"{name} of bytes": Reader(
                _vocabulary(name, {"vocab.json": words_of_bytes, **merges}), [content]
            )
            for name, content in (
                ("tokenizer_config.json", of["roberta"]["tokenizer_config.json"]),
                ("special_tokens_map.json", b'{"mask_token": {"content": "<mask>", "lstrip": true}, "sep_token": "</s>"}'),
                ("added_tokens.json", _dumps({"<e1>": bytebpe.vocab_size, "<e2>": bytebpe.vocab_size + 1})),
            )
        },
        "huggingface config": Reader(_config, _configs(wordpiece)),
        "safetensors": Reader(
            _arrays, [safe.save({"a": np.ones((2, 3), np.float32), "b": np.ones(3, np.float16)})]
        ),
        "safetensors index": Reader(
            _index, [_dumps({"weight_map": {"a": "w.safetensors"}}), b'{"weight_map": {"a": "../secret.safetensors"}}']
        ),
        "tensorflow 1 index": Reader(_tensorflow1, [_tf1_index()]),
        "model.json": Reader(spec_lib.from_json, [_spec()]),
        "config.json": Reader(_config_json, [_good_config()]),
        "shards.json": Reader(_shards_index, [(good / shards.INDEX).read_bytes()]),
        "shard": Reader(_shard, [(good / "train-00000.tokens.npy").read_bytes()]),
        **{
            name: Reader(functools.partial(_workdir, name=name), [seed])
            for name, seed in _OF_A_RUN.items()
        },
        "checkpoint record": Reader(_record, [_dumps({"custom_metadata": {"record": _LEAVES, "crc32": 1}})]),
        "lines": Reader(lambda data: list(files.lines(_put("lines.txt", data))) and None, [b"a\nb\r\n\xef\xbb\xbfc"]),
        "lines.gz": Reader(lambda data: list(files.lines(_put("lines.gz", data))) and None, [gzip.compress(b"a\nb")]),
        "corpus": Reader(_corpus("text"), [b"# A *heading*\n\nSome text.\n\n---\nMore. " + b"word " * 50]),
        "corpus jsonl": Reader(_corpus("jsonl"), [b'{"text": "a\\n\\nb"}\n{"text": "c", "x": 1}\n']),
        "jsonl": Reader(_rows(".jsonl"), [json_lines]),
        "csv": Reader(_rows(".csv"), [b'a,b\n"x, ""y""",1\n\nz,2\n']),
        "tsv": Reader(_rows(".tsv"), [b"a\tb\nx\t1\r\ny\t2\n"]),
        "conll": Reader(
            lambda data: conll.find_scheme(conll.read(_put("ner.txt", data), (0, -1), ("words", "tags"))) and None,
            [b"-DOCSTART- O\n\nAda B-PER\nL. I-PER\n\n# x\nin O\n", b"a\tS-X\nb\tB-Y\nc\tE-Y\n"],
        ),
        "squad": Reader(lambda data: questions.read(_put("squad.json", data)) and None, [_dumps(_SQUAD)]),
        "superglue": Reader(_superglue, [_dumps(value) + b"\n" for value in _SUPERGLUE]),
        "nbest moses": Reader(
            lambda data: nbest.read(_put("n.txt", data)) and None, [b"0 ||| a b ||| f= 1 ||| -1\n1 ||| c ||| 2\n"]
        ),
        "nbest jsonl": Reader(
            lambda data: nbest.read(_put("n.jsonl", data)) and None,
            [b'{"id": 1, "text": "a", "score": 1, "reference": "a"}\n'],
        ),
        "blimp": Reader(
            lambda data: minimal_pairs.read(str(_put("b.jsonl", data)), "good", "bad", "u") and None,
            [b'{"good": "a", "bad": "b", "u": "x"}\n'],
        ),
    }  # fmt: skip


def bytebpe_merges(tokenizer: Tokenizer) -> bytes:
    content = json.loads(tokenizer.files()["tokenizer.json"])
    return "".join(f"{merge}\n" for merge in content["model"]["merges"]).encode()
