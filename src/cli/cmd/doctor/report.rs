//! The report that is fit to be shown to others: no path of a home, no user's name, no password.

use std::path::Path;

use crate::cli::output::clean;
use crate::paths::{self, Home};
use crate::proto::version::VERSION;

/// Puts a title before a text, and takes out of it what only its user should know.
pub(super) fn fit(text: &str, home: &Home) -> String {
    let title = format!("abx {VERSION} on {} {}", std::env::consts::OS, std::env::consts::ARCH);
    format!("```\n{title}\n{}\n```", mask_for(home, text))
}

/// Takes out of a text what only its user should know.
pub(super) fn mask_for(home: &Home, text: &str) -> String {
    mask(text, home.root(), paths::user_home().as_deref())
}

/// What stands for a password.
const MASK: &str = "***";

fn mask(text: &str, root: &Path, user_home: Option<&Path>) -> String {
    let shown = |path: &Path| clean(&path.display().to_string());
    let mut text = text.to_owned();
    let inside = user_home.is_some_and(|home| root.starts_with(home));
    if !inside {
        text = text.replace(&shown(root), "ABX_HOME");
    }
    if let Some(home) = user_home.filter(|home| home.components().count() > 1) {
        text = text.replace(&shown(home), "~");
        // Its name may stand elsewhere, as in the path of a runtime directory or another's home.
        if let Some(name) = home.file_name().map(|name| name.to_string_lossy().into_owned())
            && name != "root"
            && name.len() > 2
        {
            text = text.replace(&format!("/{name}/"), "/USER/");
        }
    }
    without_passwords(&text)
}

/// Hides what stands between `://` and `@` in an address.
fn without_passwords(text: &str) -> String {
    let mut parts = text.split("://");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        masked.push_str("://");
        let end = part.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(part.len());
        match part[..end].rfind('@') {
            Some(at) => {
                masked.push_str(MASK);
                masked.push_str(&part[at..]);
            }
            None => masked.push_str(part),
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_homes_nor_names_nor_passwords_are_in_a_report() {
        let text =
            "home /home/jane/.abx, /run/user/jane/x, tcp://jane:hunter2@host:1/p and unix:///home/jane/s";
        let got = mask(text, Path::new("/home/jane/.abx"), Some(Path::new("/home/jane")));
        assert_eq!(got, "home ~/.abx, /run/user/USER/x, tcp://***@host:1/p and unix://~/s");
        let got =
            mask("/srv/secret/abx/daemon.sock", Path::new("/srv/secret/abx"), Some(Path::new("/home/jane")));
        assert_eq!(got, "ABX_HOME/daemon.sock");
        let got = mask("/x", Path::new("/root/.abx"), Some(Path::new("/root")));
        assert_eq!(got, "/x");
    }
}
