#include "lab/reproduce/papers/papers.h"

#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"

namespace horner {

TrainOptions recall(Effort scale, const std::string& mixer, int64_t T, int64_t pairs) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o;
  o.task = fmt::format("mqar:T={},pairs={},vocabulary={}", T, pairs, gpu ? 1024 : 2 * T);
  o.model.pattern = {"conv:kind=dense", mixer};
  o.model.init = "torch";
  o.optim.beta2 = 0.999;
  o.optim.clip = 0;
  o.model.layers = 2;
  o.model.D = gpu ? 128 : 64;
  o.model.mlp = "none";
  o.optim.lr = gpu ? 2e-3 : 5e-3;
  o.schedule.steps = gpu ? 2000 : 1600;  // SSD begins to recall after 500
  o.train.batch = gpu ? 128 : 64;
  o.train.target = 0.995;
  o.eval.every = gpu ? 250 : 100;
  return o;
}

TrainOptions zoology(
    Effort scale, const std::string& mixer, int64_t T, int64_t pairs, bool positions
) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o;
  o.task = fmt::format("mqar:T={},pairs={},vocabulary={}", T, pairs, gpu ? 8192 : 4 * T);
  o.model.pattern = {mixer};
  o.model.init = "gpt2";
  o.model.norm = "layer";
  o.model.tied = true;
  o.model.layers = 2;
  o.model.D = gpu ? 128 : 64;
  o.model.mlp = "none";
  if (positions) o.model.positions = T;
  o.optim.lr = 1e-3;
  o.optim.beta2 = 0.999;
  o.optim.clip = 0;
  o.schedule.steps = gpu ? 6000 : 2000;
  o.schedule.warmup = o.schedule.steps / 20;
  o.train.batch = gpu ? 32768 / T : 64;  // as dsf-mqar: 512 of 64 tokens, .., 64 of 512
  o.train.target = 0.995;
  o.eval.every = gpu ? 500 : 200;
  return o;
}

TrainOptions language(Effort scale, const std::vector<std::string>& pattern, int64_t steps) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o;
  o.task = fmt::format("byte:T={}", gpu ? 512 : 128);
  o.model.pattern = pattern;
  o.model.layers = gpu ? 4 : 2;
  o.model.D = gpu ? 256 : 64;
  o.optim.lr = gpu ? 2e-3 : 3e-3;
  o.schedule.steps = gpu ? 1000 : steps;
  o.schedule.warmup = o.schedule.steps / 20;
  o.schedule.final_lr = 0.1;
  o.train.batch = gpu ? 32 : 16;
  o.eval.every = 0;
  o.eval.examples = 400;
  return o;
}

TrainOptions classify(Effort scale, const std::string& task, const std::string& mixer) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o;
  o.task = task;
  o.model.pattern = {mixer};
  o.model.layers = gpu ? 4 : 2;
  o.model.D = gpu ? 128 : 64;
  o.optim.lr = gpu ? 1e-3 : 2.5e-3;
  o.optim.weight_decay = 0.05;
  o.schedule.steps = 2000;
  o.schedule.warmup = o.schedule.steps / 20;
  o.train.batch = gpu ? 128 : 32;
  o.eval.every = 0;
  o.eval.examples = gpu ? 5000 : 2000;
  return o;
}

TrainOptions track(
    Effort scale, const std::string& task, const std::string& mixer, int64_t longer
) {
  TrainOptions o;
  o.task = task;
  o.model.pattern = {mixer};
  o.model.layers = 1;
  o.model.D = 64;
  o.optim.lr = 2e-3;
  o.optim.weight_decay = 0;
  o.schedule.steps = scale == Effort::gpu ? 3000 : 1500;
  o.schedule.warmup = o.schedule.steps / 20;
  o.train.batch = scale == Effort::gpu ? 256 : 32;
  o.train.target = 0.999;
  o.eval.every = o.schedule.steps / 10;
  o.eval.examples = 500;
  o.eval.batch = 250;
  o.eval.lengths = {longer};
  return o;
}

TrainOptions mad(Effort scale, const std::string& task, const std::string& mixer) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o;
  o.task = task;
  o.model.pattern = {mixer};
  o.model.layers = 2;
  o.model.D = gpu ? 128 : 64;
  o.optim.lr = gpu ? 1.5e-3 : 5e-4;  // a tenth of the paper's steps
  o.optim.beta2 = 0.98;
  o.schedule.steps = gpu ? 2000 : 300;
  o.schedule.warmup = o.schedule.steps / 20;
  o.train.batch = gpu ? 128 : 32;
  o.eval.every = 0;
  o.eval.examples = 1280;
  return o;
}

std::vector<Arm> mad_table(
    Effort scale,
    const std::vector<std::pair<std::string, std::string>>& mixers,
    const std::vector<std::string>& tasks
) {
  std::vector<Arm> arms;
  for (const auto& [name, task] : kMadTasks) {
    if (std::find(tasks.begin(), tasks.end(), name) == tasks.end()) continue;
    for (const auto& [label, mixer] : mixers)
      arms.push_back({fmt::format("{}, {}", name, label), mad(scale, task, mixer)});
  }
  return arms;
}

std::vector<Setting> mad_settings() {
  return {
      {"task", "vocabulary 16 and more, T 32 to 1024"},
      {"data", "12,800 examples, 200 epochs"},
      {"model", "2 layers of mixer and SwiGLU, D = 128"},
      {"steps", "200 epochs of 128, cosine"},
      {"learning rates", "1e-4, 5e-4, 1e-3, with weight decay 0 and 0.1"},
      {"seeds", "1"}};
}

const std::vector<Paper>& papers() {
  static const std::vector<Paper> list = {
      taylor_paper(),
      dsf_paper(),
      inline_paper(),
      metala_paper(),
      luna_paper(),
      swax_paper(),
      selective_rope_paper(),
      two_mamba_paper(),
      measure_paper(),
      mad_survey(),
      recall_survey(),
      tracking_survey(),
  };
  return list;
}

const Paper& find_paper(std::string_view name) {
  std::vector<std::string> names;
  for (const Paper& paper : papers()) {
    if (paper.name == name) return paper;
    names.push_back(paper.name);
  }
  throw UsageError("{}", unknown("paper", name, names));
}

}  // namespace horner
