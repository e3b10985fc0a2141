//! The part of AUTOMATIC1111's API that other programs call, with the requests that they send.

use std::thread;

use serde_json::{Value, json};

use crate::generate::{coded, long};
use crate::harness::{Server, picture, pipelines, program};

const TEXT_TO_IMAGE: &str = "/sdapi/v1/txt2img";

fn read(server: &Server, path: &str) -> Value {
    let (status, head, body) = server.get(path);
    assert_eq!(status, 200, "{path}: {head}");
    serde_json::from_slice(&body).unwrap()
}

/// Open WebUI (`backend/open_webui/routers/images.py`): it reads the options, sets all of them with another engine,
/// and asks for pictures. `info` is stored unchanged.
#[test]
fn open_webui_is_served() {
    let server = Server::start(pipelines(), &[]);
    let mut options = read(&server, "/sdapi/v1/options");
    assert_eq!(options["sd_model_checkpoint"], "sd");
    let models = read(&server, "/sdapi/v1/sd-models");
    assert_eq!((&models[0]["title"], &models[0]["model_name"]), (&"sd".into(), &"sd".into()));
    options["sd_model_checkpoint"] = models[0]["title"].clone();
    assert_eq!(server.post("/sdapi/v1/options", &options).0, 200);
    let content = json!({
        "prompt": "a fox", "batch_size": 2, "width": 64, "height": 64, "steps": 4, "negative_prompt": "rain",
    });
    let (status, answer) = server.post(TEXT_TO_IMAGE, &content);
    assert_eq!((status, answer["images"].as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    assert!(answer["images"][0].as_str().unwrap().starts_with("iVBOR"));
    let info: Value = serde_json::from_str(answer["info"].as_str().unwrap()).unwrap();
    // The answer has the drawn seed, which makes the same pictures again.
    let mut again = content;
    again["seed"] = info["seed"].clone();
    assert_eq!(server.post(TEXT_TO_IMAGE, &again).1["images"], answer["images"]);
    let (status, answer) = server.post("/sdapi/v1/options", &json!({ "sd_model_checkpoint": "none" }));
    assert!(status == 404 && answer["detail"].as_str().unwrap().contains("no model none"), "{answer}");
}

/// SillyTavern (`src/endpoints/stable-diffusion.js` and its extension for pictures).
#[test]
fn silly_tavern_is_served() {
    let server = Server::start(pipelines(), &[]);
    let names = |path: &str| -> Vec<String> {
        let listed = read(&server, path);
        listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let samplers = names("/sdapi/v1/samplers");
    assert!(samplers.iter().any(|name| name == "DPM++ 2M"), "{samplers:?}");
    let schedulers = names("/sdapi/v1/schedulers");
    assert!(schedulers.iter().any(|name| name == "karras"), "{schedulers:?}");
    assert_eq!(names("/sdapi/v1/upscalers"), ["None", "model"]);
    assert!(names("/sdapi/v1/latent-upscale-modes").is_empty());
    assert_eq!(read(&server, "/sdapi/v1/sd-vae"), json!([]));
    assert_eq!(read(&server, "/sdapi/v1/progress")["state"]["job_count"], 0);
    let content = json!({
        "url": "http://localhost:7860", "auth": "", "prompt": "a fox", "negative_prompt": "rain",
        "sampler_name": "DPM++ 2M", "scheduler": "karras", "steps": 4, "cfg_scale": 7, "width": 64, "height": 64,
        "restore_faces": false, "enable_hr": false, "hr_upscaler": "Latent", "hr_scale": 2,
        "hr_additional_modules": [], "denoising_strength": 0.7, "hr_second_pass_steps": 0, "seed": 5,
        "override_settings": { "CLIP_stop_at_last_layers": 1 }, "override_settings_restore_afterwards": true,
        "clip_skip": 1, "save_images": true, "send_images": true, "do_not_save_grid": false,
        "do_not_save_samples": false,
    });
    let (status, answer) = server.post(TEXT_TO_IMAGE, &content);
    assert_eq!((status, answer["images"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
    // The same by OpenAI's interface is the same picture.
    let same = json!({
        "model": "sd", "prompt": "a fox", "negative_prompt": "rain", "scheduler": "DPM++ 2M karras", "steps": 4,
        "guidance_scale": 7, "size": "64x64", "seed": 5,
    });
    assert_eq!(server.post("/v1/images/generations", &same).1["data"][0]["b64_json"], answer["images"][0]);
    for sampler in &samplers {
        let (status, answer) =
            server.post(TEXT_TO_IMAGE, &json!({ "prompt": "x", "sampler_name": sampler, "steps": 2 }));
        assert_eq!(status, 200, "{sampler}: {answer}");
    }
}

#[test]
fn pictures_are_changed_and_enlarged() {
    let server = Server::start(pipelines(), &[]);
    let small = coded(&picture(&server, "64x64"));
    let url = format!("data:image/png;base64,{small}");
    let mut content = json!({ "prompt": "a fox", "init_images": [url], "steps": 4, "seed": 1, "resize_mode": 1 });
    let (status, whole) = server.post("/sdapi/v1/img2img", &content);
    assert_eq!(status, 200, "{whole}");
    // A mask of the other half, and the same mask the other way round.
    content["mask"] = small.clone().into();
    let (_, masked) = server.post("/sdapi/v1/img2img", &content);
    content["inpainting_mask_invert"] = 1.into();
    let (status, inverted) = server.post("/sdapi/v1/img2img", &content);
    assert_eq!(status, 200, "{inverted}");
    let all = [&whole, &masked, &inverted].map(|answer| answer["images"][0].as_str().unwrap());
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    let extra = json!({ "image": small, "upscaler_1": "model", "upscaling_resize": 4 });
    let (status, answer) = server.post("/sdapi/v1/extra-single-image", &extra);
    assert!(status == 200 && answer["image"].as_str().unwrap().starts_with("iVBOR"), "{answer}");
    let (status, answer) =
        server.post("/sdapi/v1/extra-single-image", &json!({ "image": small, "upscaling_resize": 2 }));
    assert!(status == 400 && answer["detail"].as_str().unwrap().contains("expected 4"), "{answer}");
}

#[test]
fn progress_is_seen_and_interruption_ends_it() {
    let server = Server::start(pipelines(), &["--max-requests", "1"]);
    let answer = thread::scope(|scope| {
        let mut content = long();
        content["batch_size"] = 10.into();
        let asking = scope.spawn({
            let server = &server;
            move || server.post(TEXT_TO_IMAGE, &content)
        });
        // A full server still answers these requests.
        server.wait_until("a preview", |server| read(server, "/sdapi/v1/progress")["current_image"].is_string());
        let progress = read(&server, "/sdapi/v1/progress?skip_current_image=true");
        assert!(progress["progress"].as_f64().unwrap() > 0.0 && progress["current_image"].is_null(), "{progress}");
        assert_eq!((&progress["state"]["job"], &progress["state"]["job_count"]), (&"txt2img".into(), &1.into()));
        assert_eq!(server.post("/sdapi/v1/interrupt", &json!({})).0, 200);
        asking.join().unwrap()
    });
    assert!(answer.0 == 409 && answer.1["detail"] == "the request was interrupted", "{answer:?}");
    assert_eq!(read(&server, "/sdapi/v1/progress")["state"]["job_count"], 0);
    server.wait_until("room", |server| server.figure("nv_inference_pending_request_count") == 0.0);
    server.assert_well();
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let server = Server::start(pipelines(), &[]);
    for (words, content) in [
        ("enable_hr", json!({ "enable_hr": true })),
        ("restore_faces", json!({ "restore_faces": true })),
        ("tiling", json!({ "tiling": true })),
        ("CLIP_stop_at_last_layers", json!({ "override_settings": { "CLIP_stop_at_last_layers": 2 } })),
        ("sd_vae", json!({ "override_settings": { "sd_vae": "other.safetensors" } })),
        ("alwayson_scripts", json!({ "alwayson_scripts": { "ADetailer": { "args": [[[1]]] } } })),
        ("init_images", json!({ "init_images": [] })),
        ("width", json!({ "width": 64 })),
        ("size: expected one of", json!({ "width": 4_294_967_295_u32, "height": 4_294_967_295_u32 })),
        ("n: expected", json!({ "batch_size": 4_294_967_296_u64, "n_iter": 4_294_967_296_u64 })),
        ("the body", json!({ "seed": "x" })),
        ("steps", json!({ "steps": 1_000_000 })),
        ("scheduler", json!({ "scheduler": "karras" })),
        ("the body", json!([])),
        ("the body", json!({ "prompt": 5 })),
    ] {
        let (status, answer) = server.post(TEXT_TO_IMAGE, &content);
        assert!(status == 400 && answer["detail"].as_str().unwrap().contains(words), "{content}: {answer}");
    }
    for content in [json!({}), json!({ "init_images": ["", ""] }), json!({ "init_images": ["data:,x"] })] {
        assert_eq!(server.post("/sdapi/v1/img2img", &content).0, 400, "{content}");
    }
    assert_eq!(server.post("/sdapi/v1/extra-single-image", &json!({})).0, 400);
    assert_eq!(server.post(TEXT_TO_IMAGE, &json!({ "prompt": "x", "steps": 1 })).0, 200);
}

/// The key is the password of any user: these programs support only `Basic`.
#[test]
fn keys_are_taken_as_passwords() {
    let keys = tempfile::tempdir().unwrap();
    let file = keys.path().join("keys");
    let output = std::process::Command::new(program("tileforge-server"))
        .args(["key", "me", "--keys"])
        .arg(&file)
        .output()
        .unwrap();
    let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let server = Server::start(pipelines(), &["--keys", file.to_str().unwrap()]);
    let status = |user: &str| {
        let value = format!("Basic {}", coded(user.as_bytes()));
        server.request("GET", "/sdapi/v1/options", &[("Authorization", &value)], b"").0
    };
    assert_eq!([status(&format!("any:{key}")), status("any:other"), status(&key), status("")], [200, 401, 401, 401]);
    assert_eq!(server.get("/sdapi/v1/options").0, 401);
    // The page itself needs no key; its requests do.
    assert_eq!([server.get("/").0, server.get("/page/main.js").0, server.get("/v1/models").0], [200, 200, 401]);
}
