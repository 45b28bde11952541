#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/number.h"
#include "report/assets.h"
#include "report/palette.h"
#include "report/rich_text.h"

namespace horner {
namespace {

// A column is one of numbers when none of its cells is text alone.
bool numeric(const SortTable& table, size_t column) {
  bool any = false;
  for (const auto& row : table.rows) {
    if (column >= row.size()) continue;
    if (std::isnan(row[column].number) && row[column].text.size() > 1) return false;
    any = any || !std::isnan(row[column].number);
  }
  return any;
}

const char* tone_class(Tone tone) {
  switch (tone) {
    case Tone::good: return "good";
    case Tone::open: return "open";
    case Tone::bad: return "bad";
    case Tone::plain: break;
  }
  return "";
}

std::string head_cell(const Column& column, bool number) {
  const std::string better = better_words(column.better);
  return fmt::format(
      R"(<th scope="col"{}><button type="button">{}</button>{}</th>)",
      number ? R"( class="number")" : "",
      escape(column.name),
      better.empty() ? "" : "<small>" + better + "</small>"
  );
}

bool is_long(const Cell& cell) { return cell.text.size() > 40; }

// Whether a table has sentences: then a phone shows each cell in a line of its own (page.css).
bool stacks(const SortTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(), [](const std::vector<Cell>& row) {
    return std::any_of(row.begin(), row.end(), is_long);
  });
}

// No line ends between a dot and the name after it, which may go on in further lines.
std::string with_dot(const std::string& dot, const std::string& name) {
  const size_t first = std::min(name.find("<wbr>"), name.size());
  return "<span>" + dot + name.substr(0, first) + "</span>" + name.substr(first);
}

// `column`: the name of its column, where the table stacks.
std::string body_cell(const Cell& cell, bool number, const std::string& column) {
  std::string kind = number ? "number" : cell.colour != -1 ? "mixer" : is_long(cell) ? "long" : "";
  if (cell.text == "-" && kind.empty()) kind = "none";
  if (cell.tone != Tone::plain)
    kind += std::string(kind.empty() ? "" : " ") + tone_class(cell.tone);
  const std::string key =
      std::isnan(cell.number) ? "" : fmt::format(R"( data-n="{:.17g}")", cell.number);
  const std::string dot =
      cell.colour == -1 ? ""
                        : fmt::format(R"(<i class="swatch {}"></i>)", colour_class(cell.colour));
  return fmt::format(
      "<td{}{}{}>{}{}</td>",
      kind.empty() ? "" : fmt::format(R"( class="{}")", kind),
      key,
      column.empty() ? "" : fmt::format(R"( data-column="{}")", escape(column)),
      dot.empty() ? rich(cell.text) : with_dot(dot, rich(cell.text)),
      cell.note.empty() ? "" : "<small>" + rich(cell.note) + "</small>"
  );
}

std::string captioned(const std::string& picture, const std::string& caption) {
  return "<figure>" + picture +
         (caption.empty() ? "" : "<figcaption>" + rich(caption) + "</figcaption>") + "</figure>\n";
}

// The first few, the rest on a click.
std::string warnings(const std::vector<std::string>& list) {
  constexpr size_t kShown = 3;
  std::string first, rest;
  for (size_t i = 0; i < list.size(); ++i)
    (i < kShown || list.size() == kShown + 1 ? first : rest) += paragraph(list[i]);
  if (!rest.empty()) first += folded(fmt::format("{} more notes", list.size() - kShown), rest);
  return list.empty() ? "" : "<div class=\"warnings\">\n" + first + "</div>\n";
}

}  // namespace

std::string better_words(Better better) {
  switch (better) {
    case Better::higher: return "higher is better";
    case Better::lower: return "lower is better";
    case Better::neither: break;
  }
  return "";
}

std::string paragraph(const std::string& text) { return "<p>" + rich(text) + "</p>\n"; }

std::string list(const std::vector<std::string>& lines) {
  std::string text = "<ul>\n";
  for (const std::string& line : lines) text += "<li>" + rich(line) + "</li>\n";
  return text + "</ul>\n";
}

std::string code(const std::string& text) {
  return "<pre><code>" + flags_whole(text) + "</code></pre>\n";
}

