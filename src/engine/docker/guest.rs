//! abx-init as the main program of a sandbox.

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::api::{ImageInspect, Mount, MountType};
use super::archive;
use super::link::{About, Link, ORDINARY};
use super::snapshot::optional;
use crate::engine::{CreateSpec, EngineError, GUEST_DIR, GUEST_PROGRAM, GUEST_SOCKET, GUEST_TOOL, labels};

/// The kernel's names for architectures, by the images' names.
const ARCHITECTURES: [(&str, &str); 6] = [
    ("amd64", "x86_64"),
    ("arm64", "aarch64"),
    ("386", "x86"),
    ("riscv64", "riscv64"),
    ("ppc64le", "powerpc64"),
    ("s390x", "s390x"),
];

/// What abx-init is stopped by.
const TERM: &str = "SIGTERM";

/// What has to be known of an image for abx-init to stand in for its main program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guest {
    /// The directory of this machine with the program.
    source: String,
    /// Whether the engine does not see it: the program is then copied into a volume.
    bridged: bool,
    /// The user that the image's programs run as; empty is root.
    user: String,
    /// Whether the main program may be root: without capabilities root can become nobody else, and owns files that the
    /// image's user could not use.
    root: bool,
    /// The image's own working directory.
    directory: Option<String>,
    /// The image's own entrypoint and command.
    main: Vec<String>,
    /// Whether the image asks for another signal than abx-init listens to.
    other_signal: bool,
}

/// How abx-init gets into the sandbox; none where the session asks for none, or the program is not for this image.
pub(super) async fn of(link: &Link, spec: &CreateSpec) -> Result<Option<Guest>, EngineError> {
    let Some(source) = spec.guest.as_ref().and_then(|dir| dir.to_str()) else { return Ok(None) };
    let name = spec.image.clone();
    let image = link
        .call("create", ORDINARY, About::Image(&spec.image), |client| async move {
            optional(client.docker.inspect_image(&name).await)
        })
        .await?;
    Ok(image.filter(fits).map(|image| Guest::new(source, spec, image)))
}

/// Whether this machine's programs run on the image.
fn fits(image: &ImageInspect) -> bool {
    let os = image.os.as_deref().unwrap_or("linux");
    let named = image.architecture.as_deref().unwrap_or_default();
    let kernels = ARCHITECTURES.iter().find(|(image, _)| *image == named).map_or(named, |(_, kernel)| kernel);
    os == "linux" && kernels == std::env::consts::ARCH
}

impl Guest {
    fn new(source: &str, spec: &CreateSpec, image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        let words = [config.entrypoint, config.cmd];
        Self {
            source: source.to_owned(),
            bridged: false,
            user: config.user.unwrap_or_default(),
            root: !spec.rights.cap_drop.contains(&"ALL"),
            directory: config.working_dir.filter(|dir| !dir.is_empty()),
            other_signal: config.stop_signal.is_some_and(|signal| !signal.is_empty() && signal != TERM),
            main: words.into_iter().flatten().flatten().collect(),
        }
    }

    /// The image's user, where the main program is root instead.
    pub(super) fn runs_as_root(&self) -> Option<&str> {
        Some(self.user.as_str()).filter(|user| self.root && !user.is_empty())
    }

    /// The same for an engine that does not see our files.
    pub(super) fn bridged(self) -> Self {
        Self { bridged: true, ..self }
    }

