// The pieces of torch.ops.horner.model_* give the logits of the C++ model, bit for bit.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "model/model.h"

namespace horner {
namespace {

using torch::jit::Stack;

Stack call(const char* name, Stack stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  for (size_t i = stack.size(); i < op.schema().arguments().size(); ++i)
    stack.push_back(*op.schema().arguments()[i].default_value());
  op.callBoxed(&stack);
  return stack;
}

// Of the tensors in the order of the layout, those of one layer; -1: those of none.
std::vector<at::Tensor> part_of(
    const Json& layout, const std::vector<at::Tensor>& all, int64_t layer
) {
  std::vector<at::Tensor> list;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string name = layout["tensors"][i]["name"];
    const bool inside = name.starts_with("layer_");
    if (layer < 0 ? !inside : name.starts_with(fmt::format("layer_{}.", layer)))
      list.push_back(all[i]);
  }
  return list;
}

void expect_same(const ModelOptions& o) {
  const std::string json = to_line(to_json(o));
  const Json layout = parse_json(call("horner::model_layout", {json})[0].toStringRef(), "layout");
  const auto tensors = call("horner::model_initial", {json, 3})[0].toTensorVector();
  const at::Tensor tokens = at::randint(o.vocabulary, {2, 7});
  const auto model = make_model(o, 3);
  model->eval();
  ModelState state;
  const at::Tensor expected = model->forward(tokens, state);

  at::Tensor x =
      call("horner::model_begin", {json, tokens, part_of(layout, tensors, -1)})[0].toTensor();
  c10::IValue delta;
  for (int64_t l = 0; l < o.layers; ++l) {
    const Stack y = call("horner::block_forward", {json, l, x, delta, part_of(layout, tensors, l)});
    x = y[0].toTensor();
    delta = y[1];
  }
  const Stack y = call("horner::model_end", {json, x, delta, part_of(layout, tensors, -1)});
  EXPECT_TRUE(at::equal(y[0].toTensor(), expected)) << json;
}

TEST(ModelLibrary, SameBitsAsTheModel) {
  ModelOptions o;
  o.vocabulary = 11;
  o.D = 16;
  o.pattern = {"gla:heads=2", "softmax:heads=2", "mlstm:heads=2"};
  o.layers = 3;
  expect_same(o);
  o.tied = true;
  o.positions = 9;
  o.mlp = "gelu";
  o.norm = "layer";
  o.init = "gpt2";
  o.logit_cap = 5;
  expect_same(o);
  o.tied = false;
  o.classes = 3;
  o.mlp = "none";
  expect_same(o);
  o.classes = 0;
  o.output = "rebuild";
  expect_same(o);
}

}  // namespace
}  // namespace horner
