// The files of a comparison; compare.json is what all others can be made from again.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <tuple>

#include "cli/command.h"
#include "core/file.h"
#include "core/origin.h"
#include "report/compare_page.h"
#include "report/compare_table.h"

namespace horner {

// Adds where the numbers come from: the command line of now.
inline void set_origin(CompareResult& r) {
  const int64_t first = r.options.seed, seeds = r.options.seeds;
  const std::string range =
      seeds == 1 ? std::to_string(first) : fmt::format("{} .. {}", first, first + seeds - 1);
  r.origin = origin(command_line(), range, r.device, r.precision);
}

// Moves the report of another comparison, or of another version, to `folder`/earlier/DATE. Where it is then; empty: there was none.
inline std::string put_aside(const CompareResult& r, const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string path = folder + "/compare.json";
  if (!fs::exists(path)) return "";
  const auto about = [](const Json& json) {  // what decides whether it is the same comparison
    const auto word = [&](const char* name) {
      for (const Json& pair : json.at("origin"))
        if (pair.at(0) == name) return pair.at(1).get<std::string>();
      return std::string();
    };
    return std::tuple{json.at("options"), word("commit"), word("date")};
  };
  std::string date = "unreadable";
  try {
    const auto [options, commit, then] = about(parse_json(read_file(path), path));
    const auto [own, now, today] = about(r.json());
    if (options == own && commit == now) return "";
    date = then;
  } catch (const Json::exception&) {
  } catch (const DataError&) {
  }
  std::replace_if(
      date.begin(), date.end(), [](char c) { return std::isalnum(uint8_t(c)) == 0; }, '-'
  );
  std::string place = folder + "/earlier/" + date;
  for (int n = 2; fs::exists(place); ++n) place = fmt::format("{}/earlier/{}_{}", folder, date, n);
  make_folder(place);
  for (const char* name : {"compare.json", "compare.csv", "report.html", "plots"}) {
    if (fs::exists(folder + "/" + name)) fs::rename(folder + "/" + name, place + "/" + name);
  }
  return place;
}

// Where an earlier report was put; empty: there was none.
inline std::string write_compare(const CompareResult& r, const std::string& folder) {
  make_folder(folder);
  const std::string earlier = put_aside(r, folder);
  make_folder(folder + "/plots");
  write_file(folder + "/compare.json", r.json().dump(1) + "\n");
  write_file(folder + "/compare.csv", compare_csv(r));
  for (const auto& [name, picture] : compare_pictures(r))
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  write_file(folder + "/report.html", html(compare_page(r)));
  return earlier;
}

}  // namespace horner
