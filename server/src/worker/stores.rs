//! The object stores, below the prefixes that jobs may name.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use url::Url;

use super::client::Connector;
use crate::failure::{Failure, FailureKind, Result, chain, shown};

/// The longest URL in an error.
const URL_SHOWN: usize = 256;

/// The longest reason in an error about an object.
const REASON_MAXIMUM: usize = 1024;

/// The object stores, below the prefixes that jobs may name.
#[derive(Debug)]
pub(super) struct Stores(Vec<Arc<Store>>);

/// A store below a prefix.
#[derive(Debug)]
struct Store {
    scheme: String,
    /// The bucket, or the container.
    host: Option<String>,
    prefix: Path,
    objects: Box<dyn ObjectStore>,
    /// The prefix as a folder, with all links resolved, if the store is files.
    folder: Option<PathBuf>,
}

/// An object below one of the prefixes. It need not exist.
#[derive(Clone, Debug)]
pub(super) struct Place {
    store: Arc<Store>,
    path: Path,
    url: String,
}

impl Stores {
    /// The stores of these prefixes. `options` are the environment variables of the stores' own tools.
    pub(super) fn open(
        prefixes: &[String],
        options: &[(String, String)],
        patience: Duration,
    ) -> std::result::Result<Self, (String, String)> {
        let connector = Connector::new().map_err(|error| (String::new(), error.to_string()))?;
        let open = |text: &String| {
            Store::open(text, options, patience, &connector).map(Arc::new).map_err(|problem| (text.clone(), problem))
        };
        prefixes.iter().map(open).collect::<std::result::Result<_, _>>().map(Self)
    }

    /// The place that a job names.
    pub(super) fn place(&self, text: &str) -> Result<Place> {
        let wrong = |problem: String| Failure::invalid(format!("{}: {problem}", shown(text, URL_SHOWN)));
        let (scheme, host, path) = parts(text).map_err(wrong)?;
        let holds = |store: &&Arc<Store>| {
            store.scheme == scheme && store.host == host && path.prefix_matches(&store.prefix) && path != store.prefix
        };
        let outside = || {
            let message = format!("{}: expected an object below a prefix of this worker", shown(text, URL_SHOWN));
            Failure::new(FailureKind::Forbidden, message)
        };
        let store = self.0.iter().find(holds).cloned().ok_or_else(outside)?;
        Ok(Place { store, path, url: text.to_owned() })
    }
}

impl Store {
    fn open(
        text: &str,
        options: &[(String, String)],
        patience: Duration,
        connector: &Connector,
    ) -> std::result::Result<Self, String> {
        let (scheme, host, prefix) = parts(text)?;
        let retry = RetryConfig { max_retries: usize::MAX, retry_timeout: patience, ..RetryConfig::default() };
        let failed = |error: Error| chain(&error);
        // Each kind of store has its own builder type, and all builders have the same methods.
        macro_rules! built {
            ($builder:ty) => {{
                let mut builder =
                    <$builder>::new().with_url(text).with_retry(retry).with_http_connector(connector.clone());
                for (name, value) in options {
                    if let Ok(key) = name.to_ascii_lowercase().parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                Box::new(builder.build().map_err(failed)?) as Box<dyn ObjectStore>
            }};
        }
        let mut folder = None;
        let objects = match scheme.as_str() {
            "s3" => built!(AmazonS3Builder),
            "gs" => built!(GoogleCloudStorageBuilder),
            "az" => built!(MicrosoftAzureBuilder),
            _ => {
                let path = FilePath::new("/").join(prefix.as_ref());
                let real = path.canonicalize().map_err(|error| error.to_string())?;
                if !real.is_dir() {
                    return Err("expected a folder".into());
                }
                folder = Some(real);
                Box::new(LocalFileSystem::new().with_fsync(true))
            }
        };
        Ok(Self { scheme, host, prefix, objects, folder })
    }
}

impl Place {
    /// The URL as the job states it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the decoded name ends with `suffix`, however the job encodes it.
    pub(super) fn ends_with(&self, suffix: &str) -> bool {
        self.path.as_ref().ends_with(suffix)
    }

    /// The object beside it, whose name has `suffix` added.
    pub(super) fn beside(&self, suffix: &str) -> Result<Self> {
        let wrong = |error| Failure::invalid(format!("{}: {error}", shown(&self.url, URL_SHOWN)));
        let path = Path::parse(format!("{}{suffix}", self.path)).map_err(wrong)?;
        Ok(Self { store: self.store.clone(), path, url: format!("{}{suffix}", self.url) })
    }

