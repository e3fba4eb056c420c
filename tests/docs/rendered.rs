//! The rendered protocol documents are those of the code.

use std::fs;

use abx::proto::document;
use serde_json::Value;

use super::examples::examples;
use super::{root, variable};

/// Compares a file with what is rendered now, or writes it when `ABX_UPDATE_DOCS` is 1.
fn check(relative: &str, rendered: &str) {
    let path = root().join(relative);
    if variable("ABX_UPDATE_DOCS").is_some_and(|v| v == "1") {
        fs::write(&path, rendered).unwrap_or_else(|e| panic!("cannot write {relative}: {e}"));
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    if stored == rendered {
        return;
    }
    let line = stored.lines().zip(rendered.lines()).take_while(|(a, b)| a == b).count();
    panic!(
        "{relative} differs from the code from line {} on; refresh it with\n    \
         ABX_UPDATE_DOCS=1 cargo test --all-features --test main docs::",
        line + 1
    );
}

#[test]
fn the_openrpc_document_is_that_of_the_code() {
    check("proto-docs/openrpc.json", &document::openrpc(&examples()));
}

#[test]
fn the_types_and_the_methods_for_people_are_those_of_the_openrpc_document() {
    let openrpc: Value = serde_json::from_str(&document::openrpc(&examples())).expect("JSON");
    check("proto-docs/schemas.json", &document::schemas(&openrpc));
    check("proto-docs/methods.md", &document::methods_md(&openrpc));
}

#[test]
fn the_error_table_is_that_of_the_code() {
    check("proto-docs/errors.md", &document::errors_md());
}
