// While it lives, matrix products on `device` are computed in bf16, if `bf16` is set.
#pragma once

#include <ATen/autocast_mode.h>

namespace horner {

class Autocast {
 public:
  Autocast(at::Device device, bool bf16)
      : type_(device.type()), before_(at::autocast::is_autocast_enabled(type_)) {
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, bf16);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // of cast weights
    at::autocast::set_autocast_enabled(type_, before_);
  }

 private:
  at::DeviceType type_;
  bool before_;
};

}  // namespace horner
