// Settings that the papers' experiments share. Only the mixer differs between the arms of a claim.
#pragma once

#include "lab/reproduce/reproduce.h"

namespace horner {

// Learning rates to try, relative to the arm's.
inline const std::vector<double> kRates = {1.0 / 3, 1, 3};
inline const std::vector<double> kFourRates = {
    0.1, 0.464, 2.15, 10};  // of 1e-3: logspace(-4, -2, 4)

// Grey CIFAR-10, each image in 32 copies that are moved and mirrored.
inline const std::string kPatches = "patches:augment=32";

// Seeds are added in pairs from 4 to 12.
inline const Protocol kText = {.seeds = 4, .most = 12, .rates = kRates};

// Multi-query recall of `pairs` pairs in T tokens: a causal convolution, then the mixer.
TrainOptions recall(Effort scale, const std::string& mixer, int64_t T = 128, int64_t pairs = 24);
// Multi-query recall as zoology trains it: two mixers, no convolution, tied embedding, LayerNorm, N(0, 0.02) with smaller
// outputs, vocabulary 8192, 6000 steps of 32,768 tokens at full scale. Learned positions of the model if `positions`.
TrainOptions zoology(
    Effort scale,
    const std::string& mixer,
    int64_t T = 256,
    int64_t pairs = 16,
    bool positions = false
);
// 64 tokens and 4 pairs at small scale, where the settings above take too long.
struct Recall {
  int64_t T, pairs;
};
inline Recall cheap(Effort scale, Recall gpu) { return scale == Effort::gpu ? gpu : Recall{64, 4}; }
// Language modelling on the bytes of the text that this machine has; `steps` on a CPU.
TrainOptions language(Effort scale, const std::vector<std::string>& pattern, int64_t steps = 600);
// A classifier of whole sequences, mean over tokens.
TrainOptions classify(Effort scale, const std::string& task, const std::string& mixer);
// A task of exact answers at every position, one layer, longer in the test than in training.
TrainOptions track(Effort scale, const std::string& task, const std::string& mixer, int64_t longer);

// MAD's six tasks (arXiv:2403.17844): two layers of mixer and SwiGLU, D = 128, a tenth of its steps.
inline const std::vector<std::pair<std::string, std::string>> kMadTasks = {
    {"compress", "mad_compress:T=32"},
    {"fuzzy recall", "mad_fuzzy_recall"},
    {"recall", "mad_recall"},
    {"memorise", "mad_memorise"},
    {"noisy recall", "mad_noisy_recall"},
    {"selective copy", "selective_copy:G=96,M=16,A=16"}};
TrainOptions mad(Effort scale, const std::string& task, const std::string& mixer);
// Some of the tasks with every mixer: "recall, GLA".
std::vector<Arm> mad_table(
    Effort scale,
    const std::vector<std::pair<std::string, std::string>>& mixers,
    const std::vector<std::string>& tasks
);
std::vector<Setting> mad_settings();

Paper taylor_paper();
Paper dsf_paper();
Paper inline_paper();
Paper metala_paper();
Paper luna_paper();
Paper swax_paper();
Paper selective_rope_paper();
Paper two_mamba_paper();
Paper measure_paper();

// Not papers but pages: every mixer on the same tasks.
Paper mad_survey();
Paper recall_survey();
Paper tracking_survey();

}  // namespace horner
