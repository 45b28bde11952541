// THE list of tasks. Nothing else knows their names: commands, reports and tests walk it.
#include "core/check.h"
#include "core/nearest.h"
#include "core/spec.h"
#include "tasks/images/pathfinder.h"
#include "tasks/images/pixels.h"
#include "tasks/recall/copy.h"
#include "tasks/recall/icl_linear.h"
#include "tasks/recall/induction.h"
#include "tasks/recall/mad.h"
#include "tasks/recall/mqar.h"
#include "tasks/recall/mqar_variants.h"
#include "tasks/recall/needle.h"
#include "tasks/recall/string_copy.h"
#include "tasks/task.h"
#include "tasks/text/bytes_text.h"
#include "tasks/text/classify_text.h"
#include "tasks/text/text.h"
#include "tasks/tracking/group.h"
#include "tasks/tracking/listops.h"
#include "tasks/tracking/modarith.h"
#include "tasks/tracking/parity.h"

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

// A whole number of a task counts something that the task makes, except `seed`. None is larger than this, and this is
// checked before anything is made. So no sum or product of two overflows, and a table of so many numbers takes seconds.
constexpr int64_t kMost = 1 << 26;

void check_sizes(std::string_view task, std::string_view name, const Json& value) {
  if (value.is_structured()) {
    for (const auto& [key, inner] : value.items())
      check_sizes(task, value.is_object() ? std::string_view(key) : name, inner);
  } else if (value.is_number_integer() && name != "seed") {
    const auto count = value.get<int64_t>();
    HORNER_CHECK(
        count <= kMost && count >= -kMost,
        "[{}] {} must be at {} {}, got {}",
        task,
        name,
        count > 0 ? "most" : "least",
        count > 0 ? kMost : -kMost,
        count
    );
  }
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
      row<MqarComp>(
          {"mqar_comp",
           "own",
           "mqar with keys of two tokens, of which neither suffices",
           {"", "T=5,pairs=1,vocabulary=6", "T=100,pairs=16,vocabulary=96,power=1"},
           {"pairs=15", "T=79", "vocabulary=50", "pairs=0"}}
      ),
      row<MqarForget>(
          {"mqar_forget",
           "own",
           "mqar with keys whose value changes",
           {"", "T=6,pairs=1,rewrites=1,vocabulary=4", "rewrites=0"},
           {"rewrites=17", "rewrites=-1", "T=79", "vocabulary=40"}}
      ),
      row<MqarStacked>(
          {"mqar_stacked",
           "own",
           "mqar with key and value in one position, as features",
           {"", "T=2,pairs=1,e=3,vocabulary=4"},
           {"T=31", "e=0", "vocabulary=15"}}
      ),
      row<Copy>(
          {"copy",
           "own",
           "write the tokens at the start again, after blanks",
           {"", "G=0,M=3", "G=5,M=7,A=4,train=100", "G=0,M=6,least=2"},
           {"G=-1", "M=0", "A=3", "train=-1", "test=0", "least=11"}}
      ),
      row<StringCopy>(
          {"string_copy",
           "2511.17388",
           "write the string before the bar again, reading the copy so far",
           {"", "T=40,least=1,M=8,A=4", "T=9,least=3,M=3,A=2,train=100"},
           {"M=0", "least=65", "T=100", "A=1"}}
      ),
      row<SelectiveCopy>(
          {"selective_copy",
           "2312.00752",
           "write the tokens that stand among blanks, in their order",
           {"", "G=48,M=16,A=16", "G=0,M=3"},
           {"G=-1", "M=0", "A=3"}}
      ),
      row<Induction>(
          {"induction",
           "2312.00752",
           "what followed the special token the first time?",
           {"", "T=3,N=3", "T=64"},
           {"T=2", "N=2"}}
      ),
      row<Parity>(
          {"parity",
           "2411.12537",
           "is the number of ones odd?",
           {"", "shortest=1,longest=1", "test_shortest=256"},
           {"shortest=0", "longest=2", "test_longest=39"}}
      ),
      row<Cumparity>(
          {"cumparity",
           "2411.12537",
           "is the number of ones so far odd?",
           {"", "shortest=16,longest=16"},
           {"shortest=0", "longest=2"}}
      ),
      row<Modarith>(
          {"modarith",
           "2411.12537",
           "arithmetic modulo 5",
           {"", "shortest=2,longest=3"},
           {"shortest=1", "shortest=3,longest=3"}}
      ),
      row<ModarithBrackets>(
          {"modarith_brackets",
           "2411.12537",
           "arithmetic modulo 5 with brackets",
           {"", "times=true", "shortest=2,longest=2"},
           {"shortest=1"}}
      ),
      row<GroupWords>(
          {"group",
           "2404.08819",
           "products of the elements of a finite group so far",
           {"", "group=A4xZ5,k=7", "group=Z2,k=1", "group=S3"},
           {"group=S7", "group=Q8", "group=Z", "group=S5xS5", "group=A4x", "group=Z1", "k=0"}}
      ),
      row<Needle>(
          {"needle",
           "own",
           "find the values of a key in a long text of filler",
           {"", "T=128,m=8", "T=11", "depth=100,m=2"},
           {"T=10", "m=0", "m=129", "T=20,m=2", "depth=101"}}
      ),
      row<IclLinear>(
          {"icl_linear",
           "2208.01066",
           "linear regression from the examples of a prompt",
           {"",
            "d=3,n=4,start_d=1,start_n=2,stage=5,sigma=0.5",
            "d=4,n=6,stage=0,train=100,shift=skewed",
            "d=5,n=6,stage=0,shift=half",
            "d=4,n=4,stage=0,shift=orthogonal",
            "d=4,n=6,stage=0,shift=opposite",
            "d=4,n=6,stage=0,shift=noisy"},
           {"d=0", "n=0", "sigma=-1", "stage=-1", "shift=orthogonal", "start_d=0"}}
      ),
      row<MadRecall>(
          {"mad_recall",
           "2403.17844",
           "the value that a key had before",
           {"", "N=32,T=8,masked=true", "T=4"},
           {"T=5", "T=2", "N=2", "N=17", "noise=0.2", "noise_ids=13"}}
      ),
      row<MadNoisyRecall>(
          {"mad_noisy_recall",
           "2403.17844",
           "the same, with pairs of noise in between",
           {"", "noise=0.8,masked=true", "T=8,noise=0.99"},
           {"noise=1", "noise_ids=0", "noise_ids=32"}}
      ),
      row<MadFuzzyRecall>(
          {"mad_fuzzy_recall",
           "2403.17844",
           "the same, with keys and values of several tokens",
           {"", "N=6,T=12", "masked=true,motif=2"},
           {"N=4", "N=17", "T=11", "motif=1"}}
      ),
      row<MadMemorise>(
          {"mad_memorise",
           "2403.17844",
           "one table of keys and values, to be kept in the weights",
           {"", "N=5,T=2"},
           {"N=4", "T=3"}}
      ),
      row<MadCompress>(
          {"mad_compress",
           "2403.17844",
           "rebuild every token from the output at the last one",
           {"", "N=3,T=2"},
           {"N=2", "T=1"}}
      ),
      row<ListOps>(
          {"listops",
           "2011.04006",
           "the value of nested lists of digits",
           {"", "above=10,below=60,depth=4"},
           {"above=-1", "above=100,below=110", "depth=1", "depth=11"}}
      ),
      row<Pathfinder>(
          {"pathfinder",
           "2011.04006",
           "are two discs the ends of one curve?",
           {"", "contour=6,distractors=0", "side=128,contour=6,margin=2"},
           {"side=64", "contour=0", "margin=0", "distance=8", "contrast=2", "thickness=0"}}
      ),
      row<Pixels>({"pixels", "2011.04006", "classes of images, pixel by pixel", {}, {"valid=0"}}),
      row<Patches>(
          {"patches",
           "own",
           "classes of images, patch by patch",
           {},
           {"valid=0", "p=0", "augment=-1"}}
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
  const TypeSpec spec = TypeSpec::parse(text);
  const TaskType& type = find_task(spec.name);
  const Json options = type.parse(spec.settings_text());
  check_sizes(spec.name, "", options);
  return type.make(options);
}

}  // namespace horner
