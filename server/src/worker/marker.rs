//! Whose an output is, and whether it is whole: an object beside it, `OUTPUT.job.json`.
//!
//! A result is written once and never over another object, however often the job is delivered:
//!
//! 1. The job claims its output by making the marker. Where another job has it, or an object is there that is no
//!    result, nothing is written.
//! 2. The result is made where nothing is. Of two workers with the same job, the second finds that of the first.
//! 3. The marker says `done`, with the digest of what is there. A worker that died before this left a result that the
//!    next one takes over.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stores::Place;
use crate::failure::{Failure, FailureKind, Result};

/// What the name of a marker ends with.
const SUFFIX: &str = ".job.json";

/// How often an output is claimed that others claim and give up at the same time.
const CLAIMS: u32 = 8;

/// Most bytes of a marker.
const BYTES_MAXIMUM: u64 = 64 << 10;

/// Whose an output is, and whether it is whole.
#[derive(Debug)]
pub(super) struct Marker {
    output: Place,
    place: Place,
    id: String,
}

/// What a marker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    id: String,
    #[serde(default)]
    done: Option<Done>,
}

/// What is told of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) output: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// How far the job is.
#[derive(Debug)]
pub(super) enum Claim {
    /// Its output is to be made.
    Open,
    Done(Done),
}

impl Marker {
    pub(super) fn new(output: Place, id: &str) -> Result<Self> {
        // It would be the marker of another job.
        if output.ends_with(SUFFIX) {
            return Err(Failure::invalid(format!("output: expected a name that does not end with {SUFFIX}")));
        }
        let place = output.beside(SUFFIX)?;
        Ok(Self { output, place, id: id.to_owned() })
    }

    /// Claims the output for the job. `most`: bytes of a result that an earlier try may have left.
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
            // Another worker was faster; whose marker it is, is seen above.
        }
        Err(Failure::new(FailureKind::Busy, "others claim the output, and give it up; try again"))
    }

    async fn of_ours(&self, text: Text, most: u64) -> Result<Claim> {
        match text.done {
            Some(done) => Ok(Claim::Done(done)),
            // An earlier try has died before it could say so.
            None => Ok(self.whole(most).await?.map_or(Claim::Open, Claim::Done)),
        }
    }

    /// Writes the result, unless another worker was faster.
    pub(super) async fn finish(&self, result: Bytes, most: u64) -> Result<Done> {
        let done = self.described(&result);
        if self.output.create(result).await? {
            self.say(done).await
        } else {
            let gone = || Failure::internal("the output was there, and is gone");
            self.whole(most).await?.ok_or_else(gone)
        }
    }

    /// Gives the output up, where there is no result.
    pub(super) async fn give_up(&self) -> Result<()> {
        match self.find().await {
            Ok(Some(Text { done: None, .. })) if !self.output.exists().await? => self.place.remove().await,
            // It was never this job's.
            Err(failure) if failure.kind != FailureKind::Conflict => Err(failure),
            _ => Ok(()),
        }
    }

    /// Takes over a result that is there.
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

    /// The marker, which has to be this job's.
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
        // What is done stays.
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
        // One that is given up is free for others.
        std::fs::remove_file(folder.path().join("new/x.png")).unwrap();
        assert!(matches!(one.claim(MOST).await.unwrap(), Claim::Open));
        one.give_up().await.unwrap();
        assert!(matches!(marker(&folder, "b").claim(MOST).await.unwrap(), Claim::Open));
        std::fs::write(folder.path().join("new/x.png.job.json"), "[]").unwrap();
        assert_eq!(one.claim(MOST).await.unwrap_err().kind, FailureKind::Conflict);
    }
}
