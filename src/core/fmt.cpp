// Compiles fmt once. Header-only, its number formatting would be compiled again in each file that formats a line. The headers
// come from torch's wheel.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;
template auto dragonbox::to_decimal<float>(float) noexcept -> decimal_fp<float>;
template auto dragonbox::to_decimal<double>(double) noexcept -> decimal_fp<double>;
}  // namespace detail
FMT_END_NAMESPACE
