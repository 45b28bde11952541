#include "lab/reproduce/reproduce.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/nearest.h"
#include "core/version.h"
#include "lab/reproduce/plan.h"
#include "train/run_folder.h"

namespace horner {
namespace {

// A mixer that reads both directions has no state.
bool causal(const TrainOptions& resolved) {
  const auto& pattern = resolved.model.pattern;
  return std::none_of(pattern.begin(), pattern.end(), [](const std::string& mixer) {
    return MixerSpec::parse(mixer).find("causal") == "false";
  });
}

std::vector<const Claim*> chosen(
    const std::vector<const Paper*>& papers, const std::vector<std::string>& names
) {
  check_claims(papers, names);
  std::vector<const Claim*> list;
  for (const Paper* paper : papers) {
    for (const Claim& claim : paper->claims) {
      if (is_named(*paper, claim, names)) list.push_back(&claim);
    }
  }
  return list;
}

// "input.txt, 1115394 bytes, hash 0f3.."; for several files their number.
std::string describe_data(const Json& sources) {
  if (!sources.is_array() || sources.empty()) return "";
  int64_t bytes = 0;
  std::string hashes;
  for (const Json& file : sources) {
    bytes += file.at("bytes").get<int64_t>();
    hashes += file.value("hash", file.value("xxh128", ""));  // of images, of text
  }
  const std::string path = sources[0].at("path");
  return fmt::format(
      "{}, {} bytes, hash {}",
      sources.size() == 1 ? std::filesystem::path(path).filename().string()
                          : fmt::format("{} files", sources.size()),
      bytes,
      xxh128(hashes).substr(0, 12)
  );
}

// "a", then "a; b": if the runs of a claim differ, all values are listed.
void add_distinct(std::string& list, const std::string& text) {
  if (("; " + list + "; ").find("; " + text + "; ") == std::string::npos)
    list += (list.empty() ? "" : "; ") + text;
}

// The first validation that was good enough, otherwise the last step.
Reached reached(const TrainResult& result) {
  for (const TrainResult::Point& p : result.curve) {
    if (p.valid >= kSteps) return {p.step, true};
  }
  return {result.steps, false};
}

// Calls `measure`. Returns why it failed, so that the other claims of a pool still get their findings; empty: it did not.
std::string measured(const Claim& claim, const Trial& trial, Finding& finding) {
  const auto start = std::chrono::steady_clock::now();
  try {
    claim.measure(trial, finding);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  const auto took = std::chrono::steady_clock::now() - start;
  finding.seconds += std::chrono::duration<double>(took).count();
  return "";
}

// Adds the score of a run. False: it has none, and the row says why.
bool add_score(const Claim& claim, const RunOutcome& run, ArmScores& row) {
  std::string failure = run.failure;
  if (failure.empty() && claim.measure == nullptr) {
    try {
      row.scores.push_back(gain(run.result, ScoreName::parse(claim.score)));
      if (run.result.curve.size() > 1) row.reached.push_back(reached(run.result));
    } catch (const RunError& error) {  // it diverged on its test, for example
      failure = error.what();
    }
  }
  if (failure.empty()) return true;
  row.failure = failure;
  row.scores.push_back(NAN);
  return false;
}

// Where the run was computed, with which program and data.
void add_origin(const TrainResult& run, Finding& finding) {
  read_from(run.folder + "/env.json", [&](const Json& where) {
    const std::string device = where.at("device");
    add_distinct(finding.device, fmt::format("{}, {}", device, run.options.train.precision));
    add_distinct(finding.commit, where.at("commit"));
    finding.data = describe_data(where.value("sources", Json()));
  });
}

ArmScores row_of(
    const Claim& claim,
    const Plan& plan,
    const Arm& arm,
    const std::vector<int64_t>& seeds,
    Trial& trial,
    Finding& finding
) {
  ArmScores row{arm.label};
  row.mixer = fmt::format("{}", fmt::join(arm.options.model.pattern, " + "));
  if (const auto found = claim.printed.find(arm.label); found != claim.printed.end())
    row.printed = found->second;
  const double rate = plan.rate(claim, arm, 0);
  row.lr = rate * arm.options.optim.lr;
  row.lr_note = plan.rate_note(claim, arm, rate);
  for (const int64_t seed : seeds) {
    const RunOutcome& run = plan.outcome(claim, arm, seed);
    if (!add_score(claim, run, row)) continue;
    row.parameters = double(run.result.parameters);
    if (causal(run.result.options)) row.state_bytes = double(run.result.state_bytes);
    row.seconds += run.result.seconds;
    trial.folders[arm.label].push_back(run.result.folder);
    add_origin(run.result, finding);
  }
  finding.seconds += row.seconds;
  return row;
}

// A row per arm, or the rows that `measure` computes from the trained arms.
void judge_claim(const Claim& claim, const Plan& plan, Finding& finding) {
  Trial trial{
      finding.scale == "gpu" ? Effort::gpu : Effort::cpu,
      plan.seeds(claim),
      plan.first_seed(claim),
      {}};
  std::vector<ArmScores> rows;
  std::string failure;
  const std::vector<Arm> arms = plan.arms(claim);
  const Arm* guessing = plan.guesses(claim, arms);  // then there is the seed of the search alone
  std::vector<int64_t> seeds{Plan::kSearch};
  if (guessing == nullptr) {
    seeds.resize(size_t(trial.seeds));
    std::iota(seeds.begin(), seeds.end(), 0);
  }
  for (const Arm& arm : arms) {
    rows.push_back(row_of(claim, plan, arm, seeds, trial, finding));
    if (!rows.back().failure.empty()) failure = rows.back().failure;
  }
  if (claim.measure != nullptr && failure.empty()) failure = measured(claim, trial, finding);
  if (claim.measure == nullptr || !failure.empty()) finding.rows = rows;
  if (claim.measure != nullptr && !failure.empty()) {  // its rows are not those of the arms
    if (finding.rows.empty()) finding.rows.push_back({claim.name});
    for (ArmScores& row : finding.rows) row.failure = failure;
    finding.verdict = Verdict::untested;
    finding.reason = failure;
    return;
  }
  if (!claim.expects.empty()) finding.judgements = judge_all(claim, finding.rows, finding.scale);
  finding.verdict = overall(finding.judgements);
  finding.reason = overall_reason(finding.judgements);
  if (guessing == nullptr) return;
  finding.verdict = Verdict::untested;
  finding.reason = fmt::format(
      "{} guesses after the search of its learning rate (at best {:.3g}), so no seed was run; it "
      "takes more steps",
      guessing->label,
      plan.searched(claim, *guessing)
  );
}

Finding find(const Claim& claim, const Plan& plan, const ReproduceOptions& o) {
  Finding f{claim.name, claim.says, claim.setting, claim.score, o.scale};
  f.setting += plan.sizes(claim);
  f.revision = claim.revision;
  f.settings = settings_of(claim, o.scale == "gpu" ? Effort::gpu : Effort::cpu);
  f.first_seed = plan.first_seed(claim);
  judge_claim(claim, plan, f);
  if (o.confirm)
    f.confirmed = fmt::format(
        "{} on seeds {} to {}", words(f.verdict), f.first_seed, f.first_seed + plan.seeds(claim) - 1
    );
  if (f.device.empty()) f.device = describe_device(at::kCPU);
  if (f.commit.empty()) f.commit = commit();
  return f;
}

// Adds seeds to the claims that are not decided, look by look. If a time limit is reached, claims keep the finding of the last
// look that was whole.
std::map<const Claim*, Finding> find_all(
    const std::vector<const Claim*>& claims,
    Plan& plan,
    const ReproduceOptions& o,
    const std::function<void()>& run
) {
  std::map<const Claim*, Finding> findings;
  std::vector<const Claim*> open = claims;
  for (int64_t look = 1; !open.empty(); ++look) {
    try {
      run();
      const EndOnInterrupt at_once(
          "horner: stopped after the runs, which the same command only reads\n"
      );
      std::vector<const Claim*> undecided;
      for (const Claim* claim : open) {
        if (look > 1 && o.read && !plan.all_finished(*claim)) continue;
        Finding finding = find(*claim, plan, o);
        findings[claim] = std::move(finding);
        findings[claim].looks = look;
        if (findings[claim].verdict == Verdict::not_shown && plan.look_again(*claim))
          undecided.push_back(claim);
      }
      open = undecided;
    } catch (const InterruptedError&) {
      if (!TimeLimit::reached()) throw;
      plan.read();
      for (const Claim* claim : open) {  // others of the same pool were cut, this one was not
        if (claim->measure != nullptr || !plan.all_finished(*claim)) continue;
        findings[claim] = find(*claim, plan, o);
        findings[claim].looks = look;
      }
      break;
    }
  }
  return findings;
}

}  // namespace

void check_claims(const std::vector<const Paper*>& papers, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Paper* paper : papers) {
    for (const Claim& claim : paper->claims) known.push_back(claim.name);
  }
  for (const std::string& name : names) {
    const bool is = std::any_of(papers.begin(), papers.end(), [&](const Paper* paper) {
      return std::any_of(paper->claims.begin(), paper->claims.end(), [&](const Claim& claim) {
        return is_named(*paper, claim, {name});
      });
    });
    if (!is) throw UsageError("{}", unknown("claim", name, known));
  }
}

bool is_named(const Paper& paper, const Claim& claim, const std::vector<std::string>& names) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return name == claim.name || name == paper.name + "/" + claim.name;
         });
}

