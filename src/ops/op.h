// An op: one family of recurrences on (q, k, v, ...) without parameters, and the forms that compute it.
//
//   form       what it is                                            cost in T
//   recurrent  the definition: a loop over tokens                    linear, slow
//   parallel   all pairs (t, s) at once                              quadratic
//   chunked    parallel inside a chunk, recurrent between chunks     linear; what training uses
//   step       the definition for one token                          constant; what decoding uses
// A kernel is a form too: "chunked kernel" computes the chunked form on a GPU. Each op has one list of forms, and
// everything else walks it: `auto`, autograd, the contract, verify, bench, Python's names, the documents.
//
// Layout (B,T,H,K). k, v, g, beta and i may have G = H/r heads; query head h reads their head h / r.
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
  at::Tensor i;     // (B,T,G): log weight of each key, mLSTM's input gate
  // (n+1): sequence j of a packed batch is tokens cu_seqlens[j] .. [j+1]; B = 1
  at::Tensor cu_seqlens;
  at::Tensor lengths;  // (B): tokens of each row, then zeros; set if a packed batch was padded
};

// One of the tensors of Inputs, so that code can loop over them: in.*input.tensor.
struct Input {
  std::string_view name;
  at::Tensor Inputs::*tensor;
  bool optional = false;
  bool gate = false;  // may have another dtype than v, and keeps it under autocast
};
inline constexpr Input kQ{"q", &Inputs::q}, kK{"k", &Inputs::k}, kV{"v", &Inputs::v},
    kG{"g", &Inputs::g, false, true}, kBeta{"beta", &Inputs::beta, false, true},
    kMaybeG{"g", &Inputs::g, true, true}, kMaybeI{"i", &Inputs::i, true, true};
inline constexpr Input kEveryInput[] = {kQ, kK, kV, kG, kBeta, kMaybeI};

struct State {
  std::vector<at::Tensor> parts;  // each (B,G,...): gather, scatter, fork, save by batch index
  bool empty() const { return parts.empty(); }  // nothing has been seen
  int64_t bytes() const;
};

struct Result {
  at::Tensor o;           // (B,T,H,V)
  State state;            // after the last token, if final_state is set
  at::Tensor norm;        // (B,T,H): log of the normaliser, if log_norm is set
  std::string_view form;  // the form that ran
};

// What a forward keeps for its own backward.
class Saved {
 public:
  at::Tensor& operator[](std::string_view name);
  at::Tensor get(std::string_view name) const;  // undefined if it was not kept
  std::vector<std::pair<std::string_view, at::Tensor>> tensors;
};

// Every name of a form. `auto` is not a form: it asks for the best one.
namespace forms {
inline constexpr std::string_view kAuto = "auto", kRecurrent = "recurrent", kParallel = "parallel",
                                  kChunked = "chunked", kStep = "step";
inline constexpr std::string_view kFusedParallel = "fused parallel",
                                  kFusedChunked = "fused chunked", kFusedStep = "fused step";
inline constexpr std::string_view kRecurrentKernel = "recurrent kernel",
                                  kParallelKernel = "parallel kernel",
                                  kChunkedKernel = "chunked kernel", kStepKernel = "step kernel",
                                  kWideKernel = "wide kernel", kDirectKernel = "direct kernel";
}  // namespace forms
const std::vector<std::string>& form_names();  // auto, then every name on the lists of all ops

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
    visit("form", form, "how it is computed", form_names());
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
    visit(
        "norm",
        norm,
        "divide by the sum of the weights (sum), by max(|sum|, 1) (bounded, with i), or not",
        {"none", "sum", "bounded"}
    );
    visit("odd", odd, "allow norm = sum with an odd order, whose sum can vanish");
    visit("eps", eps, "the normaliser is at least this");
    visit("log_norm", log_norm, "return the log of the normaliser");
    visit("final_state", final_state, "return the state after the last token");
  }
};

struct Dims {
  int64_t B = 2, T = 16, H = 2, G = 2, K = 4, V = 4;
};

// One setting that changes an op's mathematics; tests, verify and bench run every variant.
struct Variant {
  std::string name;
  Options options;
  std::string gate = "none";  // g: none, head (B,T,G), key (B,T,G,K); exponential: head, with i
  bool complex = false;
};

// The op as a dynamical system (arXiv:2405.15731), for inputs that have all H heads; nn/core.h has the table.
//   h_t = Lambda_t h_{t-1} + B_t u_t,  y_t = C_t h_t / eta_t
struct Recurrence {
  at::Tensor Lambda;  // (B,T,H,F) or (B,T,H,1): the diagonal; (B,T,H,F,F): a matrix
  at::Tensor B, C;    // (B,T,H,F)
  at::Tensor u;       // (B,T,H,V)
  at::Tensor eta;     // (B,T,H), undefined: 1
};

// FLOP of one token of one query head.
struct Flops {
  double forward = 0, backward = 0;
};

enum class Place { any, cpu, cuda };  // where a form runs

