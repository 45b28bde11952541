// A paper's claims as experiments: what it says, our setting, what we measured, whether it holds.
//
//   arm          a model trained on every seed, or numbers that need no training
//   expectation  a statement about one arm or two: "softmax beats linear", "order 8 is near softmax"
//   verdict      holds, does not hold, not shown, untested: protocol.h says how it is reached; measured: nothing was expected
//
// A claim holds if all its expectations hold. It does not hold if one of them does not. The scales cpu and gpu ask the same
// question of a small and of a larger model.
//
// The runs of all claims go through one pool (lab/runs.h). A run that several claims need runs once. The name of a run contains
// everything that decides its outcome, so a claim can be judged again from the folders.
#pragma once

#include "lab/exact.h"
#include "lab/reproduce/protocol.h"
#include "lab/runs.h"

namespace horner {

enum class Effort { cpu, gpu };
enum class Verdict { holds, not_shown, does_not_hold, untested, measured };
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
    // Of the share of seeds that solve the task:
    solves,      // of a > margin
    fails,       // of a < margin
    more_often,  // of a - of b > margin
    as_often,    // |of a - of b| < margin
    // Of the steps to 0.9:
    sooner,  // a before b
  };
  Kind kind;
  std::string a, b = {};  // labels of arms; b: where two are compared
  double margin = 0;
  // "softmax better than linear"; for computed rows, where more is not better: "larger than".
  std::string text(bool computed) const;
};

inline constexpr const char* kUnfinished = "has not finished";  // a run that may still finish

struct ArmScores {
  std::string arm;
  std::vector<double> scores = {};  // one per seed; NaN: there is none
  bool exact = false;               // one score, computed without chance
  double parameters = 0, state_bytes = 0, seconds = 0;
  std::string failure = {};           // why a score is missing
  double lr = 0;                      // learning rate; 0: nothing was trained
  std::string lr_note = {};           // "highest tried"
  std::vector<Reached> reached = {};  // steps to 0.9, one per seed with a score; none: not known
  std::string mixer = {};             // of a trained arm: its pattern
  std::string printed = {};           // the paper's number for it
  std::vector<double> known() const;
};

struct Finding;

// What `measure` may look at.
struct Trial {
  Effort scale;
  int64_t seeds, first_seed;
  std::map<std::string, std::vector<std::string>> folders;  // of an arm's runs, by seed
};

// A row of the table "the paper's setting | ours". A claim states the paper's; ours is read from the arms (settings_of), and is
// stated only if no arm tells it.
struct Setting {
  std::string what, paper, ours = {};
};

struct Claim {
  std::string name;     // a word: "orders"
  std::string says;     // what the paper says
  std::string setting;  // ours, in words
  std::string score;    // as in train/score.h: "test/accuracy"; of computed rows their unit
  std::vector<Expectation> expects;
  Protocol protocol = {};
  // The trainings of this claim; null if `measure` computes everything.
  std::vector<Arm> (*arms)(Effort) = nullptr;
  // Computes the rows, from nothing or from the trained arms; null: a row for each arm.
  void (*measure)(const Trial&, Finding&) = nullptr;
  std::vector<Setting> settings = {};
  // Counts up if a fault of the setting was mended. Findings of an earlier revision are withdrawn: untested, because of
  // `mended`.
  int64_t revision = 1;
  std::string mended = {};
  std::string prints = {};  // the paper's number for the claim, in a few words
  std::map<std::string, std::string> printed = {};  // its numbers for arms
  double seconds = 0;  // that `measure` takes at full scale, if it is long
  int64_t first_seed =
      0;  // 1000: its measure was chosen after a look at seeds 0, 1, .., which are never judged again
  size_t headline = 0;  // the expectation that stands for the claim in a table of all claims
  bool lower_is_better = false;  // of computed rows; else neither is
};

// The whole table of a claim. Rows that every trained claim has: task, data, model, positions, start, steps, optimiser,
// learning rates, test, seeds, and at full scale cost.
std::vector<Setting> settings_of(const Claim& claim, Effort scale);

struct Paper {
  std::string name, arxiv, title;
  std::vector<Claim> claims;
  std::string where =
      {};               // on what the claims are tested here: "models of 3 M parameters on bytes"
  bool survey = false;  // scores of every mixer; nothing is claimed
  bool against_state = false;  // its picture: scores against bytes of state
};

