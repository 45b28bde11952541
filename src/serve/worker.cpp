#include "serve/worker.h"

#include <algorithm>

#include "serve/api_error.h"

namespace horner {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

EngineOptions engine_options(const WorkerOptions& o) {
  EngineOptions e;
  e.batch = o.streams;
  e.snapshot_every = 0;  // states are kept in the cache of all streams
  e.throws = false;
  return e;
}

}  // namespace

Worker::Worker(
    std::unique_ptr<Runner> runner,
    Tokenizer tokenizer,
    const WorkerOptions& o,
    ServeMetrics& metrics
)
    : o_(o),
      metrics_(metrics),
      engine_(std::move(runner), std::move(tokenizer), engine_options(o)),
      cache_(engine_.runner(), o.cache_bytes),
      states_(engine_.runner(), o.states_folder, o.fingerprint, o.states),
      vocabulary_(engine_.runner().vocabulary()),
      longest_(engine_.runner().longest()),
      thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = stopping_ = cut_off_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Worker::submit(std::vector<PromptTask> tasks) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_) throw ApiError(503, "shutting_down", "the server is shutting down");
    if (int64_t(queue_.size() + tasks.size()) > o_.queue)
      throw ApiError(
          429,
          "queue_full",
          "{} prompts wait already, and {} more do not fit; the limit is {}: try again later",
          queue_.size(),
          tasks.size(),
          o_.queue
      );
    for (PromptTask& task : tasks) queue_.push_back(std::move(task));
  }
  wake_.notify_all();
}

void Worker::call(const std::function<void(NamedStates&, PrefixCache&)>& work) {
  std::packaged_task<void()> task([&] { work(states_, cache_); });
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ApiError(503, "shutting_down", "the server is shutting down");
    calls_.push_back(std::move(task));
  }
  wake_.notify_all();
  done.get();
}

void Worker::drain(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  wake_.notify_all();
  const auto quiet = [&] { return queue_.empty() && !busy_; };
  if (idle_.wait_for(lock, most, quiet)) return;
  cut_off_ = true;
  wake_.notify_all();
  idle_.wait_for(lock, std::chrono::seconds(5), quiet);
}

void Worker::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      busy_ = !active_.empty();
      if (!busy_ && queue_.empty()) {
        idle_.notify_all();
        wake_.wait(lock, [&] { return !queue_.empty() || !calls_.empty() || stopping_; });
        if (stopping_ && queue_.empty() && calls_.empty()) return;
      }
    }
    take_new();
    drop_left();
    try {
      start_texts();  // of prompts that are known already
      std::vector<Event> events = engine_.work();
      keep_states();
      hand_out(events);
    } catch (const std::bad_alloc&) {
      cache_.clear();
      fail_all(503, "the server has no memory left for this text");
    } catch (const std::exception& error) {
      fail_all(500, error.what());
    }
    measure();
  }
}

void Worker::take_new() {
  std::deque<std::packaged_task<void()>> calls;
  std::deque<PromptTask> tasks;
  bool cut_off = false;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
    cut_off = cut_off_;
    if (cut_off) tasks.swap(queue_);
    int64_t free = o_.streams - int64_t(active_.size());
    while (!cut_off && !queue_.empty() && (queue_.front().n <= free || active_.empty())) {
      free -= queue_.front().n;
      tasks.push_back(std::move(queue_.front()));
      queue_.pop_front();
      busy_ = true;
      if (free <= 0) break;
    }
  }
  for (auto& call : calls) call();
  if (cut_off) {
    fail_all(503, "the server is shutting down");
    for (PromptTask& task : tasks) {
      for (int64_t j = 0; j < task.n; ++j) {
        TextEvent event;
        event.choice = task.first_choice + size_t(j);
        event.error = "the server is shutting down";
        event.status = 503;
        task.channel->push(std::move(event));
      }
    }
    return;
  }
  for (PromptTask& task : tasks) admit(std::move(task));
}

void Worker::admit(PromptTask task) {
  if (task.channel->left()) return;  // the client did not wait
  const auto shared = std::make_shared<const PromptTask>(std::move(task));
  const auto fail = [&](int status, const std::string& why) {
    for (int64_t j = 0; j < shared->n; ++j) {
      TextEvent event;
      event.choice = shared->first_choice + size_t(j);
      event.error = why;
      event.status = status;
      shared->channel->push(std::move(event));
    }
  };
  try {
    open_stream(shared);
  } catch (const ApiError& error) {
    fail(error.status, error.what());
  } catch (const Error& error) {
    fail(400, error.what());
  } catch (const std::bad_alloc&) {
    cache_.clear();
    fail(503, "the server has no memory left for this text");
  } catch (const std::exception& error) {  // torch's, of a device without memory
    fail(500, error.what());
  }
}

