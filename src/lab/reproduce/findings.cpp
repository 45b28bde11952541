// Findings to and from JSON.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/number.h"
#include "lab/reproduce/budget.h"

namespace horner {
namespace {

Verdict verdict_from(const std::string& text) {
  for (const Verdict verdict :
       {Verdict::holds,
        Verdict::not_shown,
        Verdict::does_not_hold,
        Verdict::untested,
        Verdict::measured}) {
    if (words(verdict) == text) return verdict;
  }
  throw DataError("there is no verdict {}", text);
}

Json reached_json(const std::vector<Reached>& seeds) {
  Json list = Json::array();
  for (const Reached& seed : seeds) list.push_back({seed.step, seed.solved});
  return list;
}

std::string printed_for(const Claim& claim, const std::string& arm) {
  const auto found = claim.printed.find(arm);
  return found == claim.printed.end() ? "" : found->second;
}

// Whether it has a row for every arm that the claim expects something of.
bool answers(const Finding& f, const Claim& claim) {
  const auto has = [&](const std::string& arm) {
    return arm.empty() || std::any_of(f.rows.begin(), f.rows.end(), [&](const ArmScores& row) {
             return row.arm == arm;
           });
  };
  return std::all_of(claim.expects.begin(), claim.expects.end(), [&](const Expectation& e) {
    return has(e.a) && has(e.b);
  });
}

// Judges an earlier finding again: its scores, with the claim as it is worded now. If the setting was mended since, its scores
// say nothing about the claim: it is withdrawn.
Finding judged_again(Finding f, const Paper& paper) {
  for (const Claim& claim : paper.claims) {
    if (claim.name != f.claim) continue;
    const bool answered = answers(f, claim);
    const bool failed = std::any_of(f.rows.begin(), f.rows.end(), [](const ArmScores& row) {
      return !row.failure.empty();  // of a claim that measures: it has no rows of its own then
    });
    f.earlier = f.revision < claim.revision || (!answered && !failed);
    if (f.earlier && claim.arms != nullptr)
      f.settings = settings_of(claim, f.scale == "gpu" ? Effort::gpu : Effort::cpu);
    for (ArmScores& row : f.rows) row.printed = printed_for(claim, row.arm);
    if (f.revision < claim.revision) {
      f.says = claim.says;
      f.verdict = Verdict::untested;
      f.reason = "withdrawn, not yet run again: " + claim.mended;
      f.judgements.clear();
      f.confirmed.clear();
      return f;
    }
    if (claim.expects.empty() || !answered) continue;
    f.says = claim.says;
    f.score = claim.score;
    f.judgements = judge_all(claim, f.rows, f.scale);
    f.verdict = overall(f.judgements);
    f.reason = overall_reason(f.judgements);
  }
  return f;
}

// By claim, then full scale before small; findings of other claims are dropped.
void in_order(const Paper& paper, std::vector<Finding>& findings) {
  std::vector<Finding> list;
  for (const Claim& claim : paper.claims) {
    for (const char* scale : {"gpu", "cpu"}) {
      for (const Finding& f : findings) {
        if (f.claim == claim.name && f.scale == scale) list.push_back(f);
      }
    }
  }
  findings = std::move(list);
}

}  // namespace

Json Finding::json() const {
  Json all_rows = Json::array(), judged = Json::array();
  for (const ArmScores& row : rows) {
    all_rows.push_back(
        {{"arm", row.arm},
         {"scores", row.scores},
         {"exact", row.exact},
         {"parameters", row.parameters},
         {"state_bytes", row.state_bytes},
         {"seconds", row.seconds},
         {"failure", row.failure},
         {"lr", row.lr},
         {"lr_note", row.lr_note},
         {"reached", reached_json(row.reached)},
         {"mixer", row.mixer},
         {"printed", row.printed}}
    );
  }
  for (const Judgement& j : judgements) {
    judged.push_back(
        {{"expects", j.text},
         {"mean", j.value.mean},
         {"half", j.value.half},
         {"n", j.value.n},
         {"verdict", words(j.verdict)},
         {"measured", j.measured},
         {"reason", j.reason}}
    );
  }
  Json table = Json::array();
  for (const Setting& s : settings) table.push_back({s.what, s.paper, s.ours});
  return {
      {"claim", claim},
      {"says", says},
      {"setting", setting},
      {"score", score},
      {"scale", scale},
      {"device", device},
      {"commit", commit},
      {"date", date},
      {"command", command},
      {"data", data},
      {"rows", all_rows},
      {"judgements", judged},
      {"verdict", words(verdict)},
      {"reason", reason},
      {"seconds", seconds},
      {"revision", revision},
      {"first_seed", first_seed},
      {"looks", looks},
      {"settings", table},
      {"confirmed", confirmed}};
}

Finding Finding::from(const Json& json) {
  Finding f{json.at("claim"), json.at("says"), json.at("setting"), json.at("score")};
  f.scale = json.at("scale");
  f.device = json.at("device");
  f.commit = json.at("commit");
  f.date = json.at("date");
  f.command = json.value("command", "");
  f.data = json.at("data");
  for (const Json& row : json.at("rows")) {
    ArmScores scores{row.at("arm")};
    for (const Json& x : row.at("scores")) scores.scores.push_back(number_or_nan(x));
    scores.exact = row.at("exact");
    scores.parameters = row.at("parameters");
    scores.state_bytes = row.at("state_bytes");
    scores.seconds = row.at("seconds");
    scores.failure = row.at("failure");
    scores.lr = row.value("lr", 0.0);
    scores.lr_note = row.value("lr_note", "");
    scores.mixer = row.value("mixer", "");
    scores.printed = row.value("printed", "");
    for (const Json& seed : row.value("reached", Json::array()))
      scores.reached.push_back({seed.at(0), seed.at(1)});
    f.rows.push_back(scores);
  }
  for (const Json& j : json.at("judgements")) {
    f.judgements.push_back(
        {j.at("expects"),
         {number_or_nan(j.at("mean")), number_or_nan(j.at("half")), j.at("n")},
         verdict_from(j.at("verdict")),
         j.value("measured", ""),
         j.value("reason", "")}
    );
  }
  f.verdict = verdict_from(json.at("verdict"));
  f.reason = json.value("reason", "");
  f.seconds = json.at("seconds");
  f.revision = json.value("revision", 1);
  f.first_seed = json.value("first_seed", 0);
  f.looks = json.value("looks", 1);
  for (const Json& s : json.value("settings", Json::array()))
    f.settings.push_back({s.at(0), s.at(1), s.at(2)});
  f.confirmed = json.value("confirmed", "");
  return f;
}

std::vector<std::vector<double>> Finding::scores() const {
  std::vector<std::vector<double>> list;
  for (const ArmScores& row : rows) list.push_back(row.scores);
  return list;
}

Json Reproduction::json() const {
  Json list = Json::array();
  for (const Finding& f : findings) list.push_back(f.json());
  return {
      {"paper", paper->name}, {"arxiv", paper->arxiv}, {"title", paper->title}, {"findings", list}};
}

void Reproduction::add(const Json& earlier) {
  std::vector<Finding> all;
  const auto take = [&](const Finding& f) {
    for (Finding& have : all) {
      if (have.claim != f.claim || have.scale != f.scale) continue;
      if (have.first_seed > f.first_seed && have.revision == f.revision) {  // fresh seeds confirm
        const std::string confirmed = have.confirmed;
        have = f;
        have.confirmed = confirmed;
      } else if (have.first_seed == f.first_seed && have.scores() == f.scores()) {
        have.confirmed = f.confirmed;
      }
      return;
    }
    all.push_back(f);
  };
  for (const Finding& f : findings) take(f);
  for (const Json& f : earlier.at("findings")) take(judged_again(Finding::from(f), *paper));
  findings = all;
  in_order(*paper, findings);
}

void Reproduction::add_missing() {
  for (const Claim& claim : paper->claims) {
    const bool has = std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
      return f.claim == claim.name;
    });
    if (has) continue;
    Finding f{claim.name, claim.says, claim.setting, claim.score, "gpu"};
    f.verdict = Verdict::untested;
    f.reason = "not yet run";
    if (claim.arms != nullptr) f.reason += "; " + first_look(claim);
    f.revision = claim.revision;
    f.settings = settings_of(claim, Effort::gpu);
    findings.push_back(f);
  }
  in_order(*paper, findings);
}

}  // namespace horner
