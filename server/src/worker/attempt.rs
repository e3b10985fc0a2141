//! One attempt at a job, from input objects to the output object.

use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::job::{Input, Job};
use super::marker::{Claim, Done, Marker};
use super::stores::Stores;
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::jobs::{Work, draws};
use crate::pictures::Upload;
use crate::traces;
use crate::watcher::Watcher;

/// Makes a job's output, unless it exists already.
pub(super) async fn run(app: &App, stores: &Stores, job: &Job) -> Result<Done> {
    // The server waits for this attempt before it ends.
    let _accepted = app.admission.enter()?;
    let marker = Marker::new(stores.place(&job.output)?, &job.id)?;
    let most = app.limits.result_bytes;
    if let Claim::Done(done) = marker.claim(most).await? {
        return Ok(done);
    }
    let upload = uploaded(app, stores, job).instrument(traces::part("fetch")).await?;
    let work = Work::of_upload(app, job.kind, upload).await?;
    let file = work.picture(app, &Watcher::default()).await?;
    if file.bytes.len() as u64 > most {
        return Err(Failure::invalid(format!("expected a result of at most {most} bytes, found more")));
    }
    marker.finish(file.bytes, most).instrument(traces::part("store")).await
}

/// Frees the output of a job that is not tried again.
pub(super) async fn give_up(stores: &Stores, job: &Job) -> Result<()> {
    // An invalid output was never claimed.
    let marker = stores.place(&job.output).and_then(|output| Marker::new(output, &job.id));
    match marker {
        Ok(marker) => marker.give_up().await,
        Err(_) => Ok(()),
    }
}

/// The files and settings of a job, in the same form as an upload.
async fn uploaded(app: &App, stores: &Stores, job: &Job) -> Result<Upload> {
    let held = app.budget.open();
    let mut upload = Upload { texts: job.options.clone(), held: Some(held.clone()), ..Upload::default() };
    let mut left = app.limits.body_bytes;
    for (name, input) in &job.inputs {
        let bytes = match input {
            Input::Inline(bytes) => bytes.clone(),
            Input::Object(url) => stores.place(url)?.read(left).await?,
        };
        left = left.saturating_sub(bytes.len() as u64);
        held.add(bytes.len())?;
        upload.files.push((name.clone(), bytes));
    }
    if draws(job.kind) {
        // A second attempt gives the same picture.
        upload.texts.entry("seed".into()).or_insert_with(|| seed(&job.id).to_string());
    }
    Ok(upload)
}

/// The seed of a job without a seed.
fn seed(id: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(id).into();
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}