int64_t Worker::bytes_of(const PromptTask& task, int64_t prompt_tokens) const {
  const int64_t tokens = prompt_tokens + task.options.tokens;
  return engine_.runner().bytes_after(longest_ > 0 ? std::min(tokens, longest_) : tokens);
}

// ApiError if its texts do not fit.
void Worker::check_memory(const PromptTask& task, int64_t each) const {
  int64_t held = states_.bytes();
  for (const auto& [stream, active] : active_)
    held += active.bytes * (active.reading ? active.task->n : 1);
  const int64_t needed = each * task.n, mib = 1 << 20;
  if (needed > o_.state_bytes)
    throw ApiError(
        400,
        "too_large",
        "the states of these texts may take {} MiB and this server has {}: ask for fewer tokens",
        needed / mib + 1,
        o_.state_bytes / mib
    );
  if (held + needed > o_.state_bytes)
    throw ApiError(
        503,
        "no_memory",
        "the states of these texts may take {} MiB and {} of {} are free now{}: try again later",
        needed / mib + 1,
        std::max<int64_t>(o_.state_bytes - held, 0) / mib,
        o_.state_bytes / mib,
        states_.bytes() < mib ? ""
                              : fmt::format(" (states with names hold {})", states_.bytes() / mib)
    );
}

void Worker::open_stream(const std::shared_ptr<const PromptTask>& task) {
  std::vector<int32_t> tokens = task->prompt;
  PrefixCache::Found found;
  if (!task->state.empty()) {
    const NamedState& named = states_.at(task->state);
    tokens.insert(tokens.begin(), named.tokens.begin(), named.tokens.end());
    // The last token stays unread: a text begins by its step.
    if (named.state && named.read < int64_t(tokens.size()))
      found = {named.read, engine_.runner().fork(*named.state)};
  }
  if (tokens.empty())
    throw ApiError(
        400, "invalid_value", "state '{}' has no tokens and the prompt is empty", task->state
    );
  const int64_t bytes = bytes_of(*task, int64_t(tokens.size()));
  check_memory(*task, bytes);
  if (!task->score_prompt) {
    PrefixCache::Found cached = cache_.find(tokens, int64_t(tokens.size()) - 1);
    if (cached.tokens > found.tokens) found = std::move(cached);
  }
  const std::span<const int32_t> all = tokens;
  const auto known = all.first(size_t(found.tokens));
  const int64_t stream = found.tokens > 0
                             ? engine_.open({known.begin(), known.end()}, std::move(found.state))
                             : engine_.open();
  try {
    engine_.feed(stream, all.subspan(known.size()));
    if (task->score_prompt) engine_.score_prompt(stream, *task->score_prompt);
    std::vector<int64_t> marks = task->boundaries;
    for (int64_t at = o_.cache_every; at < int64_t(tokens.size()); at += o_.cache_every)
      marks.push_back(at);
    std::sort(marks.begin(), marks.end());
    engine_.pause_at(stream, std::move(marks));
    Active active;
    active.task = task;
    active.prompt_tokens = int64_t(tokens.size());
    active.bytes = bytes;
    active.cached = active.seen = int64_t(known.size());
    metrics_.prompt_read(active.prompt_tokens, active.cached);
    active_.emplace(stream, std::move(active));
  } catch (...) {
    engine_.close(stream);
    throw;
  }
}

void Worker::start_text(int64_t stream, const Active& active) {
  GenerateOptions options = active.task->options;
  options.sampling.seed = int64_t(uint64_t(options.sampling.seed) + uint64_t(active.choice));
  engine_.generate(stream, options);
}

// A text begins once its prompt is read, so that the state between them can be kept. Several texts of one prompt go on from
// forks of its stream.
void Worker::start_texts() {
  std::vector<int64_t> ready;
  for (const auto& [stream, active] : active_) {
    if (active.reading && engine_.tokens_read(stream) + 1 == active.prompt_tokens)
      ready.push_back(stream);
  }
  for (const int64_t stream : ready) {
    Active& first = active_.at(stream);
    first.reading = false;
    for (int64_t j = 1; j < first.task->n; ++j) {
      Active other = first;
      other.choice = j;
      const int64_t fork = engine_.fork(stream);
      start_text(fork, other);
      active_.emplace(fork, std::move(other));
    }
    start_text(stream, first);
  }
}

