// `linear` with a decay per key: the states between chunks (per_key.cuh).
#include "cuda/device.h"
#include "cuda/invariant.h"
#include "cuda/launch.cuh"
#include "ops/linear/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kStages = 3, kStateThreads = 256;

// Shared memory of one chunk: x and g of 32 keys, y of all columns. x and g are loaded one chunk earlier than y.
template <int kWidth>
struct Stage {
  unsigned char y[kWidth / 64][kTileBytes];
  unsigned char g[64 * kSlice * 4];  // (64,32) fp32 or bf16, swizzled
  unsigned char x[64 * kSlice * 2];  // (64,32) bf16, swizzled
};
template <int kWidth>
struct Memory {
  Stage<kWidth> stage[kStages];
  unsigned char weighed[2][64 * kSlice * 2];  // x times its factors, swizzled
  unsigned char out[kSlice * kWidth * 2];     // staging for the state; each warp has its own part
  float kept[2][kSlice];                      // log2 of the decay of a chunk
};

// Offset of a unit in rows of 32 keys. The swizzle puts rows that are eight tokens apart into different banks.
__device__ uint32_t narrow_offset(int row, int unit) {
  return uint32_t(row * 64 + ((unit ^ (row >> 3 & 3)) << 4));
}
__device__ uint32_t wide_offset(int row, int unit) {
  return uint32_t(row * 128 + ((unit ^ (row >> 3)) << 4));
}
__device__ uint32_t weighed_offset(int row, int unit) {
  return narrow_offset(row, unit ^ (row >> 1 & 3));
}

// A thread copies 16 bytes of kCount rows of each chunk; the rows are kApart apart.
template <int kCount, int kApart>
struct Copies {
  const unsigned char* first;  // address in the sequence's first chunk
  int64_t apart;               // bytes between two of its rows
  int row;                     // first row; beyond the chunk: the thread has no columns

  __device__ Copies(
      const Rows& x, const Span& s, const Heads& h, int size, int own_row, int column, int width
  )
      : apart(kApart * x.t * size), row(own_row) {
    first = static_cast<const unsigned char*>(x.data) + (s.b * x.b + h.of(x) * x.h) * size;
    if (column >= width) {
      row = kChunk;
    } else {
      first += ((s.first + own_row) * x.t + column) * size;
    }
  }
  // Copies the thread's n-th row to to + offset(n).
  template <class Offset>
  __device__ void start(uint32_t to, int chunk, int rows, Offset&& offset) const {
    const unsigned char* from = first + chunk * (kChunk / kApart) * apart;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const bool valid = row + kApart * n < rows;
      copy_async(to + offset(n), valid ? from + n * apart : first, valid);
    }
  }
};

// What a thread copies: x and g of 32 keys, y of all columns.
template <int kWidth>
struct Loader {
  static constexpr int kUnits = kWidth / 8, kApart = kStateThreads / kUnits;
  Copies<64 / kApart, kApart> y;
  Copies<1, 64> x, narrow_g;
  Copies<2, 32> wide_g;
  bool narrow;

  __device__ Loader(const KeyStates& p, const Span& s, const Heads& h, int slice, const Place& me)
      : y(p.y, s, h, 2, me.thread / kUnits, me.thread % kUnits * 8, p.V),
        x(p.x, s, h, 2, me.thread / 4, kSlice * slice + me.thread % 4 * 8, p.K),
        narrow_g(p.g, s, h, 2, me.thread / 4, kSlice * slice + me.thread % 4 * 8, p.K),
        wide_g(p.g, s, h, 4, me.thread / 8, kSlice * slice + me.thread % 8 * 4, p.K),
        narrow(p.narrow_g) {}

  __device__ void load_keys(Stage<kWidth>& to, int chunk, int rows, const Place& me) const {
    const uint32_t own = narrow_offset(me.thread / 4, me.thread % 4);
    x.start(shared_address(to.x), chunk, rows, [&](int) { return own; });
    if (narrow) {
      narrow_g.start(shared_address(to.g), chunk, rows, [&](int) { return own; });
    } else {
      wide_g.start(shared_address(to.g), chunk, rows, [&](int n) {
        return wide_offset(me.thread / 8 + 32 * n, me.thread % 8);
      });
    }
  }
  __device__ void load_values(Stage<kWidth>& to, int chunk, int rows, const Place& me) const {
    const int unit = me.thread % kUnits;
    const uint32_t own = (unit / 8) * kTileBytes + tile_offset(me.thread / kUnits, unit % 8);
    y.start(shared_address(to.y), chunk, rows, [&](int n) { return own + n * kApart * 128; });
  }
};

