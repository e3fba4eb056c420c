//! Reads what every module of `src/` names, and fails on an edge outside the table in `src/lib.rs`.
//!
//! Works on text: comments, literals and `#[cfg(test)]` items are taken out first, then each path that begins with
//! `crate`, `super`, `self` or a dependency's name is resolved. Unit tests may import what they like.

use std::collections::BTreeSet;
use std::path::Path;

use super::scan::{code_of, paths, without_tests};
use super::{files_under, read, root};

/// What one module may name.
struct Rule {
    /// The file or directory below `src/`, without `.rs`. The longest that fits a file is the one that holds.
    place: &'static str,
    /// Modules of ours, beside itself.
    ours: &'static [&'static str],
    /// Dependencies, or paths within them, in groups.
    outside: &'static [&'static [&'static str]],
}

const RULES: &[Rule] = &[
    Rule { place: "lib", ours: &[], outside: &[] },
    Rule { place: "paths", ours: &["config"], outside: &[&["directories", "nix", "thiserror"]] },
    Rule { place: "config", ours: &["paths"], outside: &[&["humantime", "serde", "thiserror", "toml"]] },
    Rule { place: "fault", ours: &["paths"], outside: &[&["nix", "tokio"]] },
    Rule { place: "tarball", ours: &[], outside: &[&["base64", "tar"]] },
    Rule { place: "proto", ours: &[], outside: &[&["schemars", "serde", "serde_json"]] },
    Rule { place: "model", ours: &[], outside: &[&["thiserror", "unicode_normalization"]] },
    Rule {
        place: "store",
        ours: &["fault", "model"],
        outside: &[&["rusqlite", "serde_json", "thiserror", "tokio::sync", "tokio::task_local", "tracing"]],
    },
    Rule { place: "engine", ours: &["fault", "model"], outside: &[ENGINE] },
    Rule { place: "engine/fake", ours: &["model", "tarball"], outside: &[ENGINE, &["tar"]] },
    Rule { place: "engine/docker", ours: &["fault", "model"], outside: &[ENGINE, &["bollard", "tar"]] },
    // Whether an engine is on this machine, and what is free on its disk, only the system tells.
    Rule { place: "engine/docker/disk", ours: &["model"], outside: &[ENGINE, &["bollard", "nix::sys"]] },
    Rule { place: "daemon", ours: DAEMON_OURS, outside: &[DAEMON] },
    Rule { place: "daemon/flatten", ours: DAEMON_OURS, outside: &[DAEMON, &["sha2", "tempfile"]] },
    // A name that is given only if it is free: nix has that for Linux alone.
    Rule {
        place: "daemon/verbs/carry/partial",
        ours: DAEMON_OURS,
        outside: &[DAEMON, &["rustix::fs", "rustix::io"]],
    },
    Rule { place: "daemon/rpc", ours: RPC_OURS, outside: &[DAEMON] },
    Rule { place: "guest", ours: &[], outside: &[GUEST] },
    Rule { place: "client", ours: &["paths", "proto"], outside: &[CLIENT] },
    Rule { place: "cli", ours: CLI_OURS, outside: &[CLI] },
    // The protocol of its own makers needs a runtime; no other command has one.
    Rule { place: "cli/cmd/mcp", ours: CLI_OURS, outside: &[CLI, &["rmcp", "tokio"]] },
    Rule { place: "bin/abx", ours: &["cli"], outside: &[&["clap"]] },
    Rule { place: "bin/abx-mcp", ours: &["cli"], outside: &[] },
    Rule { place: "bin/abx-init", ours: &["guest"], outside: &[] },
    // What a fuzzer gives bytes to stands where its parser does, and nothing of the product names it.
    Rule { place: "fuzzing", ours: FUZZING_OURS, outside: &[&["serde", "serde_json", "tempfile"]] },
    Rule { place: "cli/fuzzing", ours: &["config", "fuzzing", "proto"], outside: &[&["jiff", "serde_json"]] },
    Rule { place: "daemon/framing/fuzzing", ours: &["fuzzing"], outside: &[&["bytes"]] },
    Rule { place: "guest/screen/emulator", ours: &[], outside: &[&["alacritty_terminal"]] },
    Rule { place: "guest/screen/fuzzing", ours: &["fuzzing"], outside: &[] },
    Rule {
        place: "bin/abxd",
        ours: &["config", "daemon", "paths", "proto"],
        outside: &[&["clap", "thiserror", "tokio"]],
    },
];

const FUZZING_OURS: &[&str] = &["cli", "config", "daemon", "engine", "guest", "model", "proto", "tarball"];

