// A page of results: one file, no network, no framework. Verdict first, then sections, then where
// every number comes from.
//
//   Page page{"horner explain gla"};
//   page.verdict = "Constant state: smaller than a key/value cache from T = 33 on.";
//   page.sections.push_back({"State", figure(chart, "measured") + sortable(table)});
//   page.origin = {{"command", "horner explain gla"}, {"device", "CPU, 2 threads"}};
//   write_file("report.html", html(page));
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "report/svg.h"

namespace horner {

// What a verdict means for whoever asked: good news, not decided, bad news. It gives the colour.
enum class Tone { plain, good, open, bad };

// A cell of a table that sorts: by its number where it has one, else by its text.
struct Cell {
  std::string text;
  double number = std::numeric_limits<double>::quiet_NaN();
  int colour = -1;  // of report/palette.h: a dot before the text; -1: none
  Tone tone = Tone::plain;
  std::string note = {};  // smaller, below the text
};

enum class Better { neither, higher, lower };
std::string better_words(Better);  // "higher is better"; empty for neither

struct Column {
  Column(const char* text) : name(text) {}
  Column(std::string text, Better which = Better::neither) : name(std::move(text)), better(which) {}
  std::string name;
  Better better = Better::neither;
};

struct SortTable {
  std::vector<Column> head;
  std::vector<std::vector<Cell>> rows;
  std::string caption = {};
  std::vector<std::string> keys = {};  // of rows: what lines of charts with that name light up
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
      {};                   // command, commit, seed, device, dtype, ..
  Tone tone = Tone::plain;  // of the verdict
};

std::string html(const Page&);

// Each takes plain text, escapes it, and gives a piece of a section.
std::string paragraph(const std::string& text);
std::string list(const std::vector<std::string>& lines);
std::string code(const std::string& text);
std::string sortable(const SortTable&);
std::string facts(const std::vector<std::pair<std::string, std::string>>&);

// Tokens as boxes that wrap at any width. Below a token stands what is required there; empty: nothing is. Above it stands its
// role ("key"), where some have one.
struct TokenBox {
  std::string text, below = {}, role = {};
};
std::string boxes(const std::vector<TokenBox>&, const std::string& caption);

// Pictures with their captions. A chart is drawn wide and narrow; the screen decides which is shown.
std::string figure(const Chart&, const std::string& caption = "");
std::string figure(const Bars&, const std::string& caption = "");
std::string figure(const HeatMap&, const std::string& caption = "");
std::string figure(const HeadGrid&, const std::string& caption = "");

// These take pieces: side by side, what opens on a click.
std::string side_by_side(const std::vector<std::string>& pieces);
void drop_empty_columns(SortTable& table);  // those in which every cell is "-"
std::string folded(const std::string& summary, const std::string& body);

Cell cell(double x);        // four digits
Cell cell_bytes(double x);  // 16 KiB
// 0.94 ± 0.02, sorted by the mean
Cell cell_interval(double mean, double half);

}  // namespace horner
