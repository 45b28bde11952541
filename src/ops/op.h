// An op: one family of recurrences on (q, k, v, ...) without parameters, and the forms that compute it.
//
//   form       what it is                                            cost in T
//   recurrent  the definition: a loop over tokens                    linear, slow
//   parallel   all pairs (t, s) at once                              quadratic
//   chunked    parallel inside a chunk, recurrent between chunks     linear; what training uses
//   step       the definition for one token                          constant; what decoding uses
// On a GPU some of them also exist as kernels ("chunked kernel"; power of wide keys: "wide kernel"), and power's definition
// as "direct kernel": see kernel.h.
//
// Layout (B,T,H,K); k, v, g and beta may have G = H/r heads, and query head h reads head h / r of them.
// Every form takes any T >= 1 and any initial state, and can return the state after the last token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horner {

struct Inputs {
  at::Tensor q;     // (B,T,H,K)
  at::Tensor k;     // (B,T,G,K)
  at::Tensor v;     // (B,T,G,V)
  at::Tensor g;     // (B,T,G) or (B,T,G,K): log-decay, a = exp g
  at::Tensor beta;  // (B,T,G): write strength
  at::Tensor
      cu_seqlens;  // (n+1): sequence j of a packed batch is tokens cu_seqlens[j] .. [j+1]; B = 1
  at::Tensor lengths;  // (B): zeros follow the tokens of a row; set where a packed batch is padded
};

// One of the tensors of Inputs, so that they can be walked: in.*input.tensor.
struct Input {
  std::string_view name;
  at::Tensor Inputs::*tensor;
  bool optional = false;
};
inline constexpr Input kQ{"q", &Inputs::q}, kK{"k", &Inputs::k}, kV{"v", &Inputs::v},
    kG{"g", &Inputs::g}, kBeta{"beta", &Inputs::beta}, kMaybeG{"g", &Inputs::g, true};

struct State {
  std::vector<at::Tensor> parts;  // each (B,G,...): gather, scatter, fork, save by batch index
  bool empty() const { return parts.empty(); }  // nothing has been seen
  int64_t bytes() const;
};

struct Result {
  at::Tensor o;           // (B,T,H,V)
  State state;            // after the last token, where final_state is asked for
  at::Tensor norm;        // (B,T,H): log of the normaliser, where log_norm is asked for
  std::string_view form;  // the form that ran, or the kernel
};

struct Options {
  std::string form = "auto";
  int64_t chunk = 64;
  std::optional<double> scale;
  bool causal = true;
  int64_t window = 0;
  int64_t sinks = 0;
  std::optional<double> clamp;
  int64_t order = 2;
  std::vector<double> coefficients;
  std::string decay = "outside";
  std::string norm = "none";
  bool odd = false;
  double eps = 1e-30;
  bool log_norm = false;
  bool final_state = false;

  bool operator==(const Options&) const = default;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit(
        "form",
        form,
        "how it is computed",
        {"auto",
         "recurrent",
         "parallel",
         "chunked",
         "step",
         "step kernel",
         "chunked kernel",
         "parallel kernel",
         "recurrent kernel",
         "wide kernel",
         "direct kernel"}
    );
    visit("chunk", chunk, "tokens per chunk of the chunked form");
    visit("scale", scale, "factor of q.k; none: 1/sqrt(K) for attention and power, 1 elsewhere");
    visit("causal", causal, "a token reads the past and itself; false: both directions");
    visit("window", window, "how many of the last tokens are visible; 0: all");
    visit("sinks", sinks, "how many of the first tokens stay visible beside the window");
    visit("clamp", clamp, "scores above this count as this; none: no limit");
    visit("order", order, "highest power of q.k that is kept");
    visit("coefficients", coefficients, "c_0 .. c_order of the series; empty: 1/n!");
    visit(
        "decay", decay, "the decay multiplies the power, or q.k inside it", {"outside", "inside"}
    );
    visit("norm", norm, "divide by the sum of the weights, or not", {"none", "sum"});
    visit("odd", odd, "allow norm = sum with an odd order, whose sum can vanish");
    visit("eps", eps, "the normaliser is at least this");
    visit("log_norm", log_norm, "return the log of the normaliser");
    visit("final_state", final_state, "return the state after the last token");
  }
};

struct Dims {
  int64_t B = 2, T = 16, H = 2, G = 2, K = 4, V = 4;
};

// One setting that changes an op's mathematics; tests, verify and bench walk them.
struct Variant {
  std::string name;
  Options options;
  std::string gate = "none";  // shape of g: none, head (B,T,G), key (B,T,G,K)
  bool complex = false;
};

using Form = Result (*)(const Inputs&, const State&, const Options&);

struct Op {
  std::string_view name;
  std::string_view equation;
  std::vector<Input> inputs;              // in the order of the torch schema
  std::vector<std::string_view> options;  // the settings it reads; any other is refused
  Options defaults = {};
  std::vector<Variant> variants = {};
  bool complex = false;                        // whether it takes complex inputs
  std::vector<std::string_view> kernels = {};  // the forms of kernel.h that a GPU adds

  Form recurrent = nullptr;
  Form parallel = nullptr;
  Form chunked = nullptr;

  // The state after `tokens` tokens, filled with zeros: its shape. tokens = 0: the initial state.
  State (*zero_state)(const Inputs&, const c10::SymInt& tokens, const Options&) = nullptr;
  // Valid random inputs for tests, verify and bench.
  Inputs (*sample)(const Dims&, const Variant&, at::TensorOptions) = nullptr;
  // Rules of this op beyond those of all; null: none.
  void (*check)(const Inputs&, const State&, const Options&) = nullptr;
  // What form = auto means for more than one token; null: chunked.
  std::string_view (*choose)(const Inputs&, const State&, const Options&) = nullptr;
  // Whether rows may be padded with zeros at their end, which changes neither o nor the state; null: never.
  bool (*pads)(const Inputs&, const State&, const Options&) = nullptr;
};

// THE list, in ops.cpp.
const std::vector<Op>& ops();
const Op& find_op(std::string_view name);

// Checks, chooses the form, unpacks a packed batch, runs.
Result run(const Op&, const Inputs&, const State&, const Options&);
std::string_view chosen_form(const Op&, const Inputs&, const State&, const Options&);

// One set of rules for every form and device: shapes, dtypes, devices, options.
void check_inputs(const Op&, const Inputs&, const State&, const Options&);

// One row of a batch, and rows as one batch; a key/value cache is padded to the longest.
State row_of(const State&, int64_t row);
State stack_rows(const std::vector<State>&);

// `length` tokens of every input, from `start` on.
Inputs tokens(const Op&, const Inputs&, int64_t start, int64_t length);

// Two results over disjoint sets of tokens, as one: weights exp(norm).
Result merge(const Result&, const Result&);

}  // namespace horner
