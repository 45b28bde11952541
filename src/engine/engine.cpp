#include "engine/engine.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace horner {

std::string_view finish_name(Finish finish) {
  static constexpr std::string_view kNames[] = {
      "none", "end", "stop", "tokens", "longest", "cancelled", "no_token", "failed"};
  return kNames[size_t(finish)];
}

Engine::Engine(std::unique_ptr<Runner> runner, Tokenizer tokenizer, const EngineOptions& options)
    : runner_(std::move(runner)), tokenizer_(std::move(tokenizer)), o_(options) {
  HORNER_CHECK(
      o_.piece >= 1 && o_.waiting >= 1 && o_.batch >= 1 && o_.snapshot_every >= 0 &&
          o_.snapshot_bytes >= 0,
      "[engine] piece, waiting and batch must be at least 1, snapshot_every and snapshot_bytes at "
      "least 0"
  );
}

Engine::Entry& Engine::at(int64_t stream) {
  const auto found = streams_.find(stream);
  HORNER_CHECK(found != streams_.end(), "[engine] there is no stream {}", stream);
  return found->second;
}
const Engine::Entry& Engine::at(int64_t stream) const {
  return const_cast<Engine*>(this)->at(stream);
}

int64_t Engine::open() {
  streams_[next_].state = runner_->open();
  return next_++;
}

int64_t Engine::open(std::vector<int32_t> tokens, std::unique_ptr<StreamState> state) {
  Entry& entry = streams_[next_];
  entry.read = int64_t(tokens.size());
  entry.tokens = std::move(tokens);
  entry.state = std::move(state);
  return next_++;
}

int64_t Engine::fork(int64_t stream) {
  const Entry& from = at(stream);
  Entry to;
  to.tokens = from.tokens;
  to.read = from.read;
  to.state = runner_->fork(*from.state);
  for (const Snapshot& s : from.snapshots)
    to.snapshots.push_back({s.tokens, runner_->fork(*s.state)});
  streams_[next_] = std::move(to);
  return next_++;
}

void Engine::close(int64_t stream) {
  at(stream);
  streams_.erase(stream);
}

void Engine::check_length(const Entry& entry, size_t added) const {
  const int64_t longest = runner_->longest(), wanted = int64_t(entry.tokens.size() + added);
  HORNER_CHECK(
      longest == 0 || wanted <= longest,
      "the text has {} tokens; the model takes at most {}",
      wanted,
      longest
  );
}

void Engine::feed(int64_t stream, std::span<const int32_t> tokens) {
  Entry& entry = at(stream);
  HORNER_CHECK(!entry.text, "[engine] stream {} is writing", stream);
  check_length(entry, tokens.size());
  const int64_t V = runner_->vocabulary();
  for (const int32_t token : tokens) {
    HORNER_CHECK(
        token >= 0 && token < V, "there is no token {}; the model's vocabulary has {}", token, V
    );
  }
  entry.tokens.insert(entry.tokens.end(), tokens.begin(), tokens.end());
}

void Engine::replace(int64_t stream, std::span<const int32_t> tokens) {
  const std::vector<int32_t>& old = at(stream).tokens;
  const auto [a, b] = std::mismatch(old.begin(), old.end(), tokens.begin(), tokens.end());
  const auto common = a - old.begin();
  roll_back(stream, common);
  feed(stream, tokens.subspan(size_t(common)));
}

void Engine::generate(int64_t stream, const GenerateOptions& options) {
  Entry& entry = at(stream);
  HORNER_CHECK(!entry.text, "[engine] stream {} is writing", stream);
  HORNER_CHECK(!entry.tokens.empty(), "[engine] stream {} has no token to go on from", stream);
  HORNER_CHECK(options.tokens >= 0, "tokens must be at least 0, got {}", options.tokens);
  const bool first = std::all_of(entry.tokens.begin(), entry.tokens.end(), [&](int32_t token) {
    return token < tokenizer_.vocabulary() && tokenizer_.special(token);
  });
  Text text{
      .options = options,
      .sampler = TokenSampler(options.sampling),
      .shown = StreamedText(options.stop),
      .left = options.tokens,
      .first = first && !options.mask};  // a grammar counts each byte
  if (options.mask) text.place = options.mask->start();
  if (text.options.ends.empty() && tokenizer_.end()) text.options.ends = {*tokenizer_.end()};
  entry.text = std::move(text);
}