std::string sortable(const SortTable& table) {
  const bool stacked = stacks(table);
  std::string text;  // the caption takes the whole width, however narrow the table
  if (!table.caption.empty()) text += "<p class=\"caption\">" + rich(table.caption) + "</p>\n";
  text += fmt::format(
      R"(<div class="scroll"><table class="sorts{}"><thead><tr>)", stacked ? " stacks" : ""
  );
  std::vector<bool> number;
  for (size_t i = 0; i < table.head.size(); ++i) {
    number.push_back(numeric(table, i));
    text += head_cell(table.head[i], number[i]);
  }
  text += "</tr></thead>\n<tbody>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const std::string key = r < table.keys.size() ? table.keys[r] : "";
    text += key.empty() ? "<tr>" : fmt::format(R"(<tr data-key="{}">)", escape(key));
    for (size_t i = 0; i < table.rows[r].size(); ++i)
      text += body_cell(
          table.rows[r][i],
          i < number.size() && number[i],
          stacked && i < table.head.size() ? table.head[i].name : ""
      );
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text = "<dl>\n";
  for (const auto& [name, value] : pairs) {
    text += "<dt>" + escape(name) + "</dt><dd>";
    std::istringstream words(value);
    for (std::string word; words >> word;) text += "<span>" + rich(word) + "</span> ";
    text += "</dd>\n";
  }
  return text + "</dl>\n";
}

std::string boxes(const std::vector<TokenBox>& tokens, const std::string& caption) {
  const bool roles = std::any_of(tokens.begin(), tokens.end(), [](const TokenBox& token) {
    return !token.role.empty();
  });
  std::string text = "<ol class=\"tokens\">";
  for (const TokenBox& token : tokens)
    text += (token.role.empty() ? "<li>" : "<li class=\"" + escape(token.role) + "\">") +
            (roles ? "<small>" + escape(token.role) + "</small>" : "") + "<b>" +
            escape(token.text) + "</b>" +
            (token.below.empty() ? "" : "<i>" + escape(token.below) + "</i>") + "</li>";
  return captioned(text + "</ol>", caption);
}

std::string figure(const Chart& chart, const std::string& caption) {
  return captioned(svg(chart) + svg(chart, Width::narrow), caption);
}

std::string figure(const Bars& bars, const std::string& caption) {
  return captioned(svg(bars) + svg(bars, Width::narrow), caption);
}

std::string figure(const HeatMap& map, const std::string& caption) {
  return captioned(svg(map), caption);
}

std::string figure(const HeadGrid& grid, const std::string& caption) {
  return captioned(svg(grid), caption);
}

std::string side_by_side(const std::vector<std::string>& pieces) {
  std::string text = R"(<div class="beside">)";
  for (const std::string& piece : pieces) text += piece;
  return text + "</div>\n";
}

void drop_empty_columns(SortTable& table) {
  for (size_t c = table.head.size(); c-- > 0;) {
    const bool empty = !table.rows.empty() &&
                       std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
                         return row[c].text == "-";
                       });
    if (!empty) continue;
    table.head.erase(table.head.begin() + ptrdiff_t(c));
    for (auto& row : table.rows) row.erase(row.begin() + ptrdiff_t(c));
  }
}

std::string folded(const std::string& summary, const std::string& body) {
  return "<details><summary>" + escape(summary) + "</summary>\n" + body + "</details>\n";
}

Cell cell(double x) {
  if (std::isnan(x)) return {"-"};
  return {fmt::format("{:.4g}", x), x};
}

Cell cell_bytes(double x) {
  if (std::isnan(x)) return {"-"};
  return {short_bytes(x), x};
}

Cell cell_interval(double mean, double half) {
  if (std::isnan(mean)) return {"-"};
  const std::string text = mean < 0 ? signed_number(mean, 4) : fmt::format("{:.4f}", mean);
  if (!std::isfinite(half)) return {text, mean};
  return {fmt::format("{} \u00b1 {:.4f}", text, half), mean};
}

std::string html(const Page& page) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  text += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
      "form-action 'none'; style-src {} {}; script-src {}; img-src data:\">\n",
      policy_hash(picture_css),
      policy_hash(page_css),
      policy_hash(page_js)
  );
  text += fmt::format(
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}</style>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n",
      escape(page.title),
      picture_css.text,
      page_css.text,
      rich(page.title)
  );
  if (!page.verdict.empty())
    text +=
        fmt::format("<p class=\"verdict {}\">{}</p>\n", tone_class(page.tone), rich(page.verdict));
  text += warnings(page.warnings);
  for (const Section& section : page.sections) {
    text += "<section>\n<h2>" + escape(section.title) + "</h2>\n" + section.body + "</section>\n";
  }
  text += "</main>\n<footer>\n" + facts(page.origin) + "</footer>\n<div id=\"tip\" hidden></div>\n";
  return text + "<script>" + page_js.text + "</script>\n</body>\n</html>\n";
}

}  // namespace horner
