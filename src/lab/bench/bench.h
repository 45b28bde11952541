// How fast the ops are on this machine: the error first, then the time, compared with the machine's limit and with other
// programs for the same function.
//
//   error    of o, every gradient and the final state against fp64, relative RMS and largest, on one batch row
//            and two heads of the shape: at most twice that of the plain form with bf16 operands, + 1e-5
//   floor    the larger of (bytes that must move) / (measured copy rate) and FLOPs / (measured matmul rate)
//   peers    softmax attention by cuDNN and flash here; flash-linear-attention in a process of its own
#pragma once

#include "core/json.h"
#include "lab/bench/timer.h"
#include "lab/verify/verify.h"
#include "ops/op.h"

namespace horner {

struct BenchOptions {
  std::vector<std::string> op, shape;
  std::string device = "auto", peers;
  int64_t repeats = 50, seed = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("op", op, "ops to time; empty: all");
    visit("shape", shape, "shapes: names (S1, P1, ..) or BxTxHxKxV; empty: each op's own");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("peers", peers, "folder with flash-linear-attention; empty: without it");
    visit("repeats", repeats, "timed calls of each; the median counts");
    visit("seed", seed, "seed of the random inputs");
  }
};

struct BenchShape {
  std::string name;
  Dims dims;
};

// What is timed: an op with a setting that changes its mathematics, or a peer's function of that name.
struct BenchRow {
  std::string program;  // horner, torch, fla
  std::string op = {}, variant = {};
  BenchShape shape = {};
  std::string form = {};                      // what ran
  int calls = 1;                              // one token: a run steps this many states,
  int tokens = 1;                             // this many tokens of each
  Times forward = {}, both = {};              // as graph replays; both: forward and backward
  Times eager_forward = {}, eager_both = {};  // as eager calls
  double floor_forward = 0, floor_both = 0;
  std::string binds = {};         // what sets the floor: bytes or flops
  double error = 0, allowed = 0;  // the error nearest to its bound
  std::string worst = {};         // the tensor with that error: dq, o, ..
  double peer_forward = 0,
         peer_both = 0;      // ms of the fastest peer of the same function, same call kind
  int64_t bytes = 0;         // peak memory of forward and backward, without the inputs
  std::string failure = {};  // why there is no time
};

struct BenchReport {
  BenchOptions options;
  std::string device;
  std::vector<std::string> versions = {};
  double copy_rate = 0, matmul_rate = 0;  // bytes/ms, FLOP/ms
  int clock_mhz = 0;
  std::string commit = {};
  std::vector<BenchRow> rows = {};
  size_t failed() const;  // rows of horner without a time
  Json json() const;
};

std::string short_device(const std::string& described);  // h200, cpu

using BenchKeep = std::function<void(const BenchReport&)>;  // called with every new row

BenchReport bench_ops(const BenchOptions&, const Tell& tell, const BenchKeep& keep);

}  // namespace horner
