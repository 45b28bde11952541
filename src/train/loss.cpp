#include "train/loss.h"

#include "core/check.h"

namespace horner {

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

TargetBatch to_device(TargetBatch c, at::Device device) {
  if (device.is_cpu()) return c;
  Batch& b = c.batch;
  // cu_seqlens stays on the CPU, where it is read.
  for (at::Tensor* x : {&b.tokens, &b.features, &b.lengths, &c.places, &c.answers}) {
    if (x->defined()) *x = x->pin_memory().to(device, true);
  }
  return c;
}

Losses losses(Model& model, const TargetBatch& c, Context context) {
  context.keep_state = false;
  context.lengths = c.batch.lengths;
  context.cu_seqlens = c.batch.cu_seqlens;
  ModelState none;
  at::Tensor h =
      model.hidden(c.batch.tokens.defined() ? c.batch.tokens : c.batch.features, none, context);
  const bool all = c.count == (h.dim() == 3 ? c.rows * c.width : c.rows);
  if (h.dim() == 3) h = h.flatten(0, 1);
  if (!all) h = h.index_select(0, c.places);
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

}  // namespace horner
