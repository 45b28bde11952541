#include "lab/convert/generated.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/initial.h"

namespace horner {
namespace {

constexpr int64_t kTokens = 32;  // of a text that both models write
const std::string kSays = " The secret number is", kAnswer = " {}", kEnd = ". ";

at::Device device_of(const Model& model) { return model.parameters().front().device(); }

std::vector<int64_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, {.control = false});
  return {ids.begin(), ids.end()};
}

// One prompt of T tokens with a number in it; `answer` gets the number's tokens.
std::vector<int64_t> with_needle(
    const Tokenizer& tokenizer,
    const std::vector<int64_t>& text,
    int64_t T,
    double depth,
    uint64_t seed,
    std::vector<int64_t>& answer
) {
  const std::string number = fmt::format(fmt::runtime(kAnswer), 1000 + mix(seed, "needle") % 9000);
  const std::vector<int64_t> question = ids_of(tokenizer, kSays);
  const std::vector<int64_t> said = ids_of(tokenizer, kSays + number);
  const std::vector<int64_t> needle = ids_of(tokenizer, kSays + number + kEnd);
  answer.assign(said.begin() + int64_t(question.size()), said.end());
  const int64_t filler = T - int64_t(needle.size() + question.size());
  const int64_t begin = int64_t(mix(seed, "begin") % uint64_t(int64_t(text.size()) - T + 1));
  std::vector<int64_t> all(text.begin() + begin, text.begin() + begin + filler);
  all.insert(all.begin() + int64_t(depth * double(filler)), needle.begin(), needle.end());
  all.insert(all.end(), question.begin(), question.end());
  return all;
}

}  // namespace

Json GeneratedMatch::json() const {
  return {
      {"texts", texts},
      {"prompt", prompt},
      {"tokens", tokens},
      {"same_texts", same_texts},
      {"tokens_before_first_difference", prefix}};
}

Json NeedleRecall::json() const {
  return {{"T", T}, {"asked", asked}, {"student", student}, {"teacher", teacher}};
}

at::Tensor greedy(Model& model, const at::Tensor& prompts, int64_t count) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  std::vector<at::Tensor> written;
  at::Tensor read = prompts;
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor hidden = model.hidden(read, state, {});                   // (n,T,D)
    read = model.logits(hidden.select(1, read.size(1) - 1)).argmax(-1, true);  // (n,1)
    written.push_back(read);
  }
  return at::cat(written, 1);
}

GeneratedMatch generated_match(
    Model& student, Model& teacher, const std::vector<int64_t>& text, int64_t texts, int64_t P
) {
  GeneratedMatch m;
  m.prompt = std::min(P, int64_t(text.size()));
  m.texts = std::clamp<int64_t>(int64_t(text.size()) / m.prompt, 1, texts);
  m.tokens = kTokens;
  const int64_t apart = (int64_t(text.size()) - m.prompt) / std::max<int64_t>(m.texts - 1, 1);
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < m.texts; ++i)
    rows.push_back(at::tensor(at::ArrayRef<int64_t>(text.data() + i * apart, size_t(m.prompt))));
  const at::Tensor prompts = at::stack(rows).to(device_of(teacher));
  const at::Tensor same = greedy(student, prompts, kTokens).eq(greedy(teacher, prompts, kTokens));
  const at::Tensor prefix = same.to(at::kLong).cumprod(1).sum(1);  // (n)
  m.prefix = prefix.to(at::kDouble).mean().item<double>();
  m.same_texts = prefix.eq(kTokens).to(at::kDouble).mean().item<double>();
  return m;
}

std::optional<NeedleRecall> needle_recall(
    Model& student,
    Model& teacher,
    const Tokenizer& tokenizer,
    const std::vector<int64_t>& text,
    int64_t T,
    int64_t asked
) {
  constexpr int64_t kLeast = 64;  // tokens; a sentence and its question take 20 to 50
  if (T < kLeast || int64_t(text.size()) < T) return {};
  NeedleRecall recall{T, asked, 0, 0};
  for (int64_t i = 0; i < asked; ++i) {
    std::vector<int64_t> answer;
    const double depth = (double(i) + 0.5) / double(asked);
    const std::vector<int64_t> ids = with_needle(tokenizer, text, T, depth, uint64_t(i), answer);
    const at::Tensor prompt = at::tensor(ids, at::kLong).unsqueeze(0).to(device_of(teacher));
    const at::Tensor wanted = at::tensor(answer, at::kLong).unsqueeze(0);
    const auto found = [&](Model& model) {
      return at::equal(greedy(model, prompt, wanted.size(1)).cpu(), wanted) ? 1.0 : 0.0;
    };
    recall.student += found(student) / double(asked);
    recall.teacher += found(teacher) / double(asked);
  }
  return recall;
}

}  // namespace horner
