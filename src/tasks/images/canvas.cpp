#include "tasks/images/canvas.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace horner {
namespace {

constexpr double kPi = std::numbers::pi;

double square(double x) { return x * x; }

// Squared, of p to the segment from a to b.
double distance2(Place p, Place a, Place b) {
  const double dr = b.row - a.row, dc = b.col - a.col;
  const double length2 = dr * dr + dc * dc;
  const double along = length2 == 0 ? 0 : ((p.row - a.row) * dr + (p.col - a.col) * dc) / length2;
  const double t = std::clamp(along, 0.0, 1.0);
  return distance2(p, {a.row + t * dr, a.col + t * dc});
}

}  // namespace

double distance2(Place a, Place b) { return square(a.row - b.row) + square(a.col - b.col); }

Place advance(Place from, double heading, double by) {
  return {from.row + by * std::sin(heading), from.col + by * std::cos(heading)};
}

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

bool Canvas::inside(Place p) const {
  const auto low = double(o.padding), high = double(o.side - 1 - o.padding);
  return p.row >= low && p.row <= high && p.col >= low && p.col <= high;
}

double Canvas::dilated(int64_t row, int64_t col) const {
  double most = 0;
  for (int64_t r = std::max<int64_t>(0, row - margin); r <= std::min(o.side - 1, row + margin); ++r)
    for (int64_t c = std::max<int64_t>(0, col - margin); c <= std::min(o.side - 1, col + margin);
         ++c) {
      const int64_t dr = r - row, dc = c - col;
      if (dr * dr + dc * dc > margin * margin) continue;
      most = std::max(most, occupancy[size_t(r * o.side + c)]);
    }
  return most;
}

bool Canvas::put(Place far, double heading, bool crossing) {
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

bool Canvas::start(Snake& snake, Place seed, bool crossing) {
  const double heading = double(random.integer(360)) * kPi / 180;
  snake = {seed, seed, heading, 1};
  return put(advance(seed, heading, double(margin + *o.paddle)), heading, crossing);
}

bool Canvas::extend(Snake& snake, bool crossing) {
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

bool Canvas::targets(std::array<Snake, 2>& snakes) {
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

void Canvas::distract() {
  const int64_t length = std::max<int64_t>(1, o.contour / 3), room = o.side - 2 * o.padding;
  for (int64_t i = 0; i < *o.distractors / length; ++i) {
    Snake snake;
    bool started = false;
    for (int tries = 0; tries < 100 && !started; ++tries) {
      const int64_t row = o.padding + random.integer(room), col = o.padding + random.integer(room);
      if (dilated(row, col) == 0) started = start(snake, {double(row), double(col)}, false);
    }
    while (started && snake.paddles < length && extend(snake, false)) continue;
  }
}

}  // namespace horner
