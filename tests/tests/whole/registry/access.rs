//! Access to a registry, and the trust of our programs: certificates, tokens and passwords.

use super::{assert_equal, program, pull, push};
use end_to_end::{
    Answer, Asked, Authority, ExpiringServer, LocalRegistry, Outcome, RegistrySettings, ScriptedServer, TokenServer,
    demo_engine,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Linux connects this address to this machine, but our programs do not treat it as this machine.
const ELSEWHERE: &str = "0.0.0.0";

/// "me:s3cret-w0rd" in base64, as in headers and in Docker's configuration.
const LOGIN: &str = "bWU6czNjcmV0LXcwcmQ=";

/// Registers the authority of a registry in Podman's way.
fn trust(work: &Path, host: &str, authority: &Authority) -> PathBuf {
    let folder = work.join("config/containers/certs.d").join(host);
    fs::create_dir_all(&folder).unwrap();
    fs::copy(authority.certificate(), folder.join("ca.crt")).unwrap();
    folder
}

/// Writes Docker's configuration for the registry on `host`.
fn configure(work: &Path, host: &str, entry: &Value) {
    fs::create_dir_all(work.join("docker")).unwrap();
    fs::write(work.join("docker/config.json"), json!({ "auths": { host: entry } }).to_string()).unwrap();
}

/// Logs in as `docker login` does.
fn log_in(work: &Path, host: &str, login: &str) {
    configure(work, host, &json!({ "auth": login }));
}

/// Checks that a text has no password, no token, and no header with them.
fn assert_nothing_secret(text: &str) {
    // A web token begins with `{"` in base64.
    for secret in [TokenServer::PASSWORD, TokenServer::IDENTITY_TOKEN, LOGIN, "eyJ"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

/// The requests that a server received, without the headers that only identify the client.
fn lines(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|asked| format!("{} {}", asked.method, asked.path)).collect()
}

#[test]
fn a_registry_with_an_authority_of_its_own_is_trusted_if_the_authority_is_named() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let certificate = ours.sign("IP:127.0.0.1, IP:0.0.0.0");
    let registry =
        LocalRegistry::start_with(RegistrySettings { certificate: Some(&certificate), ..RegistrySettings::default() });
    let (reference, pulled) = (registry.reference("compact"), work.join("pulled"));
    // Without a named authority, a registry on this machine is addressed by HTTP.
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &["answered 400", "it may expect HTTPS"]);
    let _ = pull(work, &reference, &pulled, &[]).failure(1, &["HTTP request to an HTTPS server"]);
    let folder = trust(work, &registry.address, &theirs);
    let words = ["the certificate of the server is not trusted", "does not know the authority", "certs.d"];
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &words);
    let _ = pull(work, &reference, &pulled, &[]).failure(1, &words);
    assert!(!pulled.exists());
    fs::copy(ours.certificate(), folder.join("ours.crt")).unwrap();
    let _ = push(work, &[&demo_engine(), &reference]).success();
    let _ = pull(work, &reference, &pulled, &[]).success();
    assert_equal(demo_engine(), &pulled);
    let _ = Outcome::of(&mut program("runtime", &[&"verify", &"--engine", &reference], work)).success();
    fs::write(folder.join("broken.crt"), "no certificate").unwrap();
    let _ = pull(work, &reference, &pulled, &[]).failure(1, &["broken.crt", "expected a certificate in PEM"]);

    // A host name that the certificate does not have.
    let port = registry.address.rsplit(':').next().unwrap();
    trust(work, &format!("localhost:{port}"), &ours);
    let other = format!("oci://localhost:{port}/compact");
    let _ = pull(work, &other, &pulled, &[]).failure(1, &["not trusted: it is for another host"]);

    // The environment variable for all programs, and a registry on another machine.
    let with = |authority: &Authority, registry: &LocalRegistry| {
        let reference = format!("oci://{ELSEWHERE}:{}/compact", registry.address.rsplit(':').next().unwrap());
        let line: [&dyn AsRef<OsStr>; 4] = [&"pull", &reference, &"-o", &work.join("elsewhere")];
        Outcome::of(program("runtime", &line, work).env("SSL_CERT_FILE", authority.certificate()))
    };
    let _ = with(&theirs, &registry).failure(1, &words);
    let _ = with(&ours, &registry).success();
    assert_equal(demo_engine(), &work.join("elsewhere"));
    let _ = with(&ours, &LocalRegistry::start(false)).failure(1, &["the server does not answer with TLS"]);
}

