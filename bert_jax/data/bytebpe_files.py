"""The files of byte-level BPE: reading `tokenizer.json`, or `vocab.json` and `merges.txt`, into one form."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax import jsonl
from bert_jax.data.encoding import Specials, VocabularyError, tokens_by_id


def _stand_ins() -> list[str]:
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(0x100 + hidden.index(byte)) for byte in range(256)]


# Of each byte the character that stands for it in tokens (GPT-2's table): none is white space or control.
STAND_INS = _stand_ins()
ALPHABET = sorted(STAND_INS)  # the order of the bytes in GPT-2's vocabulary, and in those trained here

# Words as GPT-2 cuts them, with a space put before a text that begins with none. ByteLevel's own
# add_prefix_space would put one after every special token too, so that "<mask>." ended in " .".
SPACE_FIRST = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}

_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclasses.dataclass
class Pipeline:
    """What a `tokenizer.json` with byte-level BPE says.

    Attributes:
      tokens: in the order of ids, added ones included.
      ends: the start and end tokens (cls, sep) that its post-processor names; none where it has no such.
      separators, pair_type: end tokens between a pair, and the type of its second text; 0 and 0 where
        no post-processor says so.
      lowercase, strip_accents, prefix_space: what is done to a text first.
      content: the file's object, its model's options made explicit.
    """

    tokens: list[str]
    ends: dict[str, str]
    separators: int
    pair_type: int
    lowercase: bool
    strip_accents: bool
    prefix_space: bool
    content: dict[str, Any]

    def finish(self, specials: Specials) -> dict[str, Any]:
        """Returns the content with the special tokens added and a post-processor that sets them."""
        ids = {token: i for i, token in enumerate(self.tokens)}
        cls, sep = specials.cls, specials.sep
        if not self.separators:  # by the names
            self.separators, self.pair_type = (2, 0) if cls == "<s>" else (1, 1)
        added = {token["id"]: token for token in self.content["added_tokens"]}
        for name in dataclasses.astuple(specials):
            added[ids[name]] = added.get(ids[name], added_token(ids[name], name)) | {"special": True}
        model = self.content["model"]
        model["unk_token"] = None if set(STAND_INS) <= ids.keys() else specials.unk
        if (self.separators, self.pair_type) == (2, 0):
            post_processor = {
                "type": "RobertaProcessing",
                "sep": [sep, ids[sep]],
                "cls": [cls, ids[cls]],
                "trim_offsets": True,
                "add_prefix_space": self.prefix_space,
            }
        else:
            post_processor = bert_pairs(cls, sep, ids, self.separators, self.pair_type)
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [added[i] for i in sorted(added)],
            "normalizer": self.content["normalizer"],
            "pre_tokenizer": self.content["pre_tokenizer"],
            "post_processor": post_processor,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
            "model": model,
        }


def is_byte_level(content: Mapping[str, Any]) -> bool:
    """Whether the object of a `tokenizer.json` holds BPE of bytes."""
    model = content.get("model") or {}
    steps = _steps(content.get("pre_tokenizer"), "pretokenizers")
    # Older files do not name the model's type.
    kind = model.get("type", "BPE" if "merges" in model else None)
    return kind == "BPE" and bool(steps) and steps[-1].get("type") == "ByteLevel"


def pipeline(model: bytes, lowercase: bool | None, strip_accents: bool | None, origin: str) -> Pipeline:
    """Reads a `tokenizer.json` with byte-level BPE; arguments and errors as those of `ByteBPE`."""
    try:
        content = jsonl.parse(model)
    except ValueError as e:
        raise VocabularyError(f"{origin}: not a JSON file ({e}): take undamaged files") from None
    if not isinstance(content, dict) or not is_byte_level(content):
        raise VocabularyError(f"{origin}: holds no BPE with a ByteLevel pre-tokenizer: take another file")
    bpe = content["model"]
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"):
        if bpe.get(option):
            raise VocabularyError(
                f"{origin}: {option} is {bpe[option]!r} in its BPE: only BPE of bytes without it can be read"
            )
    added = [
        added_token(**{key: token[key] for key in _ADDED if key in token})
        for token in content.get("added_tokens") or []
    ]
    ids = dict(bpe.get("vocab") or {}) | {token["content"]: token["id"] for token in added}
    tokens = tokens_by_id(ids, origin)

    steps = [step.get("type", "") for step in _steps(content.get("normalizer"), "normalizers")]
    strange = [step for step in steps if step not in (*_FORMS, "Lowercase", "StripAccents")]
    if strange:
        raise VocabularyError(
            f"{origin}: its normalizer has {strange[0]}: only {', '.join(_FORMS)}, Lowercase and "
            "StripAccents can be read"
        )
    said = ("Lowercase" in steps, "StripAccents" in steps)
    lowercase = said[0] if lowercase is None else lowercase
    if strip_accents is None:  # accents go where case goes, if the file does not say
        strip_accents = said[1] if lowercase == said[0] else lowercase
    if (lowercase, strip_accents) != said:
        steps = [step for step in steps if step in _FORMS]
        steps += [*(["NFD", "StripAccents"] if strip_accents else []), *(["Lowercase"] if lowercase else [])]
    normalizers = [{"type": step} for step in steps]
    normalizer = {"type": "Sequence", "normalizers": normalizers} if len(steps) > 1 else None

    separators, pair_type, ends = _pairs(content.get("post_processor"), origin)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe.get("merges") or []]
    for merge in merges:
        made = merge.replace(" ", "")
        if made not in ids:  # where it is longer than every token, the package would not refuse it, but panic
            raise VocabularyError(
                f"{origin}: the merge {merge!r} makes {made!r}, which its vocabulary lacks: "
                "take undamaged files"
            )
    splitters = _steps(content["pre_tokenizer"], "pretokenizers")
    return Pipeline(
        tokens=tokens,
        ends=ends,
        separators=separators,
        pair_type=pair_type,
        lowercase=lowercase,
        strip_accents=strip_accents,
        prefix_space=splitters[-1].get("add_prefix_space", True) or splitters[0].get("replacement") == " ",
        content={
            "added_tokens": added,
            "normalizer": normalizer or (normalizers[0] if normalizers else None),
            "pre_tokenizer": content["pre_tokenizer"],
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": bool(bpe.get("ignore_merges")),
                "vocab": {token: i for i, token in enumerate(tokens)},
                "merges": merges,
            },
        },
    )


def from_vocabulary(
    vocabulary: Mapping[str, int],
    merges: list[Any],
    facts: Mapping[str, Any],
    more: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the object of the `tokenizer.json` that RoBERTa's `vocab.json` and `merges.txt` amount to.

    Args:
      vocabulary: the object of `vocab.json`.
      merges: of `merges.txt`, by rank.
      facts: what the files beside them say: `add_prefix_space`, `added_tokens_decoder`, and special tokens as
        objects. <mask> takes the space before it along, as RoBERTa's does, unless they say otherwise.
      more: the object of `added_tokens.json`: tokens beyond the vocabulary.
    """
    plain = {"normalized": True, "special": False}
    added = {i: {"content": token, **plain} for token, i in (more or {}).items()}
    said = facts.get("added_tokens_decoder") or {}
    added |= {int(i): token for i, token in said.items()}
    if not said:
        for role in ("pad", "unk", "cls", "sep", "mask"):
            said = facts.get(f"{role}_token")
            token = said if isinstance(said, dict) else {"content": said}
            if role == "mask" and "lstrip" not in token:
                token = {"lstrip": True, "content": token.get("content") or "<mask>"}
            if (i := vocabulary.get(token.get("content"))) is not None:
                added[i] = token | {"special": True, "normalized": False}
    splitter = {
        "type": "ByteLevel",
        "add_prefix_space": bool(facts.get("add_prefix_space", False)),
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "added_tokens": [token | {"id": i} for i, token in sorted(added.items())],
        "pre_tokenizer": splitter,
        "model": {"type": "BPE", "vocab": dict(vocabulary), "merges": merges},
    }


