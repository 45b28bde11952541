#include "report/mixer_page.h"

#include <fmt/ranges.h>

#include "core/number.h"
#include "report/maths.h"
#include "report/table.h"

namespace horner {
namespace {

constexpr const char* kCommand = "./horner list --pages docs/mixers";

// A line per equation, as GitHub typesets it.
std::string display(const std::string& equation) { return "```math\n" + tex(equation) + "\n```\n"; }

std::string paper_link(std::string_view arxiv) {
  return fmt::format("[arXiv:{0}](https://arxiv.org/abs/{0})", arxiv);
}

int64_t parameters_of(const MixerType& type) {
  int64_t count = 0;
  for (const at::Tensor& p : type.make(kPageWidth, type.parse(type.usual))->parameters())
    count += p.numel();
  return count;
}

// Of one sequence after so many tokens. Beyond 1024 tokens a state goes on growing as from the 1023rd to the 1024th.
std::vector<std::string> states_after(const MixerType& type, const std::vector<int64_t>& tokens) {
  constexpr int64_t kMeasured = 1024;
  const auto bytes = [&](int64_t T) {
    return state_bytes(type, kPageWidth, T, type.parse(type.usual));
  };
  const int64_t two = bytes(2), three = bytes(3);
  const int64_t most = three == two ? two : bytes(kMeasured);
  const int64_t slope = three == two ? 0 : most - bytes(kMeasured - 1);
  std::vector<std::string> texts;
  for (const int64_t T : tokens) {
    const bool small = T < kMeasured && three > two;
    texts.push_back(
        short_bytes(double(small ? bytes(T) : most + std::max<int64_t>(0, T - kMeasured) * slope))
    );
  }
  return texts;
}

Table cost(const MixerType& type) {
  static const std::vector<int64_t> kTokens = {512, 4096, 32768};
  const MixerType& softmax = find_mixer("softmax");
  static const std::vector<std::string> cache = states_after(softmax, kTokens);
  static const int64_t parameters = parameters_of(softmax);
  Table table{{"a layer of width 1024, fp32", std::string(type.name), "softmax"}, {}};
  table.rows.push_back(
      {"parameters", short_count(double(parameters_of(type))), short_count(double(parameters))}
  );
  const std::vector<std::string> own = states_after(type, kTokens);
  for (size_t i = 0; i < kTokens.size(); ++i)
    table.rows.push_back(
        {fmt::format("state of one sequence after {} tokens", kTokens[i]), own[i], cache[i]}
    );
  if (type.name == softmax.name) {  // is not set beside itself
    table.head.pop_back();
    for (auto& row : table.rows) row.pop_back();
  }
  return table;
}

Table settings(const MixerType& type) {
  Table table{{"setting", "default", "meaning"}, {}};
  for (const Description& d : type.describe()) {
    const std::string choices =
        d.choices.empty() ? "" : fmt::format(" ({})", fmt::join(d.choices, ", "));
    table.rows.push_back(
        {markdown_code(d.name),
         d.initial.empty() ? "" : markdown_code(d.initial),
         markdown_text(d.help + choices)}
    );
  }
  return table;
}

std::string growth(const MixerType& type, const Explanation& e) {
  if (e.sizes.empty()) return "";
  const bool full = e.sizes.back().bytes == e.sizes[e.sizes.size() - 2].bytes;
  if (e.crossover == 0 && full)
    return "The state grows until its window is full, and then stays. Each new token reads all of "
           "it.\n";
  if (e.crossover == 0)
    return "The state grows with the sequence. Each new token reads all of it.\n";
  const int64_t own = state_bytes(type, kPageWidth, 4096, type.parse(type.usual));
  const int64_t token = 2 * kPageWidth * int64_t(sizeof(float));  // of a key/value cache
  return fmt::format(
      "The state does not grow. It is smaller than softmax's key/value cache from {} tokens on. "
      "Each new token reads and writes it once, so decoding takes the same time after any number "
      "of tokens.\n",
      own / token + 1
  );
}

std::string op_inside(const Explanation& e) {
  if (e.op == "none") return "It runs no op: it reads the last few inputs directly.";
  return fmt::format(
      "The recurrence inside is the op `{}` (see [notation](../notation.md)).", e.op
  );
}

// What a reader pastes: the mixer from inside, and as a layer of PyTorch.
std::string examples(std::string_view mixer) {
  return fmt::format(
      "```sh\n./horner explain {0}\n```\n\n"
      "```python\nimport torch, horner\n\n"
      "layer = horner.nn.Mixer(\"{0}\", 64)   # takes the place of a self-attention of width 64\n"
      "y = layer(torch.randn(2, 32, 64))   # (B,T,D) -> (B,T,D)\n```\n",
      mixer
  );
}

}  // namespace

std::string mixer_page(const MixerType& type, const Explanation& e) {
  const std::string usual =
      type.usual.empty() ? "" : fmt::format("\nSettings of this table: `{}`.\n", type.usual);
  return fmt::format(
      "# {0}\n\nAfter this page you know when to take {0}, what it costs and how to put it into a "
      "model.\n\n**When to take it.** {1}\n\n{2}\n"
      "Paper: {3}. {4}\n\n{12}\n"
      "## Cost\n\n{5}\n{6}{7}\n"
      "## Who reads whom\n\n![the map of a fresh {0}]({0}.svg)\n\n"
      "Row t: the weights with which token t reads the values of tokens s. First head of a fresh "
      "layer of width 64 on {8} random tokens. `./horner explain {0}` shows more: how it forgets, "
      "its matrices, its parameters.\n\n"
      "## Settings\n\n{9}\n"
      "A setting follows the name, as in `./horner compare softmax {0}:{10}`.\n\n"
      "Written by `{11}`.\n",
      type.name,
      type.use,
      display(e.equation),
      paper_link(type.paper),
      op_inside(e),
      cost(type).markdown(),
      growth(type, e),
      usual,
      e.T,
      settings(type).markdown(),
      type.variants.size() > 1 ? type.variants[1] : type.variants[0],
      kCommand,
      examples(type.name)
  );
}

std::string mixer_index() {
  Table table{{"mixer", "when to use it", "paper"}, {}};
  for (const MixerType& type : mixers())
    table.rows.push_back(
        {fmt::format("[{0}]({0}.md)", type.name),
         markdown_text(std::string(type.use)),
         paper_link(type.paper)}
    );
  return fmt::format(
      "# Mixers\n\nHere you choose a mixer: a layer through which tokens read each other. Each "
      "has a page with its equation, an example, its cost, a picture of what it reads, and its "
      "settings.\n\n{}\nWritten by `{}`.\n",
      table.markdown(),
      kCommand
  );
}

}  // namespace horner
