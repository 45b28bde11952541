#include "model/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>

namespace horner {
namespace {

at::Generator generator_of(at::Device device) {
  return device.is_cuda() ? at::globalContext().defaultGenerator(device)
                          : at::detail::getDefaultCPUGenerator();
}

at::Tensor random_state(at::Device device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

struct Call : torch::CustomClassHolder {
  Call(Block& b, const Context& c) : block(&b), context(c) {}
  Block* block;
  Context context;
  at::Tensor random;  // state of the generator before the forward; undefined: nothing is drawn
  bool autocast = false;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx,
      const at::Tensor& x,
      const c10::intrusive_ptr<Call>& call
  ) {
    if (call->block->drops()) call->random = random_state(x.device());
    call->autocast = at::autocast::is_autocast_enabled(x.device().type());
    ctx->save_for_backward({x});
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::AutoGradMode no_graph(false);
    State nothing;
    return call->block->forward(x, nothing, call->context);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list dy
  ) {
    const auto held = ctx->saved_data["call"].toCapsule();
    const Call& call = static_cast<const Call&>(*held);
    const at::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    const auto type = x.device().type();
    const bool autocast = at::autocast::is_autocast_enabled(type);
    at::Tensor now;
    if (call.random.defined()) {
      now = random_state(x.device());
      set_random_state(x.device(), call.random);
    }
    at::autocast::set_autocast_enabled(type, call.autocast);
    at::autocast::increment_nesting();
    at::Tensor y;
    {
      const at::AutoGradMode graph(true);
      State nothing;
      y = call.block->forward(x, nothing, call.context);
    }
    // Else the next step would read the rounded weights of this one.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type, autocast);
    if (now.defined()) set_random_state(x.device(), now);
    torch::autograd::backward({y}, {dy[0]});  // reaches the block's parameters too
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute(Block& block, const at::Tensor& x, const Context& context) {
  return Recompute::apply(x, c10::make_intrusive<Call>(block, context));
}

}  // namespace horner
