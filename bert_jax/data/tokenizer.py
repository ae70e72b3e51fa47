"""Tokenizers: load one from a directory or file, or train one. All share the interface of `Tokenizer`."""

import json
import logging

from etils import epath

from bert_jax import jsonl, paths
from bert_jax.data import bytebpe_files
from bert_jax.data.bytebpe import ByteBPE
from bert_jax.data.encoding import KNOWN_SPECIALS, Encoding, Tokenizer, VocabularyError, tokens_by_id
from bert_jax.data.unigram import SPACE, SentencePiece, open_model
from bert_jax.data.vocabulary import train_bytebpe, train_sentencepiece, train_wordpiece
from bert_jax.data.wordpiece import WordPiece, read_vocabulary

__all__ = [
    "Encoding", "Tokenizer", "VocabularyError", "load",
    "train_bytebpe", "train_sentencepiece", "train_wordpiece",
]  # fmt: skip

_LOG = logging.getLogger(__name__)
_CHOICES = ("do_lower_case", "strip_accents", "keep_accents", "tokenize_chinese_chars", "add_prefix_space")


def load(
    path: str | epath.PathLike,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    cls: str | None = None,
    sep: str | None = None,
) -> Tokenizer:
    """Loads a tokenizer.

    A directory may hold `vocab.txt`, `spiece.model`, `tokenizer.json` (with a WordPiece model, or BPE of
    bytes), `vocab.json` and `merges.txt` (RoBERTa), or one other `*vocab*.txt` or `*.model`, taken in this
    order. Local and gs:// paths are read alike.

    Case is, in this order, what the arguments say, what the files beside the vocabulary say
    (`tokenizer_config.json`, else the normaliser of `tokenizer.json`, else `config.json` or
    `bert_config.json`), or lower case where no token of the vocabulary has a capital; the last is said in the
    log. Accents go where case goes unless said otherwise. The start and end tokens are those of arguments,
    else of the files, else the first pair present of [CLS] [SEP], [SOS] [EOS], <s> </s>. BPE of bytes does
    what its `tokenizer.json` says, and keeps case where there is none; a post-processor in it says the
    form of pairs, and start and end where no other file does; without one <s> makes RoBERTa's pairs, any
    other start those of BERT.

    Args:
      path: a directory, a WordPiece vocabulary (.txt), a SentencePiece model (.model), a `tokenizer.json`, or
        a `vocab.json` with its `merges.txt` beside it.
      lowercase: whether case goes; None: as above.
      strip_accents: whether accents go; None: as above.
      cls, sep: names of the start and end tokens; None: as above.

    Raises:
      VocabularyError (a ValueError): path absent or of another kind; vocabulary empty, not UTF-8, with
        duplicates, or without its special tokens; no SentencePiece model; no merges; a file beside it that
        is damaged.
    """
    path = epath.Path(path).expanduser()
    if not path.exists():
        raise VocabularyError(f"{path}: no such file or directory: name a vocabulary or its directory")
    directory = path.is_dir()
    if directory:
        paths.refuse_links_out(path)
    given = {role: name for role, name in (("cls", cls), ("sep", sep)) if name is not None}
    file = path
    try:
        facts = _facts(path if directory else path.parent)
        file = _vocabulary_in(path, facts.get("kind")) if directory else path
        return _open(file, facts, lowercase, strip_accents, _named(facts) | given)
    except VocabularyError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as e:
        # Files of other systems: of all that their JSON may have in a wrong place, one by one would be told.
        raise VocabularyError(
            f"{file}: it, or a file beside it, is not of the form that a tokenizer's files have "
            f"({type(e).__name__}: {str(e)[:200]}): take undamaged files"
        ) from e


def _open(
    file: epath.Path, facts: dict, lowercase: bool | None, strip_accents: bool | None, named: dict[str, str]
) -> Tokenizer:
    """Opens a vocabulary's file; arguments and errors as those of `load`."""
    origin = str(file)
    if file.name in ("vocab.json", "merges.txt"):
        content = _roberta(file.with_name("vocab.json"), facts)
        return ByteBPE(json.dumps(content).encode(), lowercase, strip_accents, named, origin)
    if file.name == "tokenizer.json":
        content = _read_json(file)
        if bytebpe_files.is_byte_level(content):
            return ByteBPE(file.read_bytes(), lowercase, strip_accents, named, origin)
        tokens = _tokens_of_json(content, origin)
    elif file.suffix == ".txt":
        tokens = read_vocabulary(file.read_bytes(), origin)
    elif file.suffix == ".model":
        model = file.read_bytes()
        processor = open_model(model, origin)
        tokens = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    else:
        raise VocabularyError(
            f"{file}: must be a directory, a .txt vocabulary, a SentencePiece .model, a tokenizer.json or a "
            "vocab.json"
        )

    if lowercase is None:
        lowercase = facts.get("do_lower_case")
    if lowercase is None:
        lowercase = not any(_has_capital(token) for token in tokens)
        _LOG.warning(
            "%s: no file beside it says its case, and its vocabulary has %s capitals: taken as %s",
            origin, "no" if lowercase else "some", "lower-cased" if lowercase else "cased",
        )  # fmt: skip
    if strip_accents is None:
        strip_accents = facts.get("strip_accents")
    if strip_accents is None and file.suffix == ".model" and "keep_accents" in facts:
        strip_accents = not facts["keep_accents"]
    if strip_accents is None:
        strip_accents = lowercase
    if file.suffix == ".model":
        return SentencePiece(model, lowercase, strip_accents, named, origin)
    chinese = facts.get("tokenize_chinese_chars", True)
    return WordPiece(tokens, lowercase, strip_accents, named, chinese, origin)


