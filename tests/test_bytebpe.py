"""Byte-level BPE: published splits, files of RoBERTa and ModernBERT, offsets, words, bytes back, training."""

import json
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers as package
from test_tokenizer import ODD, TEXT
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from bert_jax import config as config_lib
from bert_jax.data import bytebpe_files, masking, prepare, shards, vocabulary
from bert_jax.data import tokenizer as tokenizers

MANY = [
    *ODD, *TEXT, " leading", "two  spaces", "tab\tand\n\nlines\n after", "can't we'll I'm DON'T",
    "3.14 x2 naïve Ünïcödé — dash", "e\u0301 \u212b \u1100\u1161\u11a8!", "\U0001f600\U0001f44d\U0001f3fd ok",
    "a\x1c b\x85c",
]  # fmt: skip


@pytest.fixture(scope="module")
def lines(test_data):
    text = (test_data / "corpus/books/Moby-Dick.md").read_text(encoding="utf-8")
    return [line for line in text[20_000:140_000].split("\n") if line and "<" not in line]


@pytest.fixture(scope="module")
def trained(lines):
    return tokenizers.train_bytebpe(lines, 1200)


@pytest.fixture(scope="module")
def small():
    return tokenizers.train_bytebpe(TEXT, 320)


def merges_of(tokenizer):
    return json.loads(tokenizer._vocabulary()[1])["model"]["merges"]


