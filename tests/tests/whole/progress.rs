//! What long commands show on a terminal.

use end_to_end::{command, demo_engine, repository, words};
use std::ffi::OsString;
use std::fs;
use std::process::Command;

/// What `runtime infer` writes to a terminal.
fn shown(arguments: Vec<OsString>) -> String {
    let infer = command("runtime", words(&[&"infer", &"--engine", &demo_engine()]).into_iter().chain(arguments));
    let parts = [infer.get_program()].into_iter().chain(infer.get_args());
    let line: Vec<&str> = parts.map(|part| part.to_str().unwrap()).collect();
    assert!(line.iter().all(|part| !part.contains([' ', '\''])), "{line:?}");
    // Debian's `script` runs a command in a terminal of its own.
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]).env("TERM", "xterm");
    infer.get_envs().for_each(|(name, value)| {
        value.map(|value| terminal.env(name, value));
    });
    let output = terminal.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_folder_counts_its_pictures() {
    let work = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| work.path().join(name));
    fs::create_dir(&from).unwrap();
    let photo = image::open(repository("tests/images/coffee.png")).unwrap();
    for number in 0..12 {
        photo.crop_imm(number * 7, 40, 150, 100).save(from.join(format!("{number}.png"))).unwrap();
    }
    let text = shown(words(&[&"--input", &from, &"--output", &to]));
    assert!(text.contains(" of 12 pictures"), "{text}");
}

#[test]
fn a_film_counts_its_frames_and_says_how_many_a_second() {
    let work = tempfile::tempdir().unwrap();
    let [from, to] = ["from.y4m", "to.y4m"].map(|name| work.path().join(name));
    let (side, frames) = (96, 40);
    let mut film = format!("YUV4MPEG2 W{side} H{side} F25:1 Ip A1:1 C420jpeg\n").into_bytes();
    for number in 0..frames {
        film.extend(b"FRAME\n");
        film.extend((0..side * side * 3 / 2).map(|at| (at * 7 + number * 13) as u8));
    }
    fs::write(&from, film).unwrap();
    let text = shown(words(&[&"--input", &from, &"--output", &to]));
    assert!(text.contains(" frames") && text.contains(" frames a second"), "{text}");
}
