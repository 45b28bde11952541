// Heads: splitting a projection into heads, joining them again, and checks of sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace horner {

at::Tensor split_heads(const at::Tensor& x, int64_t H);  // (B,T,H X) -> (B,T,H,X)
at::Tensor join_heads(const at::Tensor& x);              // (B,T,H,X) -> (B,T,H X)

// Each throws a UsageError that begins with the mixer's name in brackets.
//
// Width of a head if all H heads together are `expand` times D; refuses sizes that do not divide.
int64_t head_width(
    std::string_view mixer, std::string_view option, int64_t D, int64_t H, double expand
);
void check_heads(std::string_view mixer, int64_t D, int64_t H);  // H divides D
void check_at_least(std::string_view mixer, std::string_view option, double value, double least);

}  // namespace horner
