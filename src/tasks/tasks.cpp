// THE list of tasks. Nothing else knows their names: commands, reports and tests walk it.
#include "core/check.h"
#include "core/nearest.h"
#include "tasks/bytes_text.h"
#include "tasks/classify_text.h"
#include "tasks/mqar.h"
#include "tasks/task.h"
#include "tasks/text.h"

namespace horner {
namespace {

struct About {
  std::string_view name, paper, about;
  std::vector<std::string> variants, refused;
};

template <class T>
TaskType row(About about) {
  return {
      about.name,
      about.paper,
      about.about,
      std::move(about.variants),
      std::move(about.refused),
      [](const Json& json) -> std::shared_ptr<Task> {
        typename T::Options options;
        from_json(options, json);
        return std::make_shared<T>(options);
      },
      [](std::string_view text) {
        typename T::Options options;
        from_text(options, text);
        return to_json(options);
      },
      [] { return describe<typename T::Options>(); },
  };
}

}  // namespace

const std::vector<TaskType>& tasks() {
  static const std::vector<TaskType> list = {
      row<Mqar>(
          {"mqar",
           "2312.04927",
           "recall the values of several keys",
           {"", "T=20,pairs=3,vocabulary=64,noise=true", "T=64;128,pairs=4;8,train=96;32"},
           {"T=63", "T=64,pairs=17", "vocabulary=32", "T=64;128,pairs=4"}}
      ),
      row<ByteTask>(
          {"byte",
           "own",
           "the next byte of a text",
           {"data=grammar,T=32",
            "data=grammar,T=16,sampling=epoch",
            "data=grammar,characters=true"},
           {"data=grammar,T=0",
            "data=grammar,valid=1.5",
            "data=grammar,valid=0",
            "data=grammar,T=1000000",
            "packing=none"}}
      ),
      row<BpeTask>(
          {"bpe",
           "own",
           "the next token of a text, by any tokenizer",
           {"data=grammar,T=32"},
           {"data=grammar,T=0", "data=grammar,valid=0.5,test=0.5"}}
      ),
      row<BytesText>(
          {"bytes_text",
           "2011.04006",
           "is a review good? IMDb as bytes; needs the data",
           {},
           {"T=0"}}
      ),
      row<BookId>(
          {"book_id", "own", "which book is a passage from? needs books", {}, {"T=0", "books=1"}}
      ),
      row<ClassifyText>(
          {"classify_text",
           "own",
           "short texts: intents, sentiment, grammar; needs the data",
           {},
           {"T=0", "set=cola,out_of_scope=true", "set=other"}}
      ),
  };
  return list;
}

const TaskType& find_task(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskType& type : tasks()) {
    if (type.name == name) return type;
    names.emplace_back(type.name);
  }
  throw UsageError("{}", unknown("task", name, names));
}

std::shared_ptr<Task> make_task(std::string_view text) {
  const size_t colon = text.find(':');
  const TaskType& type = find_task(text.substr(0, colon));
  return type.make(type.parse(colon == text.npos ? "" : text.substr(colon + 1)));
}

}  // namespace horner
