//! The credentials that are sent to a registry: a password, or a token from the token server that the registry names.

use std::sync::PoisonError;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use ureq::http::Method;
use ureq::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};

use super::{Purpose, Registry, answered, read};
use crate::credentials::Login;
use crate::error::{Error, Result};
use crate::http::{Address, Answer, form};
use crate::reference::is_loopback;

/// The largest answer of a token server.
const TOKEN_MAXIMUM_BYTES: u64 = 1 << 20;

/// The answer of a token server.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    /// The `Authorization` header of a request.
    pub(super) fn authorization(&self) -> Option<String> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Handles the challenge in an answer of status 401 from the registry itself. Returns whether there are new
    /// credentials to try.
    pub(super) fn authorize(&self, url: &Address, answer: &Answer) -> Result<bool> {
        let url = &url.to_string();
        let challenges =
            answer.response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
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
    ///
    /// The registry may name a token server on any host, as Docker Hub does: it could ask for the password itself as
    /// well. But the connection to the token server must be at least as safe as the connection to the registry.
    fn token(&self, url: &str, realm: &str, service: Option<&str>) -> Result<String> {
        let login = self.login(url)?;
        let problem = |problem: String| answered(url, format!("its token server: {problem}"));
        let realm = Address::named(realm).map_err(problem)?;
        let is_open = !self.base.is_encrypted() && (*login == Login::Anonymous || is_loopback(realm.host()));
        if !realm.is_encrypted() && !is_open {
            return Err(Error::OpenTokenServer { url: url.to_owned(), realm: realm.to_string() });
        }
        let actions = if self.purpose == Purpose::Push { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", self.reference.name());
        let service = service.unwrap_or_default();
        let mut answer = if let Login::IdentityToken(token) = login {
            let body = form(&[
                ("grant_type", "refresh_token"),
                ("service", service),
                ("scope", &scope),
                ("client_id", "tileforge"),
                ("refresh_token", token),
            ]);
            let headers = [(CONTENT_TYPE, "application/x-www-form-urlencoded".to_owned())];
            self.client.send(&Method::POST, &realm, &headers, None, body)?
        } else {
            let asked = realm.with_query(&[("service", service), ("scope", &scope)]).map_err(problem)?;
            self.client.get(&asked, &[], basic(login).as_deref())?
        };
        if answer.status() != 200 {
            return Err(self.unexpected(&realm, &mut answer));
        }
        let bytes = read(&mut answer, TOKEN_MAXIMUM_BYTES)?;
        let refused = |problem: String| answered(&realm.to_string(), problem);
        let token: Token = serde_json::from_slice(&bytes).map_err(|error| refused(format!("no token: {error}")))?;
        token.token.or(token.access_token).ok_or_else(|| refused("expected a token, found none".into()))
    }

    /// The user's login for the registry. `url` has asked for it.
    fn login(&self, url: &str) -> Result<&Login> {
        if let Some(login) = self.login.get() {
            return Ok(login);
        }
        let login = self.credentials.login(self.reference.host())?;
        if login != Login::Anonymous && !self.base.is_encrypted() && !self.reference.is_loopback() {
            return Err(Error::OpenPassword { url: url.to_owned() });
        }
        Ok(self.login.get_or_init(|| login))
    }
}

/// The header's value for a name and a password.
fn basic(login: &Login) -> Option<String> {
    match login {
        Login::Password { name, password } => {
            Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}"))))
        }
        Login::Anonymous | Login::IdentityToken(_) => None,
    }
}
