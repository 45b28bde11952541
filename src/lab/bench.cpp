#include "lab/bench.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/check.h"
#include "core/device.h"
#include "core/nearest.h"
#include "core/options.h"
#include "lab/bench_cost.h"
#include "lab/bench_peers.h"
#include "ops/chunks.h"
#include "ops/contract.h"
#include "ops/linear/exponential_gate.h"
#include "ops/power/power.h"

namespace horner {
namespace {

constexpr double kMostFeatures = 10000;             // that correctness is measured with
constexpr const char* kMlstm = "exponential gate";  // of mLSTM: `linear` on other inputs

// THE list of shapes. A CPU times the small ones.
const std::vector<BenchShape>& shapes() {
  static const std::vector<BenchShape> list = {
      {"S1", {8, 2048, 16, 16, 64, 64}},
      {"S2", {8, 2048, 16, 16, 128, 128}},
      {"S3", {4, 8192, 16, 16, 128, 128}},
      {"S4", {1, 32768, 16, 16, 128, 128}},
      {"P1", {8, 2048, 16, 16, 16, 64}},
      {"P2", {8, 2048, 16, 16, 16, 128}},
      {"P3", {4, 8192, 16, 16, 16, 64}},
      {"P4", {1, 32768, 16, 16, 16, 64}},
      {"X1", {16, 4096, 16, 16, 128, 256}},
      {"E1", {1, 256, 4, 4, 64, 64}},   // so small that the call itself is what costs
      {"D1", {64, 1, 16, 16, 16, 64}},  // one token of each of 64 streams
      {"D2", {64, 1, 16, 16, 128, 128}},
      {"D3", {256, 1, 16, 16, 128, 128}},
      {"C1", {1, 512, 4, 4, 32, 32}},
      {"C2", {1, 512, 4, 4, 16, 32}},
  };
  return list;
}

// THE list of what is timed: an op, a setting, the shapes on a GPU and on a CPU.
struct Subject {
  std::string op, variant, gate, settings;
  std::vector<std::string> on_gpu, on_cpu;
};
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> list = {
      {"attention", "softmax", "none", "", {"S1", "S2", "S3", "S4"}, {"C1"}},
      {"power",
       "order 2",
       "none",
       "order=2",
       {"P1", "P2", "P3", "P4", "S1", "S2", "S3", "S4"},
       {"C2"}},
      {"power", "order 2, decay per head", "head", "order=2", {"P1", "P3"}, {"C2"}},
      {"power", "order 4", "none", "order=4", {"S1", "S2", "S3"}, {}},
      {"linear", "no decay", "none", "", {"S1", "S2", "S3", "S4"}, {"C1"}},
      {"linear", "decay per head", "head", "", {"S1", "S2", "S3", "S4", "E1"}, {"C1"}},
      {"linear", "decay per key", "key", "", {"S1", "S2", "S3", "S4"}, {"C1"}},
      {"linear", kMlstm, "head", "scale=0.0883883476", {"X1"}, {"C1"}},
      {"delta", "no decay", "none", "", {"S1", "S2", "S3"}, {"C1"}},
      {"delta", "decay per head", "head", "", {"S1", "S2", "S3"}, {"C1"}},
      {"scan", "elementwise", "key", "", {"S2", "S3"}, {"C1"}},
      {"power", "order 2, one token", "none", "order=2", {"D1"}, {}},
      {"linear", "decay per head, one token", "head", "", {"D2", "D3"}, {}},
      {"delta", "decay per head, one token", "head", "", {"D2", "D3"}, {}},
  };
  return list;
}

BenchShape shape_named(const std::string& name) {
  std::vector<std::string> known;
  for (const BenchShape& shape : shapes()) {
    if (shape.name == name) return shape;
    known.push_back(shape.name);
  }
  std::vector<int64_t> n;
  size_t start = 0;
  for (size_t end = 0; end <= name.size(); ++end) {
    if (end < name.size() && name[end] != 'x') continue;
    const std::string digits = name.substr(start, end - start);
    const bool number = !digits.empty() && digits.size() < 10 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    HORNER_CHECK(
        number, "{} (or BxTxHxKxV, such as 8x2048x16x64x64)", unknown("shape", name, known)
    );
    n.push_back(std::stoll(digits));
    start = end + 1;
  }
  HORNER_CHECK(
      n.size() == 5 && *std::min_element(n.begin(), n.end()) >= 1,
      "a shape is BxTxHxKxV, five numbers of at least 1, got '{}'",
      name
  );
  return {name, {n[0], n[1], n[2], n[2], n[3], n[4]}};
}

struct Job {
  const Op& op;
  const Subject& subject;
  BenchShape shape;
  Variant variant;  // the subject as the op's own options

