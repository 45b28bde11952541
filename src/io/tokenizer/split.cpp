#include "io/tokenizer/split.h"

#include "core/check.h"
#include "io/tokenizer/unicode.h"

namespace horner {

const char kGpt2Pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

// ASCII's and Unicode's.
constexpr char kPunctuation[] = "[!-\\/:-@\\[-`{-~\\p{P}]";
constexpr char kMetaspace[] = "\xe2\x96\x81";  // U+2581

Behavior read_behavior(Spec& spec, const std::string& initial) {
  const std::string name = spec.text("behavior", initial);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  throw DataError("{}: behavior {} is not supported", spec.name(), in_quotes(name));
}

// Joins neighbouring parts as the behavior says; parts come in order.
class Joiner {
 public:
  Joiner(Behavior behavior, const PieceSink& sink) : behavior_(behavior), sink_(sink) {}

  void add(std::string_view part, bool is_match) {
    if (behavior_ == Behavior::removed && is_match) return;
    if (behavior_ == Behavior::removed || behavior_ == Behavior::isolated) return sink_(part);
    if (joins(is_match)) {
      held_ = {held_.data(), held_.size() + part.size()};  // parts lie side by side
    } else {
      flush();
      held_ = part;
    }
    is_match_ = is_match;
  }

  void flush() {
    if (!held_.empty()) sink_(held_);
    held_ = {};
  }

 private:
  bool joins(bool is_match) const {
    if (held_.empty()) return false;
    if (behavior_ == Behavior::contiguous) return is_match == is_match_;
    if (behavior_ == Behavior::merged_with_previous) return is_match && !is_match_;
    return !is_match && is_match_;
  }

  const Behavior behavior_;
  const PieceSink& sink_;
  std::string_view held_;
  bool is_match_ = false;  // of the part that was added last
};

SplitStep prefix_space() {
  return [](std::string_view text, bool, const PieceSink& sink) {
    if (text.starts_with(' ')) return sink(text);
    sink(' ' + std::string(text));
  };
}

void read_metaspace(Spec& spec, Splitter& splitter) {
  const std::string replacement = spec.text("replacement", kMetaspace);
  if (replacement.empty() || replacement.size() > kGrowth)
    throw DataError("{}: replacement must have 1 to {} bytes", spec.name(), kGrowth);
  const bool prefix = spec.boolean("add_prefix_space", true);
  const std::string scheme = spec.text("prepend_scheme", prefix ? "always" : "never");
  spec.ignore({"str_rep"});  // the replacement once more
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    throw DataError("{}: prepend_scheme {} is not supported", spec.name(), in_quotes(scheme));
  }
  splitter.steps.emplace_back([=](std::string_view text, bool first, const PieceSink& sink) {
    std::string result;
    for (const char c : text) c == ' ' ? result += replacement : result += c;
    const bool wanted = scheme == "always" || (scheme == "first" && first);
    if (wanted && !result.starts_with(replacement)) result = replacement + result;
    sink(result);
  });
  if (spec.boolean("split", true)) {
    splitter.steps.push_back(split_by(escaped(replacement), Behavior::merged_with_next));
  }
}

void read_steps(const Object& json, Splitter& splitter) {
  if (splitter.byte_level) throw DataError("a pre_tokenizer after ByteLevel is not supported");
  Spec spec(json, "pre_tokenizer");
  const std::string& type = spec.type();
  auto& steps = splitter.steps;
  if (type == "Sequence") {
    for (const Object& step : spec.at("pretokenizers")) read_steps(step, splitter);
  } else if (type == "Split") {
    const std::string pattern = read_pattern(spec);
    const Behavior behavior = read_behavior(spec, "");
    steps.push_back(split_by(pattern, behavior, spec.boolean("invert", false)));
  } else if (type == "ByteLevel") {
    if (spec.boolean("add_prefix_space", true)) steps.push_back(prefix_space());
    if (spec.boolean("use_regex", true)) {
      steps.push_back(split_by(kGpt2Pattern, Behavior::isolated));
    }
    spec.ignore({"trim_offsets"});  // of places in the text, which we do not report
    splitter.byte_level = true;
  } else if (type == "BertPreTokenizer") {
    for (SplitStep& step : bert_splitter().steps) steps.push_back(std::move(step));
  } else if (type == "Whitespace") {
    steps.push_back(split_by("\\w+|[^\\w\\s]+", Behavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(split_by("\\s", Behavior::removed));
  } else if (type == "Punctuation") {
    steps.push_back(split_by(kPunctuation, read_behavior(spec, "Isolated")));
  } else if (type == "Digits") {
    const bool individual = spec.boolean("individual_digits", false);
    steps.push_back(split_by("\\p{N}", individual ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "Metaspace") {
    read_metaspace(spec, splitter);
  } else {
    spec.refuse_type();
  }
  spec.done();
}

class Run {
 public:
  Run(const std::vector<SplitStep>& steps, size_t size, const PieceSink& sink)
      : steps_(steps), size_(size), sink_(sink), made_(steps.size() + 1) {}

  void operator()(size_t step, std::string_view text, bool first) {
    if (text.empty()) return;
    made_[step] += text.size();
    check_growth(size_, made_[step]);
    if (step == steps_.size()) return sink_(text);
    bool begins = first;  // only the first piece is the beginning of the text
    steps_[step](text, first, [&](std::string_view piece) {
      (*this)(step + 1, piece, begins);
      begins = false;
    });
  }

 private:
  const std::vector<SplitStep>& steps_;
  const size_t size_;
  const PieceSink& sink_;
  std::vector<size_t> made_;  // bytes that each step got
};

}  // namespace

void Splitter::split(std::string_view text, bool first, const PieceSink& sink) const {
  Run(steps, text.size(), sink)(0, text, first);
}

Splitter read_splitter(const Object* json) {
  Splitter splitter;
  if (json) read_steps(*json, splitter);
  return splitter;
}

SplitStep split_by(const std::string& pattern, Behavior behavior, bool invert) {
  return [regex = Regex(pattern),
          behavior,
          invert](std::string_view text, bool, const PieceSink& sink) {
    Joiner joiner(behavior, sink);
    each_part(text, regex, [&](std::string_view part, bool is_match) {
      joiner.add(part, is_match != invert);
    });
    joiner.flush();
  };
}

Splitter bert_splitter() {
  Splitter splitter;
  splitter.steps.push_back(split_by("\\s", Behavior::removed));
  splitter.steps.push_back(split_by(kPunctuation, Behavior::isolated));
  return splitter;
}

std::string read_pattern(Spec& spec) {
  Spec pattern(spec.at("pattern"), spec.name() + " pattern");
  const std::string regex = pattern.text("Regex", ""), literal = pattern.text("String", "");
  pattern.done();
  if (regex.empty() == literal.empty()) {
    throw DataError("{} must have a Regex or a String", pattern.name());
  }
  return literal.empty() ? regex : escaped(literal);
}

void each_part(
    std::string_view text,
    const Regex& regex,
    const std::function<void(std::string_view part, bool is_match)>& call
) {
  while (!text.empty()) {
    const std::string_view good = text.substr(0, utf8_prefix(text));
    size_t at = 0;
    for (Regex::Match match{}; regex.next(good, at, match); at = match.end) {
      if (match.begin > at) call(good.substr(at, match.begin - at), false);
      call(good.substr(match.begin, match.end - match.begin), true);
    }
    if (at < good.size()) call(good.substr(at), false);
    text.remove_prefix(good.size());
    const size_t other = other_prefix(text);
    if (other > 0) call(text.substr(0, other), false);
    text.remove_prefix(other);
  }
}

}  // namespace horner
