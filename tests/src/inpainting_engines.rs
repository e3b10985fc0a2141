//! Small engines that fill in the masked part of a picture.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{build_engine, golden_retouches};

/// An engine of the golden LaMa with graphs of 48 × 48 and 64 × 96: `work/engine`.
pub fn inpainting_engine(work: &Path) -> PathBuf {
    let profile = work.join("holes.yaml");
    let text = "name: holes\nprovider: cpu\nprecision: fp32\ntasks:\n  inpaint: { tiles: [48x48, 64x96] }\nfloors: \
                { psnr_db: 100, cosine: 0.999999 }\n";
    fs::write(&profile, text).unwrap();
    let mut networks = golden_retouches().into_iter();
    let network = networks.find(|golden| golden.name == "lama/inpaint.1.golden.safetensors").unwrap();
    let _ = build_engine(work, &network.checkpoint, &profile, &[]).success();
    work.join("engine")
}
