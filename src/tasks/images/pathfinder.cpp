#include "tasks/images/pathfinder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/interrupt.h"
#include "tasks/images/canvas.h"

namespace horner {
namespace {

template <class T>
void fill(std::optional<T>& field, T value) {
  if (!field) field = value;
}

PathfinderOptions filled(PathfinderOptions o) {
  HORNER_CHECK(
      o.side == 32 || o.side == 128, "[pathfinder] side must be 32 or 128, got {}", o.side
  );
  const bool large = o.side == 128;
  fill<int64_t>(o.margin, large ? 2 : 1);
  fill<int64_t>(o.margin_most, large ? 3 : 1);
  fill<int64_t>(o.distance, large ? 20 : 7);
  fill<int64_t>(o.distractors, large ? 35 : 20);
  fill<int64_t>(o.paddle, large ? 5 : 2);
  fill<int64_t>(o.antialias, large ? 4 : 2);
  fill(o.disc, large ? 3.0 : 1.5);
  fill(o.thickness, large ? 1.5 : 0.5);
  fill(o.continuity, large ? 1.8 : 1.0);
  fill(o.contrast, large ? 0.9 : 0.75);
  return o;
}

}  // namespace

Pathfinder::Pathfinder(const Options& options) : Generated(options), o_(filled(options)) {
  o_.check("pathfinder");
  HORNER_CHECK(
      o_.contour >= 1 && *o_.paddle >= 1 && *o_.distractors >= 0 && o_.padding >= 0 &&
          o_.padding < o_.side / 4,
      "[pathfinder] needs contour, paddle >= 1, distractors >= 0, padding below a quarter"
  );
  HORNER_CHECK(
      *o_.margin >= 1 && *o_.margin_most >= *o_.margin,
      "[pathfinder] needs 1 <= margin <= margin_most, got {} and {}",
      *o_.margin,
      *o_.margin_most
  );
  HORNER_CHECK(
      *o_.distance >= 1 && 4 * *o_.distance < o_.side,
      "[pathfinder] distance must be 1 .. {}, got {}",
      (o_.side - 1) / 4,
      *o_.distance
  );
  const auto at_most = [](const char* name, double value, double most) {
    HORNER_CHECK(value <= most, "[pathfinder] {} must be at most {}, got {}", name, most, value);
  };
  at_most("contour", double(o_.contour), double(o_.side));
  at_most("distractors", double(*o_.distractors), double(o_.side * o_.side));
  at_most("paddle", double(*o_.paddle), double(o_.side) / 2);
  at_most("margin_most", double(*o_.margin_most), double(o_.side) / 8);
  at_most("antialias", double(*o_.antialias), 16);
  at_most("disc", *o_.disc, double(o_.side) / 2);
  at_most("thickness", *o_.thickness, double(o_.side) / 2);
  HORNER_CHECK(
      *o_.antialias >= 1 && *o_.disc >= 1 && *o_.thickness > 0 && *o_.continuity > 0,
      "[pathfinder] needs antialias, disc >= 1 and thickness, continuity > 0"
  );
  HORNER_CHECK(
      *o_.contrast > 0 && *o_.contrast <= 1,
      "[pathfinder] contrast must be in (0,1], got {}",
      *o_.contrast
  );
}

TaskShape Pathfinder::shape() const {
  return {.T = o_.side * o_.side, .vocabulary = 256, .classes = 2, .causal = false};
}

Layout Pathfinder::layout(Split) const {
  return {.T = o_.side * o_.side, .targets = false, .labels = true};
}

Pathfinder::Image Pathfinder::draw(Random& random) const {
  Image image{{}, random.integer(2), {}};
  const auto pixels = size_t(o_.side * o_.side);
  Canvas canvas{o_, random, 0, {}};
  std::array<Snake, 2> snakes;
  for (int64_t tries = 0;; ++tries) {
    stop_if_alone("an image was drawn");
    HORNER_CHECK(tries < 100000, "[pathfinder] two curves of {} paddles do not fit", o_.contour);
    canvas.margin = *o_.margin + random.integer(*o_.margin_most - *o_.margin + 1);
    canvas.occupancy.assign(pixels, 0);
    if (canvas.targets(snakes)) break;
  }
  canvas.distract();
  const int64_t o = random.integer(2);
  const Snake &first = snakes[size_t(o)], &second = snakes[size_t(image.label == 1 ? o : 1 - o)];
  image.discs = {first.origin, second.end(canvas.step())};
  std::vector<double> layers = canvas.occupancy;
  for (double& ink : layers) ink *= *o_.contrast;
  for (Place& disc : image.discs) {
    disc.row = std::clamp(std::round(disc.row), 0.0, double(o_.side - 1));
    disc.col = std::clamp(std::round(disc.col), 0.0, double(o_.side - 1));
    for (const Dot& dot : stroke(disc, disc, *o_.disc, *o_.antialias, o_.side)) {
      layers[size_t(dot.pixel)] = std::max(layers[size_t(dot.pixel)], dot.ink);
    }
  }
  for (const double ink : layers) image.grey.push_back(uint8_t(std::lround(255 * ink)));
  return image;
}

Pathfinder::Image Pathfinder::image(Split split, int64_t index) const {
  Random random = o_.random(split, index);
  return draw(random);
}

void Pathfinder::make(Split, int64_t, Random& random, Example& example) const {
  const Image image = draw(random);
  std::copy(image.grey.begin(), image.grey.end(), example.tokens);
  example.label = image.label;
}

// Distance of the discs and ink, in coarse steps, learned from 500 examples.
std::vector<Baseline> Pathfinder::baselines() const {
  const auto see = [&](Split split) {
    const int64_t n = std::min<int64_t>(500, size(split));
    std::vector<int64_t> indices(static_cast<size_t>(n)), features(indices.size());
    std::iota(indices.begin(), indices.end(), 0);
    at::Tensor labels = at::zeros({n}, at::kLong);
    each_example(indices, [&](int64_t row, int64_t index) {
      const Image picture = image(split, index);
      const auto [a, b] = picture.discs;
      const double apart = std::sqrt(distance2(a, b)) * 16 / double(o_.side);
      const int64_t ink = std::accumulate(picture.grey.begin(), picture.grey.end(), int64_t{0});
      features[size_t(row)] = int64_t(apart) * 1000 + ink * 32 / (255 * o_.side * o_.side);
      labels.mutable_data_ptr<int64_t>()[row] = picture.label;
    });
    return std::pair(features, labels);
  };
  const auto [train, train_labels] = see(Split::train);
  const auto [test, test_labels] = see(Split::test);
  return {
      {"chance", 0.5, "either label"},
      {"shortcut",
       lookup_accuracy(train, train_labels, test, test_labels),
       "distance of the discs and amount of ink, sixteenths of the side by 32nds of the image"}};
}

}  // namespace horner
