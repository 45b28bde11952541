// `linear` with a decay per key: the states between chunks (per_key.cuh).
#include <algorithm>

#include "cuda/launch.cuh"
#include "ops/linear/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kStages = 3;

// Shared memory of one chunk: x and g of 32 keys, y of all columns.
template <int kWidth>
struct Stage {
  unsigned char y[kWidth / 64][kTileBytes];
  unsigned char g[64 * kSlice * 4];  // (64,32) fp32 or bf16
  unsigned char x[64 * kSlice * 2];  // (64,32) bf16
};
template <int kWidth>
struct Memory {
  Stage<kWidth> stage[kStages];
  unsigned char weighed[64 * kSlice * 2];  // x times its factors, swizzled
  unsigned char out[kSlice * kWidth * 2];  // the state on its way out; a warp's columns are its own
  float totals[2][kWarps][kSlice];
  float kept[2][kSlice];
};

__device__ uint32_t weighed_offset(int row, int unit) {
  return uint32_t(row * 64 + ((unit ^ (row >> 1 & 3)) << 4));
}

template <int kWidth>
__device__ void load_stage(
    Stage<kWidth>& s, const KeyStates& p, const Chunk& c, const Heads& h, int slice, const Place& me
) {
  load_tokens<kWidth>(shared_address(s.y), p.y, c, h, p.V, me);
  const int units = p.narrow_g ? 4 : 8, keys = p.narrow_g ? 8 : 4, size = p.narrow_g ? 2 : 4;
  const unsigned char* g = static_cast<const unsigned char*>(p.g.data) +
                           (c.b * p.g.b + c.first * p.g.t + h.of(p.g) * p.g.h) * size;
  for (int e = me.thread; e < 64 * units; e += kThreads) {
    const int row = e / units, key = kSlice * slice + e % units * keys;
    const bool valid = row < c.rows && key < p.K;
    copy_async(shared_address(s.g) + 16 * e, valid ? g + (row * p.g.t + key) * size : g, valid);
  }
  const __nv_bfloat16* x = at<__nv_bfloat16>(p.x, c, h);
  for (int e = me.thread; e < 64 * 4; e += kThreads) {
    const int row = e / 4, key = kSlice * slice + e % 4 * 8;
    const bool valid = row < c.rows && key < p.K;
    copy_async(shared_address(s.x) + 16 * e, valid ? x + row * p.x.t + key : x, valid);
  }
}

// Elements of the state: f(element, key in the slice, column).
template <int kTiles, class F>
__device__ void for_state(float (&S)[2][kTiles][4], const Place& me, F&& f) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        f(S[m][n][e], 16 * m + me.r + 8 * (e / 2), 8 * (kTiles * me.warp + n) + 2 * me.i + e % 2);
      }
    }
  }
}

// The bf16 state to memory: rows of 8 kTiles columns of each warp.
template <int kTiles, int kWidth>
__device__ void store_state(
    const float (&S)[2][kTiles][4], unsigned char* staged, unsigned char* to, const Place& me
) {
  unsigned char* own = staged + me.warp * kSlice * kTiles * 16;
  const auto offset = [](int key, int unit) {
    return (key * kTiles + (unit ^ (key / (8 / kTiles) % kTiles))) * 16;
  };
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<uint32_t*>(own + offset(16 * m + me.r + 8 * h, n) + 4 * me.i) =
            pack(S[m][n][2 * h], S[m][n][2 * h + 1]);
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int e = 32 * n + me.lane, key = e / kTiles, unit = e % kTiles;
    *reinterpret_cast<uint4*>(to + (key * (kWidth / 8) + kTiles * me.warp + unit) * 16) =
        *reinterpret_cast<const uint4*>(own + offset(key, unit));
  }
  __syncwarp();
}

