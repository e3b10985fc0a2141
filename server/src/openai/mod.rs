//! OpenAI's image API: <https://platform.openai.com/docs/api-reference/images>.
//!
//! | module | holds |
//! |---|---|
//! | `body` | the body of a request, as JSON or as a form |
//! | `image_request` | a validated request, and the pictures that it becomes |
//! | `images` | the answers, whole or as events |
//! | `listed` | the models |
//! | `routes` | the paths |
//! | `failure` | errors in OpenAI's form |

mod body;
mod failure;
mod image_request;
mod images;
mod listed;
mod routes;

pub(crate) use failure::respond;
pub(crate) use image_request::{ImageRequest, Product};
pub(crate) use routes::routes;
