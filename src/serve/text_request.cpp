#include "serve/text_request.h"

#include <algorithm>

#include "serve/random_bits.h"

namespace horner {
namespace {

constexpr int64_t kMostTexts = 128, kMostTop = 20, kMostStops = 16, kMostBias = 1000;

bool all_of_type(const Json& list, bool (*is)(const Json&)) {
  return std::all_of(list.begin(), list.end(), is);
}

std::vector<std::string> read_stops(const RequestFields& fields) {
  const Json* value = fields.find("stop");
  if (!value) return {};
  std::vector<std::string> stops;
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  const bool good = list.is_array() && int64_t(list.size()) <= kMostStops &&
                    all_of_type(list, [](const Json& s) { return s.is_string(); });
  if (!good)
    RequestFields::wrong("stop", fmt::format("a text or a list of at most {}", kMostStops), *value);
  for (const Json& stop : list) {
    if (!stop.get_ref<const std::string&>().empty()) stops.push_back(stop);
  }
  return stops;
}

std::vector<std::string> read_bias(const RequestFields& fields, int64_t vocabulary) {
  std::vector<std::string> biases;
  const Json* value = fields.find("logit_bias");
  if (!value) return biases;
  if (!value->is_object())
    RequestFields::wrong("logit_bias", "an object {token id: number}", *value);
  for (const auto& [token, bias] : value->items()) {
    const bool digits =
        !token.empty() && token.size() < 10 && token.find_first_not_of("0123456789") == token.npos;
    if (!digits || std::stoll(token) >= vocabulary || !bias.is_number() ||
        std::abs(bias.get<double>()) > kMostBias)
      RequestFields::wrong(
          "logit_bias",
          fmt::format("ids below {} with numbers in {} .. {}", vocabulary, -kMostBias, kMostBias),
          Json{{token, bias}}
      );
    biases.push_back(fmt::format("{}:{}", token, bias.get<float>()));
  }
  return biases;
}

SamplingOptions read_sampling(const ServedModel& model, const RequestFields& fields) {
  const GenerationDefaults& d = model.defaults;
  SamplingOptions s;
  s.temperature = fields.number("temperature", 0, 100).value_or(d.temperature.value_or(1));
  s.top_p = fields.number("top_p", 1e-9, 1).value_or(d.top_p.value_or(1));
  s.top_k = fields.integer("top_k", -1, 1 << 30).value_or(d.top_k.value_or(0));
  s.top_k = std::max<int64_t>(s.top_k, 0);  // -1: all, too
  s.min_p = fields.number("min_p", 0, 1).value_or(d.min_p.value_or(0));
  s.repetition_penalty =
      fields.number("repetition_penalty", 1e-3, 1e3).value_or(d.repetition_penalty.value_or(1));
  s.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  s.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  s.logit_bias = read_bias(fields, model.worker->vocabulary());
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  s.seed = seed ? *seed : int64_t(random_bits());
  return s;
}

void read_logprobs(const RequestFields& fields, TextRequest& request) {
  if (!request.chat) {
    request.logprobs = fields.integer("logprobs", 0, kMostTop);
  } else if (fields.flag("logprobs")) {
    request.logprobs = fields.integer("top_logprobs", 0, kMostTop).value_or(0);
  } else if (fields.integer("top_logprobs", 0, kMostTop).value_or(0) > 0) {
    throw ApiError(400, "invalid_value", "top_logprobs needs logprobs: true");
  }
  if (request.logprobs) request.options.sampling.logprobs = *request.logprobs;
}

// What limits the form of an answer: response_format, regex, tools.
void read_form(const ServedModel& model, const Json& body, TextRequest& request) {
  request.form = read_answer_form(body, model.chat_source);
  if (request.form.grammar)
    request.options.mask = std::make_shared<const TokenMask>(model.trie, *request.form.grammar);
}

void check_lengths(const ServedModel& model, TextRequest& request) {
  const int64_t longest = model.worker->longest();
  for (const std::vector<int32_t>& prompt : request.prompts) {
    const auto n = int64_t(prompt.size());
    const int64_t most =
        longest > 0 ? std::min(longest, model.longest_prompt) : model.longest_prompt;
    if (n == 0 && request.state.empty())
      throw ApiError(400, "invalid_value", "a prompt of token ids is empty");
    if (n > most || (longest > 0 && n == longest && request.options.tokens > 0))
      throw ApiError(
          400,
          "context_length_exceeded",
          "the prompt has {} tokens; this server takes at most {}",
          n,
          longest > 0 && request.options.tokens > 0 ? std::min(most, longest - 1) : most
      );
  }
}

void read_completion(const ServedModel& model, const RequestFields& fields, TextRequest& request) {
  fields.refuse("suffix", "the model writes only at the end of a text");
  if (fields.integer("best_of", 1, kMostTexts).value_or(request.n) != request.n)
    throw ApiError(400, "unsupported", "best_of is not supported");
  request.echo = fields.flag("echo");
  const bool after = !request.state.empty();
  const Json* given = fields.find("prompt");
  if (!given && !after) throw ApiError(400, "invalid_value", "prompt is missing");
  static const Json nothing = "";
  const Json& prompt = given ? *given : nothing;
  const int64_t most = model.worker->most_prompts();
  if (prompt.is_array() && int64_t(prompt.size()) > most && !prompt[0].is_number())
    throw ApiError(
        400, "too_large", "prompt has {} texts; a request takes at most {}", prompt.size(), most
    );
  request.prompts =
      read_prompts("prompt", prompt, model.worker->vocabulary(), [&](const std::string& text) {
        return after ? model.tokenizer.encode(text) : prompt_tokens(model.tokenizer, text);
      });
  if (!request.echo) return;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const bool one = prompt.is_string(), many = prompt.is_array() && prompt[0].is_string();
    request.shown.push_back(
        one    ? prompt.get<std::string>()
        : many ? prompt[i].get<std::string>()
               : as_utf8(model.tokenizer.decode(request.prompts[i], true))
    );
  }
}

}  // namespace

