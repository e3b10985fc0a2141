//! The web page, in a browser, and what other pages may not do.

use serde_json::json;

use crate::clients::python;
use crate::harness::{Server, engines, inpainter, picture, pipelines, repository};

#[test]
fn the_page_works_in_a_browser() {
    let engines = tempfile::tempdir().unwrap();
    end_to_end::copy_folder(pipelines(), engines.path());
    end_to_end::copy_folder(inpainter(), &engines.path().join("remover"));
    let server = Server::start(engines.path(), &["--max-steps", "40"]);
    picture(&server, "64x64");
    let path = server.folder().join("64x64.png");
    let axe = repository("target/server-npm/node_modules/axe-core/axe.min.js");
    assert!(axe.exists(), "{} is not there; run `make test`", axe.display());
    let shots = repository("target/server-page");
    let [axe, path, shots] = [&axe, &path, &shots].map(|path| path.to_str().unwrap());
    python("page.py", &[&server.http, axe, path, shots]);
}

#[test]
fn the_page_loads_its_own_files_alone() {
    let engines = engines();
    let server = Server::start(engines.path(), &[]);
    let (status, head, page) = server.get("/");
    assert_eq!(status, 200);
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "x-content-type-options: nosniff"]
    {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    let page = String::from_utf8(page).unwrap();
    let names = page.split(['"', '\'']).filter(|text| text.starts_with("/page/"));
    for name in names {
        let (status, _, content) = server.get(name);
        assert_eq!(status, 200, "{name}");
        let content = String::from_utf8(content).unwrap();
        let addresses = content.split("://").count() - 1;
        // The only address is the XML namespace of the icon.
        assert_eq!(addresses, usize::from(name.ends_with(".svg")), "{name}");
        assert!(!["innerHTML", "eval(", "document.write"].iter().any(|word| content.contains(word)), "{name}");
    }
    for path in ["/page/", "/page/../keys", "/page/..%2f..%2fkeys", "/page/main.js/"] {
        assert_eq!(server.get(path).0, 404, "{path}");
    }
}

#[test]
fn other_pages_are_refused() {
    let engines = engines();
    let server = Server::start(engines.path(), &["--allow-host", "pictures.example"]);
    let small = picture(&server, "40x30");
    let own = format!("http://{}", server.http);
    let status =
        |host: &str, origin: Option<&str>| {
            let head = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            server.raw(&format!(
            "POST /v1/upscale HTTP/1.1\r\nHost: {host}\r\n{head}Connection: close\r\nContent-Length: {}\r\n\r\n",
            small.len()
        ), &small)
        };
    assert_eq!(status(&server.http, Some(&own)), 200);
    assert_eq!(status(&server.http, None), 200);
    assert_eq!(status("pictures.example", None), 200);
    // A web page whose form or script sends pictures here, and one whose name resolves to this machine.
    for (host, origin) in [
        (server.http.as_str(), Some("https://evil.example")),
        (&server.http, Some("null")),
        (&server.http, Some("http://127.0.0.1:1")),
        ("evil.example", None),
        ("evil.example", Some("http://evil.example")),
        ("127.0.0.1.evil.example", None),
    ] {
        assert_eq!(status(host, origin), 403, "{host} {origin:?}");
    }
    let headers = [("Origin", "https://evil.example"), ("Content-Type", "text/plain")];
    for (method, path) in [
        ("GET", "/v1/models"),
        ("POST", "/sdapi/v1/interrupt"),
        ("POST", "/v2/repository/models/model/unload"),
        ("OPTIONS", "/v1/upscale"),
        ("GET", "/"),
    ] {
        let (status, head, _) = server.request(method, path, &headers, json!({}).to_string().as_bytes());
        assert!(status == 403 && !head.contains("access-control-allow"), "{method} {path}: {head}");
    }
    server.assert_well();
}
