//! Compares pairs of pictures: their figures, pictures of their differences, and the minimums that they must reach.
//! Shared by `compare` and `evaluate`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tileforge_files::outputs;
use tileforge_image::{Comparison, Difference, Format, Header, ImageWriter, RowSink, Size};
use tileforge_terminal::{counted, number, whole};

use super::super::failure::{CommandResult, Failure};
use super::super::figures::decibels;

/// What two pictures have to reach, and the pictures that show how they differ.
#[derive(clap::Args)]
pub(crate) struct Likeness {
    /// Fail (exit code 4) if a PSNR is lower.
    #[arg(long, value_name = "DB", value_parser = number(0.0..=1000.0))]
    minimum_psnr: Option<f64>,
    /// Fail (exit code 4) if a structural similarity is lower; 1 is that of identical pictures.
    #[arg(long, value_name = "S", value_parser = number(-1.0..=1.0))]
    minimum_ssim: Option<f64>,
    /// Write both pictures side by side; a folder for pictures of a folder.
    #[arg(long, value_name = "OUT")]
    side_by_side: Option<PathBuf>,
    /// Write where they differ, amplified, on black; a folder for pictures of a folder.
    #[arg(long, value_name = "OUT")]
    difference: Option<PathBuf>,
    /// The factor by which --difference amplifies.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "difference",
        value_parser = whole::<u16>(1..=255))]
    amplify: u16,
}

/// Takes a row of both pictures, `[width, 3]`.
pub(super) type TakeRow<'t> = &'t mut dyn FnMut(&[u8], &[u8]) -> tileforge_image::Result<()>;

/// The output files of one pair.
pub(crate) struct Places {
    side_by_side: Option<PathBuf>,
    difference: Option<PathBuf>,
}

impl Likeness {
    /// Where the pictures of a pair go: `name` is its name in a folder, `None` without folders.
    pub(crate) fn places(&self, name: Option<&Path>) -> Places {
        let place = |output: &Option<PathBuf>| {
            output.as_ref().map(|output| name.map_or_else(|| output.clone(), |name| output.join(as_png(name))))
        };
        Places { side_by_side: place(&self.side_by_side), difference: place(&self.difference) }
    }

    /// Refuses outputs that are also inputs, that coincide, or that have no known format. Makes the folders for
    /// pictures `of_folders`.
    pub(crate) fn prepare(
        &self,
        places: &[&Places],
        more: &[&Path],
        read: &[&Path],
        of_folders: bool,
    ) -> CommandResult {
        let written = |places: &&Places| -> Vec<PathBuf> {
            [&places.side_by_side, &places.difference].into_iter().flatten().cloned().collect()
        };
        let pictures: Vec<PathBuf> = places.iter().flat_map(written).collect();
        let all: Vec<&Path> = pictures.iter().map(PathBuf::as_path).chain(more.iter().copied()).collect();
        outputs::check(&all, read)?;
        // An engine's result is a PNG for every input name.
        for path in &pictures {
            Format::of_name(path)?;
        }
        let folders = all.iter().filter_map(|path| path.parent()).filter(|_| of_folders);
        for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|source| Failure::file(folder, "create the folder", source))?;
        }
        Ok(())
    }

    /// Compares two pictures of this size. `rows` reads them and calls its argument once for each pair of rows.
    pub(crate) fn compare(
        &self,
        size: Size,
        border: u32,
        places: &Places,
        rows: impl FnOnce(TakeRow<'_>) -> tileforge_image::Result<()>,
    ) -> Result<Difference, Failure> {
        let mut comparison = Comparison::new(size, border)?;
        let writer = |path: &Option<PathBuf>, size: Size| {
            let create = |path: &PathBuf| ImageWriter::create(path, Format::of_name(path)?, Header::of_levels(size));
            path.as_ref().map(create).transpose()
        };
        let twice = Size { width: size.width.saturating_mul(2), height: size.height };
        let (mut beside, mut apart) = (writer(&places.side_by_side, twice)?, writer(&places.difference, size)?);
        let mut row = Vec::new();
        rows(&mut |one, other| {
            comparison.row(one, other);
            if let Some(beside) = &mut beside {
                row.clear();
                row.extend_from_slice(one);
                row.extend_from_slice(other);
                beside.write_rows(&row)?;
            }
            if let Some(apart) = &mut apart {
                let amplified =
                    |(one, other): (&u8, &u8)| (u16::from(one.abs_diff(*other)) * self.amplify).min(255) as u8;
                row.clear();
                row.extend(one.iter().zip(other).map(amplified));
                apart.write_rows(&row)?;
            }
            Ok(())
        })?;
        for writer in [beside, apart].into_iter().flatten() {
            Box::new(writer).finish()?;
        }
        Ok(comparison.finish())
    }

    /// The minimums as JSON.
    pub(crate) fn floors(&self) -> Value {
        json!({ "minimum_psnr_db": self.minimum_psnr, "minimum_ssim": self.minimum_ssim })
    }

    /// The minimum that a pair misses, as a text.
    fn missed(&self, found: &Difference) -> Option<String> {
        let psnr = self.minimum_psnr.zip(found.psnr_db).filter(|(minimum, found)| found < minimum);
        if let Some((minimum, found)) = psnr {
            return Some(format!("expected a PSNR of at least {minimum} dB, found {found:.3} dB"));
        }
        match (self.minimum_ssim, found.ssim) {
            (Some(minimum), Some(found)) if found < minimum => {
                Some(format!("expected an SSIM of at least {minimum}, found {found:.5}"))
            }
            (Some(minimum), None) if found.psnr_db.is_some() => Some(format!(
                "expected an SSIM of at least {minimum}, found none: the pictures have less than 11 pixels on a side"
            )),
            _ => None,
        }
    }

    /// Fails if a pair misses a minimum.
    pub(crate) fn check(&self, pairs: &[(String, Difference)]) -> CommandResult {
        let missed: Vec<String> = pairs
            .iter()
            .filter_map(|(name, found)| self.missed(found).map(|missed| format!("{name}: {missed}")))
            .collect();
        match missed.as_slice() {
            [] => Ok(()),
            [one] => Err(Failure::Gate(one.clone())),
            several => {
                let shown = several.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join("\n  ");
                let more = several.len().saturating_sub(MOST_NAMES);
                let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
                Err(Failure::Gate(format!("{} of {} pictures:\n  {shown}{more}", several.len(), pairs.len())))
            }
        }
    }
}

