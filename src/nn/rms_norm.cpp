#include "nn/rms_norm.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kLanes = 16;    // sums that a compiler can keep in vector registers
constexpr int64_t kGrain = 4096;  // elements that are worth a thread

// sum_i f(i) over a row.
template <class F>
float row_sum(int64_t n, F&& f) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lane[l] += f(i + l);
  }
  float sum = 0;
  for (; i < n; ++i) sum += f(i);
  for (const float part : lane) sum += part;
  return sum;
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& given,
      const at::Tensor& weight,
      double eps
  ) {
    const at::Tensor x = given.contiguous(), w = weight.contiguous();
    const int64_t n = x.size(-1), rows = x.numel() / n;
    const at::Tensor y = at::empty_like(x), r = at::empty({rows}, x.options());
    const float *px = x.const_data_ptr<float>(), *pw = w.const_data_ptr<float>();
    float *py = y.mutable_data_ptr<float>(), *pr = r.mutable_data_ptr<float>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* a = px + row * n;
        float* b = py + row * n;
        const float square = row_sum(n, [a](int64_t i) { return a[i] * a[i]; });
        const float scale = 1 / std::sqrt(square / float(n) + float(eps));
        pr[row] = scale;
        for (int64_t i = 0; i < n; ++i) b[i] = a[i] * scale * pw[i];
      }
    });
    ctx->save_for_backward({x, w, r});
    return y;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads
  ) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &r = saved[2];
    const at::Tensor dy = grads[0].contiguous(), dx = at::empty_like(x);
    const int64_t n = x.size(-1), rows = x.numel() / n;
    const int64_t parts = std::clamp<int64_t>(rows * n / kGrain, 1, at::get_num_threads());
    const at::Tensor dw = at::zeros({parts, n}, x.options());  // one row per thread, added in order
    const float *px = x.const_data_ptr<float>(), *pw = w.const_data_ptr<float>(),
                *pr = r.const_data_ptr<float>(), *pdy = dy.const_data_ptr<float>();
    float *pdx = dx.mutable_data_ptr<float>(), *pdw = dw.mutable_data_ptr<float>();
    at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        float* sum = pdw + part * n;
        for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
          const float *a = px + row * n, *d = pdy + row * n;
          float* b = pdx + row * n;
          const float s = pr[row];
          const float dot = row_sum(n, [=](int64_t i) { return a[i] * pw[i] * d[i]; });
          const float back = dot / float(n) * s * s * s;
          for (int64_t i = 0; i < n; ++i) {
            b[i] = s * pw[i] * d[i] - back * a[i];
            sum[i] += d[i] * a[i] * s;
          }
        }
      }
    });
    return {dx, dw.sum(0), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t n = x.size(-1);
  if (!x.is_cpu() || !has_memory(x))
    return at::rms_norm(
        x, {n}, weight.defined() ? std::optional<at::Tensor>(weight) : std::nullopt, eps
    );
  return RmsNorm::apply(x, weight.defined() ? weight : at::ones({n}, x.options()), eps);
}

}  // namespace horner