struct Form {
  using Forward = Result (*)(const Inputs&, const State&, const Options&, Saved*);
  using Rule = std::string (*)(const Inputs&, const State&, const Options&);

  std::string_view name;
  Place place = Place::any;
  // Saved* is null if no backward will follow. forward itself is null while libhorner_cuda.so, which has it, is not loaded.
  Forward forward = nullptr;
  // Returns the gradients of op.inputs, then of the parts of the state; undefined: none. dy: the gradients of the results.
  std::vector<at::Tensor> (*backward
  )(const Inputs&, const State&, const Options&, const Saved&, const Result& dy) = nullptr;
  // Only if backward is null: whether forward is made of tensor operations that autograd differentiates. Else: no gradient.
  bool traces = true;
  std::vector<at::ScalarType> types = {};  // of v; empty: all
  Rule refuses = nullptr;                  // why it cannot run; empty: it can
  bool (*suits
  )(const Inputs&, const State&, const Options&) = nullptr;  // whether auto takes it; null: yes
  bool (*packs)(const Inputs&) = nullptr;  // whether it takes a packed batch whole; null: no

  bool one_token() const;  // it is a step
};

struct Reader;  // of ops/lazy/lazy.h

struct Op {
  std::string_view name;
  std::string_view equation;
  std::vector<Input> inputs;              // in the order of the torch schema
  std::vector<std::string_view> options;  // the settings it reads; any other is refused
  Options defaults = {};
  std::vector<Variant> variants = {};
  bool complex = false;       // whether it takes complex inputs
  bool keeps_tokens = false;  // its state is the tokens themselves
  bool series = false;        // its weights are e^{q.k}, or a power series in q.k
  bool unit_keys = false;     // keys have norms of at most 1
  std::vector<Form> forms =
      {};  // the definition first; auto takes the first that can run and suits

  // The state after `tokens` tokens, filled with zeros: its shape. tokens = 0: the initial state.
  State (*zero_state)(const Inputs&, const c10::SymInt& tokens, const Options&) = nullptr;
  // Valid random inputs for tests, verify and bench.
  Inputs (*sample)(const Dims&, const Variant&, at::TensorOptions) = nullptr;
  // Rules of this op only, in addition to those of check_inputs; null: none.
  void (*check)(const Inputs&, const State&, const Options&) = nullptr;
  // Whether zeros at the end of a row change neither o nor the state, so that rows may be padded; null: never.
  bool (*pads)(const Inputs&, const State&, const Options&) = nullptr;
  // The least that the form must compute, with states on chip: bench's floor.
  Flops (*flops)(const Dims&, const Options&, std::string_view form) = nullptr;
  Recurrence (*recurrence)(const Inputs&, const Options&) = nullptr;  // of a causal call
  // The state as numbers that can be compared, if its parts depend on a choice of scale; null: the parts themselves.
  State (*absolute)(const State&) = nullptr;

  const Reader* reader = nullptr;  // kernels of lazy steps; null: none

  const Form* form(std::string_view name) const;  // null: it has none of that name
  bool takes(const Input&) const;                 // whether it is one of the inputs
  bool grouped() const { return takes(kQ); }      // whether query heads share states
};

// A kernel's row of the list, without code; libhorner_cuda.so fills it through implement().
Form kernel_form(std::string_view name);
// The definition under the name `step`: auto takes it for one token of a causal op.
Form step_form(Form::Forward definition);
bool never(const Inputs&, const State&, const Options&);  // auto never takes it; runs if named

// THE list, in ops.cpp.
const std::vector<Op>& ops();
const Op& find_op(std::string_view name);

// Fills the op's forms of these names with the code of libhorner_cuda.so.
void implement(std::string_view op, const std::vector<Form>& kernels, const Reader* = nullptr);

// Checks the inputs, chooses the form, unpacks a packed batch if needed, and runs. Autograd sees one node, or the tensor
// operations of the form.
Result run(const Op&, const Inputs&, const State&, const Options&);
// The form that would run; throws if options.form names a form that cannot.
const Form& chosen_form(const Op&, const Inputs&, const State&, const Options&);
// Why the form cannot run these inputs; empty: it can. The inputs have passed check_inputs.
std::string refusal(const Form&, const Inputs&, const State&, const Options&);

// Whether autograd is on and one of the tensors takes a gradient.
bool wants_gradient(const Op&, const Inputs&, const State&);
// Every tensor that may have a gradient: op.inputs (absent ones as undefined), then the state.
std::vector<at::Tensor> gradient_tensors(const Op&, const Inputs&, const State&);

// One set of rules for every form and device: shapes, dtypes, devices, options.
void check_inputs(const Op&, const Inputs&, const State&, const Options&);

// One row of a batch; and rows joined to a batch, where a key/value cache is padded to the longest.
State row_of(const State&, int64_t row);
State stack_rows(const std::vector<State>&);

// `length` tokens of every input, from `start` on.
Inputs tokens(const Op&, const Inputs&, int64_t start, int64_t length);

// Merges two results over disjoint sets of tokens, with weights exp(norm).
Result merge(const Result&, const Result&);

}  // namespace horner