#[test]
fn tokens_are_asked_for_with_the_rights_that_are_needed() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let authority = Authority::new();
    let tokens = TokenServer::start(&authority, None);
    let registry = LocalRegistry::start_with(RegistrySettings { tokens: Some(&tokens), ..RegistrySettings::default() });
    let (reference, pulled) = (registry.reference("someone/compact"), work.join("pulled"));
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &["401", "no user was given", "docker login"]);
    assert_eq!(tokens.asked().len(), 1);

    // The verbose log has everything except secrets.
    log_in(work, &registry.address, LOGIN);
    let line: [&dyn AsRef<OsStr>; 3] = [&"push", &demo_engine(), &reference];
    let pushed = Outcome::of(program("engine-builder", &line, work).env("RUST_LOG", "trace")).success();
    assert_nothing_secret(&(pushed.stdout + &pushed.stderr));
    let asked = tokens.asked();
    let expected = "GET /token?service=ours&scope=repository";
    assert!(lines(&asked).iter().all(|line| line.starts_with(expected) && line.contains("push")), "{asked:?}");
    let line: [&dyn AsRef<OsStr>; 4] = [&"pull", &reference, &"-o", &pulled];
    let told = Outcome::of(program("runtime", &line, work).env("RUST_LOG", "trace")).success();
    assert_nothing_secret(&(told.stdout + &told.stderr));
    let asked = tokens.asked();
    assert!(!asked.is_empty() && lines(&asked).iter().all(|line| !line.contains("push")), "{asked:?}");
    assert_equal(demo_engine(), &pulled);

    // The configuration that `docker login` writes if a token server gives identity tokens.
    configure(work, &registry.address, &json!({ "auth": "bWU6", "identitytoken": TokenServer::IDENTITY_TOKEN }));
    let _ = push(work, &[&demo_engine(), &reference]).success();
    assert!(tokens.asked().iter().all(|asked| asked.method == "POST" && asked.authorization.is_none()));

    // A wrong password, and a user who may not push: "me:wrong" and "reader:s3cret-w0rd".
    log_in(work, &registry.address, "bWU6d3Jvbmc=");
    let refused = pull(work, &reference, &pulled, &[]).failure(1, &["/token", "401", "for the user that was given"]);
    assert!(!refused.stderr.contains("wrong") && !refused.stderr.contains("bWU6d3Jvbmc="), "{}", refused.stderr);
    log_in(work, &registry.address, "cmVhZGVyOnMzY3JldC13MHJk");
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &["401", "for the user that was given"]);
    let _ = pull(work, &reference, &work.join("read"), &[]).success();
    assert_equal(demo_engine(), &work.join("read"));
}

#[test]
fn a_token_that_expires_in_the_middle_of_a_push_is_renewed() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let authority = Authority::new();
    let tokens = TokenServer::start(&authority, None);
    let registry = LocalRegistry::start_with(RegistrySettings { tokens: Some(&tokens), ..RegistrySettings::default() });
    // A registry accepts tokens for one more minute: these are valid for two or three seconds. The second file's
    // request arrives after the first token has expired. The server refuses each large file once, like a registry
    // whose token has expired since it gave the upload address.
    tokens.live(-57);
    let server = ExpiringServer::start(&registry.address, 300_000, Duration::from_millis(3_500));
    log_in(work, &server.address, LOGIN);
    let reference = format!("oci://{}/compact", server.address);
    let _ = push(work, &[&demo_engine(), &reference]).success();
    assert!(tokens.asked().len() >= 2 && server.refused() >= 1);
    tokens.live(300);
    let _ = pull(work, &reference, &work.join("pulled"), &[]).success();
    assert_equal(demo_engine(), &work.join("pulled"));
}

