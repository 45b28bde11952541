// Whether code may read a tensor's numbers where they lie.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace horner {

// False if a tracer (torch.compile, export, FakeTensor) or a transform (torch.func) stands for the tensor, or a mode
// watches all calls: then only operations of the dispatcher may be called. Also false on the meta device.
inline bool has_memory(const at::Tensor& x) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet stands_for_another(
      {DispatchKey::Python,
       DispatchKey::PythonTLSSnapshot,
       DispatchKey::Functionalize,
       DispatchKey::FuncTorchBatched,
       DispatchKey::FuncTorchGradWrapper}
  );
  if (c10::impl::tls_local_dispatch_key_set().included_.has(DispatchKey::Python)) return false;
  return !x.is_meta() && !x.key_set().has_any(stands_for_another);
}

// Whether a transform of torch.func (grad, vmap, jvp) stands for the tensor.
inline bool is_transformed(const at::Tensor& x) {
  constexpr c10::DispatchKeySet keys(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}
  );
  return x.key_set().has_any(keys);
}

}  // namespace horner
