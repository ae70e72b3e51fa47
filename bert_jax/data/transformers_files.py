"""A tokenizer's files for Hugging Face's `transformers`: what `AutoTokenizer.from_pretrained` reads."""

import base64
import dataclasses
import json
from typing import Any

from bert_jax.data.bytebpe import ByteBPE
from bert_jax.data.bytebpe_files import added_token, bert_pairs
from bert_jax.data.encoding import Tokenizer
from bert_jax.data.unigram import SPACE, SentencePiece
from bert_jax.data.wordpiece import LONGEST_WORD, WordPiece

# Families whose models take no type ids there. All others get them for pairs.
_NO_TYPES = ("roberta", "distilbert", "modernbert")


def files(tokenizer: Tokenizer, max_length: int, family: str) -> dict[str, bytes]:
    """Returns names and contents: the vocabulary as each system reads it, `tokenizer.json` and its settings.

    Ids and type ids are then those of `encode`. Two things of SentencePiece its fast form there cannot do:
    pieces of digits and a comma, which ALBERT's rule always splits, are renamed in `tokenizer.json` (a space
    behind) to be out of reach; and a few scripts differ with `lowercase` and `strip_accents` (Greek final
    sigma, vowel signs of the scripts of India and Thailand).

    The class is one of theirs that does what this tokenizer does: BertTokenizer (DistilBertTokenizer for
    "distilbert"; it reads ELECTRA's and English RoFormer's vocabularies too, whose own classes are the
    same or need Chinese word lists), AlbertTokenizer, RobertaTokenizer, or PreTrainedTokenizerFast, which
    does what `tokenizer.json` says.

    Args:
      tokenizer: of any kind; a SentencePiece model that is not of the unigram kind gets no `tokenizer.json`.
      max_length: tokens that the model reads, ends included.
      family: "bert", "roberta", "albert", "electra", "distilbert", "roformer", "modernbert" or another.
    """
    named = {f"{role}_token": name for role, name in dataclasses.asdict(tokenizer.specials).items()}
    config: dict[str, Any] = {
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if family not in _NO_TYPES and tokenizer.pair_type:
        config["model_input_names"].insert(1, "token_type_ids")
    written = tokenizer.files()
    added = [added_token(i, tokenizer.token(i)) for i in tokenizer.special_ids.tolist()]
    fast: dict[str, Any] | None
    if isinstance(tokenizer, WordPiece):
        fast = _wordpiece(tokenizer, added)
        config["tokenizer_class"] = "DistilBertTokenizer" if family == "distilbert" else "BertTokenizer"
    elif isinstance(tokenizer, SentencePiece):
        fast = _unigram(tokenizer, added)
        usual = (tokenizer.unk_id, tokenizer.specials.cls, tokenizer.specials.sep) == (1, "[CLS]", "[SEP]")
        config["tokenizer_class"] = "AlbertTokenizer" if usual or fast is None else "PreTrainedTokenizerFast"
    elif isinstance(tokenizer, ByteBPE):
        fast = json.loads(written["tokenizer.json"])
        added = fast["added_tokens"]
        kinds = [(fast[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "post_processor")]
        # RobertaTokenizer builds this pipeline itself, from two files in older versions.
        if kinds == [None, "ByteLevel", "RobertaProcessing"]:
            config["tokenizer_class"] = "RobertaTokenizer"
            written["vocab.json"] = _json(fast["model"]["vocab"])
            merges = "".join(f"{merge}\n" for merge in fast["model"]["merges"])
            written["merges.txt"] = f"#version: 0.2\n{merges}".encode()
        named |= {"bos_token": tokenizer.specials.cls, "eos_token": tokenizer.specials.sep}
    else:
        raise TypeError(f"no files for a {type(tokenizer).__name__} are known")
    if fast is not None:
        written["tokenizer.json"] = _json(fast)
    config["added_tokens_decoder"] = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in added
    }
    facts = json.loads(written["tokenizer_config.json"]) | named | config
    written["tokenizer_config.json"] = _json(facts, indent=2)
    written["special_tokens_map.json"] = _json(named, indent=2)
    return written


def _json(content: dict[str, Any], indent: int | None = None) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=indent) + "\n").encode()


def _fast(tokenizer: Tokenizer, added: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    """The object of a `tokenizer.json`."""
    specials = tokenizer.specials
    ids = {specials.cls: tokenizer.cls_id, specials.sep: tokenizer.sep_id}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": bert_pairs(specials.cls, specials.sep, ids),
        **parts,
    }


def _wordpiece(tokenizer: WordPiece, added: list[dict[str, Any]]) -> dict[str, Any]:
    return _fast(
        tokenizer,
        added,
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.chinese,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model={
            "type": "WordPiece",
            "unk_token": tokenizer.specials.unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": {tokenizer.token(i): i for i in range(tokenizer.vocab_size)},
        },
    )


def _unigram(tokenizer: SentencePiece, added: list[dict[str, Any]]) -> dict[str, Any] | None:
    from sentencepiece import sentencepiece_model_pb2 as protocol  # takes protobuf along

    model = protocol.ModelProto.FromString(tokenizer.files()["spiece.model"])
    if model.trainer_spec.model_type != protocol.TrainerSpec.UNIGRAM:
        return None
    kinds = protocol.ModelProto.SentencePiece
    best = max((piece.score for piece in model.pieces if piece.type == kinds.NORMAL), default=0.0)
    vocabulary = []
    for piece in model.pieces:
        # What the library makes of pieces that the trainer was given: better than any path over others.
        score = len(piece.piece) * best - 0.1 if piece.type == kinds.USER_DEFINED else piece.score
        name = piece.piece
        split = len(name) > 1 and name[-1] == "," and name[-2].isdigit()
        vocabulary.append([f"{name} " if split else name, score])
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")
    ]
    if tokenizer.strip_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if tokenizer.lowercase:
        normalizers.append({"type": "Lowercase"})
    if charsmap := model.normalizer_spec.precompiled_charsmap:
        encoded = base64.b64encode(charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return _fast(
        tokenizer,
        added,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        decoder=space,
        model={
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocabulary,
            "byte_fallback": bool(model.trainer_spec.byte_fallback),
        },
    )