const ENGINE: &[&str] = &[
    "async_trait",
    "bytes",
    "futures_util",
    "http_body_util",
    "hyper",
    "hyper_util",
    "jiff",
    "serde",
    "serde_json",
    "thiserror",
    "tokio",
    "tracing",
];

const DAEMON_OURS: &[&str] =
    &["config", "engine", "fault", "guest::wire", "model", "paths", "proto", "store", "tarball"];

/// A handler reaches table and engine through the driver's handle alone.
const RPC_OURS: &[&str] = &["config", "daemon", "fault", "guest::wire", "model", "paths", "proto"];

const DAEMON: &[&str] = &[
    "async_trait",
    "base64",
    "buf_list",
    "bytes",
    "futures_util",
    "http_body_util",
    "humantime",
    "hyper",
    "hyper_util",
    "jiff",
    "jsonrpsee",
    "listenfd",
    "raunch",
    "nix",
    "sd_notify",
    "serde",
    "serde_json",
    "tar",
    "thiserror",
    "tokio",
    "tokio_tungstenite",
    "tracing",
    "tracing_subscriber",
    "uuid",
];

/// No runtime: it must be small, and must work in an empty image.
const GUEST: &[&str] = &["nix", "rustix", "shpool_vterm", "unicode_width"];

/// Blocking std: a runtime would show in the start of every command.
const CLIENT: &[&str] = &["nix", "rustix", "serde", "serde_json", "signal_hook", "thiserror"];

const CLI_OURS: &[&str] = &["client", "config", "paths", "proto", "tarball"];

const CLI: &[&str] = &[
    "base64",
    "clap",
    "clap_complete",
    "humantime",
    "jiff",
    "nix",
    "rustix",
    "serde",
    "serde_json",
    "signal_hook",
    "tempfile",
    "tar",
    "thiserror",
    "unicode_width",
];

/// Text that only the named places may hold, and why.
const WORDS: &[(&[&str], &[&str], &str)] = &[
    (
        &["env::var(", "env::var_os(", "env::vars(", "env::vars_os(", "env::home_dir(", "env::temp_dir("],
        // abx-init has no settings: its environment is the image's, and handed on.
        &["paths", "config", "guest/start"],
        "settings have one source: paths and config read the environment",
    ),
    (
        &["println!", "print!", "eprintln!", "eprint!"],
        &["cli/output", "bin/abx", "bin/abxd"],
        "cli/output.rs is the only printer",
    ),
];

#[test]
fn no_module_names_what_the_table_forbids() {
    let dependencies = dependencies();
    let faults: Vec<String> = files_under("src", ".rs")
        .iter()
        .filter(|file| !is_test_file(file))
        .flat_map(|file| faults(file, &read(file), &dependencies))
        .collect();
    assert!(
        faults.is_empty(),
        "edges outside the table (tests/docs/imports.rs, src/lib.rs):\n{}",
        faults.join("\n")
    );
}

#[test]
fn every_module_of_the_crate_has_a_rule() {
    let lib = read("src/lib.rs");
    for module in lib.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';')) {
        assert!(RULES.iter().any(|r| r.place == module), "{module} has no rule");
        assert!(lib.contains(&format!("[`{module}`]")), "{module} is not in the table of src/lib.rs");
    }
}

#[test]
fn forbidden_lines_are_found_however_they_are_written() {
    let dependencies = dependencies();
    for (file, line) in [
        ("src/model/session.rs", "use serde::Deserialize;"),
        ("src/model/session.rs", "fn f() { tokio::spawn(async {}); }"),
        ("src/model/session.rs", "#[derive(serde::Serialize)] struct S;"),
        ("src/model/step.rs", "use crate::{model::id::SessionId, store::Store};"),
        ("src/model/step.rs", "use super::super::engine::Engine;"),
        ("src/model/mod.rs", "use super::engine::Engine;"),
        ("src/model/step.rs", "mod inner { use super::super::super::engine::Engine; }"),
        ("src/store/writer.rs", "use tokio::{sync::mpsc, time};"),
        ("src/store/rows.rs", "let s: crate::proto::types::Session;"),
        ("src/engine/address.rs", "use ::bollard::Docker;"),
        ("src/engine/address.rs", "use crate::config::Config;"),
        ("src/daemon/driver.rs", "use crate::client::Client;"),
        ("src/daemon/driver.rs", "use crate::guest::screen::Screen;"),
        ("src/daemon/rpc/session.rs", "use crate::store::Store;"),
        ("src/client/calls.rs", "use crate::config::Config;"),
        ("src/client/calls.rs", "use tokio as runtime;"),
        ("src/cli/cmd/list.rs", "pub use crate::daemon::run;"),
        ("src/cli/cmd/list.rs", "println!(\"{}\", 1);"),
        ("src/cli/cmd/list.rs", "let home = std::env::var(\"HOME\");"),
        ("src/bin/abx.rs", "use abx::daemon;"),
        ("src/novel.rs", "use std::io;"),
    ] {
        assert!(!faults(file, line, &dependencies).is_empty(), "{file}: {line}");
    }
}