void Engine::cancel(int64_t stream) {
  Entry& entry = at(stream);
  if (!entry.text) return;
  Event event;
  event.stream = stream;
  event.text = entry.text->shown.finish();
  event.finish = Finish::cancelled;
  entry.cancelled = std::move(event);
  entry.text.reset();
}

void Engine::pause_at(int64_t stream, std::vector<int64_t> marks) {
  at(stream).marks = std::move(marks);
}

std::unique_ptr<StreamState> Engine::copy_state(int64_t stream) {
  return runner_->fork(*at(stream).state);
}

void Engine::score_prompt(int64_t stream, int64_t top) { at(stream).score_top = top; }

std::vector<SampledToken> Engine::take_prompt_scores(int64_t stream) {
  return std::exchange(at(stream).scores, {});
}

void Engine::keep(int64_t stream) {
  Entry& entry = at(stream);
  if (entry.read == 0 || (!entry.snapshots.empty() && entry.snapshots.back().tokens == entry.read))
    return;
  entry.snapshots.push_back({entry.read, runner_->fork(*entry.state)});
  while (entry.snapshots.size() > 1 && snapshot_bytes(stream) > o_.snapshot_bytes)
    entry.snapshots.pop_front();
}

void Engine::roll_back(int64_t stream, int64_t tokens) {
  Entry& entry = at(stream);
  HORNER_CHECK(!entry.text, "[engine] stream {} is writing", stream);
  HORNER_CHECK(
      tokens >= 0 && tokens <= int64_t(entry.tokens.size()),
      "[engine] stream {} has {} tokens; it cannot go back to {}",
      stream,
      entry.tokens.size(),
      tokens
  );
  entry.tokens.resize(size_t(tokens));
  // The last token stays unread: a text begins by its step.
  while (!entry.snapshots.empty() && entry.snapshots.back().tokens >= tokens)
    entry.snapshots.pop_back();
  if (entry.read < tokens) return;
  const bool any = !entry.snapshots.empty();
  entry.state = any ? runner_->fork(*entry.snapshots.back().state) : runner_->open();
  entry.read = any ? entry.snapshots.back().tokens : 0;
}

bool Engine::idle() const {
  return std::none_of(streams_.begin(), streams_.end(), [](const auto& stream) {
    const Entry& entry = stream.second;
    return entry.text || entry.cancelled || entry.unread() > 1;
  });
}

std::vector<Event> Engine::work() {
  std::vector<Event> events;
  for (auto& [id, entry] : streams_) {
    if (entry.cancelled) events.push_back(std::move(*entry.cancelled));
    entry.cancelled.reset();
  }
  const auto waits = [](const auto& stream) { return stream.second.unread() > 1; };
  const int64_t waiting = std::count_if(streams_.begin(), streams_.end(), waits);
  for (int64_t i = 0; i < waiting; i += o_.waiting) read_piece(events);
  std::vector<int64_t> ready;
  for (const auto& [id, entry] : streams_) {
    if (entry.text && entry.unread() == 1) ready.push_back(id);
  }
  if (int64_t(ready.size()) > o_.batch) {  // those after the last turn come first
    const auto next = std::upper_bound(ready.begin(), ready.end(), last_stepped_);
    std::rotate(ready.begin(), next, ready.end());
    ready.resize(size_t(o_.batch));
    last_stepped_ = ready.back();
    std::sort(ready.begin(), ready.end());  // the same streams are the same rows again
  }
  if (!ready.empty()) step(ready, events);
  return events;
}

int64_t Engine::piece_of(const Entry& entry) const {
  int64_t count = std::min(o_.piece, entry.unread() - 1);
  if (o_.snapshot_every > 0)  // a piece ends where a snapshot belongs
    count = std::min(count, o_.snapshot_every - entry.read % o_.snapshot_every);
  const auto mark = std::upper_bound(entry.marks.begin(), entry.marks.end(), entry.read);
  return mark == entry.marks.end() ? count : std::min(count, *mark - entry.read);
}

