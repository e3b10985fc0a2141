//! Enlarges a photo.

use tileforge::{Engine, OpenOptions, Picture, Setup, Terms, Upscale};

fn main() -> tileforge::Result<()> {
    // The devices of this machine, for any number of engines and callers.
    let host = Setup::default().host()?;
    // A folder, an archive or oci://HOST/NAME:TAG.
    let engine = Engine::open(&host, "engines/cpu/compact-x4", &OpenOptions::default())?;
    let upscaler = engine.upscaler(Upscale::default())?;

    let photo = Picture::open("tests/images/coffee.png")?;
    // Wait for it, await it, watch its progress, or cancel it.
    let request = upscaler.submit(photo, Terms::default())?;
    request.wait()?.write("coffee-x4.png")
}
