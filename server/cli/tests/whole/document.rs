//! The OpenAPI document describes the server's answers.

use crate::clients::python;
use crate::harness::{Server, copy_engine, depth_engine, pipelines, restorer};

/// Sends requests that schemathesis makes from the document, valid and invalid ones, the same in each run: no answer
/// is a server error, and each has a status, a type, headers and a form that the document lists.
#[test]
fn requests_made_from_the_document_are_answered_as_it_says() {
    let engines = tempfile::tempdir().unwrap();
    end_to_end::copy_folder(pipelines(), engines.path());
    end_to_end::copy_folder(depth_engine(), &engines.path().join("depth"));
    end_to_end::copy_folder(restorer(), &engines.path().join("restorer"));
    copy_engine(engines.path(), "spare");
    let server = Server::start(engines.path(), &["--max-steps", "4", "--max-pictures", "2", "--max-body", "4M"]);
    python("openapi_document.py", &[&server.http, "--seed", "1", "--max-examples", "8"]);
    server.assert_well();
}
