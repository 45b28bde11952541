#include "tasks/text/grammar.h"

#include <array>

namespace horner {
namespace {

struct Words {
  const char *one, *many;
};

constexpr std::array kNouns = {
    Words{"cat", "cats"},
    Words{"child", "children"},
    Words{"farmer", "farmers"},
    Words{"wolf", "wolves"},
    Words{"teacher", "teachers"},
    Words{"ship", "ships"},
    Words{"painter", "painters"},
    Words{"mouse", "mice"}};
constexpr std::array kVerbs = {
    Words{"sees", "see"},
    Words{"follows", "follow"},
    Words{"hears", "hear"},
    Words{"knows", "know"},
    Words{"finds", "find"},
    Words{"leaves", "leave"}};
constexpr std::array kIntransitive = {
    Words{"sleeps", "sleep"},
    Words{"waits", "wait"},
    Words{"sings", "sing"},
    Words{"rests", "rest"}};
constexpr std::array kAdjectives = {"old", "small", "quiet", "red", "hungry", "brave"};
constexpr std::array kPlaces = {"by the river", "in the house", "under the tree", "at night"};

class Writer {
 public:
  Writer(uint64_t seed, uint64_t index) : random_(seed, Split::train, Stream::noise, index) {}

  std::string document() {
    std::string text;
    for (int64_t i = 4 + random_.integer(9); i > 0; --i) text += sentence() + (i > 1 ? " " : "\n");
    return text;
  }

 private:
  template <size_t n>
  const Words& pick(const std::array<Words, n>& list) {
    return list[size_t(random_.integer(n))];
  }
  template <size_t n>
  const char* pick(const std::array<const char*, n>& list) {
    return list[size_t(random_.integer(n))];
  }
  static const char* form(const Words& words, bool many) { return many ? words.many : words.one; }

  std::string noun_phrase(bool many, int depth) {
    std::string text = many ? "the " : (random_.integer(2) ? "the " : "that ");
    if (random_.integer(3) == 0) text += std::string(pick(kAdjectives)) + " ";
    text += form(pick(kNouns), many);
    if (depth < 2 && random_.integer(4) == 0) {
      const bool many_objects = random_.integer(2);
      text += " that ";
      text += random_.integer(2)
                  ? form(pick(kVerbs), many) + (" " + noun_phrase(many_objects, depth + 1))
                  : noun_phrase(many_objects, depth + 1) + " " + form(pick(kVerbs), many_objects);
    }
    return text;
  }

  std::string sentence() {
    const bool many = random_.integer(2);
    std::string text = noun_phrase(many, 0) + " ";
    if (random_.integer(3) == 0) {
      text += form(pick(kIntransitive), many);
    } else {
      text += form(pick(kVerbs), many) + (" " + noun_phrase(random_.integer(2), 1));
    }
    if (random_.integer(3) == 0) text += std::string(" ") + pick(kPlaces);
    text[0] = char(text[0] - 'a' + 'A');
    return text + ".";
  }

  Random random_;
};

}  // namespace

std::vector<std::string> grammar_documents(uint64_t seed, size_t bytes) {
  std::vector<std::string> documents;
  for (size_t total = 0; total < bytes; total += documents.back().size()) {
    documents.push_back(Writer(seed, documents.size()).document());
  }
  return documents;
}

}  // namespace horner
