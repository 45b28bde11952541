// The sections of a comparison's page, and what they share.
#pragma once

#include "lab/compare/compare.h"
#include "report/html.h"

namespace horner {

Section score_section(const CompareResult&);
Section difference_section(const CompareResult&);
Section slices_section(const CompareResult&);
Section lengths_section(const CompareResult&);
Section runs_section(const CompareResult&);
Section cost_section(const CompareResult&);
Section maps_section(const CompareResult&);

Cell verdict_cell(const CompareResult&, const Difference&);  // better, worse, no difference shown
Cell mixer_cell(const CompareResult&, size_t row);           // its name and colour
Cell interval_cell(const Interval&);
Cell difference_cell(const Interval&);
Cell whole_cell(int64_t x);
Cell lr_cell(double lr);

std::string score_words(const std::string& key);  // "length/accuracy-32" as words

// One row a mixer that begins with its colour and lights its lines; `cells` gives the rest.
template <class Cells>
void add_mixer_rows(const CompareResult& r, SortTable& table, Cells&& cells) {
  for (size_t i = 0; i < r.rows.size(); ++i) {
    std::vector<Cell> row = {mixer_cell(r, i)};
    for (Cell& cell : cells(r.rows[i])) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
    table.keys.push_back(r.rows[i].mixer);
  }
}

}  // namespace horner
