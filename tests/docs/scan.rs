//! Finds the paths in Rust text, without parsing it: enough for the imports test, and no more.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// Takes out comments and the insides of literals.
pub(super) fn code_of(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('/', Some('/')) => while rest.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => skip_block(&mut rest),
            ('r', Some('"' | '#')) if !ends_in_name(&out) => {
                out.push_str(if skip_raw(&mut rest) { "\"\"" } else { "r#" });
            }
            ('"', _) => {
                out.push_str("\"\"");
                while let Some(c) = rest.next() {
                    match c {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            ('\'', _) => {
                skip_char(&mut rest);
                out.push(' ');
            }
            _ => out.push(c),
        }
    }
    out
}

fn ends_in_name(text: &str) -> bool {
    // `br"..."` is a literal too.
    let text = text.strip_suffix('b').unwrap_or(text);
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn skip_block(rest: &mut Peekable<Chars<'_>>) {
    rest.next();
    let mut depth = 1;
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('*', Some('/')) => {
                rest.next();
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
            ('/', Some('*')) => {
                rest.next();
                depth += 1;
            }
            _ => {}
        }
    }
}

/// Skips a raw string after its `r`. False if it was a raw identifier.
fn skip_raw(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return false;
    }
    while let Some(c) = rest.next() {
        if c == '"' {
            let mut seen = 0;
            while seen < hashes && rest.next_if_eq(&'#').is_some() {
                seen += 1;
            }
            if seen == hashes {
                return true;
            }
        }
    }
    true
}

/// Skips a character literal after its quote; a lifetime is left as a name.
fn skip_char(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    match (ahead.next(), ahead.next()) {
        (Some('\\'), _) => {
            rest.next();
            rest.next();
            while rest.next_if(|c| *c != '\'').is_some() {}
            rest.next();
        }
        (Some(_), Some('\'')) => {
            rest.next();
            rest.next();
        }
        _ => {}
    }
}

/// Takes out items under `#[cfg(test)]`: up to the end of the block, or the semicolon before one.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at + "#[cfg(test)]".len()..];
        let mut depth = 0_usize;
        let end = rest.char_indices().find(|(_, c)| match c {
            '{' => {
                depth += 1;
                false
            }
            '}' => {
                depth = depth.saturating_sub(1);
                depth == 0
            }
            ';' => depth == 0,
            _ => false,
        });
        rest = end.map_or("", |(at, c)| &rest[at + c.len_utf8()..]);
    }
    out.push_str(rest);
    out
}

/// Every path of the code that leads to a module of ours (from `crate` on) or into a dependency.
pub(super) fn paths(code: &str, file: &str, dependencies: &BTreeSet<String>) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let mut modules = module_of(file);
    let mut blocks: Vec<bool> = Vec::new();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "mod" if tokens.get(at + 2).is_some_and(|t| t == "{") => {
                modules.push(tokens[at + 1].clone());
                blocks.push(true);
                at += 3;
            }
            "{" => {
                blocks.push(false);
                at += 1;
            }
            "}" => {
                if blocks.pop() == Some(true) {
                    modules.pop();
                }
                at += 1;
            }
            "use" => {
                let end = at + tokens[at..].iter().position(|t| t == ";").unwrap_or(tokens.len() - at - 1);
                expand(&tokens[at + 1..end], &[], &mut |path| {
                    found.extend(resolve(path, &modules, dependencies))
                });
                at = end + 1;
            }
            _ => {
                let (path, next) = path_at(&tokens, at);
                let inside = at > 0 && matches!(tokens[at - 1].as_str(), "::" | ".");
                if path.len() > 1 && !inside {
                    found.extend(resolve(&path, &modules, dependencies));
                }
                at = next;
            }
        }
    }
    found
}

/// Splits code into names, `::` and single characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut token = String::from(c);
        if c.is_alphanumeric() || c == '_' {
            while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                token.push(c);
            }
        } else if c == ':' && rest.next_if_eq(&':').is_some() {
            token.push(':');
        }
        tokens.push(token);
    }
    tokens
}

/// The path that begins at `at` (a leading `::` is dropped), and where it ends.
fn path_at(tokens: &[String], at: usize) -> (Vec<String>, usize) {
    let is_name = |t: &String| t.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut next = at + usize::from(tokens[at] == "::");
    let mut path = Vec::new();
    while let Some(name) = tokens.get(next).filter(|t| is_name(t)) {
        path.push(name.clone());
        next += 1;
        if tokens.get(next).is_none_or(|t| t != "::") || !tokens.get(next + 1).is_some_and(is_name) {
            break;
        }
        next += 1;
    }
    (path, next.max(at + 1))
}

/// Gives each path of a use tree.
fn expand(tree: &[String], prefix: &[String], give: &mut impl FnMut(&[String])) {
    let mut depth = 0_i32;
    let branches = tree.split(|t| {
        depth += match t.as_str() {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        t == "," && depth == 0
    });
    for branch in branches.filter(|b| !b.is_empty()) {
        let mut path = prefix.to_vec();
        let mut names = branch.iter().enumerate().filter(|(_, t)| *t != "::");
        let rest = loop {
            match names.next() {
                Some((at, t)) if t == "{" => break Some(&branch[at + 1..branch.len() - 1]),
                Some((_, t)) if t != "as" => path.push(t.clone()),
                _ => break None,
            }
        };
        match rest {
            Some(rest) => expand(rest, &path, give),
            None => give(&path),
        }
    }
}

/// The path from `crate` on, or the dependency's path; none for std and for names in scope.
fn resolve(path: &[String], modules: &[String], dependencies: &BTreeSet<String>) -> Option<Vec<String>> {
    let first = path.first()?.as_str();
    match first {
        // Binaries see the library as a dependency.
        "crate" => Some(path.to_vec()),
        "abx" => Some([&["crate".to_owned()], &path[1..]].concat()),
        "self" | "super" => {
            let climbed = path.iter().take_while(|p| *p == "super" || *p == "self").count();
            let up = path[..climbed].iter().filter(|p| *p == "super").count();
            let base = &modules[..modules.len().saturating_sub(up)];
            Some([&["crate".to_owned()], base, &path[climbed..]].concat())
        }
        name => dependencies.contains(name).then(|| path.to_vec()),
    }
}

/// The names of the modules that lead to a file, from the crate's root.
fn module_of(file: &str) -> Vec<String> {
    let place = file.trim_start_matches("src/").trim_end_matches(".rs");
    let place = place.strip_suffix("/mod").unwrap_or(place);
    place.split('/').filter(|p| !p.is_empty() && *p != "lib").map(str::to_owned).collect()
}