def read_merges(content: bytes, origin: str) -> list[str]:
    """The merges of a `merges.txt`, by rank: two tokens with a space between; VocabularyError if damaged."""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        raise VocabularyError(f"{origin}: not UTF-8: take an undamaged file") from None
    if lines[0].startswith("#version"):
        lines[0] = ""
    pairs = [line.split() for line in lines]
    for number, pair in enumerate(pairs, 1):
        if len(pair) not in (0, 2):
            raise VocabularyError(
                f"{origin}: line {number} is {lines[number - 1]!r}: must be two tokens, to be merged"
            )
    return [" ".join(pair) for pair in pairs if pair]


_ADDED = ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")


def added_token(
    id: int, content: str, single_word: bool = False, lstrip: bool = False, rstrip: bool = False,
    normalized: bool = False, special: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """An entry of `added_tokens`; by default a special token."""
    return dict(zip(_ADDED, (id, content, single_word, lstrip, rstrip, normalized, special), strict=True))


def bert_pairs(
    cls: str, sep: str, ids: Mapping[str, int], separators: int = 1, pair_type: int = 1
) -> dict[str, Any]:
    """The post-processor of CLS A SEP, and of CLS A SEP B SEP (or several SEP between)."""

    def special(name: str, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    first = [special(cls), text("A", 0), special(sep)]
    between = [special(sep)] * (separators - 1)
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *between, text("B", pair_type), special(sep, pair_type)],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in sorted({cls, sep})
        },
    }


def _pairs(post_processor: Mapping[str, Any] | None, origin: str) -> tuple[int, int, dict[str, str]]:
    """Returns end tokens between a pair, the type of its second text, and start and end token."""
    for step in _steps(post_processor, "processors"):
        kind = step.get("type")
        if kind in ("RobertaProcessing", "BertProcessing"):
            ends = {"cls": step["cls"][0], "sep": step["sep"][0]}
            return (2, 0, ends) if kind == "RobertaProcessing" else (1, 1, ends)
        if kind == "TemplateProcessing":
            single, pair = ([next(iter(part.items())) for part in step[name]] for name in ("single", "pair"))
            names = [what["id"] for _, what in pair]
            cls, sep = names[0], names[-1]
            between = names[2:-2]
            types = [what["type_id"] for _, what in pair]
            if (
                [what["id"] for _, what in single] == [cls, "A", sep]
                and [names[1], *set(between), names[-2]] == ["A", sep, "B"]
                and types[:-2] == [0] * len(types[:-2])
                and types[-1] == types[-2]
            ):
                return len(between), types[-1], {"cls": cls, "sep": sep}
            raise VocabularyError(
                f"{origin}: its post-processor sets {' '.join(names)}: only CLS A SEP B SEP can be read"
            )
    return 0, 0, {}


def _steps(part: Mapping[str, Any] | None, several: str) -> list[Mapping[str, Any]]:
    """The steps of a part of a `tokenizer.json`, be it a sequence of them or one."""
    if not part:
        return []
    return list(part.get(several) or []) if part.get("type") == "Sequence" else [part]