std::vector<int32_t> read_ids(const std::string& field, const Json& list, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary)
      RequestFields::wrong(field, fmt::format("made of token ids in 0 .. {}", vocabulary - 1), id);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<std::vector<int32_t>> read_prompts(
    const std::string& field, const Json& value, int64_t vocabulary, const Encode& encode
) {
  if (value.is_string()) return {encode(value)};
  if (!value.is_array() || value.empty())
    RequestFields::wrong(field, "a text, texts, token ids or lists of token ids", value);
  if (value[0].is_number()) return {read_ids(field, value, vocabulary)};
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& one : value) {
    if (one.is_string() == value[0].is_string() && one.is_string()) {
      prompts.push_back(encode(one));
    } else if (one.is_array() && value[0].is_array()) {
      prompts.push_back(read_ids(field, one, vocabulary));
    } else {
      RequestFields::wrong(field, "a text, texts, token ids or lists of token ids", value);
    }
  }
  return prompts;
}

Json read_messages(const Json& body, const AnswerForm& form) {
  const RequestFields fields(body);
  const Json* given = fields.find("messages");
  if (!given || !given->is_array() || given->empty())
    throw ApiError(400, "invalid_value", "messages must be a list with at least one message");
  for (const Json& message : *given) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      RequestFields::wrong("messages", "objects with a role and a content", message);
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (const Json& part : *content) {
      if (!part.is_object() || part.value("type", Json()) != "text")
        throw ApiError(400, "unsupported", "the model reads text; a part of a message is none");
    }
  }
  return template_messages(*given, form);
}

jinja::Text chat_text(
    const ServedModel& model,
    const Json& messages,
    bool add_prompt,
    const Json& body,
    const AnswerForm& form
) {
  if (!model.chat)
    throw ApiError(
        400,
        "no_chat_template",
        "{} has no chat template; `horner serve --template chatml` uses the ChatML format",
        model.name
    );
  Json more = form.template_variables();
  const Json* given = RequestFields(body).find("chat_template_kwargs");
  if (given && given->is_object()) more.update(*given);
  try {
    return model.chat->render(messages, add_prompt, more);
  } catch (const DataError& error) {
    throw ApiError(
        400, "chat_template", "the chat template refuses the messages: {}", error.what()
    );
  }
}