def _vocabulary_in(folder: epath.Path, kind: str | None) -> epath.Path:
    # As `save` wrote it, whatever lay there before.
    first = {"sentencepiece": ("spiece.model",), "bpe": ("tokenizer.json",)}.get(kind, ())
    for name in (*first, "vocab.txt", "spiece.model", "tokenizer.json", "vocab.json"):
        if (folder / name).exists():
            return folder / name
    others = sorted([*folder.glob("*vocab*.txt"), *folder.glob("*.model")])
    if len(others) == 1:
        return others[0]
    found = f"several ({', '.join(other.name for other in others)})" if others else "none"
    raise VocabularyError(
        f"{folder}: no vocab.txt, spiece.model, tokenizer.json or vocab.json, and of other vocabularies "
        f"{found}: name the vocabulary's file"
    )


def _read_json(file: epath.Path) -> dict:
    try:
        content = jsonl.parse(file.read_bytes())
    except ValueError as e:  # not JSON, or not UTF-8
        raise VocabularyError(f"{file}: not a JSON file ({e}): mend or remove it") from None
    if not isinstance(content, dict):
        raise VocabularyError(f"{file}: must hold a JSON object: mend or remove it")
    return content


def _facts(folder: epath.Path) -> dict:
    """What the files beside a vocabulary say; of two that say a thing the later one here counts."""

    def said(name: str) -> dict:
        content = _read_json(folder / name) if (folder / name).exists() else {}
        return {key: value for key, value in content.items() if value is not None}

    facts = said("bert_config.json") | said("config.json") | said("special_tokens_map.json")
    normalizer = said("tokenizer.json").get("normalizer", {})
    if normalizer.get("type") == "BertNormalizer":
        names = {
            "lowercase": "do_lower_case",
            "strip_accents": "strip_accents",
            "handle_chinese_chars": "tokenize_chinese_chars",
        }
        facts |= {
            ours: normalizer[theirs] for theirs, ours in names.items() if normalizer.get(theirs) is not None
        }
    facts |= said("tokenizer_config.json")
    for name in _CHOICES:
        if not isinstance(facts.get(name, True), bool):
            raise VocabularyError(
                f"{folder}: {name} is {facts[name]!r} in the tokenizer's files: must be true or false"
            )
    return facts


def _roberta(vocabulary: epath.Path, facts: dict) -> dict:
    """What `vocab.json` and the files beside it amount to, as the object of a `tokenizer.json`."""
    merges, added = (vocabulary.with_name(name) for name in ("merges.txt", "added_tokens.json"))
    for file in (vocabulary, merges):
        if not file.exists():
            raise VocabularyError(f"{file}: no such file: byte-level BPE needs vocab.json and merges.txt")
    more = _read_json(added) if added.exists() else {}
    ranked = bytebpe_files.read_merges(merges.read_bytes(), str(merges))
    return bytebpe_files.from_vocabulary(_read_json(vocabulary), ranked, facts, more)


def _named(facts: dict) -> dict[str, str]:
    """Special tokens that the files name, by role."""
    named = {}
    for role in ("pad", "unk", "cls", "sep", "mask"):
        name = facts.get(f"{role}_token")
        name = name.get("content") if isinstance(name, dict) else name
        if isinstance(name, str):
            named[role] = name
    return named


def _tokens_of_json(content: dict, origin: str) -> list[str]:
    """The vocabulary of a `tokenizer.json`, in the order of ids."""
    model = content.get("model") or {}
    steps = [(content.get(step) or {}).get("type") for step in ("normalizer", "pre_tokenizer")]
    # Older files do not name the model's type.
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)
    if kind != "WordPiece" or steps != ["BertNormalizer", "BertPreTokenizer"]:
        raise VocabularyError(
            f"{origin}: holds {kind} with {steps[0]} and {steps[1]}: "
            "only WordPiece with BertNormalizer and BertPreTokenizer, and BPE with ByteLevel, can be read"
        )
    ids = dict(model.get("vocab") or {})
    ids |= {added["content"]: added["id"] for added in content.get("added_tokens") or []}
    return tokens_by_id(ids, origin)


def _has_capital(token: str) -> bool:
    special = token in KNOWN_SPECIALS or (token.startswith("[unused") and token.endswith("]"))
    return not special and token.lstrip(SPACE) != token.lstrip(SPACE).lower()
