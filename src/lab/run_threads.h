// Several runs in this process, each in a thread with a stream of its own on one GPU.
//
// A small model leaves most of a GPU idle between its kernels; graphs of different streams fill each other's gaps. The CUDA
// context, the libraries and the kernels are loaded once for all runs.
#pragma once

#include "lab/runs.h"

namespace horner {

// Whether the batches of a task are packed, by it or by the model: its steps run without CUDA graphs.
bool packs(const std::string& task);

// Why a run cannot be a thread beside others; empty: it can.
std::string refuses_thread(const TrainOptions& run);

// As many runs at once as one GPU has a use and memory for.
size_t runs_on_gpu(const std::vector<TrainOptions>& runs);

std::vector<RunOutcome> run_threads(
    const std::vector<const TrainOptions*>& runs,
    size_t at_once,
    const RunsTell& tell,
    const RunsTick& tick
);

}  // namespace horner
