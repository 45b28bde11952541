// The tables of the scalar networks, and the gradients of their weights from the sums over each piece. Few numbers: sums are
// fp64, and each number is summed from its terms, so nothing cancels that does not cancel in the definition.
#include "cuda/types.cuh"
#include "nn/features/scalar_networks.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 1024, kMost = 1024, kTableBlocks = 16, kPlaces = 128;
constexpr int kGroup = NetworkShape::kGroup;

// Where a hidden unit works, in the arithmetic of z = u f1 + b1 itself: at u > kink, or (falling) at u <= kink.
struct Kink {
  float at;
  bool falling;
};

__device__ Kink kink_of(float f1, float b1) {
  const float z = f1 + b1;
  if (z != z) return {INFINITY, true};         // NaN: works everywhere, so that every y shows it
  if (f1 == 0.f) return {INFINITY, b1 > 0.f};  // everywhere or nowhere
  const bool falling = f1 < 0.f;
  const auto works = [&](float u) { return (fmaf(u, f1, b1) > 0.f) != falling; };
  float at = -b1 / f1;
  if (isinf(at)) return {at, falling};
  // The largest number at which a rising unit rests and a falling unit works; -b1 / f1 was rounded.
  for (int i = 0; i < 4 && works(at); ++i) at = nextafterf(at, -INFINITY);
  for (int i = 0; i < 4 && !works(nextafterf(at, INFINITY)); ++i) at = nextafterf(at, INFINITY);
  return {at, falling};
}

// Unit of a function r that works on a piece: from its rank on, or (falling) up to it.
__device__ bool works(int rank, int piece) { return rank < 0 ? piece <= -1 - rank : piece > rank; }

// The number between two kinks that is nearest to 0: a value there and a slope lose no digits to the distance.
__device__ float anchor_of(float low, float high) {
  const float at = low > 0.f ? low : high < 0.f ? high : 0.f;
  return isinf(at) ? 0.f : at;
}

__global__ void __launch_bounds__(kThreads)
    tables_kernel(const __grid_constant__ ScalarNetworks p) {
  __shared__ float kinks[kMost], sorted[kMost];
  __shared__ int ranks[kMost];
  const NetworkShape& s = p.shape;
  const NetworkTables to(s, p.tables);
  const int t = int(threadIdx.x), units = s.units;
  const Kink own = t < units ? kink_of(p.f1[t], p.b1[t]) : Kink{};
  if (t < units) kinks[t] = own.at;
  __syncthreads();
  if (t < units) {
    const int first = t / s.E * s.E + t % s.E / kGroup * kGroup;  // of the group
    const int end = min(first + kGroup, t / s.E * s.E + s.E);
    int rank = 0, in_group = 0;
    for (int i = 0; i < units; ++i) {
      const bool before = kinks[i] < own.at || (kinks[i] == own.at && i < t);
      rank += before;
      in_group += before && i >= first && i < end;
    }
    sorted[rank] = own.at;
    ranks[t] = own.falling ? -1 - rank : rank;
    if (blockIdx.x == 0) to.ranks[t] = own.falling ? -1 - in_group : in_group;
  }
  __syncthreads();
  const int all = int(gridDim.x) * kThreads, first = int(blockIdx.x) * kThreads + t;
  for (int i = first; i < (1 << s.levels) - 1; i += all) {
    const int above = __ffs(i + 1) - 1, level = s.levels - 1 - above;  // of i in an ordered tree
    to.tree[(1 << level) + ((i + 1) >> (above + 1))] = i < units ? sorted[i] : INFINITY;
  }
  for (int i = first; i < (units + 1) * s.wide; i += all) {
    const int piece = i / s.wide, r = i % s.wide;
    const float anchor = anchor_of(
        piece > 0 ? sorted[piece - 1] : -INFINITY, piece < units ? sorted[piece] : INFINITY
    );
    if (r == 0) to.anchors[piece] = anchor;
    double slope = 0, value = r < s.R ? p.b2[r] : 0;
    for (int g = 0; g < s.groups; ++g) {
      int place = 0;
      for (int e = g * kGroup; r < s.R && e < min((g + 1) * kGroup, s.E); ++e) {
        const int unit = r * s.E + e, rank = ranks[unit];
        place += (rank < 0 ? -1 - rank : rank) < piece;
        if (!works(rank, piece)) continue;
        const double f1 = p.f1[unit], f2 = p.f2[unit];
        slope += f2 * f1;
        value += f2 * (f1 * anchor + p.b1[unit]);
      }
      to.places[g * s.places() + i] = static_cast<unsigned char>(place);
    }
    to.lines[i] = make_float2(float(slope), float(value));
  }
}

// A block owns 64 units of one function. Its sums over the blocks of the backward, in their order, then for each unit the
// sums over the pieces where it works:
//   df1 = f2 sum dy u,   db1 = f2 sum dy,   df2 = f1 sum dy u + b1 sum dy
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const __grid_constant__ ScalarNetworks p) {
  constexpr int kSlices = kThreads / kPlaces;
  __shared__ double2 sums[kSlices][kPlaces];
  const NetworkShape& s = p.shape;
  const int r = int(blockIdx.x), g = int(blockIdx.y), t = int(threadIdx.x);
  const int place = t % kPlaces, slice = t / kPlaces;
  double2 sum = {0, 0};
  for (int part = slice; place < s.rows && part < p.parts; part += kSlices) {
    const float2 x = p.sums[((int64_t(part) * s.groups + g) * s.R + r) * s.rows + place];
    sum.x += x.x, sum.y += x.y;
  }
  sums[slice][place] = sum;
  __syncthreads();
  if (slice == 0) {
    for (int i = 1; i < kSlices; ++i) sum.x += sums[i][place].x, sum.y += sums[i][place].y;
    sums[0][place] = sum;
  }
  __syncthreads();
  const int e = g * kGroup + t, unit = r * s.E + e;
  if (t < kGroup && e < s.E) {
    const int rank = NetworkTables(s, p.tables).ranks[unit];
    double dy = 0, dyu = 0;
    for (int i = 0; i < s.rows; ++i) {
      if (works(rank, i)) dy += sums[0][i].x, dyu += sums[0][i].y;
    }
    p.df1[unit] = float(p.f2[unit] * dyu);
    p.db1[unit] = float(p.f2[unit] * dy);
    p.df2[unit] = float(p.f1[unit] * dyu + p.b1[unit] * dy);
  }
  if (t == 0 && g == 0) {
    double dy = 0;
    for (int i = 0; i < s.rows; ++i) dy += sums[0][i].x;
    p.db2[r] = float(dy);
  }
  if (r > 0 || g > 0 || p.shift == nullptr || t < kThreads - 32) return;
  const int m = t % 32;  // the last warp
  double du = 0;
  for (int i = m; i < 32 && m < p.M; i += p.M) {
    for (int part = 0; part < p.parts; ++part) du += p.shift_sums[int64_t(part) * 32 + i];
  }
  if (m < p.M) p.dshift[m] = float(du);
}

}  // namespace

cudaError_t networks_tables(const ScalarNetworks& p, cudaStream_t stream) {
  tables_kernel<<<kTableBlocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t networks_gradients(const ScalarNetworks& p, cudaStream_t stream) {
  const dim3 grid(unsigned(p.shape.R), unsigned(p.shape.groups));
  gradients_kernel<<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