    /// All bytes of the object, at most `most`; `None` if it does not exist.
    pub(super) async fn find(&self, most: u64) -> Result<Option<Bytes>> {
        if !self.check_links(true).await? {
            return Ok(None);
        }
        let found = match self.store.objects.get(&self.path).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failure("cannot be read", &error)),
        };
        let too_large = || {
            let message = format!("{}: expected at most {most} bytes, found more", shown(&self.url, URL_SHOWN));
            Failure::new(FailureKind::TooLarge, message)
        };
        if found.meta.size > most {
            return Err(too_large());
        }
        let mut all = Vec::with_capacity(usize::try_from(found.meta.size).unwrap_or(0));
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.failure("cannot be read", &error))?;
            if (all.len() + chunk.len()) as u64 > most {
                return Err(too_large());
            }
            all.extend_from_slice(&chunk);
        }
        Ok(Some(all.into()))
    }

    /// As [`Place::find`], for an object that has to exist.
    pub(super) async fn read(&self, most: u64) -> Result<Bytes> {
        let missing =
            || Failure::new(FailureKind::NotFound, format!("{}: there is no such object", shown(&self.url, URL_SHOWN)));
        self.find(most).await?.ok_or_else(missing)
    }

    /// Whether the object exists.
    pub(super) async fn exists(&self) -> Result<bool> {
        if !self.check_links(true).await? {
            return Ok(false);
        }
        match self.store.objects.head(&self.path).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failure("cannot be looked at", &error)),
        }
    }

    /// Writes the object as a whole, unless it exists already. False if it exists.
    pub(super) async fn create(&self, bytes: Bytes) -> Result<bool> {
        match self.put(bytes, PutMode::Create).await? {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failure("cannot be written", &error)),
        }
    }

    /// Writes the object as a whole, and replaces an existing one.
    pub(super) async fn replace(&self, bytes: Bytes) -> Result<()> {
        self.put(bytes, PutMode::Overwrite).await?.map_err(|error| self.failure("cannot be written", &error))
    }

    async fn put(&self, bytes: Bytes, mode: PutMode) -> Result<object_store::Result<()>> {
        self.check_links(false).await?;
        let options = PutOptions { mode, ..PutOptions::default() };
        Ok(self.store.objects.put_opts(&self.path, bytes.into(), options).await.map(|_| ()))
    }

    /// Removes the object, if it exists.
    pub(super) async fn remove(&self) -> Result<()> {
        match self.store.objects.delete(&self.path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failure("cannot be removed", &error)),
        }
    }

    /// Refuses files outside of the folder that a link leads to, and everything that is not a regular file. False if
    /// there is nothing to read.
    async fn check_links(&self, reads: bool) -> Result<bool> {
        let Some(folder) = self.store.folder.clone() else { return Ok(true) };
        let path = FilePath::new("/").join(self.path.as_ref());
        let checked = tokio::task::spawn_blocking(move || is_within(&path, &folder, reads)).await;
        let outside = || {
            let message = format!("{}: expected a file in the folder of this worker", shown(&self.url, URL_SHOWN));
            Failure::new(FailureKind::Forbidden, message)
        };
        match checked {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Err(outside()),
            Ok(Err(error)) => Err(Failure::internal(format!("{}: {error}", shown(&self.url, URL_SHOWN)))),
            Err(_) => Err(Failure::internal("a file cannot be looked at")),
        }
    }

    fn failure(&self, what: &str, error: &Error) -> Failure {
        let reason: String = chain(error).chars().take(REASON_MAXIMUM).collect();
        Failure::internal(format!("{}: {what}: {reason}", shown(&self.url, URL_SHOWN)))
    }
}

/// Whether a file exists, and its path with links resolved is in a folder. For a file to write, its existing folders
/// are checked.
fn is_within(path: &FilePath, folder: &FilePath, reads: bool) -> io::Result<bool> {
    let outside = || io::Error::from(io::ErrorKind::PermissionDenied);
    let mut there = Some(path);
    while let Some(part) = there {
        match part.canonicalize() {
            Ok(real) if !real.starts_with(folder) => return Err(outside()),
            // Only regular files: a pipe might never end, and a folder is not an object.
            Ok(real) if part == path => return if real.is_file() { Ok(true) } else { Err(outside()) },
            Ok(_) => return Ok(false),
            // A dangling link exists, and a write would follow it.
            Err(_) if part.is_symlink() => return Err(outside()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && reads => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => there = part.parent(),
            Err(error) => return Err(error),
        }
    }
    Err(outside())
}

/// The scheme, the bucket and the path of a URL.
fn parts(text: &str) -> std::result::Result<(String, Option<String>, Path), String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let host = url.host_str().filter(|host| !host.is_empty()).map(str::to_owned);
    let named = matches!((url.scheme(), &host), ("s3" | "gs" | "az", Some(_)) | ("file", None));
    if !named {
        return Err("expected s3://BUCKET/…, gs://BUCKET/…, az://CONTAINER/… or file:///…".into());
    }
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.port().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("expected a URL without user, port, query and fragment".into());
    }
    let path = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
    Ok((url.scheme().to_owned(), host, path))
}