#[test]
fn registry_and_token_server_are_both_asked_by_https() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let authority = Authority::new();
    let certificate = authority.sign("IP:127.0.0.1");
    let tokens = TokenServer::start(&authority, Some(&certificate));
    let settings = RegistrySettings { certificate: Some(&certificate), tokens: Some(&tokens), password: false };
    let registry = LocalRegistry::start_with(settings);
    trust(work, &registry.address, &authority);
    log_in(work, &registry.address, LOGIN);
    let reference = registry.reference("compact");
    let _ = push(work, &[&demo_engine(), &reference]).success();
    let _ = pull(work, &reference, &work.join("pulled"), &[]).success();
    assert_equal(demo_engine(), &work.join("pulled"));
    assert!(!tokens.asked().is_empty());

    // A token server without encryption receives nothing from users of an encrypted registry, not even on this
    // machine.
    let open = TokenServer::start(&authority, None);
    let settings = RegistrySettings { certificate: Some(&certificate), tokens: Some(&open), password: false };
    let registry = LocalRegistry::start_with(settings);
    trust(work, &registry.address, &authority);
    log_in(work, &registry.address, LOGIN);
    let refused = push(work, &[&demo_engine(), &registry.reference("compact")]);
    let _ = refused.failure(1, &["token server", "passwords would not be encrypted"]);
    assert!(open.asked().is_empty());
}

/// An answer that asks for a password.
fn ask_for_password() -> Answer {
    Answer::status("401 Unauthorized").with("WWW-Authenticate", "Basic realm=\"ours\"")
}

/// An answer that refers to a token server.
fn ask_for_token(realm: &str) -> Answer {
    Answer::status("401 Unauthorized").with("WWW-Authenticate", format!("Bearer realm=\"{realm}\",service=\"ours\""))
}

#[test]
fn a_password_goes_to_its_registry_and_the_token_server_alone() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let other = ScriptedServer::start(None, |_, _| Answer::status("201 Created"));
    let port = other.port;
    let output = work.join("pulled");
    let refused = |reference: &str, words: &[&str]| {
        let refused = pull(work, reference, &output, &[]).failure(1, words);
        assert_nothing_secret(&refused.stderr);
    };
    let nobody = |asked: Vec<Asked>| asked.iter().all(|asked| asked.authorization.is_none() && asked.body.is_empty());

    // A registry that redirects its clients, as many do for files.
    let registry = ScriptedServer::start(None, move |asked, _| match &asked.authorization {
        None => ask_for_password(),
        Some(_) => Answer::status("307 Temporary Redirect").with("Location", format!("http://127.0.0.1:{port}/file")),
    });
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    refused(&format!("oci://{host}/compact"), &["answered 201"]);
    assert!(registry.asked().iter().any(|asked| asked.authorization == Some(format!("Basic {LOGIN}"))));
    let asked = other.asked();
    assert!(lines(&asked) == ["GET /file"] && nobody(asked.clone()), "{asked:?}");

    // A registry that wants its files uploaded to another server.
    let registry = ScriptedServer::start(None, move |asked, _| match (&asked.authorization, &*asked.method) {
        (None, _) => ask_for_password(),
        (_, "POST") => Answer::status("202 Accepted").with("Location", format!("http://127.0.0.1:{port}/upload")),
        (_, "PUT") => Answer::status("500 Internal Server Error"),
        _ => Answer::status("404 Not Found"),
    });
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    let _ = push(work, &[&demo_engine(), &format!("oci://{host}/compact")]).failure(1, &["answered 500"]);
    let asked = other.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.authorization.is_none()), "{:?}", lines(&asked));

    // A token server that redirects its clients. They go there without a password or an identity token.
    let registry = ScriptedServer::start(None, move |asked, own| match asked.path.starts_with("/token") {
        true => Answer::status("307 Temporary Redirect").with("Location", format!("http://127.0.0.1:{port}/token")),
        false => ask_for_token(&format!("http://127.0.0.1:{own}/token")),
    });
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    refused(&format!("oci://{host}/compact"), &["answered 201"]);
    configure(work, &host, &json!({ "auth": "bWU6", "identitytoken": TokenServer::IDENTITY_TOKEN }));
    refused(&format!("oci://{host}/compact"), &["/token", "answered 307"]);
    let asked = other.asked();
    assert!(nobody(asked.clone()), "{asked:?}");

    // A token server on another machine, named by the registry on this one.
    let registry = ScriptedServer::start(None, move |_, _| ask_for_token(&format!("http://{ELSEWHERE}:{port}/token")));
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    refused(&format!("oci://{host}/compact"), &["token server", "passwords would not be encrypted"]);
    assert!(other.asked().is_empty());

    // A registry on another machine, without encryption.
    for answer in [ask_for_password(), ask_for_token(&format!("http://127.0.0.1:{port}/token"))] {
        let registry = ScriptedServer::start(None, move |_, _| answer.clone());
        let host = format!("{ELSEWHERE}:{}", registry.port);
        log_in(work, &host, LOGIN);
        let refused = pull(work, &format!("oci://{host}/compact"), &output, &[&"--plain-http"]);
        let refused = refused.failure(1, &["asks for a password, and the connection is not encrypted", "HTTPS"]);
        assert_nothing_secret(&refused.stderr);
        assert!(nobody(registry.asked()) && other.asked().is_empty());
    }
    assert!(!output.exists());
}