    /// How it is called: a word for the label.
    pub(super) fn link(&self) -> &'static str {
        if self.bridged { labels::BRIDGE } else { "" }
    }

    /// The signal by which the sandbox is stopped, where the image's is another. What is not said here stays unsaid in
    /// snapshots.
    pub(super) fn stop_signal(&self) -> Option<&'static str> {
        self.other_signal.then_some(TERM)
    }

    /// The sandbox's main program with its arguments.
    pub(super) fn command(&self) -> Vec<String> {
        let (program, socket) =
            (format!("{GUEST_DIR}/{GUEST_PROGRAM}"), format!("{GUEST_DIR}/{GUEST_SOCKET}"));
        let mut words = vec![program, "init".to_owned()];
        let options = [
            ("--dial", Some(socket.as_str()).filter(|_| !self.bridged)),
            ("--user", self.runs_as_root()),
            ("--cwd", self.directory.as_deref()),
        ];
        for (option, value) in options {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_owned()]));
        }
        if !self.main.is_empty() {
            words.push("--".to_owned());
            words.extend(self.main.iter().cloned());
        }
        words
    }

    /// The directory, as the sandbox sees it.
    pub(super) fn mount(&self) -> Mount {
        let target = Some(GUEST_DIR.to_owned());
        if self.bridged {
            // Without a name: it goes with its container.
            return Mount { target, typ: Some(MountType::VOLUME), ..Mount::default() };
        }
        Mount {
            source: Some(self.source.clone()),
            target,
            typ: Some(MountType::BIND),
            read_only: Some(true),
            ..Mount::default()
        }
    }

    /// Copies the program into a container that was made for it.
    pub(super) async fn copy(&self, link: &Link, id: &str) -> Result<(), EngineError> {
        let path = std::path::Path::new(&self.source).join(GUEST_PROGRAM);
        let whole = std::fs::read(path)
            .and_then(|program| archived(&program))
            .map_err(|error| EngineError::Failed { call: "create", text: error.to_string() })?;
        archive::write(link, id, GUEST_DIR, stream::once(async { Ok(whole) }).boxed()).await
    }
}

/// Whether the engine says that it has no such directory: it runs on another machine, or in one.
pub(super) fn is_not_shared(error: &EngineError) -> bool {
    let EngineError::Failed { text, .. } = error else { return false };
    let text = text.to_ascii_lowercase();
    text.contains("source path does not exist")
        || (text.contains("statfs") && text.contains("no such file or directory"))
        || text.contains("mounts denied")
}

/// An archive that holds the program under both of its names.
fn archived(program: &[u8]) -> std::io::Result<Bytes> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o755);
    header.set_size(program.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, GUEST_PROGRAM, program)?;
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive.append_link(&mut header, GUEST_TOOL, GUEST_PROGRAM)?;
    archive.into_inner().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::super::api::ImageConfig;
    use super::*;
    use crate::engine::labels::tests::create_spec;
    use crate::model::limits::rights;
    use crate::model::session::Profile;

    fn image(architecture: &str) -> ImageInspect {
        let config = ImageConfig {
            user: Some("dev".to_owned()),
            entrypoint: Some(vec!["/entry".to_owned()]),
            cmd: Some(vec!["--serve".to_owned()]),
            working_dir: Some("/srv".to_owned()),
            ..ImageConfig::default()
        };
        ImageInspect {
            architecture: Some(architecture.to_owned()),
            config: Some(config),
            ..ImageInspect::default()
        }
    }

    #[test]
    fn the_images_own_program_user_and_directory_are_handed_on() {
        let spec = CreateSpec { rights: rights(Profile::Moderate), ..create_spec("a") };
        let guest = Guest::new("/h/run/1", &spec, image("amd64"));
        let want = "/dev/.abx/abx-init init --dial /dev/.abx/sock --user dev --cwd /srv -- /entry --serve";
        assert_eq!(guest.command().join(" "), want);
        assert_eq!(guest.runs_as_root(), Some("dev"));
    }

    #[test]
    fn without_capabilities_the_main_program_is_the_images_user() {
        let spec = CreateSpec { rights: rights(Profile::Restrictive), ..create_spec("a") };
        let guest = Guest::new("/h/run/1", &spec, image("amd64"));
        assert_eq!(guest.runs_as_root(), None);
        assert!(!guest.command().contains(&"--user".to_owned()));
    }

    #[test]
    fn an_image_for_another_machine_gets_none() {
        let ours = ARCHITECTURES.iter().find(|(_, kernel)| *kernel == std::env::consts::ARCH);
        assert!(ours.is_some_and(|(name, _)| fits(&image(name))));
        assert!(!fits(&image("mips")));
    }
}