#[test]
fn allowed_lines_pass_and_text_is_not_taken_for_code() {
    let dependencies = dependencies();
    for (file, line) in [
        ("src/model/session.rs", "// use serde::Deserialize;\n/* use tokio::sync; /* println!() */ */"),
        ("src/model/session.rs", "const S: &str = \"use serde::x; println!\";"),
        ("src/model/session.rs", "const S: &str = r#\"a \" tokio::spawn\"#; const C: char = '\"';"),
        (
            "src/model/session.rs",
            "#[cfg(test)]\nmod tests { use proptest::prelude::*; use crate::store::Store; }",
        ),
        ("src/model/step.rs", "use super::session::{Session, Status}; use crate::model::id;"),
        ("src/model/step.rs", "mod inner { use super::super::id; fn f<'a>(x: &'a str) -> &'a str { x } }"),
        ("src/store/writer.rs", "use tokio::sync::{mpsc, oneshot}; use super::rows;"),
        ("src/daemon/driver.rs", "use crate::guest::wire::{Kind, frame};"),
        ("src/engine/docker.rs", "use bollard::Docker;"),
        ("src/cli/output.rs", "print!(\"x\");"),
        ("src/bin/abx.rs", "fn main() { abx::cli::run(); }"),
    ] {
        assert_eq!(faults(file, line, &dependencies), Vec::<String>::new(), "{file}: {line}");
    }
}

/// Whether the parent of this file, or of a module around it, declares it for tests alone.
fn is_test_file(file: &str) -> bool {
    Path::new(file)
        .ancestors()
        .any(|path| path.starts_with("src/") && path != Path::new("src") && is_declared_for_tests(path))
}

fn is_declared_for_tests(path: &Path) -> bool {
    let (Some(dir), Some(name)) = (path.parent(), path.file_stem()) else { return false };
    let declared = format!("mod{};", name.to_string_lossy());
    [dir.join("mod.rs"), dir.with_extension("rs")].iter().filter(|parent| root().join(parent).exists()).any(
        |parent| {
            let text: String = read(&parent.to_string_lossy()).split_whitespace().collect();
            ["", "pub(crate)", "pub(super)"]
                .iter()
                .any(|to| text.contains(&format!("#[cfg(test)]{to}{declared}")))
        },
    )
}

/// The names of all dependencies, as code spells them.
fn dependencies() -> BTreeSet<String> {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("the manifest is TOML");
    ["dependencies", "dev-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys().map(|k| k.replace('-', "_")))
        .collect()
}

fn faults(file: &str, source: &str, dependencies: &BTreeSet<String>) -> Vec<String> {
    let place = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let fits = |rule: &&Rule| place == rule.place || place.starts_with(&format!("{}/", rule.place));
    let Some(rule) = RULES.iter().filter(fits).max_by_key(|rule| rule.place.len()) else {
        return vec![format!("{file}: no rule for this place")];
    };
    let code = without_tests(&code_of(source));
    let mut found = Vec::new();
    for path in paths(&code, file, dependencies) {
        if !allowed(rule, place, &path) {
            found.push(format!("{file}: {} may not name {}", rule.place, path.join("::")));
        }
    }
    for (words, places, why) in WORDS {
        let word = words.iter().find(|word| holds(&code, word));
        if let Some(word) = word.filter(|_| !places.contains(&place)) {
            found.push(format!("{file}: {word} is not for this place: {why}"));
        }
    }
    found
}

/// Whether `code` holds `word`, not as the end of a longer name.
fn holds(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn allowed(rule: &Rule, place: &str, path: &[String]) -> bool {
    if path[0] == "crate" {
        let own = place.split('/').next().unwrap_or(place);
        // `crate` alone or a name defined in the root, which holds modules only.
        return path.get(1).is_none_or(|module| module == own || within(&path[1..], rule.ours));
    }
    rule.outside.iter().any(|group| within(path, group))
}

/// Whether the path is one of these modules, or in one.
fn within(path: &[String], modules: &[&str]) -> bool {
    let path = path.join("::");
    modules.iter().any(|module| path == *module || path.starts_with(&format!("{module}::")))
}
