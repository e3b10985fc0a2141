//! Pictures in and out.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Server, engines, picture, program};

const PATH: &str = "/v1/upscale?engine=model";

/// Width and height of a PNG.
pub(crate) fn size_of(png: &[u8]) -> [u32; 2] {
    assert!(png.starts_with(b"\x89PNG"), "{}", String::from_utf8_lossy(&png[..png.len().min(200)]));
    [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()))
}

/// The compressed pixels of a PNG.
pub(crate) fn pixels(png: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut at = 8;
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            data.extend_from_slice(&png[at + 8..at + 8 + length]);
        }
        at += length + 12;
    }
    data
}

/// Sends a form by curl, with the fields of `fields`, and returns the answer.
pub(crate) fn form(server: &Server, path: &str, picture: &Path, fields: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--form", &format!("image=@{}", picture.display())]);
    command.args(fields.iter().flat_map(|field| ["--form", field]));
    command.arg(format!("http://{}{path}", server.http)).output().unwrap().stdout
}

/// The result of the program `runtime` for a picture in the server's folder.
pub(crate) fn of_the_program(engine: &Path, server: &Server, name: &str, more: &[&str]) -> Vec<u8> {
    let (input, output) = (server.folder().join(name), server.folder().join("program.png"));
    let mut command = Command::new(program("runtime"));
    command.args(["infer", "--engine"]).arg(engine).arg("--input").arg(&input).arg("--output").arg(&output);
    command.args(more).env("CUDA_VISIBLE_DEVICES", "");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    fs::read(output).unwrap()
}

/// The message of an error.
pub(crate) fn error(answer: &[u8]) -> String {
    let answer: Value =
        serde_json::from_slice(answer).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(answer)));
    answer["error"].as_str().unwrap().to_owned()
}

#[test]
fn a_picture_is_enlarged_as_the_runtime_enlarges_it() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let small = picture(&server, "40x30");
    let (status, head, large) = server.request("POST", PATH, &[], &small);
    assert_eq!((status, head.contains("content-type: image/png"), size_of(&large)), (200, true, [160, 120]), "{head}");
    // The program makes the same pixels with the same engine.
    let of_the_program = of_the_program(&engines.path().join("model"), &server, "40x30.png", &[]);
    assert!(pixels(&large) == pixels(&of_the_program));
    // Other formats, by what the client takes, and from its own answers.
    for (accept, begin) in
        [("image/jpeg", &b"\xff\xd8\xff"[..]), ("image/webp", b"RIFF"), ("text/html, */*;q=0.1", b"\x89PNG")]
    {
        let (status, head, body) = server.request("POST", PATH, &[("Accept", accept)], &small);
        assert!(status == 200 && body.starts_with(begin), "{accept}: {head}");
        let (status, head, _) = server.request("POST", PATH, &[], &body);
        assert_eq!(status, 200, "{accept}: {head}");
    }
    // As a form, by curl; without a name, since there is one engine.
    let file = server.folder().join("40x30.png");
    let curl = Command::new("curl")
        .args(["--silent", "--form", &format!("image=@{}", file.display()), "--form", "model=model"])
        .arg(format!("http://{}/v1/images/upscale", server.http))
        .output()
        .unwrap();
    assert_eq!(size_of(&curl.stdout), [160, 120]);
    assert_eq!(server.request("POST", "/v1/upscale", &[], &small).0, 200);
    let (_, _, listed) = server.get("/v1/models");
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!((&listed["object"], &listed["data"][0]["id"]), (&"list".into(), &"model".into()));
}

#[test]
fn what_is_no_picture_or_too_large_is_refused() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--max-megapixels", "1"]);
    let small = picture(&server, "40x30");
    let refused = |path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let (status, _, body) = server.request("POST", path, headers, body);
        (status, error(&body))
    };
    // 100 megapixels of one colour in a hundredth of their bytes.
    let bomb = picture(&server, "10000x10000");
    assert!(bomb.len() < 4 << 20, "{}", bomb.len());
    let before = server.memory();
    let (status, error) = refused(PATH, &[], &bomb);
    assert!(status == 400 && error.contains("10000×10000"), "{status} {error}");
    assert!(server.memory() < before + (50 << 20));
    // A picture with a wrong header, and data that is not a picture.
    let mut lies = small.clone();
    lies[16..24].copy_from_slice(&[0xff; 8]);
    for (body, status) in
        [(&lies[..], 400), (b"", 400), (b"GIF89a", 400), (b"\x89PNG\r\n\x1a\n", 400), (&small[..60], 400)]
    {
        assert_eq!(refused(PATH, &[], body).0, status);
    }
    assert_eq!(refused("/v1/upscale?engine=none", &[], &small).0, 404);
    // What is not known could be meant to change the picture.
    let (status, text) = refused("/v1/upscale?engine=model&format=png", &[], &small);
    assert!(status == 400 && text.contains("found format") && text.contains("output_format"), "{text}");
    let (status, _, webp) =
        server.request("POST", "/v1/upscale?engine=model&output_format=webp", &[("Accept", "*/*")], &small);
    assert!(status == 200 && webp.starts_with(b"RIFF"));
    assert_eq!(refused("/v1/upscale?engine=..%2fmodel", &[], &small).0, 404);
    assert_eq!(refused("/v1/depth", &[], &small).0, 404);
    assert!(refused("/v1/depth?engine=model", &[], &small).1.contains("something else"));
    assert_eq!(refused(PATH, &[("Accept", "text/html")], &small).0, 406);
    assert_eq!(refused(PATH, &[("Content-Type", "application/json")], b"{}").0, 415);
    assert_eq!(refused(PATH, &[("Content-Type", "text/plain")], &small).0, 415);
    let bytes = [("Content-Type", "application/octet-stream")];
    // A timeout of 0 means no own limit, as for requests for tensors.
    assert_eq!(server.request("POST", &format!("{PATH}&timeout=0&priority=0"), &bytes, &small).0, 200);
    let (status, error) = refused(PATH, &[("Accept", "image/webp")], &picture(&server, "5000x1"));
    assert!(status == 400 && error.starts_with("picture: WebP holds at most 16383 pixels"), "{status} {error}");
    assert_eq!(refused(&format!("{PATH}&timeout=-1"), &[], &small).0, 400);
    assert_eq!(refused(&format!("{PATH}&timeout=0.000001"), &[], &small).0, 504);
    let form = [("Content-Type", "multipart/form-data; boundary=x")];
    for body in [
        "",
        "--x",
        "--x\r\n\r\nimage\r\n--x--\r\n",
        "--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n",
    ] {
        assert_eq!(refused("/v1/upscale", &form, body.as_bytes()).0, 400, "{body}");
    }
    let many = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n".repeat(1000) + "--x--\r\n";
    assert!(refused("/v1/upscale", &form, many.as_bytes()).1.contains("at most 32 fields"));
    assert_eq!(refused("/v1/upscale", &[("Content-Type", "multipart/form-data")], b"x").0, 400);
    assert_eq!(server.request("POST", PATH, &[], &small).0, 200);
}
