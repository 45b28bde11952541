#include "nn/heads.h"

#include <cmath>

#include "core/check.h"

namespace horner {

at::Tensor split_heads(const at::Tensor& x, int64_t H) { return x.unflatten(-1, {H, -1}); }
at::Tensor join_heads(const at::Tensor& x) { return x.flatten(2); }

int64_t head_width(
    std::string_view mixer, std::string_view option, int64_t D, int64_t H, double expand
) {
  check_at_least(mixer, "heads", double(H), 1);
  check_at_least(mixer, option, expand, 0);
  const int64_t all = int64_t(std::llround(expand * double(D)));
  HORNER_CHECK(
      all >= H && all % H == 0 && std::abs(double(all) - expand * double(D)) < 1e-6,
      "[{}] {} times D = {} must be a multiple of heads = {}, got {}",
      mixer,
      option,
      D,
      H,
      expand * double(D)
  );
  return all / H;
}

void check_heads(std::string_view mixer, int64_t D, int64_t H) {
  HORNER_CHECK(H >= 1 && D % H == 0, "[{}] heads must divide D = {}, got {}", mixer, D, H);
}

void check_at_least(std::string_view mixer, std::string_view option, double value, double least) {
  HORNER_CHECK(
      std::isfinite(value) && value >= least,
      "[{}] {} must be at least {}, got {}",
      mixer,
      option,
      least,
      value
  );
}

}  // namespace horner
