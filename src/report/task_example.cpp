#include "report/task_example.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/html.h"

namespace horner {
namespace {

constexpr size_t kMostPadding = 32;  // boxes that say nothing

// The tokens of mqar's pairs, which an example begins with; 0: another task.
size_t tokens_of_pairs(const Json& task) {
  const std::string name = task.value("name", "");
  if (name.substr(0, name.find(':')) != "mqar" || !task.contains("options")) return 0;
  const Json& o = task.at("options");
  for (const char* setting : {"test_pairs", "pairs"}) {
    if (o.contains(setting) && o[setting].is_array() && !o[setting].empty())
      return 2 * o[setting][0].get<size_t>();
  }
  return 0;
}

// How many tokens at the end are all the same and have no answer.
size_t padding(const std::vector<TokenBox>& all) {
  const auto last = std::find_if(all.rbegin(), all.rend(), [&](const TokenBox& box) {
    return box.text != all.back().text || !box.below.empty();
  });
  return size_t(last - all.rbegin());
}

std::string caption_of(const Json& example, size_t shown, bool pairs, const std::string& left_out) {
  const auto T = example.at("T").get<size_t>();
  std::string what = "A test example";
  if (!left_out.empty())
    what += " without its end, where every token is " + left_out;
  else if (T > shown)
    what = fmt::format("The first {} of the {} tokens of a test example", shown, T);
  if (example.at("next").get<bool>())
    return what + ": at each token the model must say the next one.";
  if (example.contains("label"))
    return what + fmt::format(": the whole belongs to class {}.", example["label"].get<int64_t>());
  if (pairs)
    return what +
           ". It begins with pairs of a key and its value. Where a key stands again, the model "
           "must say its "
           "value: in green, below it.";
  return what + ". Below a token, in green: what the model must say there.";
}

}  // namespace

std::string task_example(const Json& task) {
  if (!task.is_object() || !task.contains("example") || !task["example"].is_object()) return "";
  const Json& example = task["example"];
  const Json& tokens = example.at("tokens");
  const size_t pairs = tokens_of_pairs(task);
  std::vector<TokenBox> all;
  for (size_t t = 0; t < tokens.size(); ++t) {
    TokenBox box{tokens[t].get<std::string>()};
    if (example.contains("answers") && example["answers"][t].is_string())
      box.below = example["answers"][t].get<std::string>();
    if (pairs > 0)
      box.role = t < pairs ? (t % 2 == 0 ? "key" : "value") : box.below.empty() ? "" : "key";
    all.push_back(std::move(box));
  }
  std::string left_out;
  if (const size_t same = padding(all); same > kMostPadding) {
    left_out = all.back().text;
    all.resize(all.size() - same + kMostPadding);
  }
  return boxes(all, caption_of(example, all.size(), pairs > 0, left_out));
}

}  // namespace horner
