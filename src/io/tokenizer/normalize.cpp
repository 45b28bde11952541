#include "io/tokenizer/normalize.h"

#include "core/check.h"
#include "io/tokenizer/regex.h"
#include "io/tokenizer/split.h"
#include "io/tokenizer/unicode.h"

namespace horner {
namespace {

std::string drop_marks(const std::string& text) {
  return map_code_points(text, [](int32_t c, std::string& out) {
    if (!is_mark(c)) append_utf8(out, c);
  });
}

std::string to_lower(const std::string& text) {
  return map_code_points(text, [](int32_t c, std::string& out) {
    append_utf8(out, lower_case(c));
    if (c == 0x130) append_utf8(out, 0x307);  // the one letter whose lower case is two code points
  });
}

TextStep form_step(Form form) {
  return [form](const std::string& text) { return to_form(text, form); };
}

void read_steps(const Object& json, std::vector<TextStep>& steps) {
  Spec spec(json, "normalizer");
  const std::string& type = spec.type();
  if (type == "Sequence") {
    for (const Object& step : spec.at("normalizers")) read_steps(step, steps);
  } else if (type == "NFC") {
    steps.push_back(form_step(Form::nfc));
  } else if (type == "NFD") {
    steps.push_back(form_step(Form::nfd));
  } else if (type == "NFKC") {
    steps.push_back(form_step(Form::nfkc));
  } else if (type == "NFKD") {
    steps.push_back(form_step(Form::nfkd));
  } else if (type == "Lowercase") {
    steps.push_back(to_lower);
  } else if (type == "StripAccents") {
    steps.push_back(drop_marks);
  } else if (type == "Strip") {
    const bool left = spec.boolean("strip_left", true), right = spec.boolean("strip_right", true);
    steps.push_back([=](const std::string& text) { return strip(text, left, right); });
  } else if (type == "Prepend") {
    const std::string prefix = spec.text("prepend", "");
    steps.push_back([=](const std::string& text) { return text.empty() ? text : prefix + text; });
  } else if (type == "Replace") {
    steps.push_back(read_replace(spec));
  } else if (type == "BertNormalizer") {
    BertNormalizer bert;
    bert.clean_text = spec.boolean("clean_text", true);
    bert.chinese = spec.boolean("handle_chinese_chars", true);
    bert.lowercase = spec.boolean("lowercase", true);
    bert.strip_accents = spec.boolean("strip_accents", bert.lowercase);
    steps.push_back(bert);
  } else {
    spec.refuse_type();
  }
  spec.done();
}

}  // namespace

std::vector<TextStep> read_normalizer(const Object* json) {
  std::vector<TextStep> steps;
  if (json) read_steps(*json, steps);
  return steps;
}

std::string BertNormalizer::operator()(const std::string& text) const {
  std::string result = map_code_points(text, [&](int32_t c, std::string& out) {
    if (clean_text) {
      if (c == '\t' || c == '\n' || c == '\r') c = ' ';
      if (c == 0 || c == 0xfffd || is_control(c)) return;
      if (is_white_space(c)) c = ' ';
    }
    const bool alone = chinese && is_chinese(c);
    if (alone) out += ' ';
    append_utf8(out, c);
    if (alone) out += ' ';
  });
  if (strip_accents) result = drop_marks(to_form(result, Form::nfd));
  return lowercase ? to_lower(result) : result;
}

TextStep read_replace(Spec& spec) {
  const std::string content = spec.text("content", "");
  const Regex regex(read_pattern(spec));
  return [regex, content](const std::string& text) {
    std::string result;
    each_part(text, regex, [&](std::string_view part, bool is_match) {
      result += is_match ? std::string_view(content) : part;
      check_growth(text.size(), result.size());
    });
    return result;
  };
}

std::string strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_white_space(code_point(text).value)) {
    text.remove_prefix(code_point(text).size);
  }
  size_t end = text.size(), at = 0;
  if (right) {
    end = 0;
    while (at < text.size()) {
      const CodePoint next = code_point(text.substr(at));
      at += next.size;
      if (!is_white_space(next.value)) end = at;
    }
  }
  return std::string(text.substr(0, end));
}

}  // namespace horner