  bool mlstm() const { return subject.variant == kMlstm; }
};

Inputs job_inputs(
    const Job& job, const Dims& d, at::Device device, int64_t seed, at::ScalarType type
) {
  Inputs in = sample_inputs({job.op, job.variant, d, device, uint64_t(seed)}, type);
  if (job.mlstm()) in.beta = at::randn({d.B, d.T, d.G}, in.g.options());  // the input gate
  return in;
}

std::vector<Job> jobs(const BenchOptions& options, bool on_cpu) {
  for (const std::string& name : options.op) find_op(name);
  std::vector<Job> list;
  for (const Subject& subject : subjects()) {
    const auto& chosen = options.op;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), subject.op) == chosen.end())
      continue;
    const Op& op = find_op(subject.op);
    Variant variant{subject.variant, op.defaults, subject.gate};
    from_text(variant.options, subject.settings);
    const auto& own = on_cpu ? subject.on_cpu : subject.on_gpu;
    for (const std::string& name : options.shape.empty() ? own : options.shape) {
      const bool asked_for = std::find(own.begin(), own.end(), name) != own.end();
      const bool standard = std::any_of(shapes().begin(), shapes().end(), [&](const auto& shape) {
        return shape.name == name;
      });
      if (standard && !asked_for && !on_cpu) continue;  // S1 is no shape of order 2, decay per head
      const BenchShape shape = shape_named(name);
      const bool step = subject.variant.ends_with("one token");
      if (step == (shape.dims.T == 1)) list.push_back({op, subject, shape, variant});
    }
  }
  HORNER_CHECK(!list.empty(), "none of these ops is timed at these shapes");
  return list;
}

at::ScalarType low_type(at::Device device) { return device.is_cpu() ? at::kFloat : at::kBFloat16; }

// One call as a program would make it: inputs that want gradients, and the gradient of o. One token goes on from
// a state, and has no gradient.
struct Call {
  const Op& op;
  bool mlstm;
  Inputs in;
  State state = {};
  Options options;
  std::vector<std::string> names;
  std::vector<at::Tensor> leaves;
  at::Tensor grad;  // of o

  Call(const Job& job, const Inputs& inputs, at::ScalarType type)
      : op(job.op), mlstm(job.mlstm()), in(inputs), options(job.variant.options) {
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const bool step = in.v.size(1) == 1;
    std::vector<Input> list = op.inputs;
    if (mlstm) list.push_back(kBeta);
    for (const Input& input : list) {
      at::Tensor& x = in.*input.tensor;
      if (!x.defined()) continue;
      const bool gate = (input.name == "g" || input.name == "beta") && op.name != "scan";
      x = x.to(gate ? wide : type).detach().requires_grad_(!step);
      if (step) continue;
      leaves.push_back(x);
      names.push_back(fmt::format("d{}", input.name));
    }
    if (!step) return;
    options.final_state = true;
    state = op.zero_state(in, 0, options);
    for (at::Tensor& part : state.parts) part.fill_(1.0 / 3);
  }
  Result forward() const {
    if (!mlstm) return run(op, in, state, options);
    Inputs qkv;
    for (const Input& input : {kQ, kK, kV}) qkv.*input.tensor = in.*input.tensor;
    return exponential_gate(qkv, in.beta, in.g, state, options);
  }
  std::vector<at::Tensor> both() const {
    return torch::autograd::grad({forward().o}, leaves, {grad}, {}, false, true);
  }
};

