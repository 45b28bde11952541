// The engine decodes: many streams, each with its state, stepped together.
//
//   Engine engine(model_runner(model), tokenizer);
//   const auto stream = engine.open();
//   engine.feed(stream, tokenizer.encode("To be, or"));
//   engine.generate(stream, {.tokens = 40, .stop = {"\n\n"}});
//   while (!engine.idle())
//     for (const Event& event : engine.work()) fmt::print("{}", event.text);
//
// A stream is a list of tokens and the state of those that were read. The last token stays unread until a text is wanted: then
// it is one row of the step of all streams. All others are read in pieces, one piece a round, so that a long prompt does not
// stop the texts of others. A text depends on its tokens and its sampling alone, not on the streams beside it.
//
// Snapshots are states at earlier tokens. roll_back goes to any token: the newest snapshot before it, and the tokens in between
// are read again.
#pragma once

#include <deque>
#include <exception>
#include <map>

#include "engine/runner.h"
#include "engine/streamed_text.h"
#include "io/tokenizer.h"
#include "model/sampling.h"
#include "model/token_mask.h"

namespace horner {

struct EngineOptions {
  int64_t piece = 256;           // tokens of a prompt that are read at a time
  int64_t waiting = 16;          // prompts for which a round reads one piece; of more it reads more
  int64_t batch = 64;            // most streams in one step
  int64_t snapshot_every = 256;  // tokens of a prompt; 0: only where keep() is called
  int64_t snapshot_bytes = 256LL << 20;  // of one stream; the oldest are dropped first
  // What work() does when one text cannot go on, since its logits are no numbers: it throws, or ends that text alone (`failed`).
  bool throws = true;
};

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t tokens = 256;           // at most
  std::vector<std::string> stop;  // the text ends before one of these
  std::vector<int32_t> ends;  // tokens that end a text; empty: the tokenizer's end of a document
  bool ignore_end = false;    // go on after such a token
  // The text matches a grammar, from its first byte. It ends when nothing can follow; an end token is possible only where the
  // grammar has an end. Texts may share a mask.
  std::shared_ptr<const TokenMask> mask;
};

// Why a text ended. `longest`: the model takes no more tokens. `no_token`: the mask and logit_bias leave none.
enum class Finish { none, end, stop, tokens, longest, cancelled, no_token, failed };
std::string_view finish_name(Finish finish);

struct Event {
  int64_t stream = 0;
  SampledToken sampled;
  bool has_token = false;  // the last event of a cancelled text has none
  std::string text;        // may be empty: half a character, the beginning of a stop string
  Finish finish = Finish::none;
  std::string error;  // why it failed
};

class Engine {
 public:
  Engine(std::unique_ptr<Runner> runner, Tokenizer tokenizer, const EngineOptions& options = {});

  int64_t open();
  // A stream that has read these tokens already. `state` is a copy_state of a stream that read exactly them.
  int64_t open(std::vector<int32_t> tokens, std::unique_ptr<StreamState> state);
  int64_t fork(int64_t stream);  // the same tokens and state; no text is being written
  void close(int64_t stream);

  void feed(int64_t stream, std::span<const int32_t> tokens);
  // The stream's tokens become these. The state of the tokens that both begin with is kept.
  void replace(int64_t stream, std::span<const int32_t> tokens);
  void generate(int64_t stream, const GenerateOptions& options);
  void cancel(int64_t stream);  // ends its text; the stream stays, with what was written

  // A piece of the prompt ends at each of these numbers of tokens, in rising order: states that a caller wants to copy.
  void pause_at(int64_t stream, std::vector<int64_t> marks);
  std::unique_ptr<StreamState> copy_state(int64_t stream);  // after the tokens that were read

  // Log-probabilities of the tokens after the first one, as they are read from now on; each with the `top` likeliest.
  void score_prompt(int64_t stream, int64_t top);
  std::vector<SampledToken> take_prompt_scores(int64_t stream);

  void keep(int64_t stream);                       // a snapshot after the tokens that were read
  void roll_back(int64_t stream, int64_t tokens);  // to its first tokens

  // One round: a piece of a prompt (of several, if many wait), then one token of each stream that writes.
  std::vector<Event> work();
  bool idle() const;  // work() would do nothing

  const std::vector<int32_t>& tokens(int64_t stream) const;
  int64_t tokens_read(int64_t stream) const;  // of these; the rest waits
  int64_t state_bytes(int64_t stream) const;
  int64_t snapshot_bytes(int64_t stream) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Runner& runner() { return *runner_; }
  const Runner& runner() const { return *runner_; }

 private:
  struct Snapshot {
    int64_t tokens;
    std::unique_ptr<StreamState> state;
  };
  struct Text {  // that is being written
    GenerateOptions options;
    TokenSampler sampler;
    StreamedText shown;
    int64_t left;
    bool first;                       // its first token begins the text of the stream
    TokenMask::Place place{};         // in the mask, if there is one
    std::vector<uint64_t> allowed{};  // tokens
  };
  struct Entry {
    std::vector<int32_t> tokens;
    int64_t read = 0;
    std::unique_ptr<StreamState> state;
    std::deque<Snapshot> snapshots;  // in the order of tokens
    std::vector<int64_t> marks;
    std::optional<int64_t> score_top;  // whether the prompt's tokens are scored
    std::vector<SampledToken> scores;
    std::optional<Text> text;
    std::optional<Event> cancelled;
    int64_t unread() const { return int64_t(tokens.size()) - read; }
  };

  Entry& at(int64_t stream);
  const Entry& at(int64_t stream) const;
  void check_length(const Entry& entry, size_t added) const;
  int64_t piece_of(const Entry& entry) const;
  void read_piece(std::vector<Event>& events);
  void score(Entry& entry, std::span<const int32_t> read, const at::Tensor& logits) const;
  void step(const std::vector<int64_t>& streams, std::vector<Event>& events);
  void fail(int64_t stream, const std::string& why, std::vector<Event>& events);
  // errors[i]: what choosing the token of streams[i] threw, if it did.
  std::vector<SampledToken> next_tokens(
      const std::vector<int64_t>& streams, std::vector<std::exception_ptr>& errors
  );
  std::optional<Draw> draw_of(const Entry& entry) const;
  SampledToken sampled(int64_t stream, std::span<const float> logits);
  Event add_token(int64_t stream, SampledToken sampled);
  void allow(Text& text, size_t vocabulary) const;
  std::string bytes_of(Text& text, int32_t token) const;

  std::unique_ptr<Runner> runner_;
  Tokenizer tokenizer_;
  EngineOptions o_;
  std::map<int64_t, Entry> streams_;
  int64_t next_ = 0;
  int64_t last_read_ = -1, last_stepped_ = -1;  // streams that had the last turn
};

}  // namespace horner
