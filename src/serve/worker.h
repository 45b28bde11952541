// The worker: one thread that owns the engine and writes the texts of all requests.
//
//   request's thread                     worker's thread
//   submit(tasks) -> queue (bounded)  -> a stream for each, as places are free
//   channel.next() <- events (bounded) <- work(): a piece of a prompt, a token of each stream
//
// A prompt goes on from the longest prefix in the cache. States are put there at the ends of messages, at the end of a prompt
// and of a text, and each 256 tokens.
//
// A text begins only if its state fits beside the others' at the longest that each may become. So no text that has begun fails
// because another one needs memory.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "serve/channel.h"
#include "serve/metrics.h"
#include "serve/named_states.h"

namespace horner {

struct WorkerOptions {
  int64_t streams = 16;  // texts at a time
  int64_t queue = 256;   // prompts that wait
  int64_t state_bytes =
      1LL << 30;  // of all texts together, each at its longest, and states with names
  int64_t cache_bytes = 1LL << 30;
  int64_t cache_every = 256;  // tokens
  int64_t states = 1024;      // with a name
  std::string states_folder, fingerprint;
};

// One prompt, and the n texts that go on from it.
struct PromptTask {
  std::shared_ptr<TextChannel> channel;
  size_t first_choice = 0;  // its number in the request; the others follow
  int64_t n = 1;
  std::vector<int32_t> prompt;
  std::vector<int64_t> boundaries;  // tokens after which a message begins
  GenerateOptions options;          // the seed of text j is `seed + j`
  std::optional<int64_t>
      score_prompt;     // log-probabilities of the prompt, with so many of the likeliest tokens
  std::string state;    // the prompt comes after the tokens of this named state
  std::string save_as;  // the state after the first text gets this name
  std::chrono::steady_clock::time_point asked = std::chrono::steady_clock::now();
};

class Worker {
 public:
  Worker(
      std::unique_ptr<Runner> runner,
      Tokenizer tokenizer,
      const WorkerOptions& options,
      ServeMetrics& metrics
  );
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // All or none of them. ApiError 429 if the queue is full, 503 after drain().
  void submit(std::vector<PromptTask> tasks);
  // Runs on the worker's thread between two rounds; what it throws is thrown here.
  void call(const std::function<void(NamedStates&, PrefixCache&)>& work);
  // Takes no more tasks, and waits until the texts are written or the time is over; then they are cut off.
  void drain(std::chrono::milliseconds most);

  int64_t vocabulary() const { return vocabulary_; }
  int64_t longest() const { return longest_; }       // tokens of a stream; 0: any number
  int64_t most_prompts() const { return o_.queue; }  // of a request

 private:
  struct Active {
    std::shared_ptr<const PromptTask> task;
    int64_t choice = 0;  // of the task
    int64_t prompt_tokens = 0, cached = 0;
    int64_t bytes = 0;  // of its state at its end
    int64_t seen = 0;   // tokens read when states were last kept
    bool reading = true, first = true;
    std::chrono::steady_clock::time_point last;
  };
  using Streams = std::map<int64_t, Active>;

  void run();
  void take_new();
  void admit(PromptTask task);
  int64_t bytes_of(const PromptTask& task, int64_t prompt_tokens) const;
  void check_memory(const PromptTask& task, int64_t each) const;
  void open_stream(const std::shared_ptr<const PromptTask>& task);
  void start_text(int64_t stream, const Active& active);
  void start_texts();
  void drop_left();
  void hand_out(std::vector<Event>& events);
  void finish(int64_t stream, Active& active, TextEvent& event);
  void keep_states();
  void keep_state(int64_t stream, bool end);
  void fail_all(int status, const std::string& why);
  void measure();

  const WorkerOptions o_;
  ServeMetrics& metrics_;
  Engine engine_;
  PrefixCache cache_;
  NamedStates states_;
  const int64_t vocabulary_, longest_;
  Streams active_;  // by the engine's number

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<PromptTask> queue_;
  std::deque<std::packaged_task<void()>> calls_;
  bool draining_ = false, stopping_ = false, cut_off_ = false;
  std::atomic<bool> busy_ = false;
  std::chrono::steady_clock::time_point measured_;
  std::thread thread_;
};

}  // namespace horner
