"""Small GGUF files and what they hold, made by PyPI's gguf 0.19 and sentencepiece 0.2: python tools/gguf_goldens.py

src/io/goldens/blocks.gguf has one tensor (3,256) of each type that Horner reads, with random bytes, so that every bit of
every block counts, and one value of metadata of each type. blocks.safetensors has the values of the tensors in fp32.

src/model/formats/goldens/sentencepiece.gguf has a tokenizer that sentencepiece trained as Llama's (BPE, bytes for unknown
characters), with a space before the text; bare.gguf one without it. Beside each, .json: [text, ids, decoded] by sentencepiece.
wordpiece.gguf has one that PyPI's tokenizers trained as BERT's, in the way in which llama.cpp writes such vocabularies.
"""

import io
import json
from pathlib import Path

import gguf
import numpy
import sentencepiece
import tokenizers
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parents[1] / "src/io/goldens"
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
ROWS, WIDTH = 3, 256
MODELS = OUT.parents[1] / "model/formats/goldens"
TEXT = ["The recurrence S_t = a S_{t-1} + k_t v_t reads 1024 tokens, and the state stays as it was.",
        "It's the same sum; they'll see that we've computed it twice. Déjà vu, naïve café!",
        "Softmax attention is a power series in q.k, and each term of the series is a recurrence.",
        "def f(x):\n    return x + 1\n\n        # eight  spaces"]
STRINGS = [
    "", " ", "  ", "\n\n", "the state", " the state", "The  state \t stays   ", "It's they'll WE'VE 12345 2024!",
    "Déjà vu — naïve café", "İstanbul ǅ ß ﬁ ①", "日本語 text 漢字", "👩‍🔬 tokens 🦙", "a\u0301 e\u0301", "x\u00a0y\u2003z\u3000",
    "unword<word>s <word> ", "...!!!??? (a) [b] {c} #d $e", "tabs\tand\r\nlines\n", "▁the▁state", "\u0301start", "def f(x):\n        return x",
    "recurrence" * 9, "aaaaaaaaaaaaaaaaaaaaaaaa", "sss sss ssss",
]


def blocks(name: str, random: numpy.random.Generator) -> numpy.ndarray:
    """Random bytes of ROWS rows; the scales are finite halves of every size, subnormal ones too."""
    kind = gguf.GGMLQuantizationType[name]
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    if name == "F32":
        return random.standard_normal((ROWS, WIDTH)).astype(numpy.float32)
    if weights == 1:
        return random.standard_normal((ROWS, WIDTH)).astype(numpy.float16).view(numpy.uint8)
    rows = random.integers(0, 256, (ROWS, WIDTH // weights, size), dtype=numpy.uint8)
    for at in HALVES.get(name, []):
        scale = random.standard_normal(rows.shape[:2]) * 2.0 ** random.integers(-24, 4, rows.shape[:2])
        rows[..., at:at + 2] = scale.astype(numpy.float16)[..., None].view(numpy.uint8)
    return rows.reshape(ROWS, -1)


def tokenizer(name: str, text: list[str], **settings) -> None:
    """Trains one, and writes it with the ids and the decoded text of each string."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, model_type="bpe", vocab_size=420, byte_fallback=True,
        character_coverage=1, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, minloglevel=2, **settings)
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = []
    for i in range(own.vocab_size()):
        kind = gguf.TokenType.NORMAL
        if own.is_unknown(i):
            kind = gguf.TokenType.UNKNOWN
        elif own.is_control(i):
            kind = gguf.TokenType.CONTROL
        elif own.is_byte(i):
            kind = gguf.TokenType.BYTE
        kinds.append(kind)
    writer = gguf.GGUFWriter(MODELS / f"{name}.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([own.id_to_piece(i) for i in range(own.vocab_size())])
    writer.add_token_scores([own.get_score(i) for i in range(own.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(own.bos_id())
    writer.add_eos_token_id(own.eos_id())
    writer.add_add_space_prefix(settings.get("add_dummy_prefix", True))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    write_rows(name, [[line, own.encode(line), own.decode(own.encode(line))] for line in STRINGS])


def write_rows(name: str, rows: list[list]) -> None:
    (MODELS / f"{name}.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def wordpiece() -> None:
    """U+2581 stands before a token that begins a word, and nothing for the ## of others; control tokens are as they were."""
    name = "wordpiece"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own = tokenizers.BertWordPieceTokenizer(lowercase=True)
    own.train_from_iterator(TEXT, vocab_size=160, min_frequency=1, special_tokens=special, show_progress=False)
    vocabulary = sorted(own.get_vocab(), key=own.get_vocab().get)
    writer = gguf.GGUFWriter(MODELS / f"{name}.gguf", "bert")
    writer.add_tokenizer_model("bert")
    writer.add_token_list([t if t in special else t[2:] if t.startswith("##") else "\u2581" + t for t in vocabulary])
    writer.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in vocabulary])
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    encoded = [own.encode(line, add_special_tokens=False).ids for line in STRINGS]
    write_rows(name, [[line, ids, own.decode(ids)] for line, ids in zip(STRINGS, encoded, strict=True)])


def main() -> None:
    tokenizer("sentencepiece", TEXT)
    tokenizer("bare", TEXT, add_dummy_prefix=False)
    wordpiece()
    random = numpy.random.default_rng(0)
    writer = gguf.GGUFWriter(OUT / "blocks.gguf", "test")
    for kind, value in [("uint8", 200), ("int8", -100), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000),
                        ("int32", -2000000000), ("uint64", 2**63), ("int64", -2**62), ("float32", 0.5), ("float64", 1e300),
                        ("bool", True), ("string", "naïve"), ("array", [3, 1, 2]), ("array", ["a", "", "bc"])]:
        name = kind if kind != "array" else f"{type(value[0]).__name__}s"
        getattr(writer, f"add_{kind}")(f"test.{name}", value)
    values = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        raw = blocks(name, random)
        if name == "F16":
            raw = raw.view(numpy.float16)
        writer.add_tensor(name, raw, raw_dtype=kind)
        values[name] = gguf.quants.dequantize(raw if name == "F32" else raw.view(numpy.uint8), kind)
        if name == "F16":
            values[name] = raw.astype(numpy.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file({name: numpy.ascontiguousarray(x.astype(numpy.float32)) for name, x in values.items()}, OUT / "blocks.safetensors")


if __name__ == "__main__":
    main()
