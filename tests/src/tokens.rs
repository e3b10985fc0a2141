//! A token server for registries, as Docker's specification of token authentication defines it.

use crate::certificates::{Authority, Certificate};
use crate::servers::{Answer, Asked, ScriptedServer};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

/// Grants the user `me` every request, and the user `reader` the right to pull; the password of both is
/// [`TokenServer::PASSWORD`]. Other users get nothing.
pub struct TokenServer {
    server: ScriptedServer,
    scheme: &'static str,
    key: Certificate,
    life: Arc<AtomicI64>,
}

impl TokenServer {
    /// The password of all users.
    pub const PASSWORD: &str = "s3cret-w0rd";
    /// The identity token in a configuration that `docker login` has written. It replaces the user `me` and the
    /// password.
    pub const IDENTITY_TOKEN: &str = "1dentity-t0ken";

    /// Starts the server; with a certificate, it accepts only HTTPS.
    pub fn start(authority: &Authority, certificate: Option<&Certificate>) -> Self {
        let (key, life) = (authority.signing_key(), Arc::new(AtomicI64::new(300)));
        let (certificate_text, private) = (fs::read_to_string(&key.certificate).unwrap(), key.key.clone());
        let lives = life.clone();
        let server = ScriptedServer::start(certificate, move |asked, _| {
            let Some(actions) = rights(asked) else { return Answer::status("401 Unauthorized") };
            let sign = |text: &str| {
                let mut openssl = Command::new("openssl");
                openssl.args(["dgst", "-sha256", "-sign"]).arg(&private);
                let mut openssl = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                openssl.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
                openssl.wait_with_output().unwrap().stdout
            };
            let token = token(&certificate_text, asked, &actions, lives.load(Ordering::Relaxed), sign);
            Answer { body: json!({ "token": token }).to_string().into_bytes(), ..Answer::status("200 OK") }
        });
        Self { server, scheme: if certificate.is_some() { "https" } else { "http" }, key, life }
    }

    /// Sets the lifetime of the next tokens in seconds. Registries accept a token for one more minute.
    pub fn live(&self, seconds: i64) {
        self.life.store(seconds, Ordering::Relaxed);
    }

    /// The part of a registry's configuration that sends users here.
    pub fn settings(&self) -> String {
        let (scheme, port, certificate) = (self.scheme, self.server.port, self.key.certificate.display());
        format!(
            "auth: {{ token: {{ realm: '{scheme}://127.0.0.1:{port}/token', service: ours, issuer: ours, \
             rootcertbundle: {certificate} }} }}\n"
        )
    }

    /// The requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        self.server.asked()
    }
}

/// The value of a parameter in the query, or in the body of a POST.
fn parameter(asked: &Asked, name: &str) -> String {
    let query = asked.path.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default();
    let text = if asked.method == "POST" { String::from_utf8_lossy(&asked.body).into_owned() } else { query };
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(known, _)| *known == name).map(|(_, value)| value).unwrap_or_default();
    ["%3A", ":", "%3a", ":", "%2C", ",", "%2c", ",", "%2F", "/", "%2f", "/"]
        .chunks(2)
        .fold(value.to_owned(), |value, pair| value.replace(pair[0], pair[1]))
}

/// The rights of the user; `None` for an unknown user.
fn rights(asked: &Asked) -> Option<Vec<String>> {
    let scope = parameter(asked, "scope");
    let wanted = scope.rsplit(':').next()?.split(',').map(str::to_owned);
    if asked.method == "POST" {
        return (parameter(asked, "refresh_token") == TokenServer::IDENTITY_TOKEN).then(|| wanted.collect());
    }
    let login = asked.authorization.as_ref()?.strip_prefix("Basic ")?;
    let login = String::from_utf8(BASE64_STANDARD.decode(login).ok()?).ok()?;
    match login.split_once(':')? {
        ("me", TokenServer::PASSWORD) => Some(wanted.collect()),
        ("reader", TokenServer::PASSWORD) => Some(wanted.filter(|action| action == "pull").collect()),
        _ => None,
    }
}

/// A JSON Web Token with an RSA signature.
fn token(certificate: &str, asked: &Asked, actions: &[String], life: i64, sign: impl Fn(&str) -> Vec<u8>) -> String {
    let scope = parameter(asked, "scope");
    let name = scope.split(':').nth(1).unwrap();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    let chain: String = certificate.lines().filter(|line| !line.starts_with('-')).collect();
    let header = json!({ "typ": "JWT", "alg": "RS256", "x5c": [chain] });
    let claims = json!({
        "iss": "ours", "sub": "me", "aud": parameter(asked, "service"), "jti": "1",
        "iat": now - 600, "nbf": now - 600, "exp": now + life,
        "access": [{ "type": "repository", "name": name, "actions": actions }],
    });
    let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = sign(&text);
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}
