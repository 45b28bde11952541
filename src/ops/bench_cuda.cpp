// Times of the kernels on this GPU, beside what it can do at best: horner_bench --cuda.
//
// CUDA events around a graph replay and around an eager call, 512 MB written before each (the L2 cache is
// 60 MB), median of 50. floor: the bytes that must move, at the measured copy rate.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace horner {
namespace {

struct Shape {
  const char* name;
  Dims dims;
};

struct Row {
  const char* op;
  const char* gate;
  Shape shape;
  double peer_forward, peer_both;  // ms, the best peer measured on one H200; 0: none
};

double median_ms(const std::function<void()>& f, int repeats = 50) {
  static const at::Tensor flush = at::empty({1 << 27}, at::device(at::kCUDA).dtype(at::kFloat));
  cudaEvent_t start, end;
  C10_CUDA_CHECK(cudaEventCreate(&start));
  C10_CUDA_CHECK(cudaEventCreate(&end));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  std::vector<float> times;
  for (int i = 0; i < repeats + 5; ++i) {
    flush.fill_(float(i));
    C10_CUDA_CHECK(cudaEventRecord(start, stream));
    f();
    C10_CUDA_CHECK(cudaEventRecord(end, stream));
    C10_CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (i >= 5) times.push_back(ms);
  }
  C10_CUDA_CHECK(cudaEventDestroy(start));
  C10_CUDA_CHECK(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double replay_ms(const std::function<void()>& f) {
  at::cuda::CUDAGraph graph;
  for (int i = 0; i < 3; ++i) f();
  graph.capture_begin();
  f();
  graph.capture_end();
  return median_ms([&] { graph.replay(); });
}

double copy_rate() {  // bytes per ms
  const at::Tensor a = at::empty({1 << 28}, at::device(at::kCUDA).dtype(at::kFloat));
  at::Tensor b = at::empty_like(a);
  return 2.0 * double(a.nbytes()) / median_ms([&] { b.copy_(a); });
}

double matmul_rate() {  // FLOP per ms
  const at::Tensor a = at::randn({8192, 8192}, at::device(at::kCUDA).dtype(at::kBFloat16));
  at::Tensor b = at::empty_like(a);
  return 2.0 * 8192.0 * 8192.0 * 8192.0 / median_ms([&] { at::mm_out(b, a, a); }, 20);
}

void print_row(const Row& r, double bytes_per_ms) {
  const Op& op = find_op(r.op);
  const Dims& d = r.shape.dims;
  Variant variant;
  variant.gate = r.gate;
  const at::Device gpu(at::kCUDA, 0);
  Inputs in = op.sample(d, variant, at::TensorOptions().dtype(at::kBFloat16).device(gpu));
  if (in.g.defined() && op.name == "linear") in.g = in.g.to(at::kFloat);
  const at::Tensor grad =
      at::randn_like(in.q.defined() ? in.q.narrow(3, 0, 1).expand({-1, -1, -1, d.V}) : in.v)
          .contiguous();
  const Kernel* kernel = chosen_kernel(op, in, {}, {});
  double forward = 0, both = 0;
  const auto bytes = [](const at::Tensor& x) { return x.defined() ? double(x.nbytes()) : 0.0; };
  const double inputs = bytes(in.q) + bytes(in.k) + bytes(in.v) + bytes(in.g), out = bytes(grad);
  const double floor_forward = (inputs + out) / bytes_per_ms;
  // scan: g, h and dh again. linear: one sweep of the backward reads k, v, do (and q where there is a decay),
  // the other all four.
  const double again = op.name == "scan" ? bytes(in.g) + 2 * out
                                         : 2 * (inputs + out) - (in.g.defined() ? 0 : bytes(in.q));
  const double floor_both = (inputs + out + again + inputs) / bytes_per_ms;
  if (kernel) {
    forward = replay_ms([&] { kernel->forward(in, {}, {}); });
    both = replay_ms([&] {
      const Result y = kernel->forward(in, {}, {});
      Result dy;
      dy.o = grad;
      kernel->backward(in, {}, {}, y, dy);
    });
  }
  std::vector<at::Tensor> leaves;
  for (at::Tensor* x : {&in.q, &in.k, &in.v, &in.g}) {
    if (x->defined()) leaves.push_back(x->requires_grad_(true));
  }
  const double eager =
      median_ms([&] { torch::autograd::grad({run(op, in, {}, {}).o}, leaves, {grad}); }, 30);
  const auto ratio = [](double a, double b) {
    return a > 0 && b > 0 ? fmt::format("{:.2f}", a / b) : "-";
  };
  fmt::print(
      "{:<8}{:<6}{:<5}{:<17}{:>8.3f}{:>9.3f}{:>9.3f}{:>8.3f}{:>9.3f}{:>7.2f}{:>7.2f}{:>8}{:>8}\n",
      r.op,
      r.gate,
      r.shape.name,
      kernel ? kernel->form : "plain",
      forward,
      both,
      eager,
      floor_forward,
      floor_both,
      forward > 0 ? floor_forward / forward : 0,
      both > 0 ? floor_both / both : 0,
      ratio(r.peer_forward, forward),
      ratio(r.peer_both, both)
  );
  std::fflush(stdout);
}

// One token of every sequence: the state is read and written once.
void print_step(const char* gate, int64_t B, double bytes_per_ms) {
  const Op& op = find_op("linear");
  Variant variant;
  variant.gate = gate;
  const Dims d{B, 1, 16, 16, 128, 128};
  const at::Device gpu(at::kCUDA, 0);
  Inputs in = op.sample(d, variant, at::TensorOptions().dtype(at::kBFloat16).device(gpu));
  if (in.g.defined()) in.g = in.g.to(at::kFloat);
  Options options;
  options.final_state = true;
  const State state{
      {at::randn({B, d.G, d.K, d.V}, at::TensorOptions().dtype(at::kFloat).device(gpu))}};
  const double floor = 2 * double(state.bytes()) / bytes_per_ms;
  for (const Kernel& kernel : kernels("linear")) {
    if (!kernel.refuses(in, state, options).empty()) continue;
    const double ms = replay_ms([&] { kernel.forward(in, state, options); });
    fmt::print(
        "{:<8}{:<6}B{:<4}{:<17}{:>8.4f}{:>26.4f}{:>16.2f}\n",
        "step",
        gate,
        B,
        kernel.form,
        ms,
        floor,
        floor / ms
    );
  }
}

// The recurrent kernel beside the plain chunked form, eager: what form = auto chooses between where no tensor-core
// kernel runs.
void print_choice(at::ScalarType type, const char* gate, const Dims& d) {
  const Op& op = find_op("linear");
  Variant variant;
  variant.gate = gate;
  const at::Device gpu(at::kCUDA, 0);
  Inputs in = op.sample(d, variant, at::TensorOptions().dtype(type).device(gpu));
  const at::Tensor grad = at::randn({d.B, d.T, d.H, d.V}, in.v.options());
  std::vector<at::Tensor> leaves;
  for (at::Tensor* x : {&in.q, &in.k, &in.v, &in.g}) {
    if (x->defined()) leaves.push_back(x->requires_grad_(true));
  }
  fmt::print("{:<8}{:<6}B{} T{} H{} {}/{}", c10::toString(type), gate, d.B, d.T, d.H, d.K, d.V);
  for (const char* form : {"recurrent kernel", "chunked"}) {
    Options options;
    options.form = form;
    const double forward = median_ms(
        [&] {
          const c10::NoGradGuard no_graph;
          run(op, in, {}, options);
        },
        9
    );
    const double both =
        median_ms([&] { torch::autograd::grad({run(op, in, {}, options).o}, leaves, {grad}); }, 9);
    fmt::print("  {} {:.3f} / {:.3f}", form, forward, both);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace horner

extern "C" void horner_time_kernels() {
  using namespace horner;
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());  // a graph needs one
  const double copy = copy_rate();
  fmt::print("copy {:.0f} GB/s, matmul {:.0f} TFLOP/s\n", copy / 1e6, matmul_rate() / 1e9);
  fmt::print(
      "{:<8}{:<6}{:<5}{:<17}{:>8}{:>9}{:>9}{:>8}{:>9}{:>7}{:>7}{:>8}{:>8}\n",
      "op",
      "decay",
      "",
      "form",
      "fwd ms",
      "f+b ms",
      "eager",
      "floor",
      "floor",
      "of it",
      "of it",
      "x peer",
      "x peer"
  );
  const Shape S1{"S1", {8, 2048, 16, 16, 64, 64}}, S2{"S2", {8, 2048, 16, 16, 128, 128}};
  const Shape S3{"S3", {4, 8192, 16, 16, 128, 128}}, S4{"S4", {1, 32768, 16, 16, 128, 128}};
  const Shape scan{"", {8, 2048, 16, 16, 128, 128}};
  for (const char* gate : {"none", "head"}) {
    print_row({"linear", gate, S1, .177, 1.206}, copy);
    print_row({"linear", gate, S2, .200, 1.341}, copy);
    print_row({"linear", gate, S3, .372, 1.746}, copy);
    print_row({"linear", gate, S4, 0, 0}, copy);
  }
  print_row({"linear", "key", S1, .464, 2.367}, copy);
  print_row({"linear", "key", S2, .785, 3.248}, copy);
  print_row({"linear", "key", S3, 1.608, 6.539}, copy);
  print_row({"linear", "key", S4, 0, 0}, copy);
  print_row({"scan", "none", scan, 0, 0}, copy);
  for (const char* gate : {"none", "head", "key"}) print_step(gate, 64, copy);
  for (const Dims& d :
       {Dims{8, 2048, 16, 16, 64, 64},
        {1, 2048, 4, 4, 64, 64},
        {8, 256, 8, 8, 64, 64},
        {4, 1024, 8, 8, 128, 128}}) {
    for (const char* gate : {"none", "head", "key"}) {
      for (const at::ScalarType type : {at::kFloat, at::kHalf}) print_choice(type, gate, d);
    }
  }
}
