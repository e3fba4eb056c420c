//! Each claim of the threat model has tests, and they are there.

use super::{read, root};

const DOCUMENT: &str = "proto-docs/security.md";

/// Claims that no test can fail.
const WITHOUT: &[&str] = &["There is no TCP."];

#[test]
fn every_claim_about_security_names_tests_that_exist() {
    let text = read(DOCUMENT);
    let claims: Vec<&str> = text.split("\n* **").skip(1).collect();
    assert!(claims.len() > 15, "{DOCUMENT} has lost its claims");
    for claim in claims {
        let title = claim.split("**").next().unwrap_or_default();
        let Some((_, tests)) = claim.split_once("Tests:") else {
            assert!(WITHOUT.contains(&title), "no test for: {title}");
            continue;
        };
        let tests = tests.split("\n\n").next().unwrap_or_default();
        let mut file = "";
        for word in tests.split('`').skip(1).step_by(2) {
            if word.contains('/') {
                assert!(root().join(word).exists(), "{title}: {word} is not there");
                file = word;
            } else {
                let there = read(file).contains(&format!("fn {word}("));
                assert!(there, "{title}: {file} has no test {word}");
            }
        }
        assert!(!file.is_empty(), "no test for: {title}");
    }
}
