//! Prints the seconds that an engine takes for each picture, with the pictures already in memory: `upscale_time ENGINE
//! PICTURE…`. The first three are a warm-up. The results are kept, as a program that uses them would.

use std::io::{self, Write};
use std::time::Instant;

use tileforge::{Engine, OpenOptions, Picture, Setup, Upscale};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().ok_or("expected an engine, and pictures")?;
    let pictures = arguments.map(Picture::open).collect::<tileforge::Result<Vec<_>>>()?;
    let host = Setup::default().host()?;
    let upscaler = Engine::open(&host, &source, &OpenOptions::default())?.upscaler(Upscale::default())?;
    for picture in pictures.iter().take(3) {
        let _ = upscaler.upscale(picture.clone())?;
    }
    let began = Instant::now();
    let made = pictures.into_iter().map(|picture| upscaler.upscale(picture)).collect::<tileforge::Result<Vec<_>>>()?;
    writeln!(io::stdout(), "{}", began.elapsed().as_secs_f64())?;
    drop(made);
    Ok(())
}
