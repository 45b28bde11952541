// A page of results: one file, no network, no framework. Verdict first, then sections, then where
// every number comes from.
//
//   Page page{"horner explain gla"};
//   page.verdict = "Constant state: smaller than a key/value cache from T = 33 on.";
//   page.sections.push_back({"State", figure(svg(chart), "measured") + sortable(table)});
//   page.origin = {{"command", "horner explain gla"}, {"device", "CPU, 2 threads"}};
//   write_file("report.html", html(page));
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "report/svg.h"

namespace horner {

// A cell of a table that sorts: by its number where it has one, else by its text.
struct Cell {
  std::string text;
  double number = std::numeric_limits<double>::quiet_NaN();
};

struct SortTable {
  std::vector<std::string> head;
  std::vector<std::vector<Cell>> rows;
  std::string caption = {};
};

struct Section {
  std::string title;
  std::string body;  // made by the functions below
};

struct Page {
  std::string title;
  std::string verdict = {};  // a sentence or two that a person can quote
  std::vector<std::string> warnings = {};
  std::vector<Section> sections = {};
  std::vector<std::pair<std::string, std::string>> origin =
      {};  // command, commit, seed, device, dtype, ..
};

std::string html(const Page&);

// Each takes plain text, escapes it, and gives a piece of a section.
std::string paragraph(const std::string& text);
std::string list(const std::vector<std::string>& lines);
std::string code(const std::string& text);
std::string sortable(const SortTable&);
std::string facts(const std::vector<std::pair<std::string, std::string>>&);

// These take pieces: a picture with its caption, pictures side by side, what opens on a click.
std::string figure(const std::string& picture, const std::string& caption = "");
std::string side_by_side(const std::vector<std::string>& pieces);
std::string folded(const std::string& summary, const std::string& body);

Cell cell(double x);        // four digits
Cell cell_bytes(double x);  // 16 KiB
// 0.94 ± 0.02, sorted by the mean
Cell cell_interval(double mean, double half);

}  // namespace horner
