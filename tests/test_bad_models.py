"""Bad model directories, vocabularies and checkpoints: the table of what is said of each."""

import json
import pathlib
import struct

import bad_input
import numpy as np
import pytest
from bad_input import WORDS, Case, Change, Link, cut, flipped, with_json, with_value
from safetensors import numpy as safe


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return bad_input.make_world(tmp_path_factory.mktemp("world"))


def header(length: int, content: bytes = b"{}") -> bytes:
    return struct.pack("<Q", length) + content


def without(*names: str) -> Change:
    def change(data: bytes) -> bytes:
        return safe.save({k: v for k, v in safe.load(data).items() if k not in names})

    return change


def misshapen(name: str) -> Change:
    def change(data: bytes) -> bytes:
        arrays = safe.load(data)
        return safe.save({**arrays, name: np.zeros((3, 2), np.float32)})

    return change


def vocabulary(*tokens: str) -> str:
    return "\n".join(tokens)


OPEN = "visualize --model=m --text=cat --output=o.html"
BPE = {
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel"},
}
WORDPIECE = {
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "vocab": {word: i for i, word in enumerate(WORDS)}},
}


def hf(name: str, says: str, **files) -> Case:
    return Case(name, OPEN, says, {f"m/{k}": v for k, v in files.items()}, ("hf", "m"))


def own(name: str, says: str, files, base: str = "mlm") -> Case:
    return Case(name, OPEN, says, {f"m/{k}": v for k, v in files.items()}, (base, "m"))


def tokens(name: str, says: str, files) -> Case:
    """A vocabulary, as prepare is given it."""
    command = "prepare --config={w}/good.py --config.data.tokenizer=v --output=out"
    return Case(name, command, says, {f"v/{k}": v for k, v in files.items()})


MODERN = {"model_type": "modernbert", "hidden_activation": "gelu"}
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"

