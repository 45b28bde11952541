#include "report/html.h"

#include <fmt/format.h>

#include <cmath>

#include "core/number.h"

namespace horner {
namespace {

const char* const kStyle = R"(
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 46rem; }
.verdict { font-size: 1.12rem; line-height: 1.5; margin: 0 0 1rem; padding: .8rem 1rem; max-width: none; white-space: pre-line;
  background: var(--panel); border-left: 4px solid var(--s2); border-radius: 0 6px 6px 0; }
.warning { padding: .4rem 1rem; border-left: 4px solid var(--s1); max-width: none; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 46rem; }
.beside { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; } .beside figure { flex: 0 1 360px; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; max-width: 46rem; white-space: normal; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .3rem .75rem .3rem 0; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; }
td.long { white-space: normal; min-width: 14rem; }
th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid var(--s0); }
th button::after { content: " \2195"; color: var(--soft); opacity: .55; }
th[aria-sort=ascending] button::after { content: " \2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: " \2193"; opacity: 1; }
pre { background: var(--panel); padding: .6rem .8rem; overflow-x: auto; border-radius: 6px; font-size: .88rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
details { margin: .75rem 0; } summary { cursor: pointer; color: var(--s0); }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--line); color: var(--soft); }
#tip { position: fixed; z-index: 9; pointer-events: none; max-width: 20rem; padding: .3rem .55rem; border-radius: 5px;
  font-size: .85rem; background: var(--ink); color: var(--ground); white-space: pre-line; } #tip[hidden] { display: none; }
@media (max-width: 40rem) { body { padding: 1rem .75rem 2rem; } figure > svg[width="720"] { min-width: 540px; }
  dl { grid-template-columns: 1fr; } dt { margin-top: .3rem; } }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } figure, table, .verdict { break-inside: avoid; }
  th button::after { content: ""; } h2 { break-after: avoid; } .scroll, figure { overflow: visible; } }
)";

// Sorting, and the titles of marks at the pointer or the focus, at once and on touch screens too.
const char* const kScript = R"(
'use strict';
for (const table of document.querySelectorAll('table.sorts')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstChild.addEventListener('click', () => {
    const falls = head.getAttribute('aria-sort') === 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
    const key = row => row.cells[column].dataset.n;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if ((x === undefined) !== (y === undefined)) return x === undefined ? 1 : -1;
      const order = x === undefined
        ? a.cells[column].textContent.localeCompare(b.cells[column].textContent, 'en', {numeric: true})
        : Number(x) - Number(y);
      return falls ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }));
}
const tip = document.getElementById('tip');
for (const title of document.querySelectorAll('svg title')) {
  const mark = title.parentNode;
  mark.dataset.tip = title.textContent;
  mark.setAttribute('aria-label', title.textContent);
  title.remove();
  const show = () => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const at = mark.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const x = Math.min(Math.max(4, at.left + at.width / 2 - box.width / 2), innerWidth - box.width - 4);
    tip.style.left = x + 'px';
    tip.style.top = (at.top > box.height + 10 ? at.top - box.height - 6 : at.bottom + 6) + 'px';
  };
  const hide = () => { tip.hidden = true; };
  mark.addEventListener('pointerenter', show);
  mark.addEventListener('pointerleave', hide);
  mark.addEventListener('focus', show);
  mark.addEventListener('blur', hide);
}
)";

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

}  // namespace

std::string paragraph(const std::string& text) { return "<p>" + escape(text) + "</p>\n"; }

std::string list(const std::vector<std::string>& lines) {
  std::string text = "<ul>\n";
  for (const std::string& line : lines) text += "<li>" + escape(line) + "</li>\n";
  return text + "</ul>\n";
}

std::string code(const std::string& text) {
  return "<pre><code>" + escape(text) + "</code></pre>\n";
}

std::string sortable(const SortTable& table) {
  std::string text = R"(<div class="scroll"><table class="sorts">)";
  if (!table.caption.empty()) text += "<caption>" + escape(table.caption) + "</caption>";
  text += "<thead><tr>";
  std::vector<bool> number;
  for (size_t i = 0; i < table.head.size(); ++i) {
    number.push_back(numeric(table, i));
    text += fmt::format(
        R"(<th scope="col"{}><button type="button">{}</button></th>)",
        number[i] ? R"( class="number")" : "",
        escape(table.head[i])
    );
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const char* kind = i < number.size() && number[i] ? R"( class="number")"
                         : row[i].text.size() > 40      ? R"( class="long")"
                                                        : "";
      const std::string key =
          std::isnan(row[i].number) ? "" : fmt::format(R"( data-n="{:.17g}")", row[i].number);
      text += fmt::format("<td{}{}>{}</td>", kind, key, escape(row[i].text));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text = "<dl>\n";
  for (const auto& [name, value] : pairs)
    text += "<dt>" + escape(name) + "</dt><dd>" + escape(value) + "</dd>\n";
  return text + "</dl>\n";
}

std::string figure(const std::string& picture, const std::string& caption) {
  return "<figure>" + picture +
         (caption.empty() ? "" : "<figcaption>" + escape(caption) + "</figcaption>") +
         "</figure>\n";
}

std::string side_by_side(const std::vector<std::string>& pieces) {
  std::string text = R"(<div class="beside">)";
  for (const std::string& piece : pieces) text += piece;
  return text + "</div>\n";
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
  if (!std::isfinite(half)) return {fmt::format("{:.4f}", mean), mean};
  return {fmt::format("{:.4f} \u00b1 {:.4f}", mean, half), mean};
}

std::string html(const Page& page) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n";
  text += "<title>" + escape(page.title) + "</title>\n<style>" + picture_style() + kStyle +
          "</style>\n</head>\n<body>\n<main>\n<h1>" + escape(page.title) + "</h1>\n";
  if (!page.verdict.empty()) text += "<p class=\"verdict\">" + escape(page.verdict) + "</p>\n";
  for (const std::string& warning : page.warnings)
    text += "<p class=\"warning\">" + escape(warning) + "</p>\n";
  for (const Section& section : page.sections) {
    text += "<section>\n<h2>" + escape(section.title) + "</h2>\n" + section.body + "</section>\n";
  }
  text += "</main>\n<footer>\n" + facts(page.origin) + "</footer>\n<div id=\"tip\" hidden></div>\n";
  return text + "<script>" + kScript + "</script>\n</body>\n</html>\n";
}

}  // namespace horner
