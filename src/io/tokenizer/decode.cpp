#include "io/tokenizer/decode.h"

#include "core/check.h"
#include "io/tokenizer/model.h"
#include "io/tokenizer/normalize.h"

namespace horner {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

DecodeStep each(const std::function<std::string(const std::string&)>& change) {
  return [change](Texts texts) {
    for (std::string& text : texts) text = change(text);
    return texts;
  };
}

Texts join_bytes(Texts texts) {
  for (std::string& text : texts) {
    if (const auto byte = fallback_byte(text)) text.assign(1, static_cast<char>(*byte));
  }
  return texts;
}

Texts fuse(Texts texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return {all};
}

DecodeStep strip_ends(const std::string& content, int64_t start, int64_t stop) {
  return each([=](const std::string& text) {
    std::string_view rest = text;
    for (int64_t i = 0; i < start && rest.starts_with(content); ++i) {
      rest.remove_prefix(content.size());
    }
    for (int64_t i = 0; i < stop && rest.ends_with(content); ++i) {
      rest.remove_suffix(content.size());
    }
    return std::string(rest);
  });
}

DecodeStep metaspace(const std::string& replacement, bool drop_first) {
  return [=](Texts texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i == 0 && drop_first && texts[i].starts_with(replacement)) {
        texts[i].erase(0, replacement.size());
      }
      replace_all(texts[i], replacement, " ");
    }
    return texts;
  };
}

void read_steps(const Object& json, Decoder& decoder) {
  Spec spec(json, "decoder");
  const std::string& type = spec.type();
  auto& steps = decoder.steps;
  if (type == "Sequence") {
    for (const Object& step : spec.at("decoders")) read_steps(step, decoder);
  } else if (type == "ByteLevel") {
    decoder.byte_level = true;
    spec.ignore({"add_prefix_space", "trim_offsets", "use_regex"}
    );  // they matter to encoding alone
  } else if (type == "Replace") {
    steps.push_back(each(read_replace(spec)));
  } else if (type == "ByteFallback") {
    steps.emplace_back(join_bytes);
  } else if (type == "Fuse") {
    steps.emplace_back(fuse);
  } else if (type == "Strip") {
    const std::string content = spec.text("content", " ");
    if (content.empty()) throw DataError("decoder Strip: content must not be empty");
    steps.push_back(strip_ends(content, spec.integer("start", 0), spec.integer("stop", 0)));
  } else if (type == "WordPiece") {
    const std::string prefix = spec.text("prefix", "##");
    steps.push_back(wordpiece_decoder(prefix, spec.boolean("cleanup", true)));
  } else if (type == "Metaspace") {
    const std::string replacement = spec.text("replacement", "\xe2\x96\x81");
    if (replacement.empty()) throw DataError("decoder Metaspace: replacement must not be empty");
    const bool prefix = spec.boolean("add_prefix_space", true);
    steps.push_back(
        metaspace(replacement, spec.text("prepend_scheme", prefix ? "always" : "never") != "never")
    );
    spec.ignore({"str_rep", "split"});
  } else {
    spec.refuse_type();
  }
  spec.done();
}

}  // namespace

DecodeStep wordpiece_decoder(const std::string& prefix, bool cleanup) {
  return [=](Texts texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string& text = texts[i];
      if (i > 0) {
        if (!prefix.empty() && text.starts_with(prefix)) {
          text.erase(0, prefix.size());
        } else {
          text.insert(0, 1, ' ');
        }
      }
      if (!cleanup) continue;
      static constexpr std::pair<const char*, const char*> kRules[] = {
          {" .", "."},
          {" ?", "?"},
          {" !", "!"},
          {" ,", ","},
          {" ' ", "'"},
          {" n't", "n't"},
          {" 'm", "'m"},
          {" do not", " don't"},
          {" 's", "'s"},
          {" 've", "'ve"},
          {" 're", "'re"}};
      for (const auto& [from, to] : kRules) replace_all(text, from, to);
    }
    return texts;
  };
}

Decoder read_decoder(const Object* json) {
  Decoder decoder;
  if (!json) decoder.between = " ";
  if (json) read_steps(*json, decoder);
  return decoder;
}

std::string Decoder::decode(Texts tokens) const {
  const auto size = [&] {
    size_t sum = 0;
    for (const std::string& token : tokens) sum += token.size();
    return sum;
  };
  const size_t before = size();
  for (const DecodeStep& step : steps) {
    tokens = step(std::move(tokens));
    check_growth(before, size());
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

}  // namespace horner
