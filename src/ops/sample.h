// Random inputs that every op accepts, for tests, verify and bench.
#pragma once

#include "ops/op.h"

namespace horner {

Inputs sample_qkv(const Dims&, at::TensorOptions);  // standard normal
at::Tensor sample_decay(
    const Dims&, std::string_view gate, at::TensorOptions
);  // log sigmoid of standard normals
Dims dims_of(const Inputs&);

}  // namespace horner
