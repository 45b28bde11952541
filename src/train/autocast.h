// While it lives, matrix products on `device` are computed in bf16, if `bf16` is set.
//
// Torch keeps rounded weights for all threads together, and any thread that ends its scope forgets them all. So a training step
// does not keep them: a weight that is read twice would have its gradient rounded once or twice, as other runs come and go.
#pragma once

#include <ATen/autocast_mode.h>

namespace horner {

class Autocast {
 public:
  Autocast(at::Device device, bool bf16, bool keep_weights = true)
      : type_(device.type()),
        before_(at::autocast::is_autocast_enabled(type_)),
        kept_before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(keep_weights && kept_before_);
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, bf16);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // of cast weights
    at::autocast::set_autocast_enabled(type_, before_);
    at::autocast::set_autocast_cache_enabled(kept_before_);
  }

 private:
  at::DeviceType type_;
  bool before_, kept_before_;
};

}  // namespace horner
