#include "nn/position/rotate.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/memory.h"

namespace horner {
namespace {

void rotate_cpu(
    const at::Tensor& x, const at::Tensor& c, const at::Tensor& s, bool back, const at::Tensor& y
) {
  const int64_t T = x.size(1), H = x.size(2), P = x.size(3) / 2;
  const int64_t row_of_batch = c.size(0) > 1 ? T : 0, heads = c.size(2), r = H / heads;
  const float *px = x.const_data_ptr<float>(), *pc = c.const_data_ptr<float>(),
              *ps = s.const_data_ptr<float>();
  float* py = y.mutable_data_ptr<float>();
  const float sign = back ? -1.0f : 1.0f;
  at::parallel_for(
      0,
      x.size(0) * T,
      std::max<int64_t>(1, 4096 / (H * P)),
      [&](int64_t i, int64_t n) {
        for (; i < n; ++i) {  // token i % T of row i / T
          for (int64_t h = 0; h < H; ++h) {
            const int64_t at = ((i / T * row_of_batch + i % T) * heads + h / r) * P;
            const float *a = px + (i * H + h) * 2 * P, *b = a + P, *cos = pc + at, *sin = ps + at;
            float *u = py + (i * H + h) * 2 * P, *v = u + P;
            for (int64_t j = 0; j < P; ++j) {
              u[j] = a[j] * cos[j] - sign * b[j] * sin[j];
              v[j] = sign * a[j] * sin[j] + b[j] * cos[j];
            }
          }
        }
      }
  );
}

std::vector<at::Tensor> turn(
    const std::vector<at::Tensor>& x, const at::Tensor& c, const at::Tensor& s, bool back
) {
  std::vector<at::Tensor> y;
  for (const at::Tensor& one : x) y.push_back(at::empty(one.sizes(), one.options()));
  if (!x[0].is_cpu()) {
    rotate_kernels().rotate(x, c, s, back, y);
  } else {
    for (size_t i = 0; i < x.size(); ++i) rotate_cpu(x[i].contiguous(), c, s, back, y[i]);
  }
  return y;
}

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* ctx,
      at::TensorList x,
      const at::Tensor& c,
      const at::Tensor& s
  ) {
    ctx->save_for_backward({c, s});
    return turn(x.vec(), c, s, false);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list dy
  ) {
    const auto saved = ctx->get_saved_variables();
    torch::autograd::variable_list dx = turn(dy, saved[0], saved[1], true);
    dx.resize(dy.size() + 2);  // none of c and s
    return dx;
  }
};

}  // namespace

RotateKernels& rotate_kernels() {
  static RotateKernels kernels;
  return kernels;
}

bool can_rotate_pairs(const at::Tensor& x) {
  const bool single = x.scalar_type() == at::kFloat;
  if (!has_memory(x)) return false;
  return x.is_cpu() ? single
                    : x.is_cuda() && rotate_kernels().rotate &&
                          (single || x.scalar_type() == at::kBFloat16);
}

std::vector<at::Tensor> rotate_pairs(
    const std::vector<at::Tensor>& x, const at::Tensor& c, const at::Tensor& s
) {
  return Rotate::apply(at::TensorList(x), c.contiguous(), s.contiguous());
}

}  // namespace horner
