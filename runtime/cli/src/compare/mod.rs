//! `runtime compare`: measures the difference of two pictures, or of the pictures of two folders.

mod likeness;
mod pairs;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tileforge_image::{Difference, LevelRows, Limits};
use tileforge_terminal::{print, print_json, whole};

use super::failure::{CommandResult, Failure};
use super::figures::decibels;
pub(crate) use likeness::{Likeness, Places, Summary, as_png, similarity};
pub(crate) use pairs::pictures_in;
use pairs::{Pair, pairs};

const EXAMPLES: &str = "\
Examples:
  runtime compare before.png after.png
  runtime compare before.png after.png --crop 4 --json
  runtime compare before.png after.png --side-by-side both.png --difference difference.png --amplify 16
  runtime compare expected/ made/ --minimum-psnr 40 --minimum-ssim 0.98

Pictures of two folders are compared by their names; one without a partner is an error. SSIM is the structural
similarity with a Gaussian window of 11×11 (σ 1.5), the mean over red, green and blue.";

/// Compare two pictures of one size, or the pictures of two folders: PSNR, SSIM, largest and mean difference, in levels
/// of 8 bits.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// One picture, or a folder.
    one: PathBuf,
    /// The other.
    other: PathBuf,
    /// Leave out this many pixels at each edge.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u32>(..))]
    crop: u32,
    #[command(flatten)]
    likeness: Likeness,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let likeness = &arguments.likeness;
    let pairs = pairs(&arguments.one, &arguments.other)?;
    let places: Vec<_> = pairs.iter().map(|pair| likeness.places(pair.name.as_deref())).collect();
    let in_folders = pairs.iter().any(|pair| pair.name.is_some());
    likeness.prepare(&places.iter().collect::<Vec<_>>(), &[], &[&arguments.one, &arguments.other], in_folders)?;
    let mut found = Vec::with_capacity(pairs.len());
    for (pair, places) in pairs.iter().zip(&places) {
        let difference = compare(pair, arguments.crop, places, likeness)?;
        let name = pair.name.as_deref().unwrap_or(&pair.other).display().to_string();
        if !arguments.json && pair.name.is_some() {
            print(&format!("{name}: {}", line(&difference)))?;
        }
        found.push((name, difference));
    }
    match found.as_slice() {
        [(_, difference)] if !in_folders => {
            if arguments.json {
                print_json(difference)?;
            } else {
                print(&lines(difference))?;
            }
        }
        _ if arguments.json => {
            let mut everything = json!({ "files": found.iter().map(object).collect::<Vec<_>>() });
            for more in [Summary::new(&found).json(), likeness.floors()] {
                if let (Some(everything), Value::Object(more)) = (everything.as_object_mut(), more) {
                    everything.extend(more);
                }
            }
            print_json(&everything)?;
        }
        _ => print(&Summary::new(&found).text())?,
    }
    likeness.check(&found)
}

/// Reads both pictures row by row.
fn compare(pair: &Pair, crop: u32, places: &Places, likeness: &Likeness) -> Result<Difference, Failure> {
    let open = |path: &Path| LevelRows::open(path, &Limits::default());
    let (mut one, mut other) = (open(&pair.one)?, open(&pair.other)?);
    let size = one.size();
    if other.size() != size {
        let problem = format!("expected the size of {}, {size}, found {}", pair.one.display(), other.size());
        return Err(tileforge_image::Error::image(&pair.other, problem).into());
    }
    likeness
        .compare(size, crop, places, |take| (0..size.height).try_for_each(|_| take(one.next_row()?, other.next_row()?)))
}

fn object((name, difference): &(String, Difference)) -> Value {
    let mut object = json!(difference);
    object["name"] = name.as_str().into();
    object
}

fn line(difference: &Difference) -> String {
    let Difference { psnr_db, ssim, maximum, .. } = difference;
    format!("PSNR {}, SSIM {}, largest difference {maximum}", decibels(*psnr_db), similarity(*ssim))
}

fn lines(difference: &Difference) -> String {
    format!(
        "PSNR               {}\nSSIM               {}\nlargest difference {}\nmean difference    {:.4}",
        decibels(difference.psnr_db),
        similarity(difference.ssim),
        difference.maximum,
        difference.mean
    )
}