void Engine::read_piece(std::vector<Event>& events) {
  const auto waits = [](const auto& stream) { return stream.second.unread() > 1; };
  auto found = std::find_if(streams_.upper_bound(last_read_), streams_.end(), waits);
  if (found == streams_.end()) found = std::find_if(streams_.begin(), streams_.end(), waits);
  if (found == streams_.end()) return;
  last_read_ = found->first;
  Entry& entry = found->second;
  const int64_t count = piece_of(entry);
  const auto tokens = std::span(entry.tokens).subspan(size_t(entry.read));
  at::Tensor logits;  // (count,vocabulary)
  try {
    runner_->read(*entry.state, tokens.first(size_t(count)), entry.score_top ? &logits : nullptr);
    if (entry.score_top) score(entry, tokens.first(size_t(count) + 1), logits);
  } catch (const std::bad_alloc&) {
    return fail(found->first, "there is no memory left for this text", events);
  } catch (const std::exception& error) {  // torch's, of a device without memory
    return fail(found->first, error.what(), events);
  }
  entry.read += count;
  if (o_.snapshot_every > 0 && entry.read % o_.snapshot_every == 0) keep(found->first);
}

// `read`: the tokens whose logits these are, and the one after them.
void Engine::score(Entry& entry, std::span<const int32_t> read, const at::Tensor& logits) const {
  const auto V = size_t(logits.size(1));
  for (size_t i = 0; i + 1 < read.size(); ++i) {
    const std::span<const float> row(logits.const_data_ptr<float>() + i * V, V);
    entry.scores.push_back(
        {read[i + 1], logprob_of(row, read[i + 1]), likeliest(row, *entry.score_top)}
    );
  }
}

// Of the error that is being caught.
void Engine::fail(int64_t stream, const std::string& why, std::vector<Event>& events) {
  if (o_.throws) throw;
  at(stream).text.reset();
  Event event;
  event.stream = stream;
  event.finish = Finish::failed;
  event.error = why;
  events.push_back(std::move(event));
}

void Engine::step(const std::vector<int64_t>& streams, std::vector<Event>& events) {
  std::vector<int64_t> writing;
  for (const int64_t stream : streams) {
    Entry& entry = at(stream);
    if (entry.text->left > 0) {
      writing.push_back(stream);
      continue;
    }
    events.push_back(  // nothing was asked for
        {.stream = stream, .text = entry.text->shown.finish(), .finish = Finish::tokens}
    );
    entry.text.reset();
  }
  if (writing.empty()) return;
  std::vector<std::exception_ptr> errors(writing.size());
  std::vector<SampledToken> next = next_tokens(writing, errors);
  for (size_t i = 0; i < writing.size(); ++i) {
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
      events.push_back(add_token(writing[i], std::move(next[i])));
    } catch (const RunError& error) {
      fail(writing[i], error.what(), events);
    }
  }
}

// How the runner may draw the next token by itself; nothing: the sampler needs the logits.
std::optional<Draw> Engine::draw_of(const Entry& entry) const {
  const GenerateOptions& o = entry.text->options;
  const SamplingOptions& s = o.sampling;
  const bool from_all = s.top_k == 0 && s.top_p == 1 && s.min_p == 0;
  const bool changed = s.repetition_penalty != 1 || s.presence_penalty != 0 ||
                       s.frequency_penalty != 0 || !s.logit_bias.empty() || o.mask;
  if (!runner_->can_draw() || !from_all || changed || s.logprobs >= 0) return {};
  return Draw{s.temperature, sampling_uniform(uint64_t(s.seed), entry.tokens.size())};
}

