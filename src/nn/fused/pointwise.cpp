#include "nn/fused/pointwise.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/memory.h"
#include "nn/part.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Shape {
  size_t columns, outputs;
  int wide_in;  // bit j: x_j is fp32
  bool wide_out;
};

template <class F>
Shape shape_of() {
  return {size_t(F::kColumns), size_t(F::kOut), F::kWideIn, F::kWideOut};
}

Shape shape_of(Pointwise f) {
  return with_function(f, [](auto own) { return shape_of<decltype(own)>(); });
}

// The formulas in fp64, number by number: for the test of the derivatives.
template <class F>
void loop(const PointwiseTensors& t, bool backward) {
  const int64_t n = t.x[0].size(-1), count = t.x[0].numel();
  const auto at = [](const std::vector<at::Tensor>& all, size_t j, int64_t i) -> double& {
    return all[j].data_ptr<double>()[i];
  };
  for (const at::Tensor& d : t.dc) d.zero_();
  for (int64_t i = 0; i < count; ++i) {
    double x[F::kIn], y[F::kOut], dx[F::kIn], c[F::kColumns + 1] = {}, dc[F::kColumns + 1] = {};
    const double row = F::kRows > 0 ? t.row.data_ptr<double>()[i / n] : 0;
    for (size_t j = 0; j < F::kIn; ++j) x[j] = at(t.x, j, i);
    for (size_t j = 0; j < F::kColumns; ++j) c[j] = at(t.c, j, i % n);
    for (size_t j = 0; j < F::kOut; ++j) y[j] = at(t.y, j, i);
    if (backward) {
      F::backward(x, c, &row, y, dx, dc);
      for (size_t j = 0; j < F::kIn; ++j) at(t.dx, j, i) = dx[j];
      for (size_t j = 0; j < F::kColumns; ++j) at(t.dc, j, i % n) += dc[j];
    } else {
      F::forward(x, c, &row, y);
      for (size_t j = 0; j < F::kOut; ++j) at(t.y, j, i) = y[j];
    }
  }
}

void run(Pointwise f, const PointwiseTensors& t, bool backward) {
  if (t.x[0].is_cuda()) return pointwise_kernel()(f, t, backward);
  with_function(f, [&](auto own) { loop<decltype(own)>(t, backward); });
}

// Rows at one distance, in whole units of 8 numbers, as a kernel reads them.
bool has_rows(const at::Tensor& x) {
  const int64_t n = x.dim() - 1;
  if (x.stride(n) != 1 || n == 0 || x.stride(n - 1) % 8 != 0 || x.storage_offset() % 8 != 0)
    return false;
  for (int64_t d = 0; d + 1 < n; ++d) {
    if (x.size(d) > 1 && x.stride(d) != x.stride(d + 1) * x.size(d + 1)) return false;
  }
  return true;
}

class PointwiseNode : public torch::autograd::Function<PointwiseNode> {
 public:
  // all: x, c, and the row where there is one.
  static variable_list forward(AutogradContext* ctx, int64_t function, at::TensorList all) {
    const auto f = Pointwise(function);
    const Shape shape = shape_of(f);
    PointwiseTensors t = unpack(f, all);
    for (at::Tensor& x : t.x) x = x.is_cuda() && has_rows(x) ? x : x.contiguous();
    const auto type = shape.wide_out && t.x[0].is_cuda() ? at::kFloat : t.x.back().scalar_type();
    for (size_t j = 0; j < shape.outputs; ++j)
      t.y.push_back(at::empty(t.x[0].sizes(), t.x[0].options().dtype(type)));
    run(f, t, false);
    variable_list saved = t.x;
    saved.insert(saved.end(), t.c.begin(), t.c.end());
    if (t.row.defined()) saved.push_back(t.row);
    ctx->save_for_backward(saved);
    ctx->saved_data["function"] = function;
    return t.y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto f = Pointwise(ctx->saved_data["function"].toInt());
    PointwiseTensors t = unpack(f, ctx->get_saved_variables());
    for (const at::Tensor& d : dy) t.y.push_back(d.contiguous());
    for (const at::Tensor& x : t.x) t.dx.push_back(at::empty(x.sizes(), x.options()));
    const int64_t n = t.x[0].size(-1), rows = t.x[0].numel() / n;
    for (const at::Tensor& c : t.c)
      t.dc.push_back(at::empty({c.is_cuda() ? pointwise_parts(rows, n) : 1, n}, c.options()));
    run(f, t, true);
    variable_list gradients = {at::Tensor()};
    gradients.insert(gradients.end(), t.dx.begin(), t.dx.end());
    for (const at::Tensor& dc : t.dc) gradients.push_back(dc.sum(0));
    if (t.row.defined()) gradients.emplace_back();
    return gradients;
  }

 private:
  static PointwiseTensors unpack(Pointwise f, at::TensorList all) {
    const size_t columns = shape_of(f).columns;
    const size_t rows = with_function(f, [](auto own) { return size_t(decltype(own)::kRows); });
    const size_t inputs = all.size() - columns - rows;
    PointwiseTensors t;
    for (size_t j = 0; j < inputs; ++j) t.x.push_back(all[j]);
    for (size_t j = 0; j < columns; ++j) t.c.push_back(all[inputs + j].contiguous());
    if (rows > 0) t.row = all[all.size() - 1].contiguous();
    return t;
  }
};

}  // namespace

PointwiseKernel& pointwise_kernel() {
  static PointwiseKernel kernel = nullptr;
  return kernel;
}

int64_t pointwise_parts(int64_t rows, int64_t n) {
  constexpr int64_t kRows = 8, kColumns = 256, kMost = 132 * 8;  // of a block; blocks of a call
  return std::clamp<int64_t>(
      (rows + kRows - 1) / kRows, 1, kMost / ((n + kColumns - 1) / kColumns)
  );
}

bool pointwise_fuses(
    Pointwise f, const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& c
) {
  if (pointwise_kernel() == nullptr) return false;
  const int wide = shape_of(f).wide_in;
  const at::ScalarType type = x.back().scalar_type();
  for (size_t j = 0; j < x.size(); ++j) {
    const at::ScalarType own = (wide >> j & 1) != 0 ? at::kFloat : type;
    if (!x[j].is_cuda() || !has_memory(x[j]) || x[j].scalar_type() != own) return false;
    if (x[j].numel() == 0 || x[j].size(-1) % 8 != 0) return false;
  }
  const bool single =
      std::all_of(c.begin(), c.end(), [](auto& w) { return w.scalar_type() == at::kFloat; });
  return single && (type == at::kBFloat16 || type == at::kFloat);
}

std::vector<at::Tensor> pointwise(
    Pointwise f,
    const std::vector<at::Tensor>& x,
    const std::vector<at::Tensor>& c,
    const at::Tensor& row
) {
  const Part part(parts::kGates);
  std::vector<at::Tensor> all = x;
  all.insert(all.end(), c.begin(), c.end());
  if (row.defined()) all.push_back(row);
  return PointwiseNode::apply(int64_t(f), at::TensorList(all));
}

}  // namespace horner