// Factors of 16 tokens of one key, a thread's share: e^{G_C-G}, in reverse e^G. Leaves what the whole chunk keeps.
template <int kWidth>
__device__ void weigh(
    Memory<kWidth>& m, const Stage<kWidth>& s, int i, bool reverse, bool narrow_g, const Place& me
) {
  float sums[16], sum = 0.f;
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const int row = 16 * me.warp + n, e = row * kSlice + me.lane;
    const float g = narrow_g ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(s.g)[e])
                             : reinterpret_cast<const float*>(s.g)[e];
    sums[n] = sum += log2_decay(g);
  }
  m.totals[i & 1][me.warp][me.lane] = sum;
  __syncthreads();
  float others = 0.f, all = 0.f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float total = m.totals[i & 1][w][me.lane];
    all += total;
    if (reverse ? w < me.warp : w > me.warp) others += total;
  }
  if (me.warp == 0) m.kept[i & 1][me.lane] = all;
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const int row = 16 * me.warp + n, e = row * kSlice + me.lane;
    const float factor = exp2_fast(others + (reverse ? sums[n] : sum - sums[n]));
    const float x = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(s.x)[e]);
    *reinterpret_cast<__nv_bfloat16*>(
        m.weighed + weighed_offset(row, me.lane / 8) + 2 * (me.lane % 8)
    ) = __float2bfloat16(x * factor);
  }
  __syncthreads();
}

// A block owns 32 keys and all columns of the state of one (sequence, head), and walks over its chunks; with
// parts, over those of one part: kEnds leaves its end state alone. A warp owns a quarter of the columns, in
// registers.
template <int kWidth, bool kEnds>
__global__ void __launch_bounds__(kThreads, 2) states_kernel(const __grid_constant__ KeyStates p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kWidth>& m = *reinterpret_cast<Memory<kWidth>*>(memory);
  constexpr int kTiles = kWidth / 32;
  const Place me(int(threadIdx.x));
  const int slices = (p.K + kSlice - 1) / kSlice, keys = slices * kSlice;
  const unsigned index_of = blockIdx.x / unsigned(slices);
  const int slice = int(blockIdx.x % unsigned(slices)), part = int(index_of % unsigned(p.parts));
  const unsigned head = index_of / unsigned(p.parts);
  const int64_t n = head / unsigned(p.H);
  const int h = int(head % unsigned(p.H));
  const Heads heads(h, p.g.group);
  const Span span = span_at(p.sequences, n);
  const int all = int((span.tokens + kChunk - 1) / kChunk), each = (all + p.parts - 1) / p.parts;
  const int begin = min(all, part * each), chunks = min(all, begin + each) - begin;
  const auto index = [&](int i) { return p.reverse ? all - 1 - begin - i : begin + i; };
  const int64_t slot = (part * p.sequences.count + n) * p.H + h;  // among the parts

  float S[2][kTiles][4] = {};
  if (part > 0 && !kEnds) {
    const float* from = p.ends + (slot * keys + kSlice * slice) * kWidth;
    for_state<kTiles>(S, me, [&](float& x, int key, int c) { x = from[key * kWidth + c]; });
  }
  const StateView& f = p.first;
  if (part == 0 && f.data &&
      !(p.reverse && h % f.group != 0)) {  // a gradient counts once per state
    const float factor = p.reverse ? 1.f / float(p.scale) : 1.f;
    const float* from = static_cast<const float*>(f.data) + n * f.b + (h / f.group) * f.h;
    for_state<kTiles>(S, me, [&](float& x, int key, int c) {
      key += kSlice * slice;
      if (key < p.K && c < p.V) x = from[key * f.r + c * f.n] * factor;
    });
  }
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < chunks) load_stage(m.stage[i], p, chunk_at(span, index(i)), heads, slice, me);
    copy_commit();
  }
  float decayed = 0.f;  // of key `lane`, over the part
  for (int i = 0; i < chunks; ++i) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const int ahead = i + kStages - 1;
    if (ahead < chunks)
      load_stage(m.stage[ahead % kStages], p, chunk_at(span, index(ahead)), heads, slice, me);
    copy_commit();
    if (!kEnds) {
      unsigned char* to = static_cast<unsigned char*>(p.states) +
                          (((span.slot + index(i)) * p.H + h) * keys + kSlice * slice) * kWidth * 2;
      store_state<kTiles, kWidth>(S, m.out, to, me);
    }
    const Stage<kWidth>& s = m.stage[i % kStages];
    weigh(m, s, i, p.reverse, p.narrow_g, me);
    decayed += m.kept[i & 1][me.lane];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float kept = exp2_fast(m.kept[i & 1][8 * e + me.r]);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        S[e / 2][t][2 * (e % 2)] *= kept;
        S[e / 2][t][2 * (e % 2) + 1] *= kept;
      }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {  // S += x^T y over 16 tokens
      uint32_t a[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * step + 8 * (me.lane / 16) + me.lane % 8;
        load_matrices_transposed(
            a[half], shared_address(m.weighed) + weighed_offset(row, 2 * half + me.lane / 8 % 2)
        );
      }
#pragma unroll
      for (int t = 0; t < kTiles; t += 2) {
        uint32_t b[4];
        const int unit = kTiles * me.warp + t + me.lane / 16;
        load_matrices_transposed(
            b, shared_address(s.y[unit / 8]) + tile_offset(16 * step + me.lane % 16, unit % 8)
        );
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          multiply(S[half][t], a[half], b[0], b[1]);
          multiply(S[half][t + 1], a[half], b[2], b[3]);
        }
      }
    }
  }
  if (kEnds) {
    float* to = p.ends + (slot * keys + kSlice * slice) * kWidth;
    for_state<kTiles>(S, me, [&](float x, int key, int c) { to[key * kWidth + c] = x; });
    if (me.warp == 0) p.decays[slot * keys + kSlice * slice + me.lane] = decayed;
    return;
  }
  const StateView& l = p.last;
  if (l.data && part == p.parts - 1 && h % l.group == 0) {
    const float factor = p.reverse ? float(p.scale) : 1.f;
    float* to = static_cast<float*>(l.data) + n * l.b + (h / l.group) * l.h;
    for_state<kTiles>(S, me, [&](float x, int key, int c) {
      key += kSlice * slice;
      if (key < p.K && c < p.V) to[key * l.r + c * l.n] = x * factor;
    });
  }
}

