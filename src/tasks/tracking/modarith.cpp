#include "tasks/tracking/modarith.h"

#include "core/check.h"

namespace horner {
namespace {

enum Id : int64_t { plus = 1, minus, times, equals, zero, open = 10, close };
constexpr int64_t kBase = 5;

int64_t apply(int64_t op, int64_t a, int64_t b) {
  const int64_t result = op == plus ? a + b : op == minus ? a - b + kBase : a * b;
  return result % kBase;
}

// Half the length of modarith's examples: numbers, operators between them, "=".
int64_t fewest(const LengthOptions& o, Split split) { return (o.low(split) + 1) / 2; }
int64_t most(const LengthOptions& o, Split split) { return o.high(split) / 2; }

// Writes e(n) from left to right.
struct Writer {
  Random& random;
  int64_t* next;
  int64_t operators;

  int64_t number() {
    const int64_t value = random.integer(kBase);
    *next++ = zero + value;
    return value;
  }

  int64_t negative() {
    *next++ = minus;
    return (kBase - number()) % kBase;
  }

  int64_t expression(int64_t n) {  // its value
    if (n == 1) return number();
    if (n == 2) return negative();
    *next++ = open;
    int64_t value = 0;
    if (n <= 4) {
      value = n == 3 ? number() : negative();
    } else {
      const int64_t a = 1 + random.integer(n - 4);
      const int64_t left = expression(a);
      const int64_t op = *next++ = plus + random.integer(operators);
      value = apply(op, left, expression(n - a - 3));
    }
    *next++ = close;
    return value;
  }
};

// Results need not be equally likely: a product is 0 more often than any other number.
std::vector<Baseline> by_result(const Task& task) {
  std::vector<int64_t> results;
  mean_score(test_sample(task), [&](const auto& targets, const auto&) {
    results.push_back(targets.at(0));
    return 0.0;
  });
  return {
      {"chance", 1.0 / kBase, "any number"},
      {"majority", share_of_most_frequent(results), "the most frequent result"}};
}

}  // namespace

Modarith::Modarith(const Options& o) : Generated(o), o_(o) {
  o.check("modarith", 2);
  for (const Split split : {Split::train, Split::test}) {
    HORNER_CHECK(
        fewest(o, split) <= most(o, split),
        "[modarith] lengths are even; there is none from {} to {}",
        o.low(split),
        o.high(split)
    );
  }
}

TaskShape Modarith::shape() const {
  return {.T = std::max(o_.longest, o_.test_longest), .vocabulary = 10};
}

Layout Modarith::layout(Split split) const {
  return {.T = o_.high(split), .lengths = true, .slices = {"length"}};
}

void Modarith::make(Split split, int64_t, Random& random, Example& example) const {
  const int64_t low = fewest(o_, split);
  const int64_t numbers = low + random.integer(most(o_, split) - low + 1);
  int64_t sum = 0, sign = plus, product = 1;  // result = sum (sign) product
  for (int64_t i = 0; i < numbers; ++i) {
    const int64_t value = random.integer(kBase);
    example.tokens[2 * i] = zero + value;
    product = apply(times, product, value);
    const int64_t op = i == numbers - 1 ? equals : plus + random.integer(3);
    example.tokens[2 * i + 1] = op;
    if (op == times) continue;
    sum = apply(sign, sum, product);
    sign = op;
    product = 1;
  }
  example.length = example.slices[0] = 2 * numbers;
  example.targets[2 * numbers - 1] = zero + sum;
}

std::shared_ptr<Task> Modarith::at_length(int64_t T) const {
  Options options = o_;
  options.test_shortest = options.test_longest = T;
  return std::make_shared<Modarith>(options);
}

std::vector<Baseline> Modarith::baselines() const { return by_result(*this); }

ModarithBrackets::ModarithBrackets(const Options& o) : Generated(o), o_(o) {
  o.check("modarith_brackets", 2);
}

TaskShape ModarithBrackets::shape() const {
  return {.T = std::max(o_.longest, o_.test_longest), .vocabulary = 12};
}

Layout ModarithBrackets::layout(Split split) const {
  return {.T = o_.high(split), .lengths = true, .slices = {"length"}};
}

void ModarithBrackets::make(Split split, int64_t, Random& random, Example& example) const {
  const int64_t low = o_.low(split);
  const int64_t length = low + random.integer(o_.high(split) - low + 1);
  Writer writer{random, example.tokens, o_.times ? 3 : 2};
  const int64_t value = writer.expression(length - 1);
  *writer.next = equals;
  example.targets[length - 1] = zero + value;
  example.length = example.slices[0] = length;
}

std::shared_ptr<Task> ModarithBrackets::at_length(int64_t T) const {
  Options options = o_;
  options.test_shortest = options.test_longest = T;
  return std::make_shared<ModarithBrackets>(options);
}

std::vector<Baseline> ModarithBrackets::baselines() const { return by_result(*this); }

}  // namespace horner
