"""Tiny random models of each architecture with their logits, made by transformers 5: python tools/model_goldens.py [NAME ..]

src/model/formats/goldens/NAME/ has config.json and model.safetensors as transformers writes them (bert: the encoder), and
expected.safetensors: tokens (1,300), logits at some positions, and 60 tokens that greedy decoding adds to the first 17.
long.safetensors has the logits after up to 8192 tokens of some of them.
NAME.gguf has the same weights in the layout of GGUF, by PyPI's gguf; blocks.gguf has quantised blocks.
The names smollm2-135m and minilm write what these models give, from the folder of `horner get`: real/NAME.safetensors.
"""

import os
import shutil
import sys
from pathlib import Path

import gguf
import numpy
import tokenizers
import torch
import transformers as t
from safetensors.torch import load_file, save_file

OUT = Path(__file__).resolve().parents[1] / "src/model/formats/goldens"
PLACES = [0, 1, 16, 63, 150, 299]
PROMPT, GREEDY, T = 17, 60, 300
LONG = ["llama", "mistral"]
LLAMA = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=41, max_position_embeddings=512, bos_token_id=1, eos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
MODELS = {
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True)),
    "llama3": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "linear": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0})),
    "blocks": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA | dict(hidden_size=32, intermediate_size=64, tie_word_embeddings=True))),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=20, head_dim=6)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA, tie_word_embeddings=True)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**LLAMA, head_dim=10)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=41, n_positions=512, bos_token_id=1,
                                             eos_token_id=None)),
    "bert": (t.BertModel, t.BertConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                       vocab_size=41, max_position_embeddings=512)),
}


def randomise(model: torch.nn.Module) -> None:
    """Weights so large that every part changes the logits; norms and biases that are not 1 and 0."""
    for name, p in model.named_parameters():
        if "norm" in name.lower() or ".ln_" in name:
            p.data = torch.randn_like(p) * 0.2 + (0 if name.endswith("bias") else 1)
        else:
            p.data = torch.randn_like(p) * (0.3 if p.dim() == 1 else 1.5 / p.shape[-1] ** 0.5)


def greedy(model: torch.nn.Module, tokens: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    return tokens


@torch.no_grad()
def tiny(name: str) -> None:
    torch.manual_seed(len(name))
    kind, config = MODELS[name]
    config._attn_implementation = "eager"
    model = kind(config).eval()
    randomise(model)
    folder = OUT / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, 41, (1, T))
    expected = {"tokens": tokens, "places": torch.tensor(PLACES)}
    if name == "bert":
        segments = torch.cat([torch.zeros(1, 200), torch.ones(1, 100)], 1).long()
        expected["values"] = model(tokens).last_hidden_state[0, PLACES]
        expected["segments"] = segments
        expected["with_segments"] = model(tokens, token_type_ids=segments).last_hidden_state[0, PLACES]
        expected["first_17"] = model(tokens[:, :PROMPT]).last_hidden_state[0]
    else:
        expected["values"] = model(tokens).logits[0, PLACES]
        expected["greedy"] = greedy(model, tokens[:, :PROMPT], GREEDY)
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")


@torch.no_grad()
def long(name: str) -> None:
    """Logits of a tiny model after up to 8192 tokens: long.safetensors in its folder."""
    kind, _ = MODELS[name]
    model = kind.from_pretrained(OUT / name, attn_implementation="sdpa").eval()
    tokens = torch.randint(0, 41, (1, 8192), generator=torch.Generator().manual_seed(8192))
    places = torch.tensor([4095, 8000, 8191])
    save_file({"tokens": tokens.to(torch.uint8), "places": places, "values": model(tokens).logits[0, places].contiguous()},
              OUT / name / "long.safetensors")