struct Values {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

// The plain form that the error is measured by: chunked, but where its features would not fit.
std::string plain_form(const Job& job) {
  const bool many = job.op.name == "power" &&
                    feature_count(job.shape.dims.K, job.variant.options.order) > kMostFeatures;
  return many || job.op.name == "attention" ? "parallel" : "chunked";
}

Values evaluate(
    const Job& job,
    const Inputs& in,
    const at::Tensor& grad,
    at::ScalarType type,
    bool plain,
    bool state
) {
  Call call(job, in, type);
  call.options.final_state = state;
  if (plain) call.options.form = plain_form(job);
  const Result y = call.forward();
  Values all{call.names, {}};
  if (!call.leaves.empty())
    all.tensors =
        torch::autograd::grad({y.o}, call.leaves, {grad.to(y.o.scalar_type())}, {}, false, true);
  all.names.emplace_back("o");
  all.tensors.push_back(y.o.detach());
  for (const at::Tensor& part : y.state.parts) {
    all.names.emplace_back("state");
    all.tensors.push_back(part.detach());
  }
  return all;
}

struct Errors {
  double rms, max;
};
Errors errors(const at::Tensor& x, const at::Tensor& exact) {
  const at::Tensor d = x.to(at::kDouble) - exact;
  const auto ratio = [](const at::Tensor& a, const at::Tensor& b) {
    const double error = a.item<double>() / std::max(b.item<double>(), 1e-300);
    return error == error ? error : std::numeric_limits<double>::infinity();
  };
  return {ratio(d.norm(), exact.norm()), ratio(d.abs().max(), exact.abs().max())};
}

// The rule of correctness, into the row.
void check_errors(const Job& job, at::Device device, int64_t seed, BenchRow& row) {
  Dims some = job.shape.dims;
  some.B = 1;
  some.H = some.G = std::min<int64_t>(2, some.H);
  some.T = std::min<int64_t>(some.T, 4096);
  const at::ScalarType type = low_type(device);
  const Inputs rounded = job_inputs(job, some, device, seed, type);
  const at::Tensor grad =
      at::randn({1, some.T, some.H, some.V}, at::device(device).dtype(at::kFloat)).to(type);
  // The final state too, where asking for it does not change what runs.
  const Call call(job, rounded, type);
  Options asked = call.options;
  asked.final_state = true;
  const bool state =
      plain_form(job) == "chunked" && chosen_form(job.op, call.in, call.state, asked) ==
                                          chosen_form(job.op, call.in, call.state, call.options);
  const Values exact = evaluate(job, rounded, grad, at::kDouble, true, state);
  const Values got = evaluate(job, rounded, grad, type, false, state);
  const Values plain = [&] {
    std::optional<RoundedProducts> low;
    if (type == at::kBFloat16) low.emplace();
    return evaluate(job, rounded, grad, type, true, state);
  }();
  double worst = -1;
  for (size_t i = 0; i < exact.tensors.size(); ++i) {
    if (!exact.tensors[i].defined() || exact.tensors[i].abs().max().item<double>() == 0) continue;
    const Errors a = errors(got.tensors[i], exact.tensors[i]),
                 b = errors(plain.tensors[i], exact.tensors[i]);
    for (const auto& [error, base] : {std::pair{a.rms, b.rms}, {a.max, b.max}}) {
      const double allowed = 2 * base + 1e-5;
      if (error / allowed <= worst) continue;
      worst = error / allowed;
      row.error = error;
      row.allowed = allowed;
      row.worst = exact.names[i];
    }
  }
  if (row.error <= row.allowed) return;
  row.failure = fmt::format(
      "the error of {} is {:.2e}, at most {:.2e} is allowed", row.worst, row.error, row.allowed
  );
}

// Four times of one function; a graph that cannot be captured leaves its place empty.
void time_calls(
    const Timer& clock, int repeats, const Work& forward, const Work& both, BenchRow& row
) {
  const auto guarded = [&](auto function, const Work& work) {
    try {
      return function ? function(work, repeats) : Times{};
    } catch (const c10::Error&) {
      return Times{};
    }
  };
  row.eager_forward = clock.eager(forward, repeats);
  row.forward = guarded(clock.replay, forward);
  if (both) row.eager_both = clock.eager(both, repeats);
  if (both) row.both = guarded(clock.replay, both);
  if (clock.peak_bytes != nullptr) row.bytes = clock.peak_bytes(both ? both : forward);
}

BenchRow time_job(
    const Job& job, const BenchOptions& options, const BenchReport& report, at::Device device
) {
  BenchRow row{
      .program = "horner",
      .op = job.subject.op,
      .variant = job.subject.variant,
      .shape = job.shape};
  check_errors(job, device, options.seed, row);
  const at::ScalarType type = low_type(device);
  const Dims& d = job.shape.dims;
  const Inputs in = job_inputs(job, d, device, options.seed, type);
  Call call(job, in, type);
  row.form =
      job.mlstm() ? call.forward().form : chosen_form(job.op, call.in, call.state, call.options);
  const Costs cost = costs(job.op, call.in, call.state, call.options, row.form);
  const auto floor = [&](const Cost& c) {
    return std::max(c.bytes / report.copy_rate, c.flops / report.matmul_rate);
  };
  row.floor_forward = floor(cost.forward);
  row.floor_both = floor(cost.both);
  row.binds = cost.forward.bytes / report.copy_rate >= row.floor_forward ? "bytes" : "flops";
  if (!row.failure.empty()) return row;
  call.grad = at::randn({d.B, d.T, d.H, d.V}, at::device(device).dtype(at::kFloat)).to(type);
  const Call fixed(job, in, type);
  const auto forward = [&] {
    const at::NoGradGuard none;
    fixed.forward();
  };
  const Work both = call.leaves.empty() ? Work() : Work([&] { call.both(); });
  time_calls(timer(device), int(options.repeats), forward, both, row);
  return row;
}

// Softmax attention by torch, with one backend at a time.
BenchRow time_sdpa(std::string backend, const BenchShape& shape, const BenchOptions& options) {
  BenchRow row{
      .program = "torch", .op = "attention", .variant = "softmax", .shape = shape, .form = backend};
  at::Context& context = at::globalContext();
  const bool flash = context.userEnabledFlashSDP(), cudnn = context.userEnabledCuDNNSDP(),
             memory = context.userEnabledMemEfficientSDP(), math = context.userEnabledMathSDP();
  context.setSDPUseFlash(backend == "flash");
  context.setSDPUseCuDNN(backend == "cuDNN");
  context.setSDPUseMemEfficient(false);
  context.setSDPUseMath(false);
  try {
    const Dims& d = shape.dims;
    const auto like = at::device(at::kCUDA).dtype(at::kBFloat16);
    std::vector<at::Tensor> x;
    for (const int64_t width : {d.K, d.K, d.V})
      x.push_back(at::randn({d.B, d.T, d.H, width}, like).transpose(1, 2).requires_grad_(true));
    const at::Tensor grad = at::randn({d.B, d.T, d.H, d.V}, like).transpose(1, 2);
    const auto attend = [&] {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, true);
    };
    const auto forward = [&] {
      const at::NoGradGuard none;
      attend();
    };
    const auto both = [&] { torch::autograd::grad({attend()}, x, {grad}); };
    time_calls(timer(at::kCUDA), int(options.repeats), forward, both, row);
  } catch (const std::exception& error) {
    row.failure = error.what();
    row.failure = row.failure.substr(0, row.failure.find('\n'));
  }
  context.setSDPUseFlash(flash);
  context.setSDPUseCuDNN(cudnn);
  context.setSDPUseMemEfficient(memory);
  context.setSDPUseMath(math);
  return row;
}

