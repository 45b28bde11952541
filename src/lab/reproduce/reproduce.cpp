#include "lab/reproduce/reproduce.h"

#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/commit.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/nearest.h"
#include "lab/reproduce/plan.h"

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
  std::vector<const Claim*> list;
  std::vector<std::string> known;
  for (const Paper* paper : papers) {
    for (const Claim& claim : paper->claims) {
      known.push_back(claim.name);
      if (names.empty() || std::find(names.begin(), names.end(), claim.name) != names.end())
        list.push_back(&claim);
    }
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError("{}", unknown("claim", name, known));
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

// A row per arm, or the rows that `measure` computes from the trained arms.
void judge_claim(const Claim& claim, const Plan& plan, Finding& finding) {
  Trial trial{finding.scale == "gpu" ? Effort::gpu : Effort::cpu, plan.seeds(claim), {}};
  std::vector<ArmScores> rows;
  std::string failure;
  for (const Arm& arm : plan.arms(claim)) {
    ArmScores row{arm.label};
    const double rate = plan.rate(claim, arm);
    row.lr = rate * arm.options.optim.lr;
    row.lr_note = plan.rate_note(claim, rate);
    for (int64_t seed = 0; seed < trial.seeds; ++seed) {
      const RunOutcome& run = plan.outcome(claim, arm, seed);
      if (!run.failure.empty()) {
        row.failure = failure = run.failure;
        row.scores.push_back(NAN);
        continue;
      }
      if (claim.measure == nullptr)
        row.scores.push_back(gain(run.result, ScoreName::parse(claim.score)));
      row.parameters = double(run.result.parameters);
      if (causal(run.result.options)) row.state_bytes = double(run.result.state_bytes);
      row.seconds += run.result.seconds;
      trial.folders[arm.label].push_back(run.result.folder);
      const std::string env = run.result.folder + "/env.json";
      const Json where = parse_json(read_file(env), env);
      add_distinct(
          finding.device,
          fmt::format(
              "{}, {}", where.at("device").get<std::string>(), run.result.options.train.precision
          )
      );
      add_distinct(finding.commit, where.at("commit"));
      finding.data = describe_data(where.value("sources", Json()));
    }
    finding.seconds += row.seconds;
    rows.push_back(row);
  }
  if (claim.measure == nullptr || !failure.empty()) {
    finding.rows = rows;
  } else {
    const auto start = std::chrono::steady_clock::now();
    claim.measure(trial, finding);
    const auto took = std::chrono::steady_clock::now() - start;
    finding.seconds += std::chrono::duration<double>(took).count();
  }
  if (claim.measure != nullptr && !failure.empty()) return;  // its rows are not those of the arms
  for (const Expectation& e : claim.expects)
    finding.judgements.push_back(judge(e, finding.rows, claim.measure != nullptr));
  finding.verdict = overall(finding.judgements);
}

}  // namespace

std::vector<Reproduction> reproduce(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& o,
    const std::string& program,
    const RunsTell& tell
) {
  HORNER_CHECK(
      o.seeds >= 0 && o.steps >= 0 && o.jobs >= 1,
      "[reproduce] seeds and steps must be at least 0 and jobs at least 1, got {}, {} and {}",
      o.seeds,
      o.steps,
      o.jobs
  );
  const auto claims = chosen(papers, o.claim);
  Plan plan(claims, o);
  if (o.read) {
    plan.read();
  } else {
    find_device(device_of(o));  // or says that there is none
    plan.run(program, tell);
  }
  std::vector<Reproduction> all;
  for (const Paper* paper : papers) {
    all.push_back({paper, {}});
    for (const Claim& claim : paper->claims) {
      if (std::find(claims.begin(), claims.end(), &claim) == claims.end()) continue;
      Finding finding{claim.name, claim.says, claim.setting, claim.score, o.scale};
      finding.setting += plan.sizes(claim);
      judge_claim(claim, plan, finding);
      if (finding.device.empty()) finding.device = describe_device(at::kCPU);
      if (finding.commit.empty()) finding.commit = commit();
      const auto has_some = [](const ArmScores& row) { return !row.known().empty(); };
      if (o.read && std::none_of(finding.rows.begin(), finding.rows.end(), has_some)) continue;
      all.back().findings.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace horner