// THE list, in papers.cpp.
const std::vector<Paper>& papers();
const Paper& find_paper(std::string_view name);

struct Judgement {
  std::string text;  // "softmax better than linear"
  Interval value;
  Verdict verdict;
  std::string measured = {};  // in words, if it is not an interval around a mean
  std::string reason = {};    // why untested; how many seeds would decide
};

struct Finding {
  std::string claim, says, setting, score, scale = {};
  // Where its runs ran and in which precision, from which source, when it was judged.
  std::string device = {}, commit = {}, date = {};
  std::string command = {};  // that judged it, with all flags; empty: before they were recorded
  std::string data = {};     // files that its runs read: name, bytes, hash
  std::vector<ArmScores> rows = {};
  std::vector<Judgement> judgements = {};
  Verdict verdict = Verdict::not_shown;
  std::string reason = {};  // of a verdict that is untested or not shown
  double seconds = 0;       // sum over its runs
  int64_t revision = 1;     // of the claim's setting
  int64_t first_seed = 0, looks = 1;
  std::vector<Setting> settings = {};
  std::string confirmed = {};  // the verdict on fresh seeds: "holds on seeds 1000 to 1005"
  bool earlier =
      false;  // its scores are of an earlier form of the claim; `settings` are those of the next run
  std::vector<std::vector<double>> scores() const;  // of each row
  Json json() const;
  static Finding from(const Json& json);
};

struct ReproduceOptions {
  std::string scale = "cpu";
  std::vector<std::string> claim;
  int64_t seeds = 0;
  int64_t steps = 0;
  bool confirm = false;
  double minutes = 0;
  bool read = false;
  bool queue = false;
  double pool = 5;
  std::string record;
  std::string device = "auto";
  std::string runs = "runs/reproduce";
  std::string out;
  int64_t jobs = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("scale", scale, "cpu: small scale, models for a CPU; gpu: full scale", {"cpu", "gpu"});
    visit("claim", claim, "claims to test; empty: all of the papers");
    visit("seeds", seeds, "paired seeds, looked at once; 0: as the claim says");
    visit("steps", steps, "optimiser steps of every run; 0: as the claim says");
    visit("confirm", confirm, "once more on seeds that nobody has looked at, from 1000 on");
    visit("minutes", minutes, "stop after this time; the same command goes on; 0: no limit");
    visit("queue", queue, "undecided claims one after the other, the cheapest first");
    visit("pool", pool, "of a queue on a GPU: minutes of claims whose runs go together");
    visit("record", record, "of a queue: one file with the results of all finished runs");
    visit("read", read, "train nothing: judge by the runs that have finished");
    visit("device", device, "auto: cpu or cuda as the scale says, cpu, cuda or cuda:N");
    visit("runs", runs, "folder of the runs; finished ones are not run again");
    visit("out", out, "folder for PAPER.json, .md, .svg and .html; its other findings stay");
    visit("jobs", jobs, "runs at the same time; 0: one, or as many as a GPU takes");
  }
};

struct Reproduction {
  const Paper* paper;
  std::vector<Finding> findings;
  Json json() const;
  // Adds the findings of an earlier file, for other claims or the other scale, in the order of the paper. They are judged again
  // by their scores.
  void add(const Json& earlier);
  // Adds an untested finding for every claim that has none, with its settings at full scale and what a test would cost.
  void add_missing();
};

void check_options(const ReproduceOptions& options);  // UsageError if a number is out of its range

// `program` as in lab/runs.h.
std::vector<Reproduction> reproduce(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& options,
    const std::string& program,
    const RunsTell& tell
);

// A score is at least a tenth of the way from guessing to perfect.
bool has_begun(double score, double chance);
// An expectation of this arm means nothing if the arm only guesses.
bool must_learn(const std::string& arm, const Expectation&, const Protocol&);
bool of_shares(Expectation::Kind);  // of seeds that solve

// Whether rows show what was expected.
Judgement judge(
    const Expectation&,
    const std::vector<ArmScores>& rows,
    const Protocol& protocol = {},
    const ErrorShares& errors = errors_of({}, 1),
    bool computed = false
);
std::vector<Judgement> judge_all(
    const Claim&, const std::vector<ArmScores>& rows, std::string_view scale = "gpu"
);
Verdict overall(const std::vector<Judgement>&);
std::string overall_reason(const std::vector<Judgement>&);

}  // namespace horner
