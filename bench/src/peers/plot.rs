//! Bar charts as SVG, drawn by hand: no library, readable on light and dark pages.

use super::table::number;

const WIDTH: f64 = 760.0;
const LABELS: f64 = 150.0;
const FIGURES: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 10.0;
const TOP: f64 = 62.0;
/// The colours of the series on both kinds of pages.
const LIGHT: [&str; 2] = ["#2563a8", "#8fb8de"];
const DARK: [&str; 2] = ["#6aa9e9", "#35597d"];

/// A chart with a group of horizontal bars for each system.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) series: Vec<&'static str>,
    pub(crate) groups: Vec<Group>,
    pub(crate) digits: usize,
    /// Each step of the axis is ten times the one before.
    pub(crate) is_logarithmic: bool,
}

/// The bars of a system, one for each series.
pub(crate) struct Group {
    pub(crate) label: &'static str,
    pub(crate) values: Vec<Option<f64>>,
}

impl Chart {
    /// The text of the file.
    pub(crate) fn svg(&self) -> String {
        let mut bars = String::new();
        let mut y = TOP;
        for group in &self.groups {
            let height = BAR * as_f64(group.values.len());
            let middle = y + height / 2.0 + 4.0;
            let label = escaped(group.label);
            bars.push_str(&format!(
                "<text class=\"label\" x=\"{:.0}\" y=\"{middle:.0}\">{label}</text>\n",
                LABELS - 10.0
            ));
            for (at, value) in group.values.iter().enumerate() {
                bars.push_str(&self.bar(at, *value, y + BAR * as_f64(at)));
            }
            y += height + GAP;
        }
        let height = y + GAP;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\">\n\
             <title>{title}</title>\n{style}\
             <rect class=\"page\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"16\" y=\"28\">{title}</text>\n{legend}{bars}</svg>\n",
            title = escaped(&self.title),
            style = style(),
            legend = self.legend(),
        )
    }

    fn bar(&self, series: usize, value: Option<f64>, y: f64) -> String {
        let Some(value) = value.filter(|it| it.is_finite()) else {
            return text("none", LABELS + 4.0, y + BAR - 4.0, "–");
        };
        let width = (self.share(value) * (WIDTH - LABELS - FIGURES)).max(1.0);
        let figure =
            text("value", LABELS + width + 6.0, y + BAR - 4.0, &number(value, self.digits));
        let height = BAR - 2.0;
        format!(
            "<rect class=\"s{series}\" x=\"{LABELS:.0}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{height:.0}\"/>\n{figure}"
        )
    }

    /// How much of the width a bar takes.
    fn share(&self, value: f64) -> f64 {
        let values = self.groups.iter().flat_map(|group| group.values.iter().flatten().copied());
        let values: Vec<f64> = values.filter(|it| it.is_finite() && *it > 0.0).collect();
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if !self.is_logarithmic {
            return value / most;
        }
        // From the power of ten below the least.
        let least = values.iter().copied().fold(most, f64::min).log10().floor();
        let most = most.log10().max(least + 1.0);
        ((value.max(f64::MIN_POSITIVE).log10() - least) / (most - least)).clamp(0.0, 1.0)
    }

    fn legend(&self) -> String {
        let mut legend = String::new();
        if self.series.len() < 2 {
            return legend;
        }
        let mut x = 16.0;
        for (at, name) in self.series.iter().enumerate() {
            legend.push_str(&format!(
                "<rect class=\"s{at}\" x=\"{x:.0}\" y=\"38\" width=\"12\" height=\"12\"/>\n"
            ));
            legend.push_str(&text("value", x + 18.0, 48.0, name));
            x += 40.0 + 7.0 * as_f64(name.chars().count());
        }
        legend
    }
}

fn text(class: &str, x: f64, y: f64, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\">{}</text>\n", escaped(text))
}

/// The chart has a background of its own, since a page may be dark while the system is light.
fn style() -> String {
    let series = |colours: [&str; 2]| {
        let rules = colours.iter().enumerate().map(|(at, it)| format!(".s{at}{{fill:{it}}}"));
        rules.collect::<String>()
    };
    format!(
        "<style>text{{font:12px system-ui,sans-serif;fill:#1f2933}}.title{{font-size:15px;font-weight:600}}\
         .label{{text-anchor:end}}.page{{fill:#fff;stroke:#d5dbe1}}{}\
         @media (prefers-color-scheme:dark){{text{{fill:#e4e8ec}}.page{{fill:#161b22;stroke:#363d46}}{}}}</style>\n",
        series(LIGHT),
        series(DARK),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[expect(clippy::cast_precision_loss, reason = "a position needs no more than 52 bits")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(is_logarithmic: bool) -> Chart {
        let group = |label, value| Group { label, values: vec![value] };
        Chart {
            title: "a < b".to_owned(),
            series: vec!["best"],
            groups: vec![group("one", Some(1_000.0)), group("two", Some(10.0)), group("no", None)],
            digits: 0,
            is_logarithmic,
        }
    }

    #[test]
    fn the_longest_bar_has_the_whole_width() {
        let linear = chart(false);
        assert_eq!((linear.share(1_000.0), linear.share(10.0)), (1.0, 0.01));
        let logarithmic = chart(true);
        assert_eq!((logarithmic.share(1_000.0), logarithmic.share(100.0)), (1.0, 0.5));
    }

    #[test]
    fn a_chart_has_its_title_its_figures_and_colours_for_dark_pages() {
        let svg = chart(false).svg();
        for part in ["<title>a &lt; b</title>", ">1,000<", ">–<", "prefers-color-scheme:dark"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