void measure_ceilings(BenchReport& report, at::Device device) {
  const bool cpu = device.is_cpu();
  const int repeats = cpu ? 5 : 20;
  const Timer& clock = timer(device);
  const at::Tensor a = at::zeros({cpu ? 1 << 22 : 1 << 28}, at::device(device).dtype(at::kFloat));
  at::Tensor b = at::empty_like(a);
  report.copy_rate = 2.0 * double(a.nbytes()) / clock.eager([&] { b.copy_(a); }, repeats).median;
  const int64_t n = cpu ? 256 : 8192;
  const at::Tensor m = at::randn({n, n}, at::device(device).dtype(at::kFloat)).to(low_type(device));
  at::Tensor product = at::empty_like(m);
  report.matmul_rate =
      2.0 * double(n * n * n) / clock.eager([&] { at::mm_out(product, m, m); }, repeats).median;
  if (clock.clock_mhz != nullptr) report.clock_mhz = clock.clock_mhz();
}

// The fastest peer that computes the same function, or softmax where there is none of it.
void compare_with_peers(BenchReport& report) {
  for (BenchRow& row : report.rows) {
    if (row.program != "horner") continue;
    for (const bool same : {true, false}) {
      for (const BenchRow& peer : report.rows) {
        const bool counts = same ? peer.op == row.op && peer.variant == row.variant
                                 : peer.op == "attention" && row.peer_forward == 0;
        if (peer.program == "horner" || !counts || peer.shape.name != row.shape.name) continue;
        const auto faster = [](double& best, const Times& graph, const Times& eager) {
          const double ms = graph.median > 0 ? graph.median : eager.median;
          if (ms > 0 && (best == 0 || ms < best)) best = ms;
        };
        faster(row.peer_forward, peer.forward, peer.eager_forward);
        faster(row.peer_both, peer.both, peer.eager_both);
      }
      if (row.peer_forward > 0) break;
    }
  }
}