/// The most names in a message.
pub(super) const MOST_NAMES: usize = 10;

/// The name with the ending of PNG.
pub(crate) fn as_png(name: &Path) -> PathBuf {
    if name.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png")) {
        return name.to_owned();
    }
    // Not `with_extension`: a.jpg and a.tif would have one name.
    let mut longer = name.as_os_str().to_owned();
    longer.push(".png");
    longer.into()
}

/// "0.98765", or what stands for a picture that is too small.
pub(crate) fn similarity(value: Option<f64>) -> String {
    value.map_or("none".into(), |value| format!("{value:.5}"))
}

/// The worst and the mean of several pairs.
pub(crate) struct Summary {
    /// The pair of the lowest PSNR, or of the lowest SSIM; `None` if all are identical.
    worst: Option<(String, Difference)>,
    /// The mean of the pairs that differ.
    mean_psnr_db: Option<f64>,
    mean_ssim: Option<f64>,
    identical: usize,
    count: usize,
}

impl Summary {
    pub(crate) fn new(pairs: &[(String, Difference)]) -> Self {
        let mean =
            |figures: Vec<f64>| (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64);
        let psnr = |pair: &&(String, Difference)| pair.1.psnr_db.unwrap_or(f64::INFINITY);
        let worst = pairs.iter().min_by(|one, other| psnr(one).total_cmp(&psnr(other)));
        Self {
            worst: worst.filter(|(_, found)| found.psnr_db.is_some()).cloned(),
            mean_psnr_db: mean(pairs.iter().filter_map(|(_, found)| found.psnr_db).collect()),
            mean_ssim: mean(pairs.iter().filter_map(|(_, found)| found.ssim).collect()),
            identical: pairs.iter().filter(|(_, found)| found.psnr_db.is_none()).count(),
            count: pairs.len(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let worst = self.worst.as_ref();
        json!({
            "count": self.count,
            "identical": self.identical,
            "worst": worst.map(|(name, found)| json!({ "name": name, "psnr_db": found.psnr_db, "ssim": found.ssim })),
            "mean_psnr_db": self.mean_psnr_db,
            "mean_ssim": self.mean_ssim,
        })
    }

    pub(crate) fn text(&self) -> String {
        let pairs = counted(self.count, "pair");
        let Some((name, found)) = &self.worst else { return format!("{pairs}, all identical") };
        let worst = format!("PSNR {}, SSIM {} ({name})", decibels(found.psnr_db), similarity(found.ssim));
        let (psnr, ssim) = (decibels(self.mean_psnr_db), similarity(self.mean_ssim));
        let identical = self.identical;
        format!("worst  {worst}\nmean   PSNR {psnr} of those that differ, SSIM {ssim}\n{pairs}, {identical} identical")
    }
}
