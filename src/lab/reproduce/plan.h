// The runs of some claims, each once, in three stages. First seed 0 tries the learning rates, if there are several. Then the
// other seeds run. Last come the arms that start with the weights of another arm.
#pragma once

#include "lab/reproduce/reproduce.h"
#include "train/score.h"

namespace horner {

std::string device_of(const ReproduceOptions& options);  // "cpu", "cuda" or "cuda:N"

// Losses and bits are negated, so that more is better. RunError if the run has no such score.
double gain(const TrainResult& result, const ScoreName& name);

class Plan {
 public:
  Plan(const std::vector<const Claim*>& claims, const ReproduceOptions& o)
      : claims_(claims), o_(o) {}
  int64_t seeds(const Claim& claim) const { return o_.seeds > 0 ? o_.seeds : claim.seeds; }
  std::vector<Arm> arms(const Claim& claim) const;

  void run(const std::string& program, const RunsTell& tell);
  void read();  // runs nothing: takes the runs that have finished
  const RunOutcome& outcome(const Claim& claim, const Arm& arm, int64_t seed) const;

  // The best of the claim's rates, by the validation of the first seed.
  double rate(const Claim& claim, const Arm& arm) const;
  std::string rate_note(const Claim& claim, double rate) const;  // "lowest tried", "highest tried"
  // "; mqar:T=128, 2 layers, D = 64, 1200 steps of 64 examples", and the learning rates.
  std::string sizes(const Claim& claim) const;

 private:
  enum Stage { first_seed, other_seeds, continued };
  static constexpr Stage kStages[] = {first_seed, other_seeds, continued};

  TrainOptions run_at(const Claim& claim, const Arm& arm, int64_t seed, double rate) const;
  TrainOptions run_of(const Claim& claim, const Arm& arm, int64_t seed) const;
  std::vector<TrainOptions> runs_of(Stage stage) const;

  const std::vector<const Claim*> claims_;
  const ReproduceOptions& o_;
  std::map<std::string, RunOutcome> outcomes_;
};

}  // namespace horner