/// Everything about the user that a server received.
fn told(server: &ScriptedServer) -> String {
    format!("{:?}", server.asked().iter().map(|asked| (&asked.authorization, &asked.body)).collect::<Vec<_>>())
}

#[test]
fn a_server_that_the_registry_sends_us_to_asks_for_passwords_in_vain() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let thief = ScriptedServer::start(None, |asked, own| match asked.path.starts_with("/token") {
        true => Answer { body: b"{\"token\":\"x\"}".to_vec(), ..Answer::status("200 OK") },
        false => ask_for_token(&format!("http://127.0.0.1:{own}/token")),
    });
    let basic = ScriptedServer::start(None, |_, _| ask_for_password());
    let (output, engine) = (work.join("pulled"), demo_engine());
    for (port, identity) in [(thief.port, false), (thief.port, true), (basic.port, false)] {
        // The registry itself asks for no password, so the other server is the first to ask.
        let registry = ScriptedServer::start(None, move |asked, _| match &*asked.method {
            "POST" => Answer::status("202 Accepted").with("Location", format!("http://127.0.0.1:{port}/upload")),
            _ => Answer::status("307 Temporary Redirect").with("Location", format!("http://127.0.0.1:{port}/file")),
        });
        let host = format!("127.0.0.1:{}", registry.port);
        match identity {
            true => configure(work, &host, &json!({ "auth": "bWU6", "identitytoken": TokenServer::IDENTITY_TOKEN })),
            false => log_in(work, &host, LOGIN),
        }
        let reference = format!("oci://{host}/compact");
        let words = ["the registry sent us to", "which answers 401", "passwords are for the registry alone"];
        let _ = pull(work, &reference, &output, &[]).failure(1, &words);
        let list: [&dyn AsRef<OsStr>; 3] = [&"pull", &reference, &"--list"];
        let _ = Outcome::of(&mut program("runtime", &list, work)).failure(1, &words);
        let _ = push(work, &[&engine, &reference]).failure(1, &words);
        let _ = push(work, &[&engine, &reference, &"--add"]).failure(1, &words);
        for server in [&thief, &basic, &registry] {
            assert_nothing_secret(&told(server));
        }
        assert!(!output.exists());
    }
    // An upload address on another server, which asks for a password.
    let port = thief.port;
    let registry = ScriptedServer::start(None, move |asked, _| match (&asked.authorization, &*asked.method) {
        (None, _) => ask_for_password(),
        (_, "POST") => Answer::status("202 Accepted").with("Location", format!("//127.0.0.1:{port}/upload")),
        _ => Answer::status("404 Not Found"),
    });
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    let words = ["the registry sent us to", "/upload", "which answers 401"];
    let _ = push(work, &[&engine, &format!("oci://{host}/compact")]).failure(1, &words);
    let asked = thief.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.authorization.is_none()), "{:?}", lines(&asked));
}