// The state that enters each part, in the place of the one that the part alone ends with. A thread has one
// element of the state. Part 0 began with the first state.
__global__ void join_kernel(const __grid_constant__ KeyStates p, int64_t keys, int64_t width) {
  const int64_t heads = p.sequences.count * p.H, size = heads * keys * width;
  const int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= size) return;
  float S = p.ends[e];
  for (int part = 1; part < p.parts; ++part) {
    float& end = p.ends[part * size + e];
    const float entering = S;
    S = exp2_fast(p.decays[part * heads * keys + e / width]) * S + end;
    end = entering;
  }
}

template <int kWidth>
cudaError_t sweep(const KeyStates& p, cudaStream_t stream) {
  const int keys = padded_keys(p.K);
  const int64_t heads = p.sequences.count * p.H, blocks = heads * p.parts * (keys / kSlice);
  if (p.parts > 1) {
    const int64_t size = heads * keys * kWidth;
    cudaError_t error =
        launch(states_kernel<kWidth, true>, blocks, kThreads, sizeof(Memory<kWidth>), stream, p);
    if (error != cudaSuccess) return error;
    error = launch(
        join_kernel, (size + 255) / 256, 256, size_t(0), stream, p, int64_t(keys), int64_t(kWidth)
    );
    if (error != cudaSuccess) return error;
  }
  return launch(states_kernel<kWidth, false>, blocks, kThreads, sizeof(Memory<kWidth>), stream, p);
}

}  // namespace

// Two blocks on each of about 132 multiprocessors; no part under 16 chunks. A function of the shape alone.
int key_state_parts(const KeyStates& p) {
  const int64_t blocks = p.sequences.count * p.H * (padded_keys(p.K) / kSlice);
  const int64_t chunks = (p.sequences.T + kChunk - 1) / kChunk;
  if (p.sequences.starts || blocks >= 132 || chunks < 32) return 1;
  return int(std::min(264 / blocks, chunks / 16));
}

cudaError_t key_states(const KeyStates& p, cudaStream_t stream) {
  return p.V <= 64 ? sweep<64>(p, stream) : sweep<128>(p, stream);
}

}  // namespace horner::cuda
