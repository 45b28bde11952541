// Findings to and from JSON.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/number.h"
#include "lab/reproduce/reproduce.h"

namespace horner {
namespace {

Verdict verdict_from(const std::string& text) {
  for (const Verdict verdict : {Verdict::holds, Verdict::not_shown, Verdict::does_not_hold}) {
    if (words(verdict) == text) return verdict;
  }
  throw DataError("there is no verdict {}", text);
}

// Judges an earlier finding again: its scores, with the claim as it is worded now.
Finding judged_again(Finding f, const Paper& paper) {
  for (const Claim& claim : paper.claims) {
    const auto has = [&](const std::string& arm) {
      return arm.empty() || std::any_of(f.rows.begin(), f.rows.end(), [&](const ArmScores& row) {
               return row.arm == arm;
             });
    };
    const bool whole =
        std::all_of(claim.expects.begin(), claim.expects.end(), [&](const Expectation& e) {
          return has(e.a) && has(e.b);
        });
    if (claim.name != f.claim || claim.expects.empty() || !whole) continue;
    f.says = claim.says;
    f.score = claim.score;
    f.judgements.clear();
    for (const Expectation& e : claim.expects)
      f.judgements.push_back(judge(e, f.rows, claim.measure != nullptr));
    f.verdict = overall(f.judgements);
  }
  return f;
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
         {"lr_note", row.lr_note}}
    );
  }
  for (const Judgement& j : judgements) {
    judged.push_back(
        {{"expects", j.text},
         {"mean", j.value.mean},
         {"half", j.value.half},
         {"n", j.value.n},
         {"verdict", words(j.verdict)}}
    );
  }
  return {
      {"claim", claim},
      {"says", says},
      {"setting", setting},
      {"score", score},
      {"scale", scale},
      {"device", device},
      {"commit", commit},
      {"date", date},
      {"data", data},
      {"rows", all_rows},
      {"judgements", judged},
      {"verdict", words(verdict)},
      {"seconds", seconds}};
}

Finding Finding::from(const Json& json) {
  Finding f{json.at("claim"), json.at("says"), json.at("setting"), json.at("score")};
  f.scale = json.at("scale");
  f.device = json.at("device");
  f.commit = json.at("commit");
  f.date = json.at("date");
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
    f.rows.push_back(scores);
  }
  for (const Json& j : json.at("judgements")) {
    f.judgements.push_back(
        {j.at("expects"),
         {number_or_nan(j.at("mean")), number_or_nan(j.at("half")), j.at("n")},
         verdict_from(j.at("verdict"))}
    );
  }
  f.verdict = verdict_from(json.at("verdict"));
  f.seconds = json.at("seconds");
  return f;
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
    for (const Finding& have : all) {
      if (have.claim == f.claim && have.scale == f.scale) return;
    }
    all.push_back(f);
  };
  for (const Finding& f : findings) take(f);
  for (const Json& f : earlier.at("findings")) take(judged_again(Finding::from(f), *paper));
  findings.clear();
  for (const Claim& claim : paper->claims) {
    for (const char* scale : {"gpu", "cpu"}) {
      for (const Finding& f : all) {
        if (f.claim == claim.name && f.scale == scale) findings.push_back(f);
      }
    }
  }
}

}  // namespace horner
