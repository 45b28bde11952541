#include "train/loss.h"

#include <algorithm>

#include "core/check.h"
#include "nn/head_loss/head_loss.h"
#include "nn/part.h"

namespace horner {
namespace {

constexpr int64_t kPaddedSizes = 8;  // of a batch's list of targets at most

}  // namespace

TargetBatch find_targets(Batch batch) {
  TargetBatch c;
  const at::Tensor& input = batch.tokens.defined() ? batch.tokens : batch.features;
  HORNER_CHECK(input.defined() && input.dim() >= 2, "[task] a batch needs tokens or features");
  c.rows = input.size(0);
  c.width = input.size(1);
  c.tokens = batch.lengths.defined() ? batch.lengths.sum().item<int64_t>() : c.rows * c.width;
  if (batch.labels.defined()) {
    c.places = at::arange(c.rows, at::kLong);
    c.answers = batch.labels.to(at::kLong);
  } else {
    const bool tokens = batch.targets.defined();
    HORNER_CHECK(
        tokens || batch.values.defined(), "[task] a batch needs targets, values or labels"
    );
    const at::Tensor all = (tokens ? batch.targets.to(at::kLong) : batch.values).flatten();
    const at::Tensor has = tokens ? all != kNoTarget : all.isnan().logical_not();
    c.places = has.nonzero().squeeze(1);
    c.answers = all.index_select(0, c.places);
  }
  c.count = c.places.size(0);
  c.batch = std::move(batch);
  return c;
}

TargetBatch with_padded_targets(TargetBatch c) {
  if (c.batch.labels.defined() || c.answers.is_floating_point()) return c;
  std::vector<int64_t> in_row(size_t(c.rows), 0);
  for (int64_t i = 0; i < c.count; ++i)
    ++in_row[size_t(c.places.const_data_ptr<int64_t>()[i] / c.width)];
  const auto [least, most] = std::minmax_element(in_row.begin(), in_row.end());
  if (c.rows == 0 || *least == *most) return c;
  const int64_t stretch = std::max<int64_t>(1, c.rows * c.width / kPaddedSizes);
  const int64_t more = (c.count + stretch - 1) / stretch * stretch - c.count;
  c.weights = at::constant_pad_nd(at::ones({c.count}), {0, more});
  c.places = at::constant_pad_nd(c.places, {0, more});
  c.answers = at::constant_pad_nd(c.answers, {0, more});
  return c;
}

TargetBatch training_batch(
    const Task& task, const std::vector<int64_t>& indices, at::Device device
) {
  if (device.is_cpu()) return find_targets(task.batch(Split::train, indices));
  Task::OnGpu gpu = task.on_gpu(Split::train, indices.at(0));
  if (!gpu.make)
    return in_pinned_memory(with_padded_targets(find_targets(task.batch(Split::train, indices))));
  TargetBatch c;
  c.rows = int64_t(indices.size());
  c.width = gpu.T;
  c.count = c.rows * gpu.targets;
  c.tokens = c.rows * c.width;
  c.indices = at::tensor(indices, at::kLong).pin_memory();
  c.make = std::move(gpu.make);
  return c;
}

TargetBatch TargetBatch::made() const {
  if (!make) return *this;
  TargetBatch c = *this;
  const GpuBatch gpu = make(indices);
  c.batch.tokens = gpu.tokens;
  c.places = gpu.places;
  c.answers = gpu.answers;
  return c;
}

TargetBatch in_pinned_memory(TargetBatch c) {
  for (at::Tensor* x : c.tensors()) {
    if (x->defined() && x->is_cpu() && !x->is_pinned()) *x = x->pin_memory();
  }
  return c;
}

TargetBatch to_device(TargetBatch c, at::Device device) {
  if (device.is_cpu()) return c;
  c = in_pinned_memory(std::move(c));
  for (at::Tensor* x : c.tensors()) {
    if (x->defined()) *x = x->to(device, true);
  }
  return c;
}

namespace {

// What the head reads at the positions that have a target.   (n,D)
at::Tensor at_targets(Model& model, const TargetBatch& c, Context context) {
  context.keep_state = c.goes_on;
  context.lengths = c.batch.lengths;
  context.cu_seqlens = c.batch.cu_seqlens;
  ModelState none;
  at::Tensor h =
      model.hidden(c.batch.tokens.defined() ? c.batch.tokens : c.batch.features, none, context);
  const bool all = c.count == (h.dim() == 3 ? c.rows * c.width : c.rows);
  if (h.dim() == 3) h = h.flatten(0, 1);
  return all ? h : h.index_select(0, c.places);
}

Losses losses_of(const Model& model, const at::Tensor& h, const TargetBatch& c) {
  Losses l;
  l.predictions = model.logits(h);
  if (c.answers.is_floating_point()) {
    l.predictions = l.predictions.squeeze(-1).to(at::kFloat);
    l.each = (l.predictions - c.answers.to(at::kFloat)).square();
  } else {
    l.each =
        at::cross_entropy_loss(l.predictions.to(at::kFloat), c.answers, {}, at::Reduction::None);
  }
  return l;
}

}  // namespace

Losses losses(Model& model, const TargetBatch& c, Context context) {
  const at::Tensor h = at_targets(model, c, std::move(context));
  const Part part(parts::kHead);
  return losses_of(model, h, c);
}

at::Tensor loss_sum(Model& model, const TargetBatch& c, Context context) {
  const at::Tensor h = at_targets(model, c, std::move(context));
  const Part part(parts::kHead);
  const bool padded = c.weights.defined();
  if (has_head_loss(h) && !c.answers.is_floating_point())
    return model.loss(h, padded ? c.answers.masked_fill(c.weights == 0, -1) : c.answers);
  const at::Tensor each = losses_of(model, h, c).each;
  return (padded ? each * c.weights : each).sum();
}

}  // namespace horner
