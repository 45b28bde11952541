// Chooses the form and runs it, on the whole batch or on each sequence of a packed batch.
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "core/check.h"
#include "ops/check_values.h"
#include "ops/node.h"
#include "ops/packed.h"

namespace horner {
namespace {

std::string device_refusal(const Form& form, at::Device device) {
  if (form.place == Place::cpu && !device.is_cpu()) return "it runs on a CPU";
  if (form.place == Place::cuda && !device.is_cuda()) return "it needs a GPU";
  if (form.forward == nullptr) return "libhorner_cuda.so is not loaded";
  return "";
}

std::string type_refusal(const Form& form, at::ScalarType type) {
  const auto& types = form.types;
  if (types.empty() || std::find(types.begin(), types.end(), type) != types.end()) return "";
  std::string all;
  for (const at::ScalarType own : types) all += c10::str(all.empty() ? "" : ", ", own);
  return fmt::format("it computes in {}, got {}", all, c10::str(type));
}

// Asks forms about a call. A form that does not take packed batches whole is asked about the longest sequence.
class Choice {
 public:
  Choice(const Op& op, const Inputs& in, const State& state, const Options& options)
      : op_(op), in_(in), state_(state), options_(options) {}

  bool suits(const Form& form) {
    return form.suits == nullptr || form.suits(seen_by(form), state_, options_);
  }
  std::string refuses(const Form& form) {
    if (!form.traces && form.backward == nullptr && wants_gradient(op_, in_, state_))
      return "it has no gradient";
    return refusal(form, seen_by(form), state_, options_);
  }

 private:
  const Inputs& seen_by(const Form& form) {
    if (!in_.cu_seqlens.defined() || takes_packed(form, in_)) return in_;
    if (!longest_.v.defined()) {
      const Span span = longest_sequence(sequence_starts(op_, in_));
      longest_ = tokens(op_, in_, span.start, span.length);
    }
    return longest_;
  }

  const Op& op_;
  const Inputs& in_;
  const State& state_;
  const Options& options_;
  Inputs longest_;
};

}  // namespace

bool takes_packed(const Form& form, const Inputs& in) {
  return form.packs != nullptr && form.packs(in);
}

bool wants_gradient(const Op& op, const Inputs& in, const State& state) {
  if (!at::GradMode::is_enabled()) return false;
  const std::vector<at::Tensor> all = gradient_tensors(op, in, state);
  return std::any_of(all.begin(), all.end(), [](const at::Tensor& x) {
    return x.defined() && x.requires_grad();
  });
}

std::string refusal(
    const Form& form, const Inputs& in, const State& state, const Options& options
) {
  std::string why = device_refusal(form, in.v.device());
  if (why.empty()) why = type_refusal(form, in.v.scalar_type());
  return why.empty() && form.refuses != nullptr ? form.refuses(in, state, options) : why;
}

const Form& chosen_form(
    const Op& op, const Inputs& in, const State& state, const Options& options
) {
  Choice choice(op, in, state, options);
  if (options.form == forms::kAuto) {
    for (const Form& form : op.forms) {
      if (choice.suits(form) && choice.refuses(form).empty()) return form;
    }
    throw std::logic_error(fmt::format("[{}] auto found no form", op.name));
  }
  const Form* form = op.form(options.form);
  HORNER_CHECK(form != nullptr, "[{}] has no form '{}'", op.name, options.form);
  const std::string why = choice.refuses(*form);
  HORNER_CHECK(why.empty(), "[{}] form = {} cannot run: {}", op.name, options.form, why);
  return *form;
}

Result run(const Op& op, const Inputs& in, const State& state, const Options& options) {
  const c10::impl::ExcludeDispatchKeyGuard wide(c10::autocast_dispatch_keyset);  // fp32 inside
  check_inputs(op, in, state, options);
  if (checks_values()) check_values(op, in, state, options);
  const Form& form = chosen_form(op, in, state, options);
  const auto once = [&](const Inputs& x, const State& s, const Options& o) {
    const int64_t T = x.v.size(1);
    if (o.chunk <= T) return run_form(op, form, x, s, o);
    Options fits = o;  // a longer chunk would be padding: 13 GB for nine tokens at chunk = 10,000
    fits.chunk = T;
    return run_form(op, form, x, s, fits);
  };
  const bool packed = in.cu_seqlens.defined(), whole = takes_packed(form, in);
  if (packed && whole) sequence_starts(op, in);  // only to check cu_seqlens
  Result result =
      packed && !whole ? run_packed(op, once, in, state, options) : once(in, state, options);
  result.form = form.name;
  return result;
}

}  // namespace horner