// A warp's part of the state: kRows tiles of 16 keys, 16 columns.
template <int kWidth>
struct Part {
  static constexpr int kRows = kWidth / 64;
  int key, column;  // its first key and column
  __device__ explicit Part(const Place& me)
      : key(16 * (me.warp / (kWidth / 16))), column(16 * (me.warp % (kWidth / 16))) {}
};
template <int kWidth>
using Tiles = float[Part<kWidth>::kRows][2][4];

// f(element, key in the slice, column) for each element of the state.
template <int kWidth, class F>
__device__ void for_state(Tiles<kWidth>& S, const Place& me, F&& f) {
  const Part<kWidth> part(me);
#pragma unroll
  for (int e = 0; e < 8 * part.kRows; ++e) {
    f(S[e / 8][e / 4 % 2][e % 4],
      part.key + 16 * (e / 8) + me.r + 8 * (e / 2 % 2),
      part.column + 8 * (e / 4 % 2) + 2 * me.i + e % 2);
  }
}

// Stores the state as bf16: 32 bytes of each of a warp's rows.
template <int kWidth>
__device__ void store_state(
    const Tiles<kWidth>& S, unsigned char* staged, unsigned char* to, const Place& me
) {
  const Part<kWidth> part(me);
  unsigned char* own = staged + me.warp * part.kRows * 512;
  const auto offset = [](int key, int unit) { return (key * 2 + (unit ^ (key / 4 % 2))) * 16; };
#pragma unroll
  for (int e = 0; e < 4 * part.kRows; ++e) {
    const int m = e / 4, n = e / 2 % 2, h = e % 2;
    *reinterpret_cast<uint32_t*>(own + offset(16 * m + me.r + 8 * h, n) + 4 * me.i) =
        pack(S[m][n][2 * h], S[m][n][2 * h + 1]);
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < part.kRows; ++n) {
    const int key = 16 * n + me.lane / 2, unit = me.lane % 2;
    *reinterpret_cast<uint4*>(to + ((part.key + key) * kWidth + part.column) * 2 + 16 * unit) =
        *reinterpret_cast<const uint4*>(own + offset(key, unit));
  }
  __syncwarp();
}

// x times e^{G_C-G}, in reverse times e^G. A warp owns four keys of all tokens, a lane eight tokens of one key.
template <int kWidth, bool kReverse>
__device__ void weigh(
    Memory<kWidth>& m, const Stage<kWidth>& s, int i, bool narrow_g, const Place& me
) {
  const int first = 8 * me.r, in_unit = me.warp % 2 * 4 + me.i;  // token; key among eight
  const auto narrow_at = [&](const unsigned char* tile, int row) {
    return __bfloat162float(
        reinterpret_cast<const __nv_bfloat16*>(tile + narrow_offset(row, me.warp / 2))[in_unit]
    );
  };
  float sums[8], sum = 0.f;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float g =
        narrow_g ? narrow_at(s.g, first + n)
                 : reinterpret_cast<const float*>(s.g + wide_offset(first + n, me.warp))[me.i];
    sums[n] = sum += log2_decay(g);
  }
  const auto next = [&](float x, int d) {  // from a later lane; in reverse from an earlier one
    const float other = kReverse ? __shfl_up_sync(~0u, x, d) : __shfl_down_sync(~0u, x, d);
    return (kReverse ? me.lane >= d : me.lane + d < 32) ? other : 0.f;
  };
  float through = sum;
#pragma unroll
  for (int d = 4; d < 32; d *= 2) through += next(through, d);
  const float after = next(through, 4);
  if (me.r == (kReverse ? 7 : 0)) m.kept[i & 1][4 * me.warp + me.i] = through;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float factor = exp2_fast(after + (kReverse ? sums[n] : sum - sums[n]));
    reinterpret_cast<__nv_bfloat16*>(
        m.weighed[i & 1] + weighed_offset(first + n, me.warp / 2)
    )[in_unit] = __float2bfloat16(narrow_at(s.x, first + n) * factor);
  }
}

