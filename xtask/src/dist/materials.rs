//! The list of everything in a release ("software bill of materials"), in CycloneDX's JSON
//! (<https://cyclonedx.org/docs/1.5/json/>).

use super::checksums::sha256;
use super::components::{Component, Components};
use super::onnxruntime::OnnxRuntime;
use super::target::Target;
use super::version::VERSION;
use serde_json::{Value as Json, json};

/// The list for one target. Equal contents give equal bytes, so it has no serial number.
pub(super) fn of(
    target: &Target,
    components: &Components,
    library: &OnnxRuntime,
    seconds: u64,
) -> Result<Vec<u8>, String> {
    let date = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let date = date.ok_or_else(|| format!("{seconds} seconds since 1970 are no date"))?;
    let product = format!("pkg:generic/tileforge@{VERSION}");
    let runtime = format!("pkg:pypi/onnxruntime@{}?file_name={}", library.version, library.wheel);
    let parts = components.0.iter().map(|(reference, component)| part(reference, component));
    let libraries = library.libraries.iter().map(|(name, bytes)| {
        json!({ "type": "file", "name": name, "hashes": [{ "alg": "SHA-256", "content": sha256(bytes) }] })
    });
    let onnxruntime = json!({
        "type": "library",
        "bom-ref": runtime,
        "name": "onnxruntime",
        "version": library.version,
        "licenses": [{ "expression": "MIT" }],
        "purl": runtime,
        "hashes": [{ "alg": "SHA-256", "content": library.wheel_sha256 }],
        "components": libraries.collect::<Vec<Json>>(),
    });
    let ours = components.0.iter().filter(|(_, component)| component.ours).map(|(reference, _)| reference);
    let direct: Vec<&String> = ours.chain([&runtime]).collect();
    let others = components.0.iter();
    let others = others.map(|(reference, component)| json!({ "ref": reference, "dependsOn": component.depends_on }));
    let dependencies: Vec<Json> = [json!({ "ref": product, "dependsOn": direct })].into_iter().chain(others).collect();
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date.to_string(),
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": "tileforge",
                "version": VERSION,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "purl": product,
            },
            "properties": [{ "name": "tileforge:target", "value": target.triple }],
        },
        "components": parts.chain([onnxruntime]).collect::<Vec<Json>>(),
        "dependencies": dependencies,
    });
    let mut text = serde_json::to_vec_pretty(&list).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

fn part(reference: &str, component: &Component) -> Json {
    let mut part = json!({
        "type": "library",
        "bom-ref": reference,
        "name": component.name,
        "version": component.version,
        "licenses": [{ "expression": component.licence }],
        "purl": reference,
    });
    if let Some(sha256) = &component.sha256 {
        part["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
    }
    part
}
