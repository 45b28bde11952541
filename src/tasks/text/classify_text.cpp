#include "tasks/text/classify_text.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/check.h"
#include "io/compressed.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows read_rows(const std::string& path, size_t fields, char separator, bool quotes) {
  Rows rows = parse_csv(read_decompressed(path), separator, quotes, path);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() == fields) continue;
    throw DataError("{}: row {} has {} fields, not {}", path, i + 1, rows[i].size(), fields);
  }
  return rows;
}

int64_t binary_label(const std::string& text, const std::string& path) {
  if (text != "0" && text != "1") throw DataError("{}: the label {} is not 0 or 1", path, text);
  return text == "1";
}

// Names of classes as numbers, in alphabetical order.
class Labels {
 public:
  explicit Labels(const std::set<std::string>& names) {
    for (const std::string& name : names) numbers_.emplace(name, int64_t(numbers_.size()));
  }
  int64_t operator()(const std::string& name, const std::string& path) const {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) throw DataError("{}: the class {} is not in training", path, name);
    return found->second;
  }
  int64_t size() const { return int64_t(numbers_.size()); }

 private:
  std::map<std::string, int64_t> numbers_;
};

LabelledTexts read_clinc(
    const Json& json, const char* key, const Labels& labels, const std::string& path
) {
  LabelledTexts list;
  if (!json.contains(key) || !json[key].is_array())
    throw DataError("{}: has no list {}", path, key);
  for (const Json& pair : json[key]) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      throw DataError("{}: {} must hold pairs of text and class", path, key);
    }
    list.add(pair[0].get<std::string>(), labels(pair[1].get<std::string>(), path));
  }
  return list;
}

int64_t read_clinc_splits(const std::string& path, bool out_of_scope, LabelledSplits& splits) {
  const Json json = parse_json(read_decompressed(path), path);
  if (!json.is_object() || !json.contains("train")) throw DataError("{}: has no list train", path);
  std::set<std::string> names;
  for (const Json& pair : json["train"]) {
    if (pair.is_array() && pair.size() == 2 && pair[1].is_string()) {
      names.insert(pair[1].get<std::string>());
    }
  }
  Labels labels(names);
  int64_t classes = labels.size();
  const char* keys[] = {"train", "val", "test"};
  const char* outside[] = {"oos_train", "oos_val", "oos_test"};
  for (size_t i = 0; i < 3; ++i) {
    splits[i] = read_clinc(json, keys[i], labels, path);
    if (!out_of_scope) continue;
    for (std::string& text : read_clinc(json, outside[i], Labels({"oos"}), path).texts) {
      splits[i].add(std::move(text), classes);
    }
  }
  return classes + (out_of_scope ? 1 : 0);
}

int64_t read_banking(const std::string& folder, LabelledSplits& splits) {
  const std::string paths[] = {folder + "/train.csv", folder + "/test.csv"};
  std::optional<Labels> labels;
  for (size_t i = 0; i < 2; ++i) {
    Rows rows = read_rows(paths[i], 2, ',', true);
    if (!rows.empty()) rows.erase(rows.begin());  // "text,category"
    if (!labels) {
      std::set<std::string> names;
      for (const auto& row : rows) names.insert(row[1]);
      labels.emplace(names);
    }
    for (auto& row : rows) splits[2 * i].add(std::move(row[0]), (*labels)(row[1], paths[i]));
  }
  return labels->size();
}

void read_pairs(const std::string& path, bool header, size_t fields, LabelledTexts& list) {
  Rows rows = read_rows(path, fields, '\t', false);
  if (header && !rows.empty()) rows.erase(rows.begin());
  // SST-2: text, label. CoLA: source, label, the author's mark, text.
  for (auto& row : rows)
    list.add(std::move(fields == 2 ? row[0] : row[3]), binary_label(row[1], path));
}

}  // namespace

std::vector<std::vector<std::string>> parse_csv(
    std::string_view text, char separator, bool quotes, const std::string& source
) {
  Rows rows;
  std::vector<std::string> row;
  std::string field;
  bool quoted = false;
  const auto end_row = [&] {
    row.push_back(std::move(field));
    field.clear();
    rows.push_back(std::move(row));
    row.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (quotes && c == '"' && field.empty()) {
      quoted = true;
    } else if (c == separator) {
      row.push_back(std::move(field));
      field.clear();
    } else if (c == '\n') {
      if (field.ends_with('\r')) field.pop_back();
      end_row();
    } else {
      field += c;
    }
  }
  if (quoted) throw DataError("{}: row {}: a quote is not closed", source, rows.size() + 1);
  if (!field.empty() || !row.empty()) end_row();
  return rows;
}

ClassifyText::ClassifyText(const Options& o)
    : LabelledTextTask(o.T, 2, open_tokenizer(o.tokenizer)), o_(o) {
  HORNER_CHECK(
      !o.out_of_scope || o.set == "clinc150", "[classify_text] only clinc150 has out_of_scope"
  );
  const std::string name = o.set == "sst2" ? "sst2_glue" : o.set;
  const std::string folder = data_folder(o.data, "text_classification/" + name, "classify_text");
  std::vector<std::string> files;
  if (o.set == "clinc150") {
    files = {folder + "/data_full.json"};
    classes_ = read_clinc_splits(files[0], o.out_of_scope, splits_);
  } else if (o.set == "banking77") {
    files = {folder + "/train.csv", folder + "/test.csv"};
    classes_ = read_banking(folder, splits_);
    hold_out(splits_, int64_t(splits_[0].texts.size()) / 10, uint64_t(o.seed));
  } else {
    const bool sst = o.set == "sst2";
    files = sst ? std::vector<std::string>{"train", "dev", "test-labeled"}
                : std::vector<std::string>{"in_domain_train", "in_domain_dev", "out_of_domain_dev"};
    for (size_t i = 0; i < 3; ++i) {
      files[i] = fmt::format("{}/{}.tsv", folder, files[i]);
      read_pairs(files[i], sst, sst ? 2 : 4, splits_[i]);
    }
  }
  files_ = find_text(files);
}

}  // namespace horner