// S' = diag(e^{G_C}) S + x^T y of one chunk.
template <int kWidth>
__device__ void update_state(
    Tiles<kWidth>& S, const Memory<kWidth>& m, const Stage<kWidth>& s, int i, const Place& me
) {
  const Part<kWidth> part(me);
#pragma unroll
  for (int e = 0; e < 2 * part.kRows; ++e) {
    const float kept = exp2_fast(m.kept[i & 1][part.key + 8 * e + me.r]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      S[e / 2][n][2 * (e % 2)] *= kept;
      S[e / 2][n][2 * (e % 2) + 1] *= kept;
    }
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // over 16 tokens
    uint32_t b[4];
    const int unit = part.column / 8 + me.lane / 16;
    load_matrices_transposed(
        b, shared_address(s.y[unit / 8]) + tile_offset(16 * step + me.lane % 16, unit % 8)
    );
#pragma unroll
    for (int n = 0; n < part.kRows; ++n) {
      uint32_t a[4];
      const int row = 16 * step + 8 * (me.lane / 16) + me.lane % 8;
      load_matrices_transposed(
          a,
          shared_address(m.weighed[i & 1]) +
              weighed_offset(row, part.key / 8 + 2 * n + me.lane / 8 % 2)
      );
      multiply(S[n][0], a, b[0], b[1]);
      multiply(S[n][1], a, b[2], b[3]);
    }
  }
}

// The state that enters the first part: p.first. In reverse it is a gradient, which counts once per state.
template <int kWidth, bool kReverse>
__device__ __forceinline__ void load_first(
    Tiles<kWidth>& S, const KeyStates& p, int64_t n, int h, int slice, const Place& me
) {
  const StateView& f = p.first;
  if (!f.data || (kReverse && h % f.group != 0)) return;
  const float factor = kReverse ? 1.f / float(p.scale) : 1.f;
  const float* from = static_cast<const float*>(f.data) + n * f.b + (h / f.group) * f.h;
  for_state<kWidth>(S, me, [&](float& x, int key, int c) {
    key += kSlice * slice;
    if (key < p.K && c < p.V) x = from[key * f.r + c * f.n] * factor;
  });
}

template <int kWidth, bool kReverse>
__device__ __forceinline__ void store_last(
    Tiles<kWidth>& S, const KeyStates& p, int64_t n, int h, int slice, const Place& me
) {
  const StateView& l = p.last;
  if (!l.data || h % l.group != 0) return;
  const float factor = kReverse ? float(p.scale) : 1.f;
  float* to = static_cast<float*>(l.data) + n * l.b + (h / l.group) * l.h;
  for_state<kWidth>(S, me, [&](float x, int key, int c) {
    key += kSlice * slice;
    if (key < p.K && c < p.V) to[key * l.r + c * l.n] = x * factor;
  });
}

