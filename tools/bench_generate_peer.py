"""llama.cpp beside `horner bench generate`: the same GGUF file, tokens and threads. Prints one JSON object.

Needs PyPI's llama-cpp-python. Times llama_decode alone: prompts in batches of 512, then one token at a time.
"""

import argparse
import array
import ctypes
import json
import os
import time

# ./horner tells OpenMP's threads to sleep while they wait, which halves llama.cpp's speed.
os.environ.pop("OMP_WAIT_POLICY", None)

import llama_cpp as ll  # noqa: E402


def decode(context, tokens):
    """Reads tokens; the logits of the last one are ready when it returns."""
    for begin in range(0, len(tokens), 512):
        piece = tokens[begin:begin + 512]
        ids = (ll.llama_token * len(piece))(*piece)
        if ll.llama_decode(context, ll.llama_batch_get_one(ids, len(piece))) != 0:
            raise SystemExit("llama_decode failed")
    ll.llama_get_logits(context)


def clear(context):
    ll.llama_memory_clear(ll.llama_get_memory(context), True)


def make_context(model, options, flash):
    params = ll.llama_context_default_params()
    params.n_ctx = options.length
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = options.threads
    params.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else ll.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return ll.llama_init_from_model(model, params)


def timed(context, tokens, prompt, steps):
    """Seconds of a prompt, and of each of the tokens after it."""
    clear(context)
    begin = time.perf_counter()
    decode(context, tokens[:prompt])
    read = time.perf_counter() - begin
    each = []
    for token in tokens[prompt:prompt + steps]:
        begin = time.perf_counter()
        decode(context, [token])
        each.append(time.perf_counter() - begin)
    return read, sorted(each)[len(each) // 2]


def peak_memory():
    """Bytes. getrusage would give the parent's where that is larger: Linux keeps it across exec."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def write_logits(context, vocabulary, tokens, path):
    clear(context)
    with open(path, "wb") as file:
        for token in tokens:
            decode(context, [token])
            row = ll.llama_get_logits(context)
            file.write(ctypes.string_at(row, 4 * vocabulary))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ids", required=True, help="int32 tokens, as many as the longest context and the steps need")
    parser.add_argument("--contexts", default="16,1024,4096,8000")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--logits", help="file that gets fp32 logits of the first tokens")
    parser.add_argument("--logits-tokens", type=int, default=0)
    parser.add_argument("--flash", action="store_true")
    options = parser.parse_args()
    tokens = array.array("i", open(options.ids, "rb").read()).tolist()
    contexts = [int(n) for n in options.contexts.split(",")]
    options.length = max(contexts + [options.logits_tokens]) + options.steps
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    ll.llama_log_set(quiet, None)
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(options.model.encode(), ll.llama_model_default_params())
    if not model:
        raise SystemExit(f"{options.model}: llama.cpp cannot load it")
    context = make_context(model, options, options.flash)
    answer = {"version": ll.__version__, "flash": options.flash, "rows": []}
    if options.logits:
        vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
        write_logits(context, vocabulary, tokens[:options.logits_tokens], options.logits)
    for prompt in contexts:
        read, each = timed(context, tokens, prompt, options.steps)
        answer["rows"].append({"context": prompt, "prompt": prompt / read, "text": 1 / each})
    answer["memory"] = peak_memory()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
