//! The answers of OpenAI's image API, whole or as events.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use tileforge::Format;
use tokio::sync::watch;

use super::image_request::{ImageRequest, Images, Product, picture_event};
use super::respond;
use crate::app::App;
use crate::events::{self, Events, Gone};
use crate::failure::Result;
use crate::rest::json as answer;
use crate::watcher::{Seen, Watcher};

pub(super) async fn generations(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    serve(app, Product::Generation, request).await
}

pub(super) async fn edits(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    serve(app, Product::Edit, request).await
}

type Working = Pin<Box<dyn Future<Output = Result<Images>> + Send>>;

async fn serve(app: Arc<App>, product: Product, request: Request) -> Result<Response> {
    let order = ImageRequest::read(&app, product, request).await?;
    let watcher = Watcher::default();
    if !order.streams {
        let images = order.made(&app, &watcher).await?;
        return Ok(answer(StatusCode::OK, &images.answer()));
    }
    let mut seen = watcher.subscribe();
    let (format, working_app) = (order.format, app.clone());
    let mut working: Working = Box::pin(async move { order.made(&working_app, &watcher).await });
    // Early failures become a status; later ones become an event.
    let early = tokio::select! {
        result = &mut working => Some(result?),
        submitted = seen.wait_for(|seen| seen.submitted) => { drop(submitted); None }
    };
    Ok(events::answer(move |events| async move {
        match early {
            Some(images) => last(&events, product, Ok(images)).await,
            None => stream(&app, &events, product, format, seen, working).await,
        }
    }))
}

/// Sends previews while the pictures are made, and then the pictures.
async fn stream(
    app: &App,
    events: &Events,
    product: Product,
    format: Format,
    seen: watch::Receiver<Seen>,
    working: Working,
) -> Result<(), Gone> {
    let (mut seen, mut working) = (seen, working);
    let name = format!("{}.partial_image", product.event());
    let (mut index, mut shown) = (0_usize, None);
    loop {
        let changed = tokio::select! {
            result = &mut working => return last(events, product, result).await,
            changed = seen.changed() => changed,
        };
        if changed.is_err() {
            return last(events, product, working.await).await;
        }
        let preview = seen.borrow_and_update().preview.clone();
        let Some(preview) = preview.filter(|preview| Some(preview.steps) != shown) else { continue };
        shown = Some(preview.steps);
        match preview.encoded(&app.coding, format).await {
            Ok(file) => {
                let mut event = picture_event(&name, &preview.size(), format, &file);
                event["partial_image_index"] = index.into();
                event["steps"] = preview.steps.into();
                events.send(&name, &event).await?;
                index += 1;
            }
            Err(failure) => return last(events, product, Err(failure)).await,
        }
    }
}

/// Sends the outcome.
async fn last(events: &Events, product: Product, result: Result<Images>) -> Result<(), Gone> {
    match result {
        Ok(images) => {
            let name = format!("{}.completed", product.event());
            for file in &images.files {
                events.send(&name, &images.event(&name, file)).await?;
            }
            Ok(())
        }
        Err(failure) => {
            let mut event = respond(&failure);
            event["type"] = "error".into();
            events.send("error", &event).await
        }
    }
}