def roberta_files(folder, tokenizer, **config):
    """Writes a vocabulary in RoBERTa's layout."""
    folder.mkdir(exist_ok=True)
    vocabulary = {tokenizer.token(i): i for i in range(tokenizer.vocab_size)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    content = "#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges_of(tokenizer))
    (folder / "merges.txt").write_text(content, encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def roberta(tokenizer, prefix_space):
    """The package's own RoBERTa of a trained vocabulary."""
    vocabulary = {tokenizer.token(i): i for i in range(tokenizer.vocab_size)}
    merges = [tuple(merge.split(" ")) for merge in merges_of(tokenizer)]
    other = package.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    other.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=prefix_space
    )
    other.decoder = decoders.ByteLevel()
    plain = [AddedToken(name, special=True, normalized=False) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    other.add_special_tokens([*plain, AddedToken("<mask>", special=True, normalized=False, lstrip=True)])
    return other


def modern(tokenizer):
    """A tokenizer of the package in ModernBERT's form: names behind the vocabulary, runs of spaces, NFC."""
    first = [tokenizer.token(i) for i in range(4, tokenizer.vocab_size - 1)]
    merges = [tuple(merge.split(" ")) for merge in merges_of(tokenizer)]
    other = package.Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(first)}, merges=merges))
    other.normalizer = normalizers.NFC()
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    other.decoder = decoders.ByteLevel()
    other.add_tokens([AddedToken("  ", normalized=True), AddedToken("|||MAIL|||", normalized=False)])
    other.add_special_tokens(["<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    other.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    other.add_tokens(["[unused0]"])
    other.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, other.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return other


# The same as the published code


def test_published_split(tmp_path):
    """The example in RoBERTa's own tests at Hugging Face."""
    names = ["l", "o", "w", "e", "r", "s", "t", "i", "d", "n", "Ġ", "Ġl", "Ġn", "Ġlo", "Ġlow", "er"]
    names += ["Ġlowest", "Ġnewer", "Ġwider", "<unk>", "<s>", "<pad>", "</s>", "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ l\nĠl o\nĠlo w\ne r\n\n", encoding="utf-8")
    tokenizer = tokenizers.load(tmp_path)
    encoding = tokenizer.encode("lower newer", special=False)
    assert encoding.tokens == ["l", "o", "w", "er", "Ġ", "n", "e", "w", "er"]
    assert encoding.ids == [0, 1, 2, 15, 10, 9, 3, 2, 15]
    # Bytes without a token are unknown, where the package alone would drop them.
    assert tokenizer.encode("lox", special=False).tokens == ["l", "o", "<unk>"]


@pytest.mark.parametrize("prefix_space", [False, True])
def test_same_as_the_package_as_roberta(tmp_path, trained, lines, prefix_space):
    ours = tokenizers.load(roberta_files(tmp_path / "r", trained, add_prefix_space=prefix_space))
    theirs = roberta(trained, prefix_space)
    implementation = package.ByteLevelBPETokenizer(
        str(tmp_path / "r/vocab.json"), str(tmp_path / "r/merges.txt"), add_prefix_space=prefix_space
    )
    for text in [*MANY, *lines[:200], "x <mask> y</s>z"]:
        text = text.encode(errors="replace").decode()
        mine, other = ours.encode(text), theirs.encode(text)
        assert mine.ids == other.ids and mine.type_ids == other.type_ids, text
        for token, (start, end), at in zip(
            mine.tokens[1:-1], other.offsets[1:-1], mine.offsets[1:-1], strict=True
        ):
            # To the package a token of spaces is nowhere, and a text's own first space the one that it put.
            if start < end and token != "<mask>" and not (start == 0 and text[0] == " "):
                assert at == (start, end), (text, token)
        mine, other = ours.encode(text, "b c"), theirs.encode(text, "b c")
        assert mine.ids == other.ids and mine.type_ids == other.type_ids
        assert ours.encode_batch([text])[0] == other.ids[1 : other.ids.index(2)] or "</s>" in text
        if "<" not in text and "[" not in text:
            assert ours.encode(text, special=False).ids == implementation.encode(text).ids
    encoding = ours.encode("x <mask>.")
    assert encoding.offsets[encoding.tokens.index("<mask>")] == (2, 8)
    assert ours.prefix_space == prefix_space and (ours.pair_separators, ours.pair_type) == (2, 0)


def test_same_as_the_package_as_modernbert(tmp_path, trained, lines, caplog):
    theirs = modern(trained)
    theirs.enable_truncation(8)
    theirs.enable_padding(length=16)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizers.load(tmp_path)
    assert not caplog.records
    theirs.no_truncation()  # a file that was saved with it must not cut texts
    theirs.no_padding()
    assert not ours.prefix_space and (ours.pair_separators, ours.pair_type) == (1, 1)
    for text in [*MANY, *lines[:200], "x [MASK] y  |||MAIL|||<|endoftext|>[unused0]"]:
        text = text.encode(errors="replace").decode()
        for pair in (None, "b  c"):
            mine, other = ours.encode(text, pair), theirs.encode(text, pair)
            assert (mine.ids, mine.type_ids) == (other.ids, other.type_ids), text
    assert ours.encode("a", "b").tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    names = {ours.token(i) for i in ours.special_ids.tolist()}
    assert names == {"<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}
    assert ours.vocab_size == theirs.get_vocab_size()
    text = "e\u0301  x"  # composed, and a run of spaces
    encoding = ours.encode(text, special=False)
    assert ours.decode(encoding.ids) == "é  x"
    assert encoding.offsets[0] == (0, 2) and encoding.offsets[-2:] == [(2, 4), (4, 5)]
    text = "e\u0301e\u0323\u0301 \u1100\u1161\u11a8!"
    offsets = ours.encode(text, special=False).offsets
    assert [text[start:end] for start, end in dict.fromkeys(offsets)] == [
        "e\u0301",
        "e\u0323",
        "\u0301",
        " ",
        "\u1100\u1161\u11a8",
        "!",
    ]


# Offsets, words, bytes


def test_offsets(trained):
    text = "naïve 😀 (see) \n x"
    encoding = trained.encode(text, special=False)
    cut = [text[start:end] for start, end in encoding.offsets]
    for token, part in zip(encoding.tokens, cut, strict=True):
        held = bytes(bytebpe_files.STAND_INS.index(character) for character in token)
        if held.strip() and part.strip():
            assert not part[0].isspace()
            assert held.strip() in part.encode() or part in "ï😀"
    assert cut.count("😀") == 4  # each of its pieces covers it
    assert trained.encode("\ud800x", special=False).offsets[-1] == (1, 2)


def test_offsets_of_a_space_with_a_part_of_a_character():
    tokenizer = tokenizers.train_bytebpe(["a \u2014 b \u2013 c \u201cd\u201d"] * 9, 262)
    assert tokenizer.token(260) == "\u00e2\u0122"  # the first two bytes of them all
    tokenizer = tokenizers.train_bytebpe(["a \u2014 b \u2013 c \u201cd\u201d"] * 9, 263)
    encoding = tokenizer.encode("a \u2014", special=False)
    assert encoding.tokens[-2:] == ["\u0120\u00e2\u0122", "\u0136"] and encoding.offsets[-2:] == [
        (2, 3),
        (2, 3),
    ]


@pytest.mark.parametrize("text", MANY)
def test_odd_text(trained, text):
    encoding = trained.encode(text, special=False)
    assert encoding.ids == trained.encode_batch([text])[0]
    assert all(0 <= start < end <= len(text) for start, end in encoding.offsets)
    assert [start for start, _ in encoding.offsets] == sorted(start for start, _ in encoding.offsets)
    assert trained.unk_id not in encoding.ids
    sound = text.encode(errors="replace").decode() if "\ud800" not in text else None
    if sound is not None and not text.startswith(" "):
        assert trained.decode(encoding.ids) == sound


def test_decode_gives_the_bytes_back(tmp_path, trained, lines):
    plain = tokenizers.load(roberta_files(tmp_path / "r", trained))
    texts = [*lines, *(text for text in MANY if "\ud800" not in text)]
    for text, ids in zip(texts, plain.encode_batch(texts), strict=True):
        assert plain.decode(ids) == text
    ids = plain.encode("a <mask> b", "c").ids
    assert plain.decode([*ids, plain.pad_id]) == "a <mask> b c"
    assert plain.decode(plain.encode("é", special=False).ids[:1]) == "\ufffd"
    assert "".join(plain.decode([i]) for i in plain.encode_batch(["one two"])[0]) == "one two"
    with pytest.raises(ValueError, match="is not in"):
        plain.decode([plain.vocab_size])


def words_of(tokenizer, text):
    """The text's words, as whole-word masking finds them."""
    encoding = tokenizer.encode(text)
    tokens = np.array([encoding.ids])
    starts = masking.word_starts(tokens, np.ones_like(tokens), tokenizer.special_ids, tokenizer.continues)[0]
    found: list[list[int]] = []
    for i, start in zip(encoding.ids, starts.tolist(), strict=True):
        if i not in tokenizer.special_ids:
            if start or not found:
                found.append([])
            found[-1].append(i)
    return [tokenizer.decode(word).strip(" ") for word in found]


@pytest.mark.parametrize("prefix_space", [False, True])
def test_words(tmp_path, trained, prefix_space):
    tokenizer = tokenizers.load(roberta_files(tmp_path / "r", trained, add_prefix_space=prefix_space))
    text = "Unbelievably naïve, zyzzyva 1234567 can't \u4e2d\u6587"
    assert len(tokenizer.encode(text).ids) > 20  # so words are split
    assert words_of(tokenizer, text) == [
        "Unbelievably",
        "naïve",
        ",",
        "zyzzyva",
        "1234567",
        "can",
        "'t",
        "\u4e2d\u6587",
    ]
    assert words_of(tokenizer, "see-saw it)") == ["see", "-saw", "it", ")"]
    assert words_of(tokenizer, "one\ntwo") == ["one", "\ntwo"]
    assert not tokenizer.continues[tokenizer.special_ids].any()
    assert tokenizer.continues.shape == (tokenizer.vocab_size,)


def test_a_space_is_put_before_the_text_alone(trained):
    assert trained.encode("x <mask>.").tokens[-3:] == ["<mask>", ".", "</s>"]
    for text in MANY:
        if text[:1] not in (" ", "") and "<" not in text:
            spaced = trained.encode(f" {text}", special=False)
            assert trained.encode(text, special=False).ids == spaced.ids


def test_running_text_has_a_space_before_each_sentence(tmp_path, trained):
    plain = tokenizers.load(roberta_files(tmp_path / "r", trained))
    for tokenizer in (plain, trained):
        first, second = tokenizer.encode_running(["He left.", "She did not."])
        assert tokenizer.token(second[0]).startswith("Ġ")
        assert [*first, *second] == tokenizer.encode(" He left. She did not.", special=False).ids


@pytest.mark.parametrize("name", ["small", "plain"])
def test_join_is_encode(request, tmp_path, small, name):
    tokenizer = small if name == "small" else tokenizers.train_wordpiece(TEXT, 120)
    first, second = tokenizer.encode_batch(["it was", "the age"])
    for pair in (None, "the age"):
        encoding = tokenizer.encode("it was", pair)
        assert tokenizer.join(first, pair and second) == (encoding.ids, encoding.type_ids)


# Files


def test_save_and_load(tmp_path, small, caplog):
    theirs = modern(small)
    theirs.save(str(tmp_path / "tokenizer.json"))
    plain = roberta_files(tmp_path / "r", small)
    cased = [small, tokenizers.load(tmp_path), tokenizers.load(plain), tokenizers.load(plain / "vocab.json")]
    cased += [
        tokenizers.load(plain, lowercase=True),
        tokenizers.load(plain, lowercase=True, strip_accents=False),
    ]
    for n, tokenizer in enumerate(cased):
        tokenizer.save(tmp_path / f"deep/{n}")
        again = tokenizers.load(tmp_path / f"deep/{n}")
        assert {p.name for p in (tmp_path / f"deep/{n}").iterdir()} == {
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert again.digest() == tokenizer.digest() == pickle.loads(pickle.dumps(tokenizer)).digest()
        for name in (
            "kind",
            "lowercase",
            "strip_accents",
            "prefix_space",
            "pair_separators",
            "pair_type",
            "specials",
        ):
            assert getattr(again, name) == getattr(tokenizer, name)
        assert again.encode_batch(MANY) == tokenizer.encode_batch(MANY)
        said = json.loads((tmp_path / f"deep/{n}/tokenizer_config.json").read_text())
        assert said["add_prefix_space"] is tokenizer.prefix_space and said["kind"] == "bpe"
    assert not caplog.records
    digests = [tokenizer.digest() for tokenizer in cased]
    assert digests[2] == digests[3] and len(set(digests)) == 5
    assert cased[4].encode("ÀB", special=False).ids == cased[2].encode("ab", special=False).ids
    assert cased[5].encode("ÀB", special=False).ids == cased[2].encode("àb", special=False).ids
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(small.encode_batch, (TEXT,)) == small.encode_batch(TEXT)


def test_save_over_another_kind(tmp_path, small):
    others = tokenizers.train_wordpiece(TEXT, 120), tokenizers.train_sentencepiece(TEXT, 60)
    for tokenizer in (*others, small, *others, small):
        tokenizer.save(tmp_path)
        assert tokenizers.load(tmp_path).digest() == tokenizer.digest()


def test_names_of_other_files(tmp_path, small):
    plain = roberta_files(tmp_path / "r", small)
    (plain / "added_tokens.json").write_text(json.dumps({"<e1>": small.vocab_size}))
    tokenizer = tokenizers.load(plain)
    assert tokenizer.encode("x<e1>", special=False).ids[-1] == small.vocab_size
    assert small.vocab_size not in tokenizer.special_ids
    (plain / "special_tokens_map.json").write_text(
        json.dumps({"sep_token": "<e1>", "mask_token": {"content": "<unk>"}})
    )
    tokenizer = tokenizers.load(plain)
    assert tokenizer.encode("").tokens == ["<s>", "<e1>"] and tokenizer.mask_id == tokenizer.unk_id
    assert tokenizers.load(plain, sep="</s>").encode("").tokens == ["<s>", "</s>"]


def test_bad_files(tmp_path, small):
    content = json.loads(small._vocabulary()[1])

    def refused(message, **changes):
        changed = {key: {**value, **changes.pop(key)} if key == "model" and key in changes else value
                   for key, value in content.items()} | changes  # fmt: skip
        (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
        with pytest.raises(tokenizers.VocabularyError, match=message) as error:
            tokenizers.load(tmp_path)
        assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)

    refused("its normalizer has Replace", normalizer={"type": "Replace"})
    refused("end_of_word_suffix is '</w>'", model={"end_of_word_suffix": "</w>"})
    refused("cannot be built", model={"merges": ["a"]})
    refused("the merge 'q qq' makes 'qqq', which its vocabulary lacks", model={"merges": ["q qq"]})
    refused("lacks", model={"merges": [["q" * 300, "q" * 300]]})  # the package panics, which is no Exception
    refused("ids must be 0 to V - 1", model={"vocab": {"<s>": 0, "a": 7}})
    refused("only WordPiece", pre_tokenizer={"type": "Metaspace"})
    template = bytebpe_files.bert_pairs("<s>", "</s>", {"<s>": 0, "</s>": 2})
    refused("only CLS A SEP B SEP", post_processor={**template, "single": template["single"][:2]})
    refused(
        "lacks special tokens", added_tokens=[], model={"vocab": {"a": 0}, "merges": []}, post_processor=None
    )
    plain = roberta_files(tmp_path / "r", small)
    (plain / "merges.txt").write_text("#version: 0.2\na b\na b c\n")
    with pytest.raises(ValueError, match=r"merges\.txt: line 3 is 'a b c'"):
        tokenizers.load(plain)
    (plain / "merges.txt").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        tokenizers.load(plain)
    (plain / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"merges\.txt: no such file"):
        tokenizers.load(plain)


# Training

_TRAIN = """
import sys
from bert_jax.data import tokenizer
print(tokenizer.train_bytebpe(sys.stdin.read().split("\\n"), 700).digest())
"""


def test_training_is_the_same_in_every_process(lines):
    text = "\n".join(lines)[:60_000]
    here = tokenizers.train_bytebpe(iter(text.split("\n")), 700).digest()
    for seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", _TRAIN],
            input=text, capture_output=True, text=True, encoding="utf-8", check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd(), "PYTHONUTF8": "1"},
        ).stdout  # fmt: skip
        assert output.strip() == here


def test_trained_vocabulary(trained, lines):
    names = [trained.token(i) for i in range(trained.vocab_size)]
    assert trained.vocab_size == 1200
    assert names[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and names[-1] == "<mask>"
    assert names[4:260] == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert names[260:-1] == ["".join(merge.split(" ")) for merge in merges_of(trained)]
    assert trained.special_ids.tolist() == [0, 1, 2, 3, 1199]
    # The package's own trainer on the same words finds the same merges.
    other = package.ByteLevelBPETokenizer(add_prefix_space=True)
    other.train_from_iterator(
        lines, vocab_size=1199, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False
    )
    theirs = other.get_vocab()
    assert sorted(theirs, key=theirs.__getitem__) == names[:-1]
    assert trained.encode_batch(lines) == [other.encode(line).ids for line in lines]


def test_training_keeps_to_its_arguments(caplog):
    cased = tokenizers.train_bytebpe(TEXT, 300)
    assert not cased.lowercase and cased.prefix_space
    assert cased.encode("The <mask> [SEP]</s>", special=False).tokens.count("<mask>") == 1
    lower = tokenizers.train_bytebpe(["ÉT\u00c9 " * 40], 270, lowercase=True, prefix_space=False)
    assert lower.lowercase and lower.strip_accents and not lower.prefix_space
    assert lower.encode("été", special=False).tokens == ["ete"]
    assert "not 270" in caplog.text
    marked = tokenizers.train_bytebpe(["<mask></s> " * 50 + "ab ab"], 300)
    assert not any("mask" in marked.token(i) for i in range(marked.vocab_size - 1))
    for size in (262, 280):
        assert tokenizers.train_bytebpe(TEXT, size).vocab_size == size
    with pytest.raises(ValueError, match=r"data\.vocab_size is 261"):
        tokenizers.train_bytebpe(TEXT, 261)
    with pytest.raises(ValueError, match="no words"):
        tokenizers.train_bytebpe([" ", "", "\n"], 300)


def test_training_holds_a_bounded_number_of_words(monkeypatch):
    monkeypatch.setattr(vocabulary, "MOST_WORDS", 50)
    tokenizer = tokenizers.train_bytebpe((f"common word{i}" for i in range(2000)), 300)
    assert tokenizer.id("Ġcommon") is not None


def test_white_space_is_trained_on(caplog):
    with caplog.at_level(logging.ERROR):
        tokenizer = tokenizers.train_bytebpe(["def f():\n    return 1\n"] * 9, 300)
    assert tokenizer.id("ĊĠĠĠ") is not None
    text = "def f():\n    return 1\n"
    assert "ĊĠĠĠ" in tokenizer.encode(text).tokens
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_normal_forms_do_not_break_the_bytes(trained):
    text = unicodedata.normalize("NFD", "Ünïcödé")
    assert trained.decode(trained.encode(text).ids) == text


def test_prepare_trains_it(tmp_path):
    (tmp_path / "text").mkdir()
    sentences = ["It was the best of times.", "It was the worst of times!", "The Café was small."]
    (tmp_path / "text/a.txt").write_text("\n\n".join([" ".join(sentences)] * 8), encoding="utf-8")
    config = config_lib.default()
    config.data.update({"source": "text", "path": str(tmp_path / "text"), "holdout": "tail", "workers": 1})
    config.data.update({"eval_fraction": 0.3, "tokenizer_kind": "bpe", "vocab_size": 290})
    counts = prepare.prepare(config, tmp_path / "out", progress=False)
    tokenizer = tokenizers.load(tmp_path / "out/tokenizer")
    assert (tokenizer.kind, tokenizer.lowercase, tokenizer.vocab_size) == ("bpe", False, 290)
    assert counts["train"]["unknown_tokens"] == 0
    split = shards.open(tmp_path / "out", "train")
    assert tokenizer.decode(split.read(0, split.num_tokens).tolist()).startswith(" ".join(sentences[:3]))
    # RoBERTa puts no space before a text, but in running text each sentence has one.
    plain = tokenizers.load(roberta_files(tmp_path / "r", tokenizer))
    config.data.tokenizer = str(tmp_path / "r")
    prepare.prepare(config, tmp_path / "other", progress=False)
    split = shards.open(tmp_path / "other", "train")
    assert plain.decode(split.read(0, split.num_tokens).tolist()).startswith(" " + " ".join(sentences[:3]))
