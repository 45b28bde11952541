// Pictures as SVG, from plain numbers: charts, bars and maps.
//
// A picture holds classes, no colours: picture.css gives them, for light and dark. A page has that
// style once; a file of its own gets it by `svg_file`. Lines differ by colour, by the shape of their
// marks, and by name beside them. Every mark carries a title: what a pointer on it shows.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "report/axis.h"

namespace horner {

struct Point {
  double x = 0, y = 0;
  double low = std::numeric_limits<double>::quiet_NaN();  // of an interval around y
  double high = std::numeric_limits<double>::quiet_NaN();
  std::string title = {};  // empty: made from name, x and y
};

struct Line {
  std::string name;
  std::vector<Point> points = {};
  bool line = true;   // joined; else marks alone
  bool marks = true;  // a mark on every point
  bool band = false;  // intervals as a band instead of bars
  bool dashed = false;
  int colour = -1;  // of report/palette.h; -1: its place in the chart
};

struct Chart {
  std::string title;
  Axis x, y;
  std::vector<Line> series = {};
  bool legend = false;  // below; names stand beside the series in any case where `labels`
  bool labels = true;
};

struct Bars {
  struct Bar {
    std::string name;
    double value = 0;
    double low = std::numeric_limits<double>::quiet_NaN();
    double high = std::numeric_limits<double>::quiet_NaN();
    std::string text = {};  // beside the bar; empty: the value
    int colour = 0;
  };
  std::string title;
  Axis value;
  std::vector<Bar> bars = {};
};

// Weights (rows,columns), row-major; blue where positive, orange where negative.
struct HeatMap {
  std::string title, row = "t", column = "s";  // what rows and columns count
  int64_t rows = 0, columns = 0;
  std::vector<double> values = {};
  bool by_row = true;  // colours in proportion to the largest of their row, else of the map
};

// One number for each head of each layer, from pale to full colour. A cell tells its number; NaN stays empty.
struct HeadGrid {
  std::string title, unit;  // unit: what follows a number, " tokens"
  int64_t layers = 0, heads = 0;
  std::vector<double> values = {};       // (layers,heads), row-major
  double low = 0, high = 1;              // the palest and the fullest
  std::string most = {};                 // what the bar says at its full end; empty: high
  std::vector<std::string> titles = {};  // of cells; empty: made from the number
};

// A narrow chart is for a phone: 360 units wide, names in a legend below.
enum class Width { wide, narrow };

std::string svg(const Chart&, Width width = Width::wide);
std::string svg(const Bars&, Width width = Width::wide);
std::string svg(const HeatMap&);
std::string svg(const HeadGrid&);

// One below the other, as one; and in rows of so many.
std::string stacked(const std::string& title, const std::vector<std::string>& pictures);
std::string tiled(
    const std::string& title, const std::vector<std::string>& pictures, size_t columns
);
std::string svg_file(const std::string& picture);  // a file of its own

std::string escape(const std::string& text);  // for XML and HTML, in text and in attributes

}  // namespace horner
