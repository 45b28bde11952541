// Short texts: what is asked, and is it liked, or grammatical? Sets in the form of their publishers:
//
//   set         train/valid/test     classes   files of the folder
//   clinc150    15000/3000/4500      150       data_full.json; out_of_scope adds a class: +100/100/1000
//   banking77   10003 less a tenth   77        train.csv, test.csv
//   sst2        67349/872/1821       2         train.tsv, dev.tsv, test-labeled.tsv
//   cola        8551/527/516         2         in_domain_train.tsv, in_domain_dev.tsv, out_of_domain_dev.tsv
#pragma once

#include "tasks/text/labelled_text.h"

namespace horner {

struct ClassifyTextOptions {
  std::string set = "clinc150";
  int64_t T = 256;
  std::string tokenizer = "bytes";
  std::string data;
  bool out_of_scope = false;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("set", set, "data set", {"clinc150", "banking77", "sst2", "cola"});
    visit("T", T, "tokens that are read of a text");
    visit("tokenizer", tokenizer, "bytes, or a folder or file of a tokenizer");
    visit(
        "data", data, "folder of the set; empty: its folder in text_classification of HORNER_DATA"
    );
    visit("out_of_scope", out_of_scope, "clinc150: questions that belong to no class are one more");
    visit("seed", seed, "seed of the data");
  }
};

class ClassifyText : public LabelledTextTask {
 public:
  using Options = ClassifyTextOptions;
  explicit ClassifyText(const Options& options);
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

// Rows of fields; a field in quotes may hold commas, line ends and doubled quotes. DataError with the
// row when a quote is not closed.
std::vector<std::vector<std::string>> parse_csv(
    std::string_view text, char separator, bool quotes, const std::string& source
);

}  // namespace horner
