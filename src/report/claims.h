// Claims of many papers, and mixers over many tasks, in one table each.
#pragma once

#include "lab/reproduce/reproduce.h"
#include "report/html.h"
#include "report/svg.h"
#include "report/table.h"

namespace horner {

bool less_is_better(const Finding&);                    // of its score: "test/loss"
Better better_of(const Reproduction&, const Finding&);  // as axes and columns say it
std::string score_label(const Finding&);     // "test/loss" in words: "loss on the test, nats"
std::string with_interval(const Interval&);  // "0.942 ± 0.021": two digits of the half width
Interval
shown(const Finding&, const ArmScores&);  // scores as people know them: a loss is stored negatively
std::string
score(const Finding&, const ArmScores&);  // "0.94 ± 0.02", and of how many seeds there is none
std::string measured(const Judgement&);   // the number, and why it decides nothing

std::string
scale_words(const Finding&);  // "small scale", that of a CPU, or "full scale", wherever it ran

// The finding that stands for a claim: a decided one, else the one of full scale; null: there is none.
const Finding* main_finding(const Reproduction&, const Claim&);

// "5 claims; the tests use ... Holds: 2 (orders, norm). Untested: 3 (..)."
std::string sentence(const Reproduction&);
// What was decided, as Markdown: what the paper says, and the number that stands for it. Empty: nothing was.
std::string in_short(const Reproduction&);

// paper | claim | verdict | our number | the paper's: a row per claim of all papers.
Table claims_table(const std::vector<Reproduction>&);
std::string
claims_count(const std::vector<Reproduction>&);  // "9 claims of 2 papers: 8 hold, 1 is untested."

// Of a survey: a row per arm, a column per claim.
Table survey_table(const Reproduction&);
// Scores against bytes of state, a line per claim; no series: it is no survey, or has no scores.
Chart state_picture(const Reproduction&);

}  // namespace horner