Json to_json(const Times& t) {
  if (t.median == 0) return nullptr;
  return {{"median", t.median}, {"p10", t.p10}, {"p90", t.p90}};
}

}  // namespace

size_t BenchReport::failed() const {
  return size_t(std::count_if(rows.begin(), rows.end(), [](const BenchRow& row) {
    return row.program == "horner" && !row.failure.empty();
  }));
}

// The last word of the GPU's name: "NVIDIA H200, 132 SMs, sm_90" is h200.
std::string BenchReport::short_device() const {
  const std::string name = device.substr(0, device.find(','));
  std::string word = name.substr(name.rfind(' ') + 1);
  for (char& c : word) c = char(std::tolower(c));
  return word;
}

Json BenchReport::json() const {
  Json all{
      {"device", device},
      {"versions", versions},
      {"copy_gb_per_s", copy_rate / 1e6},
      {"matmul_tflop_per_s", matmul_rate / 1e9},
      {"clock_mhz", clock_mhz},
      {"options", horner::to_json(options)},
      {"rows", Json::array()}};
  for (const BenchRow& row : rows) {
    const Dims& d = row.shape.dims;
    all["rows"].push_back(
        {{"program", row.program},
         {"op", row.op},
         {"variant", row.variant},
         {"shape", row.shape.name},
         {"dims", {{"B", d.B}, {"T", d.T}, {"H", d.H}, {"K", d.K}, {"V", d.V}}},
         {"form", row.form},
         {"forward_ms", to_json(row.forward)},
         {"both_ms", to_json(row.both)},
         {"eager_forward_ms", to_json(row.eager_forward)},
         {"eager_both_ms", to_json(row.eager_both)},
         {"floor_forward_ms", row.floor_forward},
         {"floor_both_ms", row.floor_both},
         {"binds", row.binds},
         {"error", row.error},
         {"error_allowed", row.allowed},
         {"error_of", row.worst},
         {"peer_forward_ms", row.peer_forward},
         {"peer_both_ms", row.peer_both},
         {"peak_bytes", row.bytes},
         {"failure", row.failure}}
    );
  }
  return all;
}

BenchReport bench_ops(const BenchOptions& options, const Tell& tell) {
  HORNER_CHECK(options.repeats >= 1, "repeats must be at least 1, got {}", options.repeats);
  const at::Device device = find_device(options.device);
  const std::vector<Job> list = jobs(options, device.is_cpu());
  if (!options.peers.empty()) check_peers(options.peers, device);
  BenchReport report{.options = options, .device = describe_device(device)};
  measure_ceilings(report, device);
  std::vector<BenchShape> used;
  for (const Job& job : list) {
    tell(size_t(&job - list.data()), list.size(), job.op.name, job.shape.name);
    try {
      report.rows.push_back(time_job(job, options, report, device));
    } catch (const c10::Error& error) {
      BenchRow row{
          .program = "horner",
          .op = job.subject.op,
          .variant = job.subject.variant,
          .shape = job.shape};
      row.failure = error.what_without_backtrace();
      row.failure = row.failure.substr(0, row.failure.find('\n'));
      report.rows.push_back(row);
    }
    const bool seen = std::any_of(used.begin(), used.end(), [&](const BenchShape& shape) {
      return shape.name == job.shape.name;
    });
    if (!seen) used.push_back(job.shape);
  }
  if (device.is_cuda()) {
    for (const BenchShape& shape : used) {
      if (shape.dims.T == 1) continue;
      for (const char* backend : {"cuDNN", "flash"})
        report.rows.push_back(time_sdpa(backend, shape, options));
    }
  }
  if (!options.peers.empty()) run_peers(options, report);
  compare_with_peers(report);
  return report;
}

}  // namespace horner
