// Templates come from outside: whatever they hold, they end, keep to their limits and fail by a Mistake alone.
// fuzz-sources: src/core/json.cpp src/model/jinja/value.cpp src/model/jinja/lexer.cpp src/model/jinja/parser.cpp
// fuzz-sources: src/model/jinja/interpreter.cpp src/model/jinja/library.cpp
#include <cstdlib>

#include "model/jinja/interpreter.h"

using namespace horner;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const jinja::Dict kGlobals = {
      {"messages",
       jinja::from_json(
           Json::parse(R"([{"role": "system", "content": " a<|im_end|> "},
                           {"role": "user", "content": "b\nc", "tools": [1, 2.5, null, true]}])"),
           true
       )},
      {"add_generation_prompt", true},
      {"bos_token", jinja::Text("<s>")}};
  try {
    const jinja::Block program = jinja::parse({reinterpret_cast<const char*>(data), size});
    const jinja::Text text = jinja::run(program, kGlobals, {.steps = 20000, .bytes = 1 << 20});
    if (text.bytes.size() != text.user.size()) std::abort();
  } catch (const jinja::Mistake&) {
  }
  return 0;
}