NAMES = {
    "llama": {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
              "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
              "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
    "gpt2": {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
             "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
}


def gguf_name(family: str, name: str) -> str:
    if family == "bert":
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)
        return names.get_name(name, try_suffixes=(".weight", ".bias")) or ""
    parts = name.removeprefix("model.").removeprefix("transformer.").split(".")
    end = parts.pop()
    before = ""
    if parts[0] in ("layers", "h"):
        before, parts = f"blk.{parts[1]}.", parts[2:]
    return f"{before}{NAMES[family]['.'.join(parts)]}.{end}"


def permuted(x: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows of q and k as GGUF files of llama hold them: neighbours are rotated together."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(name: str, out: str, kinds: dict[str, str]) -> None:
    """The tiny model `name` as OUT/out.gguf; kinds: the type of tensors whose name contains a text."""
    config = MODELS[name][1]
    family = name if name in ("gpt2", "bert") else "llama"
    arch = config.model_type
    writer = gguf.GGUFWriter(OUT / f"{out}.gguf", arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    writer.add_head_count(config.num_attention_heads)
    if family == "llama":
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_key_length(head)
        writer.add_value_length(head)
    else:
        writer.add_layer_norm_eps(config.layer_norm_epsilon if family == "gpt2" else config.layer_norm_eps)
    for key, x in load_file(OUT / name / "model.safetensors").items():
        x = x.numpy()
        if family == "gpt2" and ".c_" in key and x.ndim == 2:
            x = x.T
        if arch == "llama" and "q_proj" in key:
            x = permuted(x, config.num_attention_heads)
        if arch == "llama" and "k_proj" in key:
            x = permuted(x, config.num_key_value_heads)
        to = gguf_name(family, key)
        if not to:  # the pooler
            continue
        kind = next((gguf.GGMLQuantizationType[v] for k, v in kinds.items() if k in to and x.ndim == 2), gguf.GGMLQuantizationType.F32)
        x = numpy.ascontiguousarray(x)
        writer.add_tensor(to, x if kind.name == "F32" else gguf.quants.quantize(x, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def bytes_of(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def smollm2_ids(path: Path, text: str) -> torch.Tensor:
    """As its tokenizer.json cuts text: each digit alone, then GPT-2's rule; transformers leaves out the first of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    vocabulary = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    steps = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = steps.Sequence([steps.Digits(individual_digits=True), steps.ByteLevel(add_prefix_space=False)])
    return torch.tensor(tokenizer.encode(text).ids)


@torch.no_grad()
def smollm2(cache: Path) -> None:
    """Logits of SmolLM2-135M at some places of a prompt, and greedy tokens, from the values that transformers dequantises."""
    model = t.AutoModelForCausalLM.from_pretrained(cache / "smollm2-135m", gguf_file="model.gguf", dtype=torch.float32).eval()
    tokenizer = t.AutoTokenizer.from_pretrained(cache / "smollm2-135m", gguf_file="model.gguf")
    text = (Path(__file__).resolve().parents[1] / "README.md").read_text()[:6000]
    prompt = torch.tensor([tokenizer("The capital of France is", add_special_tokens=False).input_ids])
    tokens = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])[:, :1500]
    logits = model(tokens).logits[0]
    places = torch.tensor([0, 16, 299, 1499])
    save_file({"tokens": tokens, "places": places, "values": logits[places][:, ::16].contiguous(),
               "top": logits.argmax(-1), "prompt": prompt, "text": bytes_of(text),
               "ids": smollm2_ids(cache / "smollm2-135m/model.gguf", text),
               "greedy": model.generate(prompt, max_new_tokens=200, do_sample=False, eos_token_id=[], pad_token_id=0)},
              OUT / "real/smollm2-135m.safetensors")


@torch.no_grad()
def minilm(cache: Path) -> None:
    model = t.AutoModel.from_pretrained(cache / "minilm").eval()
    tokenizer = t.AutoTokenizer.from_pretrained(cache / "minilm")
    texts = ["The recurrence carries a state.", "Softmax attention reads every token again.", "Bread is baked in the morning."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    x = model(**batch).last_hidden_state
    mask = batch.attention_mask[..., None]
    mean = torch.nn.functional.normalize((x * mask).sum(1) / mask.sum(1), dim=-1)
    save_file({"text": bytes_of("\n".join(texts)), "tokens": batch.input_ids, "lengths": batch.attention_mask.sum(1), "vectors": mean}, OUT / "real/minilm.safetensors")


REAL = {"smollm2-135m": smollm2, "minilm": minilm}


def main() -> None:
    (OUT / "real").mkdir(parents=True, exist_ok=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "horner"
    for name in sys.argv[1:] or MODELS:
        if name in REAL:
            REAL[name](cache)
            continue
        tiny(name)
        if name in LONG:
            long(name)
        if name in ("llama", "qwen2", "qwen3", "gpt2", "bert"):
            write_gguf(name, name, {})
        if name == "blocks":
            write_gguf(name, name, {"attn_q": "Q4_0", "attn_k": "Q4_1", "attn": "Q5_0", "ffn": "Q5_1", "embd": "Q8_0"})
            shutil.rmtree(OUT / name)  # the quantised file is the golden


if __name__ == "__main__":
    main()
