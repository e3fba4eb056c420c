//! Nothing lies about unseen: test files are compiled, files stay small, links lead somewhere.

use std::path::Path;

use super::{files_under, read, root};

/// Most lines of a source file. Past it, it has more than one owner.
const MAX_LINES: usize = 450;

#[test]
fn every_file_under_tests_is_a_listed_module() {
    for file in files_under("tests", ".rs").iter().filter(|f| *f != "tests/main.rs") {
        let path = Path::new(file);
        let (dir, stem) = match path.file_stem().and_then(|s| s.to_str()) {
            Some("mod") => (path.parent().and_then(Path::parent), path.parent().and_then(Path::file_name)),
            _ => (path.parent(), path.file_stem()),
        };
        let dir = dir.and_then(Path::to_str).expect("below tests/");
        let name = stem.and_then(|s| s.to_str()).expect("UTF-8");
        let parents = if dir == "tests" {
            vec!["tests/main.rs".to_owned()]
        } else {
            vec![format!("{dir}/mod.rs"), format!("{dir}.rs")]
        };
        let listed = parents.iter().filter(|p| root().join(p).exists()).any(|parent| {
            read(parent).lines().any(|line| {
                let line = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
                line == format!("mod {name};")
            })
        });
        assert!(listed, "{file} is not compiled: add `mod {name};` to {}", parents.join(" or "));
    }
}

#[test]
fn no_source_file_is_long() {
    for file in files_under("src", ".rs") {
        let lines = read(&file).lines().count();
        assert!(lines <= MAX_LINES, "{file} has {lines} lines: split it by owner");
    }
}

#[test]
fn every_link_between_documents_leads_to_a_file() {
    let mut documents = files_under("proto-docs", ".md");
    documents.push("README.md".to_owned());
    for document in documents {
        let text = read(&document);
        let dir = root().join(Path::new(&document).parent().expect("a parent"));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || link.contains("://") {
                continue;
            }
            assert!(dir.join(path).exists(), "{document} links to {link}, which is not there");
        }
    }
}

#[test]
fn every_method_and_kind_that_a_document_names_exists() {
    let methods: Vec<&str> = abx::proto::methods::ALL.iter().map(|m| m.name).collect();
    let nouns: Vec<&str> = methods.iter().filter_map(|m| m.split('.').next()).collect();
    for document in ["README.md", "proto-docs/README.md", "proto-docs/events.md", "proto-docs/CHANGELOG.md"] {
        for word in read(document).split('`').skip(1).step_by(2) {
            let is_method = word.split_once('.').is_some_and(|(noun, verb)| {
                nouns.contains(&noun) && verb.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            });
            let file = ["sock", "lock", "db", "toml", "md"].iter().any(|e| word.ends_with(&format!(".{e}")));
            let event = abx::model::event::EventKind::from_word(word).is_some();
            assert!(
                !is_method || file || event || methods.contains(&word),
                "{document} names {word}, which is no method and no kind of event"
            );
        }
    }
}
