// Pathfinder (arXiv:2011.04006): are the two discs the ends of one curve of paddles?
//
//   side  margin  distance  disc  thickness  continuity  distractors  contrast  paddle  antialias
//   32    1       7         1.5   0.5        1.0         20           0.75      2       2
//   128   2-3     20        3     1.5        1.8         35           0.9       5       4
//
//   label = int(2); seed 1: a pixel 2 distance from the borders, seed 2: at `distance` from it
//   both snakes in turn, until each has `contour` paddles:
//     pivot = tip advanced by paddle + 2 margin along its heading
//     candidates = pixels on the circle of radius paddle + margin around the pivot
//     weight = max(cos(min(|dtheta| continuity, pi/2)), 0)^2 (1 - dilated occupancy)
//     draw one; the segment goes from it back towards the pivot; it is taken if
//     max(occupancy + segment) < 1.8, else another one is drawn (3 times), else the image starts again
//   distractors of contour/3 paddles in the same way, on free pixels only; they may stay short
//   o = int(2): discs on the origin of snake o and on the end of snake o (label 1) or 1-o (label 0)
//   grey = 255 max over layers, rounded once; T = side^2, row by row
//
// Our choices where the public descriptions are open. A tip is the pivot of the last paddle, so the gap between paddles is two
// margins, and the ends of a snake lie one margin beyond its paddles. The brightest pixel of a segment is 1 (then times
// contrast). Dilation takes the maximum within `margin`.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct PathfinderOptions : ExampleOptions {
  int64_t side = 32, contour = 14, padding = 1;
  std::optional<int64_t> margin, margin_most, distance, distractors, paddle, antialias;
  std::optional<double> disc, thickness, continuity, contrast;
  PathfinderOptions() { train = 160000, test = 20000; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit(
        "side", side, "pixels of a side: 32, or 128 for Path-X; none below: its row of the table"
    );
    visit("contour", contour, "paddles of a curve: 6 easy, 9 intermediate, 14 hard");
    visit("padding", padding, "pixels at the border without paddles");
    visit("margin", margin, "half the gap between paddles, in pixels");
    visit("margin_most", margin_most, "it is drawn from margin up to this");
    visit("distance", distance, "between the seeds of the curves");
    visit("distractors", distractors, "paddles of all distractors");
    visit("paddle", paddle, "length of a paddle");
    visit("antialias", antialias, "samples along a pixel");
    visit("disc", disc, "radius of a disc");
    visit("thickness", thickness, "of a paddle");
    visit("continuity", continuity, "how straight the curves are");
    visit("contrast", contrast, "of paddles; discs have 1");
    ExampleOptions::visit(visit);
  }
};

class Pathfinder : public Generated {
 public:
  using Options = PathfinderOptions;
  struct Place {
    double row, col;
  };
  struct Image {
    std::vector<uint8_t> grey;  // (side,side)
    int64_t label;
    std::array<Place, 2> discs;
  };
  explicit Pathfinder(const Options& options);
  TaskShape shape() const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }
  Image image(Split split, int64_t index) const;

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  Image draw(Random& random) const;

  const Options o_;  // with the values of the table filled in
};

}  // namespace horner
