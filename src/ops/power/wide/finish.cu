// `power` with wide keys: o from the pairs inside the chunk and from the state (wide.cuh). The time is that of the bytes.
#include "cuda/sm90.cuh"
#include "ops/power/wide/wide.cuh"

namespace horner::cuda {
namespace {

// A warp owns a token of a head.
__global__ void finish_kernel(const __grid_constant__ PowerFinish p) {
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= p.B * p.T * p.H) return;
  const int64_t h = row % p.H, t = row / p.H % p.T, b = row / p.H / p.T;
  const int64_t in = ((b * p.padded + t) * p.H + h) * p.V;
  float den = 1.f, inside = 1.f;  // den, and its part from inside the chunk
  if (p.normalise) {
    const int64_t chunk = b * (p.padded / p.length) + t / p.length;
    const float inverse = p.inverse[(chunk * p.H + h) * p.length + t % p.length];
    inside = p.clamps && inverse < 0.f ? 0.f : 1.f / inverse;  // below eps: counts as 0
    den = inside + (p.y ? p.y[row * p.columns + p.V] : 0.f);
  }
  const float by = p.clamps ? fmaxf(den, p.eps) : den;
  const auto* high = static_cast<const uint32_t*>(p.o_in) + in / 2;
  const auto* low = static_cast<const uint32_t*>(p.rest) + in / 2;
  const auto* read = reinterpret_cast<const float2*>(p.y + row * p.columns);
  for (int c = int(threadIdx.x % 32); c < p.V / 2; c += 32) {  // two columns
    const uint32_t a = high[c], rest = low[c];
    const float2 y = p.y ? read[c] : float2{0.f, 0.f};
    const float first = ((low_half(a) + low_half(rest)) * inside + y.x) / by,
                second = ((high_half(a) + high_half(rest)) * inside + y.y) / by;
    static_cast<uint32_t*>(p.o)[(row * p.V) / 2 + c] = pack(first, second);
    if (!p.kept) continue;
    p.kept[row * (p.V + 1) + 2 * c] = first;
    p.kept[row * (p.V + 1) + 2 * c + 1] = second;
  }
  if (p.kept && threadIdx.x % 32 == 0) p.kept[row * (p.V + 1) + p.V] = den;
}

}  // namespace

cudaError_t power_wide_finish(const PowerFinish& p, cudaStream_t stream) {
  const int64_t rows = p.B * p.T * p.H;
  finish_kernel<<<unsigned((rows + 7) / 8), 256, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