std::vector<int32_t> chat_prompt(
    const ServedModel& model,
    const Json& body,
    const AnswerForm& form,
    std::vector<int64_t>* boundaries
) {
  const Json messages = read_messages(body, form);
  const auto tokens = chat_tokens(model.tokenizer, chat_text(model, messages, true, body, form));
  if (!boundaries) return tokens;
  for (size_t i = 0; i + 1 < tokens.size();
       ++i) {  // a special token ends a message in most formats
    if (std::find(model.ends.begin(), model.ends.end(), tokens[i]) != model.ends.end())
      boundaries->push_back(int64_t(i) + 1);
  }
  // In the others, where the chat without its last message ends.
  if (messages.size() > 1) {
    Json before = messages;
    before.erase(before.size() - 1);
    try {
      const auto old = chat_tokens(model.tokenizer, chat_text(model, before, false, body, form));
      const auto same = std::mismatch(old.begin(), old.end(), tokens.begin(), tokens.end()).first;
      boundaries->push_back(same - old.begin());
    } catch (const ApiError&) {  // some templates refuse a chat that ends with an answer
    }
  }
  std::sort(boundaries->begin(), boundaries->end());
  return tokens;
}

void check_model(const ServedModel& model, const RequestFields& fields) {
  const std::string wanted = fields.text("model").value_or(model.name);
  if (wanted != model.name)
    throw ApiError(
        404, "model_not_found", "there is no model '{}'; this server has '{}'", wanted, model.name
    );
}

std::vector<PromptTask> TextRequest::tasks(const std::shared_ptr<TextChannel>& channel) const {
  std::vector<PromptTask> all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptTask task;
    task.channel = channel;
    task.first_choice = i * size_t(n);
    task.n = n;
    task.prompt = prompts[i];
    task.boundaries = boundaries;
    task.options = options;
    if (echo && logprobs) task.score_prompt = *logprobs;
    task.state = state;
    task.save_as = save_as;
    all.push_back(std::move(task));
  }
  return all;
}

TextRequest read_text_request(const ServedModel& model, const Json& body, bool chat) {
  const RequestFields fields(body);
  check_model(model, fields);
  if (!model.worker)
    throw ApiError(400, "unsupported", "{} is an encoder: it writes no text", model.name);
  TextRequest request;
  request.chat = chat;
  request.n = fields.integer("n", 1, kMostTexts).value_or(1);
  request.stream = fields.flag("stream");
  if (const Json* options = fields.find("stream_options"); options && options->is_object())
    request.include_usage = RequestFields(*options).flag("include_usage");
  request.options.sampling = read_sampling(model, fields);
  request.options.stop = read_stops(fields);
  request.options.ends = model.ends;
  request.options.ignore_end = fields.flag("ignore_eos");
  read_logprobs(fields, request);
  read_form(model, body, request);
  request.state = fields.text("state").value_or("");
  request.save_as = fields.text("save_state").value_or("");
  if (!request.save_as.empty()) NamedStates::check_name(request.save_as);
  constexpr int64_t kMost = 1 << 20;
  const auto most = fields.integer("max_tokens", chat ? 1 : 0, kMost);
  request.options.tokens =
      fields.integer("max_completion_tokens", 1, kMost).value_or(most.value_or(chat ? 2048 : 16));
  if (chat) {
    if (!request.state.empty())
      throw ApiError(400, "unsupported", "state goes with /v1/completions; a chat needs none");
    request.prompts = {chat_prompt(model, body, request.form, &request.boundaries)};
  } else {
    read_completion(model, fields, request);
  }
  if (!request.state.empty() && request.echo && request.logprobs)
    throw ApiError(
        400, "unsupported", "echo with logprobs: the tokens of a state have no log-probabilities"
    );
  if (!request.save_as.empty() && request.choices() > 1)
    throw ApiError(400, "invalid_value", "save_state needs one prompt and n = 1");
  check_lengths(model, request);
  return request;
}

}  // namespace horner
