"""The little of SVG that the plot tools share: text, boxes, lines and round axis numbers."""

from xml.sax.saxutils import escape

# Dark on a light plate of their own, so that pictures read on light and dark pages alike.
PLATE = "#fbfbf9"
INK = "#24292f"
FAINT = "#6b7280"
GRID = "#e3e4e1"
FONT = "ui-sans-serif,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


class Svg:
    """Collects elements; sizes and positions are in CSS pixels, y grows downward."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.parts = []

    def raw(self, element):
        self.parts.append(element)

    def rect(self, x, y, width, height, fill, title=None, **attributes):
        body = f"<title>{escape(title)}</title></rect>" if title else "</rect>"
        self.raw(f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{fill}"'
                 f"{_text(attributes)}>{body}")

    def line(self, x1, y1, x2, y2, stroke, width=1.0, **attributes):
        self.raw(f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{stroke}" '
                 f'stroke-width="{width}"{_text(attributes)}/>')

    def polyline(self, points, stroke, width=1.5, **attributes):
        path = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        self.raw(f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width}" '
                 f'stroke-linejoin="round"{_text(attributes)}/>')

    def text(self, x, y, content, size=12, fill=INK, anchor="start", **attributes):
        self.raw(f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
                 f"{_text(attributes)}>{escape(content)}</text>")

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                       f'width="{self.width}" height="{self.height}" font-family="{FONT}">\n'
                       f'<rect width="100%" height="100%" rx="8" fill="{PLATE}"/>\n')
            file.write("\n".join(self.parts))
            file.write("\n</svg>\n")


def text_width(content, size):
    """About how wide a text is; sans-serif letters are a little over half as wide as they are high."""
    return 0.55 * size * len(content)


def ticks(low, high, count):
    """At most about `count` round numbers from `low` to `high`."""
    span = max(high - low, 1e-12)
    power = 1e-9
    while True:
        for factor in (1, 2, 5):
            step = power * factor
            if span / step <= count:
                first = int(low / step) + (1 if low > 0 and low % step else 0)
                return [i * step for i in range(first, int(high / step + 1e-9) + 1)]
        power *= 10


def _text(attributes):
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