// A block owns 32 keys and all columns of the state of one (sequence, head) and walks over its chunks, or over the chunks
// of one part of the time. kEnds: it stores only the end state. A warp owns a piece of the state, in registers. Between two
// barriers it adds chunk i to the state and scales x of chunk i + 1.
template <int kWidth, bool kReverse, bool kEnds>
__global__ void __launch_bounds__(kStateThreads, 2)
    states_kernel(const __grid_constant__ KeyStates p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kWidth>& m = *reinterpret_cast<Memory<kWidth>*>(memory);
  const Place me(int(threadIdx.x));
  const int slices = (p.K + kSlice - 1) / kSlice, keys = slices * kSlice;
  const unsigned index_of = blockIdx.x / unsigned(slices), parts = unsigned(p.parts - kEnds);
  const int slice = int(blockIdx.x % unsigned(slices)), part = int(index_of % parts);
  const int64_t n = index_of / parts / unsigned(p.H);
  const int h = int(index_of / parts % unsigned(p.H));
  const Span span = span_at(p.sequences, n);
  const int all = int((span.tokens + kChunk - 1) / kChunk), each = (all + p.parts - 1) / p.parts;
  const int begin = min(all, part * each), chunks = min(all, begin + each) - begin;
  const auto index = [&](int i) { return kReverse ? all - 1 - begin - i : begin + i; };
  const int64_t slot = (part * p.sequences.count + n) * p.H + h;  // in p.ends and p.decays

  Tiles<kWidth> S = {};
  if (part > 0 && !kEnds) {
    const float* from = p.ends + (slot * keys + kSlice * slice) * kWidth;
    for_state<kWidth>(S, me, [&](float& x, int key, int c) { x = from[key * kWidth + c]; });
  }
  if (part == 0) load_first<kWidth, kReverse>(S, p, n, h, slice, me);
  const Loader<kWidth> loader(p, span, Heads(h, p.g.group), slice, me);
  const auto rows_at = [&](int n) { return int(min(int64_t(kChunk), span.tokens - n * kChunk)); };
  const auto load = [&](int i) {  // x and g of chunk i + 1, y of chunk i
    const int now = index(i), next = index(i + 1);
    if (i + 1 < chunks) loader.load_keys(m.stage[(i + 1) % kStages], next, rows_at(next), me);
    if (i >= 0 && i < chunks) loader.load_values(m.stage[i % kStages], now, rows_at(now), me);
    copy_commit();
  };
  for (int i = -1; i < kStages - 1; ++i) load(i);
  copy_wait<kStages - 1>();
  __syncthreads();
  if (chunks > 0) weigh<kWidth, kReverse>(m, m.stage[0], 0, p.narrow_g, me);
  float decayed = 0.f;  // log2 of the decay of key `lane` over the part
  for (int i = 0; i < chunks; ++i) {
    copy_wait<kStages - 2>();
    __syncthreads();
    load(i + kStages - 1);
    if (!kEnds) {
      unsigned char* to = static_cast<unsigned char*>(p.states) +
                          (((span.slot + index(i)) * p.H + h) * keys + kSlice * slice) * kWidth * 2;
      store_state<kWidth>(S, m.out, to, me);
    }
    decayed += m.kept[i & 1][me.lane];
    update_state<kWidth>(S, m, m.stage[i % kStages], i, me);
    if (i + 1 < chunks)
      weigh<kWidth, kReverse>(m, m.stage[(i + 1) % kStages], i + 1, p.narrow_g, me);
  }
  if (kEnds) {
    float* to = p.ends + (slot * keys + kSlice * slice) * kWidth;
    for_state<kWidth>(S, me, [&](float x, int key, int c) { to[key * kWidth + c] = x; });
    if (me.warp == 0) p.decays[slot * keys + kSlice * slice + me.lane] = decayed;
    return;
  }
  if (part == p.parts - 1) store_last<kWidth, kReverse>(S, p, n, h, slice, me);
}

template <int kWidth, bool kReverse>
cudaError_t sweep(const KeyStates& p, cudaStream_t stream) {
  const int keys = padded_keys(p.K);
  const int64_t heads = p.sequences.count * p.H, blocks = heads * (keys / kSlice);
  if (p.parts > 1 && p.decays) {
    cudaError_t error = launch(
        states_kernel<kWidth, kReverse, true>,
        blocks * (p.parts - 1),
        kStateThreads,
        sizeof(Memory<kWidth>),
        stream,
        p
    );
    if (error != cudaSuccess) return error;
    error = join_parts(p.ends, p.decays, p.parts, heads * keys * kWidth, kWidth, stream);
    if (error != cudaSuccess) return error;
  }
  return launch(
      states_kernel<kWidth, kReverse, false>,
      blocks * p.parts,
      kStateThreads,
      sizeof(Memory<kWidth>),
      stream,
      p
  );
}

}  // namespace

int key_state_parts(const KeyStates& p) {
  if (p.sequences.starts) return 1;
  const int64_t blocks = p.sequences.count * p.H * (padded_keys(p.K) / kSlice);
  return time_parts(blocks, 2 * processors(), (p.sequences.T + kChunk - 1) / kChunk);
}

cudaError_t key_states(const KeyStates& p, cudaStream_t stream) {
  if (p.reverse) return p.V <= 64 ? sweep<64, true>(p, stream) : sweep<128, true>(p, stream);
  return p.V <= 64 ? sweep<64, false>(p, stream) : sweep<128, false>(p, stream);
}

}  // namespace horner::cuda
