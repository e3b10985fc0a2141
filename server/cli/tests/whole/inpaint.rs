//! Pictures that are filled in where a mask is white.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Server, engines, inpainter, picture};
use crate::pictures::{error, form, of_the_program, pixels, size_of};

/// A folder of engines with `model`, which enlarges, and `eraser`.
fn both() -> tempfile::TempDir {
    let folder = engines();
    end_to_end::copy_folder(inpainter(), &folder.path().join("eraser"));
    folder
}

/// Writes a mask of this size, white in a part of it, to a folder.
pub(crate) fn mask(folder: &Path, [width, height]: [u32; 2]) -> PathBuf {
    let path = folder.join(format!("mask-{width}x{height}.png"));
    let is_white = |x: u32, y: u32| (5..20).contains(&x) && (3..9).contains(&y);
    let level = |x, y| image::Luma([if is_white(x, y) { 255 } else { 0 }]);
    image::GrayImage::from_fn(width, height, level).save(&path).unwrap();
    path
}

/// The field of a form.
pub(crate) fn field(mask: &Path) -> String {
    format!("mask=@{}", mask.display())
}

#[test]
fn a_picture_is_filled_in_as_the_runtime_fills_it_in() {
    let engines = both();
    let server = Server::start(engines.path(), &[]);
    let given = picture(&server, "47x31");
    let file = server.folder().join("47x31.png");
    let hole = mask(server.folder(), [47, 31]);
    let expected = of_the_program(inpainter(), &server, "47x31.png", &["--mask", hole.to_str().unwrap()]);
    // The mask may come before its picture, too, and one engine of the folder fits.
    let white = field(&hole);
    for fields in [&[white.as_str()][..], &["engine=eraser", &white, "timeout=0", "priority=1"]] {
        let made = form(&server, "/v1/inpaint", &file, fields);
        assert_eq!(size_of(&made), [47, 31]);
        assert!(pixels(&made) == pixels(&expected) && pixels(&made) != pixels(&given));
    }
    let job: Value = serde_json::from_slice(&form(&server, "/v1/jobs/inpaint", &file, &[&white])).unwrap();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let job = || serde_json::from_slice::<Value>(&server.get(&path).2).unwrap();
    server.wait_until("done", |_| job()["status"] == "completed");
    let (_, head, made) = server.get(&format!("{path}/result"));
    assert!(head.contains("content-type: image/png") && pixels(&made) == pixels(&expected), "{head}");
    let (_, _, listed) = server.get("/v1/models/eraser");
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!((&listed["task"], &listed["needs_mask"]), (&"inpaint".into(), &true.into()));
    assert_eq!(server.figure("nv_inference_request_success{model=\"eraser\"}"), 3.0);
    server.assert_well();
}

#[test]
fn masks_that_do_not_fit_are_refused() {
    let engines = both();
    let server = Server::start(engines.path(), &["--max-megapixels", "1"]);
    let given = picture(&server, "47x31");
    let file = server.folder().join("47x31.png");
    let before = server.memory();
    // Neither a form without a mask nor a picture alone.
    assert_eq!(error(&form(&server, "/v1/inpaint", &file, &[])), "expected a picture as the field mask");
    let (status, _, answer) = server.request("POST", "/v1/inpaint", &[], &given);
    assert_eq!((status, error(&answer).as_str()), (400, "expected a picture as the field mask"));
    let text = error(&form(&server, "/v1/inpaint", &file, &["mask=white"]));
    assert_eq!(text, "expected a picture as the field mask");
    let none = server.folder().join("none.png");
    fs::write(&none, "").unwrap();
    assert_eq!(error(&form(&server, "/v1/inpaint", &file, &[&field(&none)])), "expected a picture, found nothing");
    fs::write(&none, "no picture").unwrap();
    assert!(error(&form(&server, "/v1/inpaint", &file, &[&field(&none)])).len() < 300);
    let other = field(&mask(server.folder(), [31, 47]));
    let found = error(&form(&server, "/v1/inpaint", &file, &[&other]));
    assert_eq!(found, "mask: expected 47x31, as the picture, found 31x47");
    // 100 megapixels in few bytes, as the mask and as the picture.
    picture(&server, "10000x10000");
    let bomb = server.folder().join("10000x10000.png");
    for (picture, mask) in [(&file, &bomb), (&bomb, &file)] {
        let found = error(&form(&server, "/v1/inpaint", picture, &[&field(mask)]));
        assert!(found.contains("10000×10000"), "{found}");
    }
    assert!(server.memory() < before + (60 << 20));
    // Each engine is used only for its own task.
    let hole = field(&mask(server.folder(), [47, 31]));
    for path in ["/v1/inpaint?engine=model", "/v1/upscale?engine=eraser", "/v1/jobs/depth?engine=eraser"] {
        let found = error(&form(&server, path, &file, &[&hole]));
        assert!(found.contains("something else"), "{path}: {found}");
    }
    assert_eq!(error(&form(&server, "/v1/inpaint?engine=../eraser", &file, &[&hole])), "there is no model ../eraser");
    server.assert_well();
}