std::vector<SampledToken> Engine::next_tokens(
    const std::vector<int64_t>& streams, std::vector<std::exception_ptr>& errors
) {
  const size_t n = streams.size();
  std::vector<StreamState*> states;
  std::vector<int32_t> tokens, drawn(n);
  std::vector<std::optional<Draw>> draws;
  std::vector<size_t> others;  // whose logits are the rows
  for (size_t i = 0; i < n; ++i) {
    Entry& entry = at(streams[i]);
    states.push_back(entry.state.get());
    tokens.push_back(entry.tokens.back());
    draws.push_back(draw_of(entry));
    if (!draws.back()) others.push_back(i);
  }
  const at::Tensor logits = others.size() < n
                                ? runner_->step_drawn(states, tokens, draws, drawn)
                                : runner_->step(states, tokens);  // (others,vocabulary)
  for (const int64_t stream : streams) ++at(stream).read;
  std::vector<SampledToken> next(n);
  for (size_t i = 0; i < n; ++i) {
    next[i].token = drawn[i];
    if (draws[i] && drawn[i] < 0)
      errors[i] = std::make_exception_ptr(RunError("the model's logits are not numbers"));
  }
  const auto V = size_t(logits.size(1));
  const float* const rows = logits.const_data_ptr<float>();
  const auto sample = [&](size_t row, bool masked) {
    const size_t i = others[row];
    if (masked != bool(at(streams[i]).text->options.mask)) return;
    try {
      next[i] = sampled(streams[i], {rows + row * V, V});
    } catch (const RunError&) {
      errors[i] = std::current_exception();
    }
  };
  at::parallel_for(0, int64_t(others.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) sample(size_t(row), false);
  });
  for (size_t row = 0; row < others.size(); ++row)
    sample(row, true);  // texts share what a mask has computed
  return next;
}

SampledToken Engine::sampled(int64_t stream, std::span<const float> logits) {
  Entry& entry = at(stream);
  Text& text = *entry.text;
  if (text.options.mask) allow(text, logits.size());
  return text.sampler.sample(logits, entry.tokens, text.allowed);
}

Event Engine::add_token(int64_t stream, SampledToken sampled) {
  Entry& entry = at(stream);
  Text& text = *entry.text;
  Event event;
  event.stream = stream;
  event.sampled = std::move(sampled);
  if (event.sampled.token < 0) {
    event.text = text.shown.finish();
    event.finish = text.place.complete() ? Finish::end : Finish::no_token;
    entry.text.reset();
    return event;
  }
  event.has_token = true;
  const int32_t token = event.sampled.token;
  const std::vector<int32_t>& ends = text.options.ends;
  const bool ended =
      !text.options.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end();
  if (!ended) event.text = text.shown.add(bytes_of(text, token));
  if (!ended && text.options.mask) text.options.mask->advance(text.place, token);
  entry.tokens.push_back(token);
  const int64_t longest = runner_->longest();
  if (ended || (text.options.mask && !text.place.can_go_on())) {
    event.finish = Finish::end;
  } else if (!text.shown.stopped_by().empty()) {
    event.finish = Finish::stop;
  } else if (--text.left == 0) {
    event.finish = Finish::tokens;
  } else if (longest > 0 && int64_t(entry.tokens.size()) >= longest) {
    event.finish = Finish::longest;
  }
  if (event.finish != Finish::none) {
    event.text += text.shown.finish();
    entry.text.reset();
  }
  return event;
}

// What the mask allows, and the tokens that end a text where the grammar has an end.
void Engine::allow(Text& text, size_t vocabulary) const {
  text.options.mask->allowed(text.place, text.allowed);
  text.allowed.resize((vocabulary + 63) / 64);
  for (const int32_t id : text.options.ends) {
    if (id < 0 || size_t(id) >= vocabulary) continue;
    uint64_t& word = text.allowed[size_t(id) / 64];
    const uint64_t bit = uint64_t(1) << id % 64;
    word = text.place.complete() && !text.options.ignore_end ? word | bit : word & ~bit;
  }
}

// A tokenizer that writes spaces before words leaves out the first one of a text.
std::string Engine::bytes_of(Text& text, int32_t token) const {
  if (token >= tokenizer_.vocabulary()) return "";  // the embedding may be padded
  if (!text.first || tokenizer_.special(token)) return tokenizer_.bytes(token);
  text.first = false;
  return tokenizer_.decode({token});
}

const std::vector<int32_t>& Engine::tokens(int64_t stream) const { return at(stream).tokens; }
int64_t Engine::tokens_read(int64_t stream) const { return at(stream).read; }
int64_t Engine::state_bytes(int64_t stream) const { return runner_->bytes(*at(stream).state); }

int64_t Engine::snapshot_bytes(int64_t stream) const {
  std::vector<const StreamState*> states;
  for (const Snapshot& s : at(stream).snapshots) states.push_back(s.state.get());
  return runner_->held_bytes(states);
}

}  // namespace horner
