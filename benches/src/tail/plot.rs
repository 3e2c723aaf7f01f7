//! Pictures of the tail and of the balance, as SVG under `target/plots`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::Report;
use super::simulation::{SECONDS, SERVERS, SLOW};
use crate::Result;

const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
];
const FONT: (&str, i32) = ("sans-serif", 15);

/// The share of the requests that took longer than a time, both on scales of powers of ten.
pub(super) fn latencies(reports: &[(&str, Report)]) -> Result<()> {
    let path = path("tail.svg")?;
    let root = SVGBackend::new(&path, (900, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Requests that took longer, while one server of 11 is slow for half of the time", FONT)
        .margin(10)
        .margin_right(25)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((150f64..2_200.0).log_scale(), (1e-4..1f64).log_scale())?;
    let percent = |share: &f64| format!("{} %", share * 100.0);
    let millis = |millis: &f64| millis.to_string();
    chart
        .configure_mesh()
        .x_label_formatter(&millis)
        .x_desc("ms")
        .y_desc("share")
        .y_label_formatter(&percent)
        .draw()?;
    for ((name, report), color) in reports.iter().zip(COLORS) {
        let points = (150..2_200).map(|millis| (f64::from(millis), report.share_over(f64::from(millis))));
        let line = LineSeries::new(points.filter(|(_, share)| *share > 0.0), color.stroke_width(2));
        chart.draw_series(line)?.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    root.present()?;
    println!("{}", path.display());
    Ok(())
}

/// What each server got in each second, a panel a contestant.
pub(super) fn balance(reports: &[(&str, Report)]) -> Result<()> {
    let path = path("balance.svg")?;
    let root = SVGBackend::new(&path, (900, 200 * u32::try_from(reports.len())?)).into_drawing_area();
    root.fill(&WHITE)?;
    for (panel, (name, report)) in root.split_evenly((reports.len(), 1)).iter().zip(reports) {
        servers(panel, name, report)?;
    }
    root.present()?;
    println!("{}", path.display());
    Ok(())
}

fn servers(panel: &DrawingArea<SVGBackend<'_>, Shift>, name: &str, report: &Report) -> Result<()> {
    let seconds: Range<f64> = 0.0..SECONDS as f64;
    let mut chart = ChartBuilder::on(panel)
        .caption(format!("{name}: requests a second to each server, the slow one in red"), FONT)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(25)
        .y_label_area_size(50)
        .build_cartesian_2d(seconds, 0..160u32)?;
    chart.configure_mesh().draw()?;
    // The slow one last, above the others.
    for server in (0..SERVERS).filter(|server| *server != SLOW).chain([SLOW]) {
        let style = if server == SLOW { RED.stroke_width(2) } else { RGBColor(170, 170, 170).stroke_width(1) };
        let points = report.served.iter().zip(0u32..).map(|(served, second)| (f64::from(second), served[server]));
        chart.draw_series(LineSeries::new(points, style))?;
    }
    Ok(())
}

fn path(name: &str) -> Result<PathBuf> {
    let folder = Path::new("target/plots");
    std::fs::create_dir_all(folder)?;
    Ok(folder.join(name))
}
