// Pathfinder's drawing board: strokes of ink, and curves of paddles that keep their distance.
#pragma once

#include "tasks/images/pathfinder.h"

namespace horner {

using Place = Pathfinder::Place;
Place advance(Place from, double heading, double by);
double distance2(Place a, Place b);  // squared

struct Dot {
  int64_t pixel;
  double ink;
};
// Ink within `radius` of the segment: for each pixel the share of its samples x samples points.
std::vector<Dot> stroke(Place a, Place b, double radius, int64_t samples, int64_t side);

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
  bool inside(Place p) const;
  double dilated(int64_t row, int64_t col) const;  // the most ink within the margin
  // Adds a paddle that ends at `far`; false if there is no room.
  bool put(Place far, double heading, bool crossing);
  bool start(Snake& snake, Place seed, bool crossing);
  bool extend(Snake& snake, bool crossing);
  bool targets(std::array<Snake, 2>& snakes);  // both curves; false if one does not fit
  void distract();                             // shorter curves around them
};

}  // namespace horner
