// Speed of tokenizers on one core, in bytes of text per second, where HORNER_DATA has them and a text.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "core/check.h"
#include "core/file.h"
#include "io/tokenizer.h"

namespace horner {
namespace {

void encode(benchmark::State& state, const std::string& path, const std::string& text_path) {
  try {
    const Tokenizer tokenizer = load_tokenizer(path);
    const std::string text = read_file(text_path);
    size_t tokens = 0;
    for (auto _ : state) tokens += tokenizer.encode(text, {.control = false}).size();
    state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(text.size()));
    state.counters["tokens"] = benchmark::Counter(double(tokens), benchmark::Counter::kIsRate);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

const bool registered = [] {
  const char* folder = std::getenv("HORNER_DATA");
  if (folder == nullptr) return false;
  const std::string data = folder;
  for (const char* name : {"bytes", "gpt2", "bert-base-uncased"}) {
    const std::string path = std::string(name) == "bytes" ? name : data + "/tokenizers/" + name;
    benchmark::RegisterBenchmark(
        (std::string("tokenizer/") + name).c_str(),
        [path, data](benchmark::State& state) {
          encode(state, path, data + "/tinyshakespeare/input.txt");
        }
    )->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace horner
