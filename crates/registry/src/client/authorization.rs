//! What a registry is told about the user: a password, or a token of the server that the registry names.

use std::sync::PoisonError;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use ureq::Body;
use ureq::http::header::WWW_AUTHENTICATE;
use ureq::http::{Response, Uri};

use super::{Purpose, Registry, answered, read, with};
use crate::credentials::Login;
use crate::error::{Error, Result};
use crate::reason::failed;
use crate::reference::is_loopback;

/// No answer of a token server is larger.
const TOKEN_MAXIMUM_BYTES: u64 = 1 << 20;

/// The answer of a token server.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    /// What is sent with a request.
    pub(super) fn authorization(&self) -> Option<String> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does what an answer of status 401 asks for. Returns whether there is anything new to try.
    pub(super) fn authorize(&self, url: &str, answer: &Response<Body>) -> Result<bool> {
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        for challenge in challenges.flat_map(http_auth::parser::ChallengeParser::new).flatten() {
            let parameter = |name: &str| {
                let mut all = challenge.params.iter();
                all.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_unescaped())
            };
            let value = if challenge.scheme.eq_ignore_ascii_case("bearer") {
                let realm = parameter("realm").ok_or_else(|| answered(url, "expected a token server, found none"))?;
                Some(format!("Bearer {}", self.token(url, &realm, parameter("service").as_deref())?))
            } else if challenge.scheme.eq_ignore_ascii_case("basic") {
                basic(self.login(url)?)
            } else {
                None
            };
            let Some(value) = value else { continue };
            let mut known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = known.as_deref() != Some(&value);
            *known = Some(value);
            return Ok(is_new);
        }
        Ok(false)
    }

    /// Asks a token server for a token for this repository.
    fn token(&self, url: &str, realm: &str, service: Option<&str>) -> Result<String> {
        let login = self.login(url)?;
        let is_trusted = match realm.parse::<Uri>() {
            Ok(uri) if uri.scheme_str() == Some("https") => true,
            Ok(uri) if uri.scheme_str() == Some("http") && !self.encrypted => {
                *login == Login::Anonymous || uri.host().is_some_and(is_loopback)
            }
            _ => false,
        };
        if !is_trusted {
            return Err(Error::OpenTokenServer { url: url.to_owned(), realm: realm.to_owned() });
        }
        let actions = if self.purpose == Purpose::Push { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", self.reference.name());
        let service = service.unwrap_or_default();
        let answer = if let Login::IdentityToken(token) = login {
            self.agent.post(realm).send_form([
                ("grant_type", "refresh_token"),
                ("service", service),
                ("scope", &scope),
                ("client_id", "tileforge"),
                ("refresh_token", token),
            ])
        } else {
            let request = self.agent.get(realm).query("service", service).query("scope", &scope);
            with(request, basic(login).as_deref()).call()
        };
        let mut answer = answer.map_err(|error| failed(realm, &error))?;
        if answer.status().as_u16() != 200 {
            return Err(self.unexpected(realm, &mut answer));
        }
        let bytes = read(&mut answer, TOKEN_MAXIMUM_BYTES, realm)?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|error| answered(realm, format!("no token: {error}")))?;
        token.token.or(token.access_token).ok_or_else(|| answered(realm, "expected a token, found none"))
    }

    /// What the registry is told about the user. `url` has asked for it.
    fn login(&self, url: &str) -> Result<&Login> {
        if let Some(login) = self.login.get() {
            return Ok(login);
        }
        let login = self.credentials.login(self.reference.host())?;
        if login != Login::Anonymous && !self.encrypted && !self.reference.is_loopback() {
            return Err(Error::OpenPassword { url: url.to_owned() });
        }
        Ok(self.login.get_or_init(|| login))
    }
}

/// The header's value that tells a name and a password.
fn basic(login: &Login) -> Option<String> {
    match login {
        Login::Password { name, password } => {
            Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}"))))
        }
        Login::Anonymous | Login::IdentityToken(_) => None,
    }
}
