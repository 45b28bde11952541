// Calls an op on a GPU, and on the CPU where there is none, and compares it with its definition in fp64.
#include <horner/horner.h>
#include <torch/types.h>

#include <iostream>

int main() try {
  const std::string no_gpu = horner::open_cuda();  // before anything else that touches torch
  if (!no_gpu.empty()) std::cout << "runs on the CPU: " << no_gpu << "\n";
  const at::Device device = horner::find_device("auto");

  torch::manual_seed(0);
  const auto fp64 = torch::dtype(torch::kDouble);
  horner::Inputs exact;
  exact.q = torch::randn({2, 512, 4, 64}, fp64) / 8;              // (B,T,H,K)
  exact.k = torch::randn({2, 512, 4, 64}, fp64) / 8;              // (B,T,G,K)
  exact.v = torch::randn({2, 512, 4, 64}, fp64);                  // (B,T,G,V)
  exact.g = torch::log_sigmoid(torch::randn({2, 512, 4}, fp64));  // log-decay per head
  horner::Inputs in = exact;
  for (at::Tensor* x : {&in.q, &in.k, &in.v})
    *x = x->to(device, device.is_cuda() ? torch::kBFloat16 : torch::kFloat);
  in.g = in.g.to(device, torch::kFloat);

  const horner::Op& linear = horner::find_op("linear");
  horner::Options options;
  options.final_state = true;
  const horner::Result y = horner::run(linear, in, {}, options);
  options.form = "recurrent";  // the definition, token by token
  const horner::Result truth = horner::run(linear, exact, {}, options);

  const at::Tensor error = (y.o.to(torch::kCPU, torch::kDouble) - truth.o).norm() / truth.o.norm();
  std::cout << "form: " << y.form << ", state: " << y.state.bytes() << " bytes\n";
  std::cout << "relative error below " << (device.is_cuda() ? "1e-2: " : "1e-5: ")
            << (error.item<double>() < (device.is_cuda() ? 1e-2 : 1e-5) ? "yes" : "no") << "\n";
} catch (const horner::Error& error) {
  std::cerr << "gpu: " << error.what() << "\n";
  return error.exit_code;
}
