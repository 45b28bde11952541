// The runs of some claims, each once.
//
//   quarter      a seed of its own (500) tries every learning rate for a quarter of the steps, if there are three or more;
//               if each
//                seed has its own best rate, every seed does
//   search       the better half of them to the end; while the best lies at the edge of the grid, one rate beyond, at most two
//   judged       all seeds with the best rate; none if an arm that must learn still guesses. A seed that chose the rate would be
//               judged by its luckiest run. --confirm takes the rates that were found before.
//   continued    arms that start with the weights of another arm
#pragma once

#include <optional>

#include "lab/reproduce/reproduce.h"
#include "train/score.h"

namespace horner {

// UsageError if one of the names is no claim of these papers.
void check_claims(const std::vector<const Paper*>& papers, const std::vector<std::string>& names);
// Whether it is one of them, "orders" or "taylor/orders"; no names: every claim is.
bool is_named(const Paper&, const Claim&, const std::vector<std::string>& names);

std::string device_of(const ReproduceOptions& options);  // "cpu", "cuda" or "cuda:N"

// Losses and bits are negated, so that more is better. RunError if the run has no such score.
double gain(const TrainResult& result, const ScoreName& name);

class Plan {
 public:
  static constexpr int64_t kSearch = -1;  // the seed that chooses rates, in the place of 0, 1, ..

  Plan(const std::vector<const Claim*>& claims, const ReproduceOptions& o);

  int64_t first_seed(const Claim& claim) const {
    return claim.first_seed + (o_.confirm ? 1000 : 0);
  }
  int64_t seeds(const Claim& claim) const;  // so far
  // Takes the seeds of the next look; false: there is none.
  bool look_again(const Claim& claim);
  std::vector<Arm> arms(const Claim& claim) const;

  void run(const std::string& program, const RunsTell& tell);
  void read();  // runs nothing: takes the runs that have finished
  bool all_finished(const Claim& claim) const;
  // The first arm that still guesses at the end of the search, where a claim about the task's score would be untested; null: none.
  // Its seeds are not run. Shares of seeds that solve are asked of the seeds themselves.
  const Arm* guesses(const Claim& claim, const std::vector<Arm>& arms) const;
  double searched(const Claim& claim, const Arm& arm) const;  // its best score; NaN: there is none
  const RunOutcome& outcome(const Claim& claim, const Arm& arm, int64_t seed) const;

  double rate(const Claim& claim, const Arm& arm, int64_t seed) const;  // the best on validation
  std::string rate_note(const Claim& claim, const Arm& arm, double rate) const;  // "lowest tried"
  // "; mqar:T=128, 2 layers, D = 64, 1200 steps of 64 examples", and the learning rates.
  std::string sizes(const Claim& claim) const;

 private:
  enum Stage { quarter, search, widened, widened_again, judged, continued };
  static constexpr Stage kStages[] = {quarter, search, widened, widened_again, judged, continued};
  struct Tried {
    double rate, score;
  };

  const Json& data(const std::string& task) const;
  TrainOptions named_run(TrainOptions options, int64_t seed, int64_t steps)
      const;  // steps 0: as stated
  // The seeds whose rates are searched: all, or kSearch.
  std::vector<int64_t> searching(const Claim& claim) const;
  TrainOptions run_at(const Claim& claim, const Arm& arm, int64_t seed, double rate) const;
  TrainOptions run_of(const Claim& claim, const Arm& arm, int64_t seed) const;
  TrainOptions quarter_run(const Claim& claim, const Arm& arm, int64_t seed, double rate) const;
  std::vector<double> grid(const Claim& claim, const Arm& arm) const;
  std::vector<double> better_half(const Claim& claim, const Arm& arm, int64_t seed) const;
  std::optional<double> beyond_edge(const Claim& claim, const Arm& arm) const;
  // Rates with a result on this seed, lowest first.
  std::vector<Tried> tried(const Claim& claim, const Arm& arm, int64_t seed) const;
  std::vector<TrainOptions> runs_of(Stage stage) const;
  // Deletes what was restored without weights (record.h) if a claim reads the weights.
  void drop_restored() const;

  const std::vector<const Claim*> claims_;
  const ReproduceOptions& o_;
  std::map<const Claim*, size_t> look_;
  std::map<std::string, RunOutcome> outcomes_;
  mutable std::map<std::string, Json> data_;  // by task
};

}  // namespace horner
