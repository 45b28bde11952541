// A paper's claims as experiments: what it says, our setting, what we measured, whether it holds.
//
//   arm          a model trained on every seed, or numbers that need no training
//   expectation  a statement about one arm or two: "softmax beats linear", "order 8 is near softmax"
//   verdict      holds          the 95 % interval over seeds lies on the claimed side
//                does not hold  it lies on the other side
//                not shown      it covers both
//
// A claim holds if all its expectations hold. It does not hold if one of them does not. The scales cpu and gpu ask the same
// question of a small and of a larger model.
//
// The runs of all claims go through one pool (lab/runs.h). A run that several claims need runs once. The name of a run contains
// everything that decides its outcome, so a claim can be judged again from the folders.
#pragma once

#include "lab/runs.h"
#include "lab/statistics.h"

namespace horner {

enum class Effort { cpu, gpu };
enum class Verdict { holds, not_shown, does_not_hold };
std::string_view words(Verdict);

struct Arm {
  std::string label;
  TrainOptions options;
  std::string after = {};  // label of the arm whose trained weights this arm starts with
};

// Higher scores are better; a loss is negated.
struct Expectation {
  enum Kind {
    above,    // a - b > margin
    near,     // |a - b| < margin
    reaches,  // a > margin
    under,    // a < margin
  };
  Kind kind;
  std::string a, b;  // labels of arms; b: of above and near
  double margin = 0;
  // "softmax better than linear"; for computed rows, where more is not better: "larger than".
  std::string text(bool computed) const;
};

struct ArmScores {
  std::string arm;
  std::vector<double> scores = {};  // one per seed; NaN: there is none
  bool exact = false;               // one score, computed without chance
  double parameters = 0, state_bytes = 0, seconds = 0;
  std::string failure = {};  // why a score is missing
  double lr = 0;             // learning rate; 0: nothing was trained
  std::string lr_note = {};  // "highest tried"
  std::vector<double> known() const;
};

struct Finding;

// What `measure` may look at.
struct Trial {
  Effort scale;
  int64_t seeds;
  std::map<std::string, std::vector<std::string>> folders;  // of an arm's runs, by seed
};

struct Claim {
  std::string name;     // a word: "orders"
  std::string says;     // what the paper says
  std::string setting;  // ours, in words
  std::string score;    // as in train/score.h: "test/accuracy"; of computed rows their unit
  std::vector<Expectation> expects;
  int64_t seeds = 3;
  // The trainings of this claim; null if `measure` computes everything.
  std::vector<Arm> (*arms)(Effort) = nullptr;
  // Computes the rows, from nothing or from the trained arms; null: a row for each arm.
  void (*measure)(const Trial&, Finding&) = nullptr;
  // Learning rates to try, relative to the arm's own. The best one on the validation of the first
  // seed is used for all seeds.
  std::vector<double> rates = {};
};

struct Paper {
  std::string name, arxiv, title;
  std::vector<Claim> claims;
};

// THE list, in papers.cpp.
const std::vector<Paper>& papers();
const Paper& find_paper(std::string_view name);

struct Judgement {
  std::string text;  // "softmax better than linear"
  Interval value;
  Verdict verdict;
};

struct Finding {
  std::string claim, says, setting, score, scale = {};
  // Where its runs ran and in which precision, from which source, when it was judged.
  std::string device = {}, commit = {}, date = {};
  std::string data = {};  // files that its runs read: name, bytes, hash
  std::vector<ArmScores> rows = {};
  std::vector<Judgement> judgements = {};
  Verdict verdict = Verdict::not_shown;
  double seconds = 0;  // sum over its runs
  Json json() const;
  static Finding from(const Json& json);
};

struct ReproduceOptions {
  std::string scale = "cpu";
  std::vector<std::string> claim;
  int64_t seeds = 0;
  int64_t steps = 0;
  bool read = false;
  std::string device = "auto";
  std::string runs = "runs/reproduce";
  std::string out;
  int64_t jobs = 1;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("scale", scale, "small models on a CPU, or larger ones on a GPU", {"cpu", "gpu"});
    visit("claim", claim, "claims to test; empty: all of the papers");
    visit("seeds", seeds, "paired seeds; 0: as the claim says");
    visit("steps", steps, "optimiser steps of every run; 0: as the claim says");
    visit("read", read, "train nothing: judge by the runs that have finished");
    visit("device", device, "auto: cpu or cuda as the scale says, cpu, cuda or cuda:N");
    visit("runs", runs, "folder of the runs; finished ones are not run again");
    visit("out", out, "folder for PAPER.json, .md, .svg and .html; its other findings stay");
    visit("jobs", jobs, "runs at the same time");
  }
};

struct Reproduction {
  const Paper* paper;
  std::vector<Finding> findings;
  Json json() const;
  // Adds the findings of an earlier file, for other claims or the other scale, in the order of the paper. They are judged again
  // by their scores.
  void add(const Json& earlier);
};

// `program` as in lab/runs.h.
std::vector<Reproduction> reproduce(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& options,
    const std::string& program,
    const RunsTell& tell
);

// Whether rows show what was expected.
Judgement judge(const Expectation&, const std::vector<ArmScores>& rows, bool computed = false);
Verdict overall(const std::vector<Judgement>&);

}  // namespace horner
