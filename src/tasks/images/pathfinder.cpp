#include "tasks/images/pathfinder.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/check.h"

namespace horner {
namespace {

using Place = Pathfinder::Place;
constexpr double kPi = std::numbers::pi;

struct Dot {
  int64_t pixel;
  double ink;
};

Place advance(Place from, double heading, double by) {
  return {from.row + by * std::sin(heading), from.col + by * std::cos(heading)};
}

double square(double x) { return x * x; }

double distance2(Place a, Place b) { return square(a.row - b.row) + square(a.col - b.col); }

// Squared, of p to the segment from a to b.
double distance2(Place p, Place a, Place b) {
  const double dr = b.row - a.row, dc = b.col - a.col;
  const double length2 = dr * dr + dc * dc;
  const double along = length2 == 0 ? 0 : ((p.row - a.row) * dr + (p.col - a.col) * dc) / length2;
  const double t = std::clamp(along, 0.0, 1.0);
  return distance2(p, {a.row + t * dr, a.col + t * dc});
}

// What lies within `radius` of the segment: shares of samples x samples points of each pixel.
std::vector<Dot> stroke(Place a, Place b, double radius, int64_t samples, int64_t side) {
  std::vector<Dot> dots;
  const auto low = [&](double x, double y) {
    return std::max<int64_t>(0, int64_t(std::floor(std::min(x, y) - radius)));
  };
  const auto high = [&](double x, double y) {
    return std::min<int64_t>(side - 1, int64_t(std::ceil(std::max(x, y) + radius)));
  };
  for (int64_t row = low(a.row, b.row); row <= high(a.row, b.row); ++row) {
    for (int64_t col = low(a.col, b.col); col <= high(a.col, b.col); ++col) {
      int64_t hits = 0;
      for (int64_t i = 0; i < samples * samples; ++i) {
        const double r = (double(i / samples) + 0.5) / double(samples) - 0.5;
        const double c = (double(i % samples) + 0.5) / double(samples) - 0.5;
        hits += distance2({double(row) + r, double(col) + c}, a, b) <= radius * radius;
      }
      if (hits > 0) dots.push_back({row * side + col, double(hits) / double(samples * samples)});
    }
  }
  return dots;
}

struct Snake {
  Place origin{}, tip{};
  double heading = 0;
  int64_t paddles = 0;
  Place end(double step) const { return advance(tip, heading, step); }
};

// The paddles of an image, and where they are.
struct Canvas {
  const PathfinderOptions& o;
  Random& random;
  int64_t margin;
  std::vector<double> occupancy;  // (side,side)

  double step() const { return double(*o.paddle + 2 * margin); }
  bool inside(Place p) const {
    const auto low = double(o.padding), high = double(o.side - 1 - o.padding);
    return p.row >= low && p.row <= high && p.col >= low && p.col <= high;
  }

  double dilated(int64_t row, int64_t col) const {
    double most = 0;
    for (int64_t r = std::max<int64_t>(0, row - margin); r <= std::min(o.side - 1, row + margin);
         ++r)
      for (int64_t c = std::max<int64_t>(0, col - margin); c <= std::min(o.side - 1, col + margin);
           ++c) {
        const int64_t dr = r - row, dc = c - col;
        if (dr * dr + dc * dc > margin * margin) continue;
        most = std::max(most, occupancy[size_t(r * o.side + c)]);
      }
    return most;
  }

  // A paddle that ends at `far`; false where it may not lie there.
  bool put(Place far, double heading, bool crossing) {
    const Place near = advance(far, heading, -double(*o.paddle));
    if (!inside(far) || !inside(near)) return false;
    auto dots = stroke(near, far, *o.thickness / 2, *o.antialias, o.side);
    double brightest = 0, most = 0;
    for (const Dot& dot : dots) brightest = std::max(brightest, dot.ink);
    if (brightest == 0) return false;
    for (Dot& dot : dots) {
      dot.ink /= brightest;
      const double there = occupancy[size_t(dot.pixel)];
      most = std::max(most, crossing ? there + dot.ink : there > 0 ? 2.0 : 0.0);
    }
    if (most >= 1.8) return false;
    for (const Dot& dot : dots) {
      double& there = occupancy[size_t(dot.pixel)];
      there = std::max(there, dot.ink);
    }
    return true;
  }

  bool start(Snake& snake, Place seed, bool crossing) {
    const double heading = double(random.integer(360)) * kPi / 180;
    snake = {seed, seed, heading, 1};
    return put(advance(seed, heading, double(margin + *o.paddle)), heading, crossing);
  }

  bool extend(Snake& snake, bool crossing) {
    const Place pivot = snake.end(step());
    const double radius = double(*o.paddle + margin);
    std::vector<Place> places;
    std::vector<double> sums;
    double sum = 0;
    const auto reach = int64_t(radius) + 1;
    const Place ahead = advance({0, 0}, snake.heading, 1);
    for (int64_t i = -reach; i <= reach; ++i) {
      for (int64_t j = -reach; j <= reach; ++j) {
        const Place p{std::round(pivot.row) + double(i), std::round(pivot.col) + double(j)};
        const double far2 = distance2(p, pivot);
        if (far2 <= square(radius - 0.5) || far2 >= square(radius + 0.5) || !inside(p)) continue;
        const double along = (p.row - pivot.row) * ahead.row + (p.col - pivot.col) * ahead.col;
        const double dtheta = std::acos(std::clamp(along / std::sqrt(far2), -1.0, 1.0));
        const double aligned = std::max(std::cos(std::min(dtheta * *o.continuity, kPi / 2)), 0.0);
        if (aligned < 1e-6) continue;
        const double weight = square(aligned) * (1 - dilated(int64_t(p.row), int64_t(p.col)));
        if (weight <= 1e-12) continue;
        places.push_back(p);
        sums.push_back(sum += weight);
      }
    }
    for (int tries = 0; tries < 4 && !places.empty(); ++tries) {  // one, and 3 more
      const double at = random.uniform() * sum;
      const auto chosen = size_t(std::lower_bound(sums.begin(), sums.end(), at) - sums.begin());
      const Place p = places[std::min(chosen, places.size() - 1)];
      const double heading = std::atan2(p.row - pivot.row, p.col - pivot.col);
      if (!put(p, heading, crossing)) continue;
      snake = {snake.origin, pivot, heading, snake.paddles + 1};
      return true;
    }
    return false;
  }

  bool targets(std::array<Snake, 2>& snakes) {
    const int64_t d = *o.distance;
    const auto free = [&] { return double(2 * d + random.integer(o.side - 4 * d)); };
    const double row = free(), col = free();
    if (!start(snakes[0], {row, col}, true)) return false;
    const Place other = advance({row, col}, double(random.integer(360)) * kPi / 180, double(d));
    if (!start(snakes[1], {std::round(other.row), std::round(other.col)}, true)) return false;
    for (int64_t paddle = 1; paddle < o.contour; ++paddle) {
      for (Snake& snake : snakes) {
        if (!extend(snake, true)) return false;
      }
    }
    return true;
  }

  void distract() {
    const int64_t length = std::max<int64_t>(1, o.contour / 3), room = o.side - 2 * o.padding;
    for (int64_t i = 0; i < *o.distractors / length; ++i) {
      Snake snake;
      bool started = false;
      for (int tries = 0; tries < 100 && !started; ++tries) {
        const int64_t row = o.padding + random.integer(room),
                      col = o.padding + random.integer(room);
        if (dilated(row, col) == 0) started = start(snake, {double(row), double(col)}, false);
      }
      while (started && snake.paddles < length && extend(snake, false)) continue;
    }
  }
};

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