void Worker::drop_left() {
  std::erase_if(active_, [&](const auto& stream) {
    if (!stream.second.task->channel->left()) return false;
    engine_.close(stream.first);
    return true;
  });
}

// Streams that ended are gone, and the numbers of /metrics say so, before a client reads its answer.
void Worker::hand_out(std::vector<Event>& events) {
  const auto now = Clock::now();
  std::vector<std::pair<std::shared_ptr<const PromptTask>, TextEvent>> answers;
  for (Event& event : events) {
    const auto found = active_.find(event.stream);
    if (found == active_.end()) continue;
    Active& active = found->second;
    TextEvent told;
    told.choice = active.task->first_choice + size_t(active.choice);
    if (active.first) {
      told.first = true;
      told.prompt_tokens = active.prompt_tokens;
      told.cached_tokens = active.cached;
      if (active.task->score_prompt) told.prompt_scores = engine_.take_prompt_scores(event.stream);
      if (event.has_token) metrics_.first_token(seconds_between(active.task->asked, now));
    } else if (event.has_token) {
      metrics_.next_token(seconds_between(active.last, now));
    }
    active.first = false;
    active.last = now;
    const bool failed = event.finish == Finish::failed, last = event.finish != Finish::none;
    told.event = std::move(event);
    if (failed) told.error = told.event.error;
    if (failed && active.reading) cache_.clear();  // what failed may be memory
    if (last && !failed) finish(found->first, active, told);
    answers.emplace_back(active.task, std::move(told));
    if (last) {
      engine_.close(found->first);
      active_.erase(found);
    }
  }
  measure();
  for (auto& [task, told] : answers) task->channel->push(std::move(told));  // see drop_left
}

void Worker::finish(int64_t stream, Active& active, TextEvent& event) {
  event.state_bytes = engine_.state_bytes(stream);
  keep_state(stream, true);
  if (active.task->save_as.empty() || active.choice > 0) return;
  try {
    NamedState named;
    named.tokens = engine_.tokens(stream);
    named.read = engine_.tokens_read(stream);
    if (named.read > 0) named.state = engine_.copy_state(stream);
    states_.save(active.task->save_as, std::move(named));
  } catch (const ApiError& error) {
    event.error = error.what();
    event.status = error.status;
  } catch (const std::exception& error) {
    event.error = error.what();
  }
}

void Worker::keep_states() {
  for (const auto& [stream, active] : active_) keep_state(stream, false);
}

void Worker::keep_state(int64_t stream, bool end) {
  Active& active = active_.at(stream);
  const int64_t read = engine_.tokens_read(stream);
  if (active.task->score_prompt || read == 0 || o_.cache_bytes == 0) return;
  if (read == active.seen && !end) return;
  const std::vector<int64_t>& marks = active.task->boundaries;
  const bool wanted = end || read % o_.cache_every == 0 || read + 1 == active.prompt_tokens ||
                      std::binary_search(marks.begin(), marks.end(), read);
  active.seen = read;
  if (!wanted) return;
  const auto tokens = std::span(engine_.tokens(stream)).first(size_t(read));
  if (!cache_.contains(tokens)) cache_.add(tokens, engine_.copy_state(stream));
}

void Worker::fail_all(int status, const std::string& why) {
  for (const auto& [stream, active] : active_) {
    const int64_t texts = active.reading ? active.task->n : 1;
    for (int64_t j = 0; j < texts; ++j) {
      TextEvent event;
      event.choice = active.task->first_choice + size_t(active.choice + j);
      event.error = why;
      event.status = status;
      active.task->channel->push(std::move(event));
    }
    engine_.close(stream);
  }
  active_.clear();
}

void Worker::measure() {
  const auto now = Clock::now();
  if (seconds_between(measured_, now) < 0.1 && !active_.empty()) return;
  measured_ = now;
  ServeMetrics::Now numbers;
  numbers.streams = int64_t(active_.size());
  for (const auto& [stream, active] : active_) numbers.state_bytes += engine_.state_bytes(stream);
  numbers.cache_bytes = cache_.bytes();
  numbers.cache_states = cache_.states();
  numbers.named_states = states_.size();
  {
    const std::lock_guard lock(mutex_);
    numbers.queued = int64_t(queue_.size());
  }
  metrics_.now(numbers);
}

}  // namespace horner
