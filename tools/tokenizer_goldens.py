"""Golden ids of small tokenizers, made by Hugging Face's tokenizers 0.23: python tools/tokenizer_goldens.py

Each case trains a tiny vocabulary on the text below and records the tokenizer.json, and for every
string the ids without and with the tokens around a text, and the decoded text.
"""

import json
from pathlib import Path

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

OUT = Path(__file__).resolve().parents[1] / "src/io/goldens/tokenizers.json"
TEXT = ["The recurrence S_t = a S_{t-1} + k_t v_t reads 1024 tokens, and the state stays as it was.",
        "It's the same sum; they'll see that we've computed it twice. Déjà vu, naïve café!",
        "Softmax attention is a power series in q.k, and each term of the series is a recurrence."] * 4
STRINGS = [
    "", " ", "  ", "\n\n", " the state", "The  state \t stays", "It's they'll WE'VE 12345 2024!",
    "Déjà vu — naïve café", "İstanbul ǅ ß ﬁ ①", "日本語 text 漢字", "👩‍🔬 tokens 🦙", "a\u0301 e\u0301", "x\u00a0y\u2003z\u3000",
    "<s>the<mask> state</s>", "<mask>", "the <mask>  state", "unword<word>s <word> ", "[MASK] it", "\u200b\ufeffzero\u0000width",
    "...!!!??? (a) [b] {c} #d $e", "tabs\tand\r\nlines\n", "▁the▁state", "\u0301start", "ends with space ",
]


def trained(model, trainer_class, **parts):
    tokenizer = Tokenizer(model)
    for name, value in parts.items():
        setattr(tokenizer, name, value)
    options = dict(vocab_size=330, show_progress=False)
    if trainer_class is trainers.BpeTrainer and "byte" in str(type(parts.get("decoder"))).lower():
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    if trainer_class is trainers.WordPieceTrainer:
        options["special_tokens"] = ["[UNK]", "[CLS]", "[SEP]"]
    elif model.unk_token:
        options["special_tokens"] = [model.unk_token]
    tokenizer.train_from_iterator(TEXT, trainer_class(**options))
    return tokenizer


def byte_level(pre, **parts):
    return trained(models.BPE(), trainers.BpeTrainer, pre_tokenizer=pre, decoder=decoders.ByteLevel(), **parts)


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def cases():
    P, N = pre_tokenizers, normalizers
    gpt2 = byte_level(P.ByteLevel(add_prefix_space=True))
    gpt2.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<mask>", lstrip=True)])
    gpt2.add_tokens([AddedToken("<word>", single_word=True, normalized=False)])
    gpt2.post_processor = processors.RobertaProcessing(("</s>", gpt2.token_to_id("</s>")), ("<s>", gpt2.token_to_id("<s>")))
    yield "gpt2", gpt2
    llama3 = byte_level(P.Sequence([P.Split(Regex(LLAMA3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    llama3.add_special_tokens([AddedToken("<s>", rstrip=True), AddedToken("<mask>", rstrip=True)])
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", llama3.token_to_id("<s>"))])])
    yield "llama3", llama3
    yield "digits", byte_level(P.Sequence([P.Digits(individual_digits=True), P.Punctuation("contiguous"),
                                           P.ByteLevel(add_prefix_space=False)]), normalizer=N.NFC())
    llama2 = trained(models.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer,
                     normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]),
                     decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    llama2.add_special_tokens(["<s>", "</s>"])
    yield "llama2", llama2
    for scheme in ("always", "first", "never"):
        meta = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer,
                       pre_tokenizer=P.Metaspace(prepend_scheme=scheme), decoder=decoders.Metaspace(prepend_scheme=scheme))
        meta.add_special_tokens(["<mask>"])
        yield f"metaspace {scheme}", meta
    for lowercase in (True, False):
        yield f"bert {lowercase}", trained(
            models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, normalizer=N.BertNormalizer(lowercase=lowercase),
            pre_tokenizer=P.BertPreTokenizer(), decoder=decoders.WordPiece(),
            post_processor=processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield f"split {behavior}", trained(
            models.BPE(unk_token="<unk>"), trainers.BpeTrainer, pre_tokenizer=P.Split(Regex(r"[\s\d]"), behavior),
            normalizer=N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase(), N.Strip()]))
    yield "words", trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer, pre_tokenizer=P.Whitespace())
    yield "inverted", trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer,
                              pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Split(Regex(r"\w+"), "removed", invert=True)]))


if __name__ == "__main__":
    golden = []
    for name, tokenizer in cases():
        rows = []
        for text in STRINGS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append([text, ids, tokenizer.encode(text).ids, tokenizer.decode(ids)])
        golden.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "rows": rows})
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(json.dumps(g, ensure_ascii=True, separators=(",", ":")) for g in golden) + "\n]\n")
