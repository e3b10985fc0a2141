//! Markers, which state the job that owns an output and whether it is complete: an object beside it,
//! `OUTPUT.job.json`.
//!
//! A result is written once and never over another object, however often the job is delivered:
//!
//! 1. The job claims its output by creating the marker. If another job owns the output, or an object without a marker
//!    exists there, nothing is written.
//! 2. The result is created only if no object exists. If two workers have the same job, the second one finds the first
//!    one's result.
//! 3. The marker is set to `done`, with the digest of the result. If a worker dies before this step, the next one
//!    takes over the result that it left.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stores::Place;
use crate::failure::{Failure, FailureKind, Result};

/// The suffix of a marker's name.
const SUFFIX: &str = ".job.json";

/// How often a claim is repeated while others claim and give up the same output.
const CLAIMS: u32 = 8;

/// Most bytes of a marker.
const BYTES_MAXIMUM: u64 = 64 << 10;

/// The marker of an output.
#[derive(Debug)]
pub(super) struct Marker {
    output: Place,
    place: Place,
    id: String,
}

/// The content of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    id: String,
    #[serde(default)]
    done: Option<Done>,
}

/// The description of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) output: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// The state of a claimed job.
#[derive(Debug)]
pub(super) enum Claim {
    /// The output has to be made.
    Open,
    Done(Done),
}

impl Marker {
    pub(super) fn new(output: Place, id: &str) -> Result<Self> {
        // Such an output would be the marker of another job.
        if output.ends_with(SUFFIX) {
            return Err(Failure::invalid(format!("output: expected a name that does not end with {SUFFIX}")));
        }
        let place = output.beside(SUFFIX)?;
        Ok(Self { output, place, id: id.to_owned() })
    }

    /// Claims the output for the job. `most` is the largest size in bytes of a result that an earlier attempt may have
    /// left.
    pub(super) async fn claim(&self, most: u64) -> Result<Claim> {
        let own = json(&Text { id: self.id.clone(), done: None })?;
        for _ in 0..CLAIMS {
            if let Some(text) = self.find().await? {
                return self.of_ours(text, most).await;
            }
            if self.output.exists().await? {
                return Err(conflict("there is an object at the output already, and it is not overwritten"));
            }
            if self.place.create(own.clone()).await? {
                return Ok(Claim::Open);
            }
            // Another worker was faster; the next round reads its marker above.
        }
        Err(Failure::new(FailureKind::Busy, "others claim the output, and give it up; try again"))
    }

    async fn of_ours(&self, text: Text, most: u64) -> Result<Claim> {
        match text.done {
            Some(done) => Ok(Claim::Done(done)),
            // An earlier attempt may have died after it wrote the result.
            None => Ok(self.whole(most).await?.map_or(Claim::Open, Claim::Done)),
        }
    }

    /// Writes the result, unless another worker was faster.
    pub(super) async fn finish(&self, result: Bytes, most: u64) -> Result<Done> {
        let done = self.described(&result);
        if self.output.create(result).await? {
            self.say(done).await
        } else {
            let gone = || Failure::internal("the output existed and was removed");
            self.whole(most).await?.ok_or_else(gone)
        }
    }

    /// Gives up the output, unless there is a result.
    pub(super) async fn give_up(&self) -> Result<()> {
        match self.find().await {
            Ok(Some(Text { done: None, .. })) if !self.output.exists().await? => self.place.remove().await,
            // A conflict is no failure: the output never belonged to this job.
            Err(failure) if failure.kind != FailureKind::Conflict => Err(failure),
            _ => Ok(()),
        }
    }

    /// Takes over an existing result.
    async fn whole(&self, most: u64) -> Result<Option<Done>> {
        match self.output.find(most).await? {
            Some(bytes) => Ok(Some(self.say(self.described(&bytes)).await?)),
            None => Ok(None),
        }
    }

    async fn say(&self, done: Done) -> Result<Done> {
        self.place.replace(json(&Text { id: self.id.clone(), done: Some(done.clone()) })?).await?;
        Ok(done)
    }

    fn described(&self, result: &Bytes) -> Done {
        let sha256 = Sha256::digest(result).iter().map(|byte| format!("{byte:02x}")).collect();
        Done { output: self.output.url().to_owned(), bytes: result.len() as u64, sha256 }
    }

    /// The content of the marker, which has to belong to this job.
    async fn find(&self) -> Result<Option<Text>> {
        let Some(bytes) = self.place.find(BYTES_MAXIMUM).await? else { return Ok(None) };
        let text: Text = serde_json::from_slice(&bytes)
            .map_err(|_| conflict("the object beside the output is not the marker of a job"))?;
        if text.id != self.id {
            return Err(conflict(&format!("the output belongs to the job {}", text.id.escape_debug())));
        }
        Ok(Some(text))
    }
}

fn json(text: &Text) -> Result<Bytes> {
    let failed = |error| Failure::internal(format!("the marker cannot be written: {error}"));
    serde_json::to_vec(text).map(Bytes::from).map_err(failed)
}

fn conflict(message: &str) -> Failure {
    Failure::new(FailureKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use std::time::Duration;

    use super::super::stores::Stores;
    use super::*;

    const MOST: u64 = 1 << 20;

    fn marker(folder: &tempfile::TempDir, id: &str) -> Marker {
        let prefix = format!("file://{}", folder.path().display());
        let stores = Stores::open(std::slice::from_ref(&prefix), &[], Duration::from_secs(1)).unwrap();
        Marker::new(stores.place(&format!("{prefix}/new/x.png")).unwrap(), id).unwrap()
    }

    #[tokio::test]
    async fn a_result_is_written_once_by_whichever_worker() {
        let folder = tempfile::tempdir().unwrap();
        let [one, same, other] = ["a", "a", "b"].map(|id| marker(&folder, id));
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Open));
        // The same job at another worker, and another job with the same output.
        assert!(matches!(same.claim(MOST).await.unwrap(), Claim::Open));
        assert_eq!(other.claim(MOST).await.unwrap_err().kind, FailureKind::Conflict);
        let done = one.finish("first".into(), MOST).await.unwrap();
        assert_eq!(same.finish("second".into(), MOST).await.unwrap(), done);
        assert_eq!(std::fs::read(folder.path().join("new/x.png")).unwrap(), b"first");
        assert!(matches!(same.claim(MOST).await.unwrap(), Claim::Done(found) if found == done));
        assert_eq!(other.claim(MOST).await.unwrap_err().kind, FailureKind::Conflict);
        // A finished result stays.
        one.give_up().await.unwrap();
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Done(_)));
    }

    #[tokio::test]
    async fn what_a_dead_worker_left_is_taken_over_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let one = marker(&folder, "a");
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Open));
        std::fs::write(folder.path().join("new/x.png"), "whole").unwrap();
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Done(done) if done.bytes == 5));
        // An object without a marker is not a result.
        std::fs::remove_file(folder.path().join("new/x.png.job.json")).unwrap();
        assert_eq!(one.claim(MOST).await.unwrap_err().kind, FailureKind::Conflict);
        assert_eq!(std::fs::read(folder.path().join("new/x.png")).unwrap(), b"whole");
        // Other jobs can claim an output that was given up.
        std::fs::remove_file(folder.path().join("new/x.png")).unwrap();
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Open));
        one.give_up().await.unwrap();
        assert!(matches!(marker(&folder, "b").claim(MOST).await.unwrap(), Claim::Open));
        std::fs::write(folder.path().join("new/x.png.job.json"), "[]").unwrap();
        assert_eq!(one.claim(MOST).await.unwrap_err().kind, FailureKind::Conflict);
    }
}