TABLE = [
    # --- Hugging Face directories
    Case("no such model", OPEN, "m is no directory"),
    Case("a file for a model", OPEN, "m is no directory", {"m": "x"}),
    Case("an empty folder for a model", OPEN, "m holds no model", {"m": ()}),
    hf("no weights", "m holds no model", **{WEIGHTS: None}),
    hf("no config", "m holds no model", **{CONFIG: None}),
    hf("config that is no JSON", "m/config.json is no JSON file", **{CONFIG: "{"}),
    hf("config that is a list", "m/config.json must hold a JSON object", **{CONFIG: "[]"}),
    hf("config that is a folder", "m/config.json", **{CONFIG: None, "config.json/x": "x"}),
    hf("config that is not UTF-8", "m/config.json is no JSON file", **{CONFIG: b'{"\xff": 1}'}),
    hf("config nested too deeply", "m/config.json is no JSON file", **{CONFIG: "[" * 200_000}),
    hf("a number without an end", "m/config.json is no JSON file", **{CONFIG: '{"a": ' + "9" * 5000 + "}"}),
    hf("unknown kind", "model_type 'gpt2'", **{CONFIG: with_json(model_type="gpt2")}),
    hf("kind that is a list", "model_type ['bert']", **{CONFIG: with_json(model_type=["bert"])}),
    hf("no kind", "has no model_type", **{CONFIG: with_json(model_type=None, architectures=None)}),
    hf("layers in words", "num_hidden_layers = 'two'", **{CONFIG: with_json(num_hidden_layers="two")}),
    hf("no layers", "num_hidden_layers = 0", **{CONFIG: with_json(num_hidden_layers=0)}),
    hf("layers without end", "num_hidden_layers = 1000000000000: it must be a whole number, at least 1 and at most", **{CONFIG: with_json(num_hidden_layers=10**12)}),
    hf("one layer more", "is missing", **{CONFIG: with_json(num_hidden_layers=3)}),
    hf("heads that do not divide", "is not a multiple of", **{CONFIG: with_json(num_attention_heads=3)}),
    hf("no heads", "num_attention_heads = 0", **{CONFIG: with_json(num_attention_heads=0)}),
    hf("unknown activation", "hidden_act = 'swish'", **{CONFIG: with_json(hidden_act="swish")}),
    hf("activation that is a list", "hidden_act = ['gelu']", **{CONFIG: with_json(hidden_act=["gelu"])}),
    hf("a number beyond floats", "hidden_dropout_prob = 1", **{CONFIG: with_json(hidden_dropout_prob=10**400)}),
    *(
        hf(f"a modernbert whose {key} is {value!r}", says, **{CONFIG: with_json(**MODERN, **{key: value})})
        for key, value, says in [
            ("rope_parameters", "x", "rope_parameters = 'x': it must be an object with one for full_attention"),
            ("rope_parameters", {"full_attention": [1]}, "it must be an object with one for full_attention"),
            ("rope_parameters", {"full_attention": {"rope_theta": [1]}}, "rope_theta of full_attention = [1]: it must be a number"),
            ("rope_parameters", {"full_attention": {"rope_type": "yarn"}}, "only the rope_type 'default' can be read"),
            ("global_rope_theta", 0, "rope_theta of full_attention = 0: it must be a number, at least 1"),
            ("classifier_activation", ["gelu"], "classifier_activation = ['gelu'] is another than hidden_activation"),
            ("classifier_pooling", {"a": 1}, "classifier_pooling = {'a': 1}: it must be"),
            ("attention_bias", True, "they must be all true or all false"),
            ("layer_types", "full_attention", "layer_types = 'full_attention': it must be a list"),
            ("layer_types", ["sliding_attention", "full_attention"], "the global layers must be 0, n, 2n.. of"),
            ("local_attention", 0, "local_attention = 0: it must be a whole number, at least 1"),
        ]
    ),
    hf("endless dropout", "hidden_dropout_prob", **{CONFIG: with_json(hidden_dropout_prob=float("inf"))}),
    hf("wider than its arrays", "shape", **{CONFIG: with_json(hidden_size=32)}),
    hf("more words than its arrays", "shape", **{CONFIG: with_json(vocab_size=10**9)}),
    hf("classes that are no list", "architectures = 'Bert'", **{CONFIG: with_json(architectures="Bert")}),
    hf("weights cut short", "m/model.safetensors is damaged", **{WEIGHTS: cut(0.5)}),
    hf("weights that are empty", "m/model.safetensors is damaged", **{WEIGHTS: b""}),
    hf("weights that are a folder", "m/model.safetensors", **{WEIGHTS: None, f"{WEIGHTS}/x": "x"}),
    hf("header of 2^63 bytes", "m/model.safetensors is damaged", **{WEIGHTS: header(2**63)}),
    hf("header longer than the file", "m/model.safetensors is damaged", **{WEIGHTS: header(90_000_000)}),
    hf("header that is no JSON", "m/model.safetensors is damaged", **{WEIGHTS: header(4, b"abcd")}),
    hf("no arrays", "is missing", **{WEIGHTS: safe.save({})}),
    hf("an array left out", ": embeddings.word_embeddings.weight is missing",
       **{WEIGHTS: without("bert.embeddings.word_embeddings.weight")}),
    hf("an array of another shape", "m: embeddings.LayerNorm.weight has the shape (3, 2), and config.json asks for (16,)",
       **{WEIGHTS: misshapen("bert.embeddings.LayerNorm.weight")}),
    hf("a pickle", "m/pytorch_model.bin is a pickle", **{WEIGHTS: None, "pytorch_model.bin": b"cos\nsystem\n"}),
    hf("index that is no JSON", "is no JSON file", **{WEIGHTS: None, INDEX: "?"}),
    hf("index without a map", "weight_map must name files", **{WEIGHTS: None, INDEX: "{}"}),
    hf("index whose map is a list", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": ["a"]}'}),
    hf("index that names lists", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": ["b"]}}'}),
    hf("index that names numbers", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": 1}}'}),
    hf("index that names ..", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": ".."}}'}),
    hf("index out of the directory", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": "../w.safetensors"}}'}),
    hf("index of an absolute path", "weight_map must name files",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": "/etc/passwd"}}'}),
    hf("index with a NUL", "weight_map must name files",
       **{WEIGHTS: None, INDEX: json.dumps({"weight_map": {"a": "w\0.safetensors"}})}),
    hf("index of a file that is not there", "which model.safetensors.index.json names, is not there",
       **{WEIGHTS: None, INDEX: '{"weight_map": {"a": "w.safetensors"}}'}),
    hf("weights that link out", "m/model.safetensors is a link out of the directory",
       **{WEIGHTS: Link("/etc/passwd")}),
    hf("vocabulary that links out", "m/vocab.txt is a link out of the directory",
       **{"vocab.txt": Link("/etc/passwd")}),
    hf("config that links out", "m/config.json is a link out of the directory",
       **{CONFIG: Link("../../x.json")}),
    hf("weights that link to themselves", "m holds no model", **{WEIGHTS: Link("model.safetensors")}),
    hf("another model's vocabulary", "they do not belong together",
       **{"vocab.txt": vocabulary(*WORDS, *"defghijklmn"), "tokenizer.json": None}),
    # --- TensorFlow 1
    Case("an index of TensorFlow that is none", OPEN, "m/x cannot be read",
         {"m/bert_config.json": json.dumps({"vocab_size": 13, "hidden_size": 4, "num_hidden_layers": 1,
          "num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 4}),
          "m/vocab.txt": vocabulary(*WORDS), "m/x.index": "nothing", "m/x.data-00000-of-00001": "x"}),
    Case("an index of TensorFlow that names more than there is", OPEN, "m/x cannot be read: Read less bytes",
         {"m/bert_config.json": json.dumps({"vocab_size": 13, "hidden_size": 4, "num_hidden_layers": 1,
          "num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 4}),
          "m/vocab.txt": vocabulary(*WORDS), "m/x.data-00000-of-00001": "x", "m/x.index":
          b"\0\0\x06\x08\x01\x1a\x02\x08\x01\0\x18\x13bert/pooler/dense/kern\xb9\x14WD\x08Q\x0e" + bytes(36)
          + b"W\xfb\x80\x8b$uG\xdb"}),
    Case("an index of TensorFlow that asks for all memory", OPEN, "m/x cannot be read: std::bad_alloc",
         {"m/bert_config.json": json.dumps({"vocab_size": 13, "hidden_size": 4, "num_hidden_layers": 1,
          "num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 4}),
          "m/vocab.txt": vocabulary(*WORDS), "m/x.data-00000-of-00001": "x", "m/x.index": bytes.fromhex(
          "00000608011a020801001813626572742f706f6f6c65722f64656e73652f6b65726e656c080112081202080412020804"
          "28403569f250790000000001000000006fedced1000000000100000000c0f2a1b000010263003f000000000100000000"
          "6ad514574408510e00000000000000ffffffffffffffff00000000000000000000000000000000000000000000000000"
          "0000000057fb808b247547db"
          )}),
    Case("two checkpoints of TensorFlow", OPEN, "holds several checkpoints (x, y)",
         {"m/bert_config.json": "{}", "m/vocab.txt": vocabulary(*WORDS), "m/x.index": "", "m/y.index": ""}),
    # --- Our own directories
    own("model.json that is no JSON", "m/model.json does not describe a model", {"model.json": "{"}),
    own("model.json that is a list", "m/model.json does not describe a model", {"model.json": "[1]"}),
    own("model.json that is not UTF-8", "m/model.json does not describe a model", {"model.json": b"\xff"}),
    own("model.json of another format", "another format", {"model.json": with_json(format=99)}),
    own("model.json without its size", "model.json does not describe a model: ", {"model.json": with_json(layers=None)}),
    own("model.json with an unknown key", "model.json does not describe a model", {"model.json": with_json(depth=2)}),
    own("layers that are a text", "layers = '2'", {"model.json": with_json(layers="2")}),
    own("layers that are a list", "layers = [2]", {"model.json": with_json(layers=[2])}),
    own("heads of model.json: none", "heads = 0", {"model.json": with_json(heads=0)}),
    own("a size below 0", "hidden_size = -16", {"model.json": with_json(hidden_size=-16)}),
    own("heads of model.json do not divide", "is not a multiple of", {"model.json": with_json(heads=3)}),
    own("unknown kind of model.json", "kind = 'rnn'", {"model.json": with_json(kind="rnn")}),
    own("unknown positions of model.json", "position = 'alibi'", {"model.json": with_json(position="alibi")}),
    own("unknown numbers", "dtype", {"model.json": with_json(dtype="float33")}),
    own("numbers that are no floats", "dtype", {"model.json": with_json(dtype="int32")}),
    own("labels that are numbers", "label_names", {"model.json": with_json(label_names=[1, 2])}),
    own("endless layers", "layers = 1000000000000000", {"model.json": with_json(layers=10**15)}),
    own("other sizes than the arrays", "the files belong to different models", {"model.json": with_json(layers=3)}),
    own("no weights of our own", "no checkpoint in", {"model.safetensors": None}),
    own("own weights cut short", "m/model.safetensors is damaged", {WEIGHTS: cut(0.9)}),
    own("own weights with an absurd header", "m/model.safetensors is damaged", {WEIGHTS: header(2**40)}),
    own("own weights without an array", "encoder/word has the shape none", {WEIGHTS: without("encoder/word")}),
    own("own weights of another shape", "encoder/word has the shape (3, 2)", {WEIGHTS: misshapen("encoder/word")}),
    own("an array where there is a group", "the files belong to different models",
        {WEIGHTS: lambda data: safe.save({**safe.load(data), "encoder": np.zeros(1, np.float32)})}),
    own("no vocabulary", "m/tokenizer: no such file or directory", {"tokenizer": None}),
    own("own vocabulary that links out", "is a link out of the directory", {"tokenizer/vocab.txt": Link("/etc/passwd")}),
    own("facts that are no JSON", "m/task.json", {"task.json": "{"}),
    own("facts that are a list", "m/task.json", {"task.json": "[]"}),
    # --- Runs
    own("a run without a checkpoint", "no checkpoint in", {"checkpoints/1": None}, "run"),
    own("an empty checkpoint", "is damaged", {"checkpoints/1": None, "checkpoints/1/x": "x"}, "run"),
    own("a checkpoint without its record", "is damaged", {"checkpoints/1/_CHECKPOINT_METADATA": None}, "run"),
    own("a record with one bit changed", "is damaged", {"checkpoints/1/_CHECKPOINT_METADATA": flipped(-9)}, "run"),
    own("a checkpoint without its arrays", "is damaged", {"checkpoints/1/state": None}, "run"),
    Case("a workdir's config that is no JSON", "report m", "m/config.json is not JSON", {"m/config.json": "{"}),
    Case("a workdir's config that is a list", "report m", "m/config.json was not written in format", {"m/config.json": "[]"}),
    Case("a workdir's config that is not UTF-8", "report m", "m/config.json", {"m/config.json": b"\xff\xfe"}),
    Case("a workdir's config with a strange key", "report m", "config.json has the unknown key",
         {"m/config.json": with_json(strange={"a": 1})}, ("run", "m")),
    Case("a workdir's config with a group as a value", "report m", "config.json",
         {"m/config.json": with_json(model=5)}, ("run", "m")),
    Case("a workdir's config with a wrong type", "report m", "train.steps = 'x'",
         {"m/config.json": with_value("train", "steps", value="x")}, ("run", "m")),
    Case("a workdir's config with a number beyond floats", "report m", "it must be a number below 1e308",
         {"m/config.json": with_value("optimizer", "learning_rate", value=10**400)}, ("run", "m")),
    Case("metrics that are no JSON", "report m", "m/metrics.jsonl, line 1", {"m/metrics.jsonl": "{\n"}, ("run", "m")),
    Case("metrics that are lists", "report m", "m/metrics.jsonl, line 1", {"m/metrics.jsonl": "[]\n"}, ("run", "m")),
    Case("a result that is no JSON", "report m", "m/result.json", {"m/result.json": "?"}, ("run", "m")),
    Case("samples that are no JSON", "report m", "m/samples.json", {"m/samples.json": "?"}, ("run", "m")),
    Case("no run to report", "report m", "m holds no run", {"m": ()}),
    Case("nothing to report", "report m", "m holds no run"),
    # --- Vocabularies
    Case("no such vocabulary", "prepare --config={w}/good.py --config.data.tokenizer=v --output=out",
         "v: no such file or directory"),
    tokens("nothing in the folder", "no vocab.txt", {"x": "x"}),
    tokens("an empty vocabulary", "v/vocab.txt: the vocabulary is empty", {"vocab.txt": ""}),
    tokens("a vocabulary of empty lines", "the vocabulary is empty", {"vocab.txt": "\n\n"}),
    tokens("an empty line", "line 2 is empty", {"vocab.txt": "[PAD]\n\n[UNK]"}),
    tokens("a token twice", "the token 'cat' stands on lines 7 and 14", {"vocab.txt": vocabulary(*WORDS, "cat")}),
    tokens("no [UNK]", "the vocabulary lacks special tokens: [UNK] or <unk>",
           {"vocab.txt": vocabulary(*(w for w in WORDS if w != "[UNK]"))}),
    tokens("no [MASK]", "lacks special tokens: [MASK]", {"vocab.txt": vocabulary(*WORDS[:4], "a")}),
    tokens("no [CLS], [SEP]", "lacks special tokens: [CLS], [SEP]", {"vocab.txt": vocabulary("[PAD]", "[UNK]", "[MASK]")}),
    tokens("a vocabulary that is not UTF-8", "line 1 is not UTF-8", {"vocab.txt": b"\xff\xfe[\x00P\x00"}),
    tokens("a vocabulary that is a folder", "v/vocab.txt", {"vocab.txt/x": "x"}),
    tokens("a special token that is not there", "lacks the special tokens named for it (mask [M])",
           {"vocab.txt": vocabulary(*WORDS), "tokenizer_config.json": '{"mask_token": "[M]"}'}),
    tokens("settings that are no JSON", "v/tokenizer_config.json: not a JSON file",
           {"vocab.txt": vocabulary(*WORDS), "tokenizer_config.json": "{"}),
    tokens("settings nested too deeply", "v/tokenizer_config.json: not a JSON file",
           {"vocab.txt": vocabulary(*WORDS), "tokenizer_config.json": "[" * 200_000}),
    tokens("case in words", "do_lower_case is 'yes'",
           {"vocab.txt": vocabulary(*WORDS), "tokenizer_config.json": '{"do_lower_case": "yes"}'}),
    tokens("a model of SentencePiece that is none", "v/spiece.model", {"spiece.model": "nothing"}),
    tokens("a model of SentencePiece that is empty", "v/spiece.model", {"spiece.model": b""}),
    tokens("several models", "several (a.model, b.model)", {"a.model": "", "b.model": ""}),
    tokens("tokenizer.json that is no JSON", "v/tokenizer.json: not a JSON file", {"tokenizer.json": "{"}),
    tokens("tokenizer.json that is a list", "v/tokenizer.json: must hold a JSON object", {"tokenizer.json": "[]"}),
    tokens("tokenizer.json without a model", "v/tokenizer.json: holds None", {"tokenizer.json": "{}"}),
    tokens("tokenizer.json with a model that is a text", "v/tokenizer.json", {"tokenizer.json": '{"model": "x"}'}),
    tokens("tokenizer.json of Unigram", "holds Unigram", {"tokenizer.json": json.dumps(WORDPIECE | {"model": {"type": "Unigram"}})}),
    tokens("a vocabulary that is a list", "v/tokenizer.json",
           {"tokenizer.json": json.dumps(WORDPIECE | {"model": {"type": "WordPiece", "vocab": ["a"]}})}),
    tokens("ids with a gap", "ids must be 0 to V - 1",
           {"tokenizer.json": json.dumps(WORDPIECE | {"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}})}),
    tokens("ids that are texts", "is not of the form that a tokenizer's files have",
           {"tokenizer.json": json.dumps(WORDPIECE | {"model": {"type": "WordPiece", "vocab": {"a": "0", "b": 1}}})}),
    tokens("added tokens that are texts", "v/tokenizer.json",
           {"tokenizer.json": json.dumps(WORDPIECE | {"added_tokens": ["[X]"]})}),
    tokens("a normalizer that is a text", "is not of the form that a tokenizer's files have",
           {"tokenizer.json": json.dumps(WORDPIECE | {"normalizer": "BertNormalizer"})}),
    tokens("BPE without its specials", "lacks special tokens", {"tokenizer.json": json.dumps(BPE)}),
    tokens("BPE with a merge of nothing", "v/tokenizer.json",
           {"tokenizer.json": json.dumps(BPE | {"model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(WORDS)}, "merges": ["x y"]}})}),
    tokens("BPE whose merges are numbers", "v/tokenizer.json",
           {"tokenizer.json": json.dumps(BPE | {"model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(WORDS)}, "merges": [7]}})}),
    tokens("BPE whose post-processor has no ends", "v/tokenizer.json",
           {"tokenizer.json": json.dumps(BPE | {"post_processor": {"type": "RobertaProcessing"}})}),
    tokens("vocab.json without merges", "byte-level BPE needs vocab.json and merges.txt", {"vocab.json": '{"a": 0}'}),
    tokens("merges of three", "must be two tokens, to be merged", {"vocab.json": '{"a": 0}', "merges.txt": "a b c\n"}),
    tokens("merges that are not UTF-8", "merges.txt", {"vocab.json": '{"a": 0}', "merges.txt": b"\xff \xff\n"}),
    tokens("a merge that makes no token", "the merge 'a ##s' makes 'a##s', which its vocabulary lacks",
           {"tokenizer.json": json.dumps(BPE | {"model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(WORDS)}, "merges": ["a ##s"]}})}),
    tokens("added tokens that are numbers", "v/vocab.json",
           {"vocab.json": '{"a": 0}', "merges.txt": "", "tokenizer_config.json": '{"added_tokens_decoder": {"x": 1}}'}),
    Case("a vocabulary of a strange kind", "prepare --config={w}/good.py --config.data.tokenizer=v.xml --output=out",
         "v.xml: must be a directory", {"v.xml": "x"}),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_a_bad_model_is_refused_in_one_line(case: Case, world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    bad_input.refused(case, world, tmp_path)
