//! A chart as SVG, which any browser shows.

use std::fmt::Write;

const LABEL: f64 = 380.0;
const BARS: f64 = 360.0;
const FIGURE: f64 = 80.0;
const ROW: f64 = 22.0;

/// Horizontal bars from 0, as SVG.
pub(super) fn bars(title: &str, values: &[(String, f64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let (width, height) = (LABEL + BARS + FIGURE, ROW * (values.len() as f64 + 2.0));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"{:.0}\" \
             font-weight=\"bold\">{}</text>\n",
        ROW * 0.9,
        escaped(title)
    );
    for (row, (label, value)) in values.iter().enumerate() {
        let (y, length) = (ROW * (row as f64 + 1.5), BARS * value / most);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.1}\">{}</text><rect x=\"{LABEL}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" \
             fill=\"#3b7dd8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{value:.3}</text>",
            y + ROW * 0.65,
            escaped(label),
            y + ROW * 0.15,
            ROW * 0.7,
            LABEL + length + 6.0,
            y + ROW * 0.65,
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn the_longest_bar_is_the_largest_value_and_names_are_text() {
        let svg = bars("a < b", &[("one & two".into(), 1.0), ("four".into(), 4.0)]);
        assert!(svg.contains("a &lt; b") && svg.contains("one &amp; two"), "{svg}");
        assert!(svg.contains("width=\"360.0\"") && svg.contains("width=\"90.0\""), "{svg}");
        assert!(bars("none", &[]).ends_with("</svg>\n"));
    }
}
