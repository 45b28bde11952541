#include "tasks/example.h"

#include <ATen/Functions.h>

#include "tasks/text/text.h"

namespace horner {
namespace {

constexpr int64_t kMost = 128;

std::vector<int64_t> ids(const at::Tensor& x) {  // of the first row
  const at::Tensor row = x[0].to(at::kCPU, at::kLong).contiguous();
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

std::string text_of(const Task& task, int64_t id) {
  const auto* text = dynamic_cast<const TextTask*>(&task);
  return text ? text->token_text(id) : std::to_string(id);
}

bool asks_for_the_next(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets) {
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    if (targets[t] != tokens[t + 1]) return false;
  }
  return tokens.size() > 1;
}

}  // namespace

Json example_of(const Task& task) {
  if (task.size(Split::test) == 0) return nullptr;
  const Batch batch = task.batch(Split::test, {0});
  if (!batch.tokens.defined()) return nullptr;
  const std::vector<int64_t> tokens = ids(batch.tokens);
  const auto shown = std::min(tokens.size(), size_t(kMost));
  Json example = {{"tokens", Json::array()}, {"T", tokens.size()}, {"next", false}};
  for (size_t t = 0; t < shown; ++t) example["tokens"].push_back(text_of(task, tokens[t]));
  if (batch.labels.defined()) example["label"] = batch.labels[0].item<int64_t>();
  if (!batch.targets.defined()) return example;
  const std::vector<int64_t> targets = ids(batch.targets);
  if (targets.size() != tokens.size()) return example;
  example["next"] = asks_for_the_next(tokens, targets);
  if (example["next"]) return example;
  example["answers"] = Json::array();
  for (size_t t = 0; t < shown; ++t)
    example["answers"].push_back(
        targets[t] == kNoTarget ? Json() : Json(text_of(task, targets[t]))
    );
  return example;
}

Json describe_task(const Task& task, const std::string& name) {
  Json rules = Json::array();
  for (const Baseline& b : task.baselines())
    rules.push_back({{"name", b.name}, {"score", b.score}, {"meaning", b.meaning}});
  return {
      {"name", name},
      {"T", task.shape().T},
      {"metric", task.metric()},
      {"options", task.options()},
      {"baselines", rules},
      {"example", example_of(task)}};
}

std::vector<Baseline> baselines_in(const Json& described) {
  std::vector<Baseline> list;
  for (const Json& b : described.at("baselines"))
    list.push_back({b.at("name"), b.at("score"), b.at("meaning")});
  return list;
}

}  // namespace horner