void check_options(const ReproduceOptions& o) {
  HORNER_CHECK(
      o.seeds >= 0 && o.steps >= 0 && o.jobs >= 0,
      "[reproduce] seeds, steps and jobs must be at least 0, got {}, {} and {}",
      o.seeds,
      o.steps,
      o.jobs
  );
  HORNER_CHECK(o.seeds <= 1000, "[reproduce] seeds must be at most 1000, got {}", o.seeds);
  HORNER_CHECK(
      o.minutes >= 0 && o.minutes <= 1e6,
      "[reproduce] minutes must lie in 0 .. 1000000, got {}",
      o.minutes
  );
  HORNER_CHECK(
      o.pool >= 0 && o.pool <= 1e6, "[reproduce] pool must lie in 0 .. 1000000, got {}", o.pool
  );
}

std::vector<Reproduction> reproduce(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& o,
    const std::string& program,
    const RunsTell& tell
) {
  check_options(o);
  const auto claims = chosen(papers, o.claim);
  Plan plan(claims, o);
  if (!o.read) find_device(device_of(o));  // or says that there is none
  const auto findings = find_all(claims, plan, o, [&] {
    if (o.read) {
      plan.read();
    } else {
      plan.run(program, tell);
    }
  });
  std::vector<Reproduction> all;
  for (const Paper* paper : papers) {
    all.push_back({paper, {}});
    for (const Claim& claim : paper->claims) {
      const auto found = findings.find(&claim);
      if (found == findings.end()) continue;
      const auto has_some = [](const ArmScores& row) { return !row.known().empty(); };
      const auto& rows = found->second.rows;
      if (o.read && std::none_of(rows.begin(), rows.end(), has_some)) continue;
      all.back().findings.push_back(found->second);
    }
  }
  return all;
}

}  // namespace horner