#[test]
fn a_password_stays_with_its_registry_on_every_way() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let output = work.join("pulled");
    // Back to the registry over another server: the password is not sent again, and its question is not answered.
    let registry_port = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    let back = registry_port.clone();
    let other = ScriptedServer::start(None, move |_, _| {
        let port = back.load(std::sync::atomic::Ordering::Relaxed);
        Answer::status("302 Found").with("Location", format!("http://127.0.0.1:{port}/again"))
    });
    let port = other.port;
    let registry = ScriptedServer::start(None, move |asked, _| match (&asked.authorization, &*asked.path) {
        (None, _) => ask_for_password(),
        _ => Answer::status("302 Found").with("Location", format!("http://127.0.0.1:{port}/away")),
    });
    registry_port.store(registry.port, std::sync::atomic::Ordering::Relaxed);
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    let _ = pull(work, &format!("oci://{host}/compact"), &output, &[]).failure(1, &["/again", "which answers 401"]);
    let asked = registry.asked();
    let again = asked.iter().filter(|asked| asked.path == "/again");
    assert!(again.clone().count() == 1 && again.clone().all(|asked| asked.authorization.is_none()), "{asked:?}");
    assert!(other.asked().iter().all(|asked| asked.authorization.is_none()));

    // Within the registry, a redirect keeps the password.
    let registry = ScriptedServer::start(None, |asked, _| match (&asked.authorization, &*asked.path) {
        (None, _) => ask_for_password(),
        (_, "/moved") => Answer::status("418 Here"),
        _ => Answer::status("301 Moved").with("Location", "/moved"),
    });
    let host = format!("127.0.0.1:{}", registry.port);
    log_in(work, &host, LOGIN);
    let _ = pull(work, &format!("oci://{host}/compact"), &output, &[]).failure(1, &["answered 418"]);

    // A token server whose address contains a name and a password, or is invalid.
    for realm in ["https://me:word@example.org/token", "/token", "ftp://127.0.0.1/", "https://127.0.0.1:99999/"] {
        let registry = ScriptedServer::start(None, move |_, _| ask_for_token(realm));
        let host = format!("127.0.0.1:{}", registry.port);
        log_in(work, &host, LOGIN);
        let refused = pull(work, &format!("oci://{host}/compact"), &output, &[]).failure(1, &["its token server"]);
        assert_nothing_secret(&refused.stderr);
    }
}

#[test]
fn what_began_with_encryption_goes_on_with_it() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let authority = Authority::new();
    let certificate = authority.sign("IP:127.0.0.1");
    let open = ScriptedServer::start(None, |_, _| Answer::status("200 OK"));
    let port = open.port;
    let registry = ScriptedServer::start(Some(&certificate), move |asked, _| {
        let to = format!("http://127.0.0.1:{port}/open");
        match &*asked.method {
            "POST" => Answer::status("202 Accepted").with("Location", to),
            "HEAD" => Answer::status("404 Not Found"),
            _ => Answer::status("302 Found").with("Location", to),
        }
    });
    let host = format!("127.0.0.1:{}", registry.port);
    trust(work, &host, &authority);
    let reference = format!("oci://{host}/compact");
    let words = ["it sends its clients on to", "/open", "nothing is encrypted"];
    let _ = pull(work, &reference, &work.join("pulled"), &[]).failure(1, &words);
    let _ = push(work, &[&demo_engine(), &reference]).failure(1, &words);
    assert!(open.asked().is_empty());
}
